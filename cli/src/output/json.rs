//! JSON for people.

use std::io::Write;

use serde_json::Value;

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
    fn pretty_json_is_perls() {
        let value = json!([{"a": {"$oid": "x"}, "b": [], "c": {}, "d": [1, null]}]);
        let expected = "[\n   {\n      \"a\" : {\n         \"$oid\" : \"x\"\n      },\n      \"b\" : [],\n      \
                        \"c\" : {},\n      \"d\" : [\n         1,\n         null\n      ]\n   }\n]";
        assert_eq!(pretty(&value).unwrap(), expected);
    }
}
