//! Documents as they are stored, and JSON of clients and plugins as values for the database.

use std::ops::{Deref, DerefMut};

use bson::raw::RawElement;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

/// A document as it is stored. What people put into one may look like values of extended JSON, `{"$oid": "x"}`; a
/// [`Document`] that is read takes it for one, or cannot be read if it is none. This takes nothing for anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Stored(pub Document);

impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawDocumentBuf::deserialize(deserializer)?;
        Document::try_from(raw).map(Self).map_err(de::Error::custom)
    }
}

impl Deref for Stored {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.0
    }
}

impl DerefMut for Stored {
    fn deref_mut(&mut self) -> &mut Document {
        &mut self.0
    }
}

impl From<Document> for Stored {
    fn from(document: Document) -> Self {
        Self(document)
    }
}

impl From<Stored> for Document {
    fn from(stored: Stored) -> Self {
        stored.0
    }
}

/// A document as far as it can be read: where text in it is none, without the fields that have such. What is read so can be shown, and one
/// such document is in the way of no other.
pub fn readable(raw: RawDocumentBuf) -> Document {
    Document::try_from(raw.clone()).unwrap_or_else(|_| {
        let fields = raw.iter_elements().filter_map(Result::ok);
        let field = |field: RawElement<'_>| {
            Some((field.key().as_str().to_owned(), Bson::try_from(field.value().ok()?).ok()?))
        };
        fields.filter_map(field).collect()
    })
}

/// The first field of a document that nobody can read, as text in it is none.
pub fn unreadable_field(raw: &RawDocument) -> Option<String> {
    raw.iter_elements().find_map(|field| match field {
        Ok(field) if field.value().is_ok_and(is_readable) => None,
        Ok(field) => Some(field.key().as_str().to_owned()),
        Err(_) => Some("?".to_owned()),
    })
}

fn is_readable(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(inner) => unreadable_field(inner).is_none(),
        RawBsonRef::Array(items) => items.into_iter().all(|item| item.is_ok_and(is_readable)),
        _ => true, // Whatever could be told from others has been read.
    }
}

pub fn put(document: &mut Document, field: &str, value: Option<impl Into<Bson>>) {
    if let Some(value) = value {
        document.insert(field, value);
    }
}

/// Takes a field that must be there, and has a type, out of a document.
pub(super) fn required<T: DeserializeOwned, E: de::Error>(
    document: &mut Document,
    key: &'static str,
) -> Result<T, E> {
    let value = document.remove(key).ok_or_else(|| E::missing_field(key))?;
    bson::deserialize_from_bson(value).map_err(E::custom)
}

/// Reads a field that has a document, or null.
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Document>, D::Error> {
    Ok(Option::<Stored>::deserialize(deserializer)?.map(Document::from))
}

/// A value as relaxed extended JSON on one line: what [`Bson::into_relaxed_extjson`] makes of it, without copies in between.
pub fn extended(value: &Bson) -> String {
    // Nothing in it can be refused, as all names are text.
    serde_json::to_string(&Extended(value)).unwrap_or_default()
}

struct Extended<'a>(&'a Bson);

impl Serialize for Extended<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Bson::String(text) => serializer.serialize_str(text),
            Bson::Array(items) => serializer.collect_seq(items.iter().map(Extended)),
            Bson::Document(document) => {
                let mut fields: Vec<_> = document.iter().collect();
                // As objects of JSON have them.
                fields.sort_unstable_by_key(|(name, _)| *name);
                serializer.collect_map(fields.into_iter().map(|(name, value)| (name, Extended(value))))
            }
            small => small.clone().into_relaxed_extjson().serialize(serializer),
        }
    }
}

/// JSON as a value for the database, taken literally: `{"$oid": ..}` stays an object. Integers become 32 bits
/// wide where they fit, as Perl writes them.
pub fn to_bson(value: &Value) -> Bson {
    into_bson(value.clone())
}

/// The same without a copy of its texts, which may be long.
fn into_bson(value: Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(flag) => Bson::Boolean(flag),
        Value::Number(number) => number_to_bson(&number),
        Value::String(text) => Bson::String(text),
        Value::Array(items) => Bson::Array(items.into_iter().map(into_bson).collect()),
        Value::Object(map) => Bson::Document(into_document(map)),
    }
}

/// A JSON object as a document, taken literally.
pub fn to_document(map: &Map<String, Value>) -> Document {
    into_document(map.clone())
}

