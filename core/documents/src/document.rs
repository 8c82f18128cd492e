//! Documents as they are stored.

use std::ops::{Deref, DerefMut};

use bson::raw::RawElement;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A document as it is stored. What people put into one may look like values of extended JSON, `{"$oid": "x"}`; a
/// [`Document`] that is read takes it for one, or cannot be read if it is none. This takes nothing for anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stored(pub Document);

impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawDocumentBuf::deserialize(deserializer)?;
        Document::try_from(raw).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for Stored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
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

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

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
}
