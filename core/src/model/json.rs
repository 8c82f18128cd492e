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
