//! `disbatch create-tasks QUEUE JSON`, or `--file FILE`, `disbatch create-task QUEUE PARAM VALUE ..` and `disbatch batch FILE`

mod file;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use disbatch_wire::arrays::Array;
use disbatch_wire::task_actions::{BatchAnswer, BatchResult};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::{Client, given, read};
use crate::args::{FileOptions, TaskOptions};
use crate::command::{Session, in_perls_words, oid, pairs, required};
use crate::input::{contents, is_stdin};
use crate::output::{item, print, visible};

/// Creates a task for each object of a JSON array, for each document of a collection, or for each line of a
/// file.
pub async fn run(
    client: &Client,
    queue: Option<String>,
    text: Option<String>,
    (from, options): (&FileOptions, &TaskOptions),
    collection: Option<String>,
) -> anyhow::Result<ExitCode> {
    let queue = required(queue)?;
    if let Some(path) = &from.file {
        // The parser sees this only if both stand after the command.
        anyhow::ensure!(collection.is_none(), "--file and --collection cannot be used together");
        // Each batch is a submission of its own.
        anyhow::ensure!(!options.chain, "--file and --chain cannot be used together");
        anyhow::ensure!(options.array.is_none(), "--file and --array cannot be used together");
        let secure_is_stdin = options.secure_params_file.as_deref().is_some_and(is_stdin);
        let both = is_stdin(path) && secure_is_stdin;
        anyhow::ensure!(!both, "--file and --secure-params-file cannot both be standard input");
        return file::run(client, &queue, path, from, &options.clone().with_file()?).await;
    }
    let options = options.clone().with_file()?;
    let text = text.unwrap_or_default();
    let mut body = body(&queue, &text, collection)?;
    body.extend(options.fields()?);
    submit(client, &queue, &body).await?;
    Ok(ExitCode::SUCCESS)
}

async fn submit(client: &Client, queue: &str, body: &impl Serialize) -> anyhow::Result<()> {
    let answer = client.post("/tasks", body).await.map_err(in_perls_words)?;
    if let Some(array) = answer.get("array") {
        return print(&told(&item(array), queue));
    }
    let ids = ids(&answer);
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    print(&format!("Created {} tasks in queue {queue}\n{lines}", ids.len()))
}

fn told(array: &Array, queue: &str) -> String {
    let last = array.r#final.as_ref().map(|last| format!("Final task: {}\n", last.id)).unwrap_or_default();
    format!("Created an array of {} tasks in queue {queue}\n{}\n{last}", array.count, array.id)
}

pub fn ids(answer: &Value) -> Vec<String> {
    let inserted = answer.pointer("/MongoDB::InsertManyResult/inserted").and_then(Value::as_array);
    inserted.into_iter().flatten().map(|task| oid(task.get("_id"))).collect()
}

fn body(queue: &str, text: &str, collection: Option<String>) -> anyhow::Result<Map<String, Value>> {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let Some(collection) = collection else {
        return match parsed {
            Some(params @ (Value::Array(_) | Value::Object(_))) => {
                Ok(given([("queue", Some(queue.into())), ("params", Some(params))]))
            }
            _ => anyhow::bail!("Invalid params is not a JSON array or object: '{text}'"),
        };
    };
    let Some(Value::Object(from)) = parsed else {
        anyhow::bail!("Invalid params is not a JSON object: '{text}'");
    };
    let mut body = given([("queue", Some(queue.into())), ("collection", Some(collection.into()))]);
    // Only these two, so that nothing in the text can name another queue or collection.
    body.extend(from.into_iter().filter(|(key, _)| key == "filter" || key == "params"));
    Ok(body)
}

pub async fn run_one(
    client: &Client,
    queue: Option<String>,
    params: Vec<String>,
    options: &TaskOptions,
) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let params = pairs(params)?.into_iter().map(|(name, text)| (name, text.into())).collect();
    let options = options.clone().with_file()?;
    submit(client, &queue, &request(&queue, params, &options)?).await
}

pub fn request(queue: &str, params: Map<String, Value>, options: &TaskOptions) -> serde_json::Result<Value> {
    let mut body = options.fields()?;
    body.extend(given([("queue", Some(queue.into())), ("params", Some(params.into()))]));
    Ok(Value::Object(body))
}

/// So many entries may come at once in a batch.
const MOST: usize = 1_000;

