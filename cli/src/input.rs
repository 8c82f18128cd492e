//! What is read from files, or from standard input: secure parameters of new tasks, and documents that come from elsewhere, in the
//! wrappings in which they are exported.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context, bail};
use disbatch_values::json::to_strict;
use disbatch_values::secure::SecureParams;
use serde_json::Value;

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

pub fn contents(path: &Path) -> io::Result<String> {
    if is_stdin(path) { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) }
}

pub fn read(path: &Path) -> anyhow::Result<String> {
    contents(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads secure parameters: an object, in strict JSON or as configurations are written. An empty one is none. They come from a file: on the
/// command line, everybody on this machine would see them.
pub fn secure_params(path: &Path) -> anyhow::Result<Option<SecureParams>> {
    let name = path.display();
    let text = contents(path).with_context(|| format!("cannot read --secure-params-file {name}"))?;
    match serde_json::from_str(&to_strict(&text)) {
        Ok(Value::Object(object)) => Ok(SecureParams::new(object)),
        Ok(_) => bail!("--secure-params-file {name} must have a JSON object"),
        Err(error) => bail!(
            "--secure-params-file {name} must have a JSON object, and is no JSON at line {} column {}",
            error.line(),
            error.column()
        ),
    }
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
pub fn documents(parsed: Value) -> anyhow::Result<Vec<Value>> {
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
        let of = |text: &str| parse(text).and_then(documents).map_err(|error| format!("{error:#}"));
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

    #[test]
    fn files_are_json_or_relaxed_json_and_no_message_shows_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secure.json");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            secure_params(&path).map(|params| params.map(|params| params.value().clone()))
        };
        let expected = json!({ "password": "correct # horse" });
        assert_eq!(of(&expected.to_string()).unwrap(), Some(expected.clone()));
        assert_eq!(
            of("{ # of the mail server\n  \"password\": \"correct # horse\",\n}\n").unwrap(),
            Some(expected)
        );
        assert_eq!(of("{}").unwrap(), None);
        for wrong in ["", "horse", "\"horse\"", "[\"horse\"]", "{\"a\": horse}", "{\"a\": \"horse\""] {
            let message = format!("{:#}", of(wrong).unwrap_err());
            assert!(message.contains("secure.json must have a JSON object"), "{message}");
            assert!(!message.contains("horse"), "{message}");
        }
        let missing = format!("{:#}", secure_params(&folder.path().join("none")).unwrap_err());
        assert!(missing.starts_with("cannot read --secure-params-file"), "{missing}");
    }
}
