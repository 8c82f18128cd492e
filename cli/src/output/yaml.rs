//! JSON values as JSON and as YAML for people.

use std::io::Write;

use disbatch_values::text::is_odd;
use serde_json::Value;

/// Words that YAML 1.1 or 1.2 does not take as text.
const RESERVED: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

/// The value as a document of block style.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

/// Writes a value; `depth` is the indentation that a block on lines of its own has.
fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                indent(out, if number == 0 { 0 } else { depth });
                out.push_str("- ");
                write_value(out, item, depth + 1);
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (number, (key, item)) in map.iter().enumerate() {
                indent(out, if number == 0 { 0 } else { depth });
                out.push_str(&text(key));
                out.push(':');
                if is_block(item) {
                    out.push('\n');
                    indent(out, depth + 1);
                } else {
                    out.push(' ');
                }
                write_value(out, item, depth + 1);
            }
        }
        Value::String(string) => {
            out.push_str(&text(string));
            out.push('\n');
        }
        simple => {
            out.push_str(&simple.to_string());
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.push_str(&"  ".repeat(depth));
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Text as it is if nothing else can be meant, else in double quotes, whose rules include those of JSON.
fn text(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let simple = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    if first && simple && !RESERVED.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    let escape = |c: char| match u32::from(c) {
        // What JSON leaves as it is and YAML does not print, or shows in another way.
        code if is_odd(c) && code > 0x7e || matches!(code, 0xfffe | 0xffff) => {
            if code > 0xffff {
                format!("\\U{code:08x}")
            } else {
                format!("\\u{code:04x}")
            }
        }
        _ => c.to_string(), // Everything else reads the same in both.
    };
    quoted.chars().map(escape).collect()
}

/// JSON for people, indented by three spaces as the DCI's.
pub fn pretty(value: &Value) -> anyhow::Result<String> {
    let mut text = Vec::new();
    write_pretty(&mut text, value, 0)?;
    Ok(String::from_utf8(text)?)
}

fn write_pretty(out: &mut Vec<u8>, value: &Value, depth: usize) -> std::io::Result<()> {
    let indent = |depth: usize| " ".repeat(depth * 3);
    let (open, close, length) = match value {
        Value::Array(items) if !items.is_empty() => ("[", "]", items.len()),
        Value::Object(map) if !map.is_empty() => ("{", "}", map.len()),
        simple => return write!(out, "{simple}"),
    };
    writeln!(out, "{open}")?;
    let keys = value.as_object().into_iter().flatten().map(|(key, item)| (Some(key), item));
    let items = value.as_array().into_iter().flatten().map(|item| (None, item));
    for (number, (key, item)) in keys.chain(items).enumerate() {
        write!(out, "{}", indent(depth + 1))?;
        if let Some(key) = key {
            write!(out, "{} : ", Value::from(key.as_str()))?;
        }
        write_pretty(out, item, depth + 1)?;
        writeln!(out, "{}", if number + 1 < length { "," } else { "" })?;
    }
    write!(out, "{}{close}", indent(depth))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_blocks() {
        let value = json!([{"a": {"b": [1, null], "c": {}}, "d": "x y"}, [[true], 2], "plain"]);
        let expected =
            "- a:\n    b:\n      - 1\n      - null\n    c: {}\n  d: \"x y\"\n- - - true\n  - 2\n- plain\n";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!([])), "[]\n");
    }

    #[test]
    fn text_stays_text() {
        for word in ["no", "Null", "1e3", "", "-", "0x1f", "a: b", "#x", "~", "2026-11-20"] {
            assert!(text(word).starts_with('"'), "{word}");
        }
        assert_eq!(text("Disbatch::Plugin::Demo"), "\"Disbatch::Plugin::Demo\"");
        assert_eq!(text("node1.example.com"), "node1.example.com");
        assert_eq!(text("a\u{7f}\n\u{202e}"), "\"a\\u007f\\n\\u202e\"");
    }

    #[test]
    fn pretty_json_is_perls() {
        let value = json!([{"a": {"$oid": "x"}, "b": [], "c": {}, "d": [1, null]}]);
        let expected = "[\n   {\n      \"a\" : {\n         \"$oid\" : \"x\"\n      },\n      \"b\" : [],\n      \
                        \"c\" : {},\n      \"d\" : [\n         1,\n         null\n      ]\n   }\n]";
        assert_eq!(pretty(&value).unwrap(), expected);
    }
}