pub async fn run_batch(session: &Session, file: &Path) -> anyhow::Result<ExitCode> {
    let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
    let entries = contents(file).with_context(|| format!("cannot read {name}"))?;
    let body = batch_request(&entries).context(name)?;
    let answer = session.client.post_json("/tasks/batch", body).await?;
    session.print(&answer, batch_text)?;
    let BatchAnswer { refused, .. } = read(answer)?;
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::status::FAILED) })
}

/// The request of a batch, with all entries as they are written: numbers keep all their digits.
fn batch_request(text: &str) -> anyhow::Result<String> {
    let entries = if text.trim_start().starts_with('[') {
        let entries: Vec<Value> = serde_json::from_str(text).context("it is no JSON array")?;
        check_count(entries.len())?;
        text.trim().to_owned()
    } else {
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
        for (number, line) in &lines {
            let entry: Option<Value> = serde_json::from_str(line).ok();
            if !entry.is_some_and(|entry| entry.is_object()) {
                bail!("line {}: not a JSON object", number + 1);
            }
        }
        check_count(lines.len())?;
        format!("[{}]", lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join(","))
    };
    Ok(format!("{{\"tasks\":{entries}}}"))
}

fn check_count(entries: usize) -> anyhow::Result<()> {
    match entries {
        0 => bail!("it has no entries"),
        1..=MOST => Ok(()),
        more => bail!("it has {more} entries, and at most {MOST} go in one batch"),
    }
}

fn batch_text(BatchAnswer { results, submitted, refused }: &BatchAnswer) -> String {
    let line = |(number, result): (usize, &BatchResult)| {
        let what = match (&result.id, &result.error) {
            (Some(id), _) => id.clone(),
            (None, Some(error)) => format!("rejected: {}", visible(error)),
            (None, None) => result.ids.as_deref().unwrap_or_default().join(" "),
        };
        format!("{} {what}\n", number + 1)
    };
    let lines: String = results.iter().enumerate().map(line).collect();
    format!("{lines}{submitted} entries accepted, {refused} rejected\n")
}

#[cfg(test)]
mod tests {
    use disbatch_wire::arrays::ArrayFinal;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_collection_brings_its_filter() {
        let text = r#"{"filter":{"a":1},"params":{"b":2},"queue":"other"}"#;
        assert_eq!(
            Value::Object(body("q", text, Some("users".into())).unwrap()),
            json!({"queue": "q", "collection": "users", "filter": {"a": 1}, "params": {"b": 2}})
        );
        assert!(body("q", "[1]", Some("users".into())).is_err());
    }

    #[test]
    fn a_new_array_is_told_by_its_id() {
        let mut array = Array { id: "6b00".to_owned(), count: 3, ..Array::default() };
        assert_eq!(told(&array, "q"), "Created an array of 3 tasks in queue q\n6b00\n");
        array.r#final = Some(ArrayFinal { id: "6b01".to_owned(), ..ArrayFinal::default() });
        assert!(told(&array, "q").ends_with("\nFinal task: 6b01\n"));
    }

    #[test]
    fn params_are_an_array_or_an_object() {
        assert_eq!(Value::Object(body("q", "[]", None).unwrap()), json!({"queue": "q", "params": []}));
        assert_eq!(
            body("q", "{nope", None).unwrap_err().to_string(),
            "Invalid params is not a JSON array or object: '{nope'"
        );
    }

    #[test]
    fn entries_are_lines_or_an_array_and_keep_their_digits() {
        let entry = r#"{"queue":"a","params":{"n":1.10}}"#;
        assert_eq!(
            batch_request(&format!("{entry}\n\n{entry}\n")).unwrap(),
            format!("{{\"tasks\":[{entry},{entry}]}}")
        );
        assert_eq!(batch_request(&format!("\n[{entry}]\n")).unwrap(), format!("{{\"tasks\":[{entry}]}}"));
        for (text, message) in [
            ("", "it has no entries"),
            ("[]", "it has no entries"),
            ("[1", "it is no JSON array"),
            ("{}\nnope\n", "line 2: not a JSON object"),
            (&"{}\n".repeat(1_001), "at most 1000 go in one batch"),
        ] {
            let error = batch_request(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn each_entry_is_answered_by_a_line() {
        let answer = json!({
            "results": [{ "id": "6b" }, { "error": "queue not found", "status": 400 }, { "ids": ["7c", "8d"] }],
            "submitted": 2, "refused": 1,
        });
        let expected = "1 6b\n2 rejected: queue not found\n3 7c 8d\n2 entries accepted, 1 rejected\n";
        assert_eq!(batch_text(&read(answer).unwrap()), expected);
    }
}
