//! How much memory it would take to read a text, without reading it.

use serde_json::Value;

/// What is read from a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// How many values or fields there are, those within others too.
    pub values: usize,
    /// How deep they are nested.
    pub depth: usize,
    /// How many bytes of memory they would take: as values of JSON, then as documents, and as what is sent to the database.
    pub bytes: usize,
}

/// An object as a tree that has room for 11 keys, as a document, and what a task has besides its parameters.
const OBJECT: usize = 1_200;

/// A key and what it has, but for longer text.
const KEY: usize = 350;

/// An item of an array, but for longer text.
const ITEM: usize = 180;

/// A field of a form, while it is decoded and when it has been.
const FIELD: usize = 300;

/// The database's driver has all text thrice: a document, a copy of that which it may send again, and the message.
const TEXTS: usize = 3;

impl Weight {
    /// That of JSON. Of what is no JSON it is at least as much as a reader gets to know before it notices.
    pub fn of_json(text: &[u8]) -> Self {
        let (mut objects, mut arrays, mut keys, mut commas) = (0_usize, 0_usize, 0_usize, 0_usize);
        let (mut depth, mut deepest) = (0_usize, 0_usize);
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => skip_text(&mut bytes),
                b'{' | b'[' => {
                    if *byte == b'{' {
                        objects += 1;
                    } else {
                        arrays += 1;
                    }
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b':' => keys += 1,
                b',' => commas += 1,
                _ => {} // Part of a number or a word, or space.
            }
        }
        // Each but the first of an object or array comes after a comma.
        let values = commas.saturating_add(objects + arrays).saturating_add(1);
        let items = values.saturating_sub(keys);
        let structure = [(objects, OBJECT), (keys, KEY), (items, ITEM), (text.len(), TEXTS)];
        let bytes = structure.iter().fold(0_usize, |sum, (count, each)| sum.saturating_add(count * each));
        Self { values, depth: deepest, bytes }
    }

    /// That of a form, or of the query string of an address.
    pub fn of_form(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        let values = text.iter().filter(|byte| **byte == b'&').count() + 1;
        Self { values, depth: 1, bytes: values * FIELD + text.len() * TEXTS }
    }
}

/// How many bytes one more copy of a value takes.
pub fn of_copy(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => ITEM / 2,
        Value::String(text) => ITEM / 2 + text.len(),
        Value::Array(items) => items.iter().fold(ITEM, |sum, item| sum + of_copy(item)),
        Value::Object(fields) => {
            fields.iter().fold(OBJECT / 2, |sum, (key, value)| sum + key.len() + KEY / 2 + of_copy(value))
        }
    }
}

/// Goes to the end of text that has begun.
fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {} // Part of the text.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (usize, usize) {
        let weight = Weight::of_json(text.as_bytes());
        (weight.values, weight.depth)
    }

    #[test]
    fn values_and_depth_are_counted() {
        assert_eq!(of("1"), (1, 0));
        assert_eq!(of("[1, 2, [3]]"), (5, 2));
        assert_eq!(of(r#"{"a": {"b": [1, 2]}, "c": null}"#), (6, 3));
        assert_eq!(of(r#"["{[,:", "\"{", "\\"]"#), (4, 1), "what is text does not count");
        assert_eq!(of("]]]["), (2, 1), "what is no JSON is weighed, too");
        assert_eq!(of("\"\\"), (1, 0));
    }

    #[test]
    fn empty_objects_weigh_more_than_long_texts() {
        let objects = format!("[{}]", vec!["{\"\":0}"; 1_000].join(","));
        let text = format!("[\"{}\"]", "x".repeat(objects.len()));
        let [objects, text] = [objects, text].map(|text| Weight::of_json(text.as_bytes()).bytes);
        assert!(objects > 1_000_000 && text < 30_000, "{objects} {text}");
    }

    #[test]
    fn a_copy_has_all_text() {
        let text = "x".repeat(100_000);
        let value = serde_json::json!({ "a": [text, { "b": text }, 1, null] });
        assert!((200_000..203_000).contains(&of_copy(&value)), "{}", of_copy(&value));
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(Weight::of_form(b""), Weight::default());
        let weight = Weight::of_form(b"a=1&b&c=2");
        assert_eq!((weight.values, weight.bytes), (3, 927));
    }
}
