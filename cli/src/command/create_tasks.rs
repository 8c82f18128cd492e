//! `disbatch create-tasks QUEUE JSON`, or `--file FILE`, and `disbatch create-task QUEUE PARAM VALUE ..`

mod batches;
mod file;

use std::process::ExitCode;

use serde_json::{Map, Value};

use crate::api::Client;
use crate::args::{FileOptions, TaskOptions, secure};
use crate::command::{oid, pairs, required};
use crate::output::print;

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
        let secure_is_stdin = options.secure_params_file.as_deref().is_some_and(secure::is_stdin);
        let both = secure::is_stdin(path) && secure_is_stdin;
        anyhow::ensure!(!both, "--file and --secure-params-file cannot both be standard input");
        return file::run(client, &queue, path, from, &options.clone().with_file()?).await;
    }
    let options = options.clone().with_file()?;
    let text = text.unwrap_or_default();
    let mut body = body(&queue, &text, collection)?;
    body.extend(options.fields());
    let body = Value::Object(body);
    submit(client, &queue, &body).await?;
    Ok(ExitCode::SUCCESS)
}

/// Posts new tasks and prints their ids.
pub async fn submit(client: &Client, queue: &str, body: &Value) -> anyhow::Result<()> {
    let answer = client.post("/tasks", body).await?;
    if let Some(array) = answer.get("array") {
        return print(&told(array, queue));
    }
    let ids = ids(&answer);
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    print(&format!("Created {} tasks in queue {queue}\n{lines}", ids.len()))
}

/// What is printed of a new array: its id, and that of its final task.
fn told(array: &Value, queue: &str) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = array.get("count").and_then(Value::as_u64).unwrap_or_default();
    let id = text(array.get("id"));
    let last = text(array.pointer("/final/id"));
    let last = if last.is_empty() { String::new() } else { format!("Final task: {last}\n") };
    format!("Created an array of {count} tasks in queue {queue}\n{id}\n{last}")
}

/// The ids of the tasks that the DCI's answer says it has created.
pub fn ids(answer: &Value) -> Vec<String> {
    let inserted = answer.pointer("/MongoDB::InsertManyResult/inserted").and_then(Value::as_array);
    inserted.into_iter().flatten().map(|task| oid(task.get("_id"))).collect()
}

fn body(queue: &str, text: &str, collection: Option<String>) -> anyhow::Result<Map<String, Value>> {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let Some(collection) = collection else {
        return match parsed {
            Some(params @ (Value::Array(_) | Value::Object(_))) => {
                Ok([("queue".to_owned(), queue.into()), ("params".to_owned(), params)].into_iter().collect())
            }
            _ => anyhow::bail!("Invalid params is not a JSON array or object: '{text}'"),
        };
    };
    let Some(Value::Object(given)) = parsed else {
        anyhow::bail!("Invalid params is not a JSON object: '{text}'");
    };
    let mut body = Map::new();
    body.insert("queue".to_owned(), queue.into());
    body.insert("collection".to_owned(), collection.into());
    // Only these two, so that nothing in the text can name another queue or collection.
    body.extend(given.into_iter().filter(|(key, _)| key == "filter" || key == "params"));
    Ok(body)
}

/// Creates one task, whose parameters all are text.
pub async fn run_one(
    client: &Client,
    queue: Option<String>,
    params: Vec<String>,
    options: &TaskOptions,
) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let params = pairs(params)?.into_iter().map(|(name, text)| (name, text.into())).collect();
    let options = options.clone().with_file()?;
    submit(client, &queue, &request(&queue, params, &options)).await
}

pub fn request(queue: &str, params: Map<String, Value>, options: &TaskOptions) -> Value {
    let mut body = options.fields();
    body.insert("queue".to_owned(), queue.into());
    body.insert("params".to_owned(), Value::Object(params));
    Value::Object(body)
}

#[cfg(test)]
mod tests {
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
        let array = json!({"id": "6b00", "count": 3, "final": null});
        assert_eq!(told(&array, "q"), "Created an array of 3 tasks in queue q\n6b00\n");
        let array = json!({"id": "6b00", "count": 3, "final": {"id": "6b01"}});
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
}
