//! `disbatch tasks [FILTER]`

use std::io::Write;

use serde_json::{Map, Value, json};

use crate::api::Client;
use crate::args::ListingOptions;
use crate::command::{plain, print};

/// How many tasks are shown unless `--limit` says otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Prints tasks as JSON, or how many there are.
///
/// # Errors
/// The filter is no JSON object, the DCI refuses it, or cannot be reached.
pub async fn run(client: &Client, filter: Option<String>, options: &ListingOptions) -> anyhow::Result<()> {
    let body = request(filter.as_deref(), options)?;
    let answer = client.get("/tasks", Some(&body)).await?;
    match answer.get("count") {
        Some(count) if options.count => print(&format!("{} tasks\n", plain(Some(count)))),
        // The DCI ends JSON for people with a line break of its own.
        _ if options.pretty => print(&format!("{}\n\n", pretty(&answer)?)),
        _ => print(&format!("{answer}\n")),
    }
}

/// The filter with the options as keys that start with a dot. Such keys in the filter win.
fn request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
    let mut body = Map::new();
    let mut option = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (format!(".{name}"), value)));
    };
    let flag = |on: bool| on.then(|| json!(1));
    option("limit", Some(json!(options.limit.unwrap_or(DEFAULT_LIMIT))));
    option("skip", options.skip.map(Value::from));
    option("fields", options.fields.clone().map(Value::from));
    option("count", flag(options.count));
    option("epoch", flag(options.epoch));
    option("full", flag(options.full));
    option("terse", flag(options.terse));
    if let Some(text) = filter {
        match serde_json::from_str(text) {
            Ok(Value::Object(filter)) => body.extend(filter),
            _ => anyhow::bail!("Invalid filter is not a JSON object: '{text}'"),
        }
    }
    Ok(Value::Object(body))
}

/// JSON for people, indented by three spaces as the DCI's.
fn pretty(value: &Value) -> anyhow::Result<String> {
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
    use super::*;

    #[test]
    fn options_become_keys_with_a_dot_and_the_filter_wins() {
        let options = ListingOptions { limit: Some(5), count: true, skip: Some(2), ..Default::default() };
        let body = request(Some(r#"{"queue":"q",".limit":1}"#), &options).unwrap();
        assert_eq!(body, json!({"queue": "q", ".limit": 1, ".count": 1, ".skip": 2}));
        assert_eq!(request(None, &ListingOptions::default()).unwrap(), json!({".limit": 100}));
    }

    #[test]
    fn a_filter_is_an_object() {
        let error = request(Some("[]"), &ListingOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "Invalid filter is not a JSON object: '[]'");
    }

    #[test]
    fn pretty_json_is_perls() {
        let value = json!([{"a": {"$oid": "x"}, "b": [], "c": {}, "d": [1, null]}]);
        let expected = "[\n   {\n      \"a\" : {\n         \"$oid\" : \"x\"\n      },\n      \"b\" : [],\n      \
                        \"c\" : {},\n      \"d\" : [\n         1,\n         null\n      ]\n   }\n]";
        assert_eq!(pretty(&value).unwrap(), expected);
    }
}
