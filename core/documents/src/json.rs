//! JSON of clients and plugins as values for the database.

use bson::{Bson, Document};
use serde_json::{Map, Number, Value};

/// JSON as a value for the database, taken literally: `{"$oid": ..}` stays an object. Integers become 32 bits
/// wide where they fit, as Perl writes them.
pub fn to_bson(value: &Value) -> Bson {
    into_bson(value.clone())
}

/// The same without a copy of its texts, which may be long.
pub fn into_bson(value: Value) -> Bson {
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
