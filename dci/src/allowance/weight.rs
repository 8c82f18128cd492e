//! How much memory it would take to read a text, without reading it.

/// What is read from a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// How many values or fields there are, those within others too.
    pub values: usize,
    /// How deep they are nested.
    pub depth: usize,
    /// How many bytes of memory they would take: as values of JSON, and once more as a document for the database.
    pub bytes: usize,
}

/// An object as a tree that has room for 11 keys, and as a document.
const OBJECT: usize = 700;

/// A key and what it has, but for longer text.
const KEY: usize = 270;

/// An item of an array, but for longer text.
const ITEM: usize = 180;

/// A field of a form, while it is decoded and when it has been.
const FIELD: usize = 300;

/// All text is there twice.
const TEXTS: usize = 2;

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
        assert!(objects > 1_000_000 && text < 20_000, "{objects} {text}");
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(Weight::of_form(b""), Weight::default());
        let weight = Weight::of_form(b"a=1&b&c=2");
        assert_eq!((weight.values, weight.bytes), (3, 918));
    }
}
