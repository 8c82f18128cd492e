//! Documents that come from elsewhere, in the wrappings in which they are exported.

use std::io;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::args::secure;

/// What a file has, or standard input.
pub fn read(path: &Path) -> anyhow::Result<String> {
    let text =
        if secure::is_stdin(path) { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    text.with_context(|| format!("cannot read {}", path.display()))
}

/// What `text` has: JSON as a whole, or a list of what is on each line.
pub fn parse(text: &str) -> anyhow::Result<Value> {
    match serde_json::from_str(text) {
        Ok(whole) => return Ok(whole),
        Err(error) if text.trim().lines().count() < 2 => bail!("this is no JSON: {error}"),
        Err(_) => {} // It may be one on each line.
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let one = |(at, line): (usize, &str)| {
        let at = at + 1;
        serde_json::from_str(line).with_context(|| {
            format!("this is neither JSON as a whole nor on each line: line {at} is no JSON")
        })
    };
    Ok(Value::Array(lines.map(one).collect::<anyhow::Result<_>>()?))
}

/// The documents in that: a list, one alone, or what CouchDB exports or takes (`rows` with `doc`, or `docs`).
pub fn list(parsed: Value) -> anyhow::Result<Vec<Value>> {
    let mut fields = match parsed {
        Value::Array(documents) => return Ok(documents),
        Value::Object(fields) if fields.contains_key("_id") => return Ok(vec![Value::Object(fields)]),
        Value::Object(fields) => fields,
        _ => bail!("expected documents"),
    };
    if let Some(Value::Array(documents)) =
        ["documents", "docs"].into_iter().find_map(|key| fields.remove(key))
    {
        return Ok(documents);
    }
    let Some(Value::Array(rows)) = fields.remove("rows") else { bail!("expected documents") };
    let document = |mut row: Value| row.get_mut("doc").map(Value::take);
    let documents: Option<Vec<Value>> = rows.into_iter().map(document).collect();
    let documents = documents.context("rows must have doc: export them with include_docs=true")?;
    // CouchDB keeps its views beside what they are views of.
    let is_view = |document: &Value| document["_id"].as_str().is_some_and(|id| id.starts_with("_design/"));
    Ok(documents.into_iter().filter(|document| !is_view(document)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_come_in_several_wrappings() {
        let of = |text: &str| parse(text).and_then(list).map_err(|error| format!("{error:#}"));
        let (one, two) = (json!({ "_id": "a" }), json!({ "_id": "b" }));
        for text in [
            r#"[{"_id": "a"}, {"_id": "b"}]"#,
            "{\"_id\": \"a\"}\n\n{\"_id\": \"b\"}\n",
            r#"{"docs": [{"_id": "a"}, {"_id": "b"}]}"#,
            r#"{"rows": [{"doc": {"_id": "a"}}, {"doc": {"_id": "_design/x"}}, {"doc": {"_id": "b"}}]}"#,
        ] {
            assert_eq!(of(text), Ok(vec![one.clone(), two.clone()]), "{text}");
        }
        assert_eq!(of(r#"{"_id": "a"}"#), Ok(vec![one]));
        for (text, error) in [
            ("{", "this is no JSON: EOF"),
            ("{}\nx\n", "this is neither JSON as a whole nor on each line: line 2 is no JSON: "),
            ("5", "expected documents"),
            ("{}", "expected documents"),
            (r#"{"rows": [{"id": "a"}]}"#, "rows must have doc"),
        ] {
            let told = of(text).unwrap_err();
            assert!(told.starts_with(error), "{told}");
        }
    }
}