/// The same without a copy of its texts.
pub fn into_document(map: Map<String, Value>) -> Document {
    map.into_iter().map(|(key, value)| (key, into_bson(value))).collect()
}

/// The document that is written as this extended JSON again. What looks like it and is none stays an object.
pub fn from_extended(map: Map<String, Value>) -> Document {
    let one = |value: Value| match Bson::try_from(value.clone()) {
        Ok(read) if read.clone().into_relaxed_extjson() == value => read,
        _ => into_bson(value),
    };
    map.into_iter().map(|(name, value)| (name, one(value))).collect()
}

fn number_to_bson(number: &Number) -> Bson {
    match number.as_i64() {
        Some(integer) => i32::try_from(integer).map_or(Bson::Int64(integer), Bson::Int32),
        None => Bson::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn extended_json_is_that_of_the_driver() {
        let bytes = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0, 255] };
        let document = doc! {
            "z": [1, 2_i64, 1.5, f64::NAN, true, Bson::Null, "é\"\n\u{1}"], "": {}, "é": [], "key": Bson::MinKey,
            "b": { "y": { "$oid": "x" }, "Y": 1e300 }, "_id": bson::oid::ObjectId::from_bytes([7; 12]),
            "at": bson::DateTime::from_millis(1_795_163_067_344), "old": bson::DateTime::from_millis(-1),
            "bytes": Bson::Binary(bytes),
        };
        let value = Bson::Document(document);
        assert_eq!(extended(&value), value.clone().into_relaxed_extjson().to_string());
        assert_eq!(extended(&Bson::from(7)), "7");
    }

    #[test]
    fn a_document_with_text_that_is_none_is_read_without_it() {
        let document = doc! { "_id": 7, "params": { "text": "QQQQ" }, "status": -2, "node": "n" };
        let mut bytes = bson::serialize_to_vec(&document).unwrap();
        assert_eq!(readable(RawDocumentBuf::from_bytes(bytes.clone()).unwrap()), document);
        let at = bytes.windows(4).position(|four| four == b"QQQQ").unwrap();
        bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
        let raw = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert_eq!(unreadable_field(&raw).as_deref(), Some("params"));
        let odd = readable(raw);
        assert_eq!(odd, doc! { "_id": 7, "status": -2, "node": "n" });
        assert_eq!(unreadable_field(&RawDocumentBuf::try_from(&odd).unwrap()), None);
    }

    #[test]
    fn what_looks_like_extended_json_is_read_as_it_is() {
        for odd in [
            doc! { "$oid": "q1" },
            doc! { "$oid": "6b0003bb686c8275d8013333" },
            doc! { "$date": "never", "more": 1 },
            doc! { "$numberLong": 5 },
            doc! { "$binary": {} },
            doc! { "$minKey": 1 },
        ] {
            let document = doc! { "_id": 1, "params": &odd, "list": [&odd, { "deeper": &odd }] };
            let bytes = bson::serialize_to_vec(&document).unwrap();
            let stored: Stored = bson::deserialize_from_slice(&bytes).unwrap();
            assert_eq!(stored.0, document);
            assert_eq!(bson::serialize_to_vec(&stored).unwrap(), bytes);
        }
    }

    #[test]
    fn extended_json_is_written_as_it_was() {
        let text = r#"{"_id":{"$oid":"6b0003bb686c8275d8013333"},"at":{"$date":"2026-11-26T10:00:00Z"},"big":5000000000,"n":1,"params":{"$date":1,"id":{"$oid":"x"}},"x":1.5}"#;
        let document = from_extended(serde_json::from_str(text).unwrap());
        assert!(document.get_object_id("_id").is_ok() && document.get_datetime("at").is_ok());
        assert_eq!(Bson::from(document).into_relaxed_extjson().to_string(), text);
    }

    #[test]
    fn nothing_is_taken_for_anything_else() {
        let value = json!({ "$oid": "6b0003bb686c8275d8013333", "n": [1, 5_000_000_000_i64, 1.5, u64::MAX], "z": null });
        let expected = doc! { "$oid": "6b0003bb686c8275d8013333", "n": [1, 5_000_000_000_i64, 1.5, 18_446_744_073_709_551_615.0], "z": null };
        let order = |document: &Document| document.keys().cloned().collect::<std::collections::BTreeSet<_>>();
        let Bson::Document(document) = to_bson(&value) else { panic!("{value}") };
        assert_eq!(order(&document), order(&expected));
        for (key, value) in &expected {
            assert_eq!(document.get(key), Some(value));
        }
    }
}
