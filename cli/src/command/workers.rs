//! `disbatch workers ..`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use disbatch_values::relaxed;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Client, segment};
use crate::args::{CheckedFile, ImportFile, ListingOptions, WorkerFile, WorkersCommand};
use crate::command::documents;
use crate::command::life::advise;
use crate::output::{
    Column, Cut, Screen, Table, document, list, plain, pretty, print, say, shown_name, visible,
};
use crate::status::FAILED;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Name", cell: |worker| plain(worker.get("name")), cut: Cut::Late },
        Column { title: "Engine", cell: |worker| plain(worker.get("engine")), cut: Cut::Never },
        Column { title: "Runs", cell: |worker| plain(worker.get("runs")), cut: Cut::Early },
        Column { title: "Revision", cell: |worker| plain(worker.get("rev")), cut: Cut::Never },
        Column { title: "Changed", cell: |worker| plain(worker.get("at")), cut: Cut::Never },
        Column { title: "What it does", cell: about, cut: Cut::Early },
    ],
    noun: "workers",
};

/// Does what the command asks for. The exit status of `check` tells whether the definition is right.
pub async fn run(
    client: &Client,
    command: WorkersCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        WorkersCommand::List => {
            let all = client.get("/workers", None).await.map_err(advise)?;
            print(&list(&all, listing, |all| TABLE.render(all, Screen::of_stdout()))?)?;
        }
        WorkersCommand::Show(which) => {
            let found = client.get(&path(&which.worker)?, None).await.map_err(advise)?;
            print(&document(&found, listing, text)?)?;
        }
        WorkersCommand::Set(file) => set(client, &file).await?,
        WorkersCommand::Check(file) => return check(client, &file).await,
        WorkersCommand::Rm(which) => {
            let gone = client.delete(&path(&which.worker)?).await.map_err(advise)?;
            print(&removed(&which.worker, &gone))?;
        }
        WorkersCommand::Import(file) => import(client, &file).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(client: &Client, file: &WorkerFile) -> anyhow::Result<()> {
    let mut body = object(&file.file)?;
    if let Some(rev) = file.rev {
        body.insert(".rev".to_owned(), rev.into());
    }
    let stored = client.put(&path(&file.worker)?, &Value::Object(body)).await.map_err(advise)?;
    print(&format!("Set worker {}, revision {}\n", shown_name(&file.worker), plain(stored.get("rev"))))
}

async fn check(client: &Client, file: &CheckedFile) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for definition in definitions(&file.file)? {
        let told = client.post("/workers/validate", &definition).await.map_err(advise)?;
        if told.get("valid") == Some(&Value::Bool(true)) {
            let (name, engine) = (plain(told.get("name")), plain(told.get("engine")));
            let (name, engine) = (shown_name(&name), visible(&engine));
            print(&format!("{name} is right: a plugin with the engine {engine}\n"))?;
            continue;
        }
        let name = definition.get("_id").or_else(|| definition.get("name")).map(|name| plain(Some(name)));
        let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
        say(&format!("{name}{}", plain(told.get("error"))));
        code = ExitCode::from(FAILED);
    }
    Ok(code)
}

/// The definitions of a file: one, as configurations may be written, or what an import takes.
fn definitions(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = documents::read(path)?;
    let parsed = match serde_json::from_str(&relaxed::to_strict(&text)) {
        Ok(whole) => whole,
        Err(error) => {
            documents::parse(&text).map_err(|_| anyhow!("{} is no JSON: {error}", path.display()))?
        }
    };
    let is_wrapping = |fields: &Map<String, Value>| {
        ["documents", "docs", "rows"].iter().any(|key| fields.contains_key(*key))
    };
    match parsed {
        Value::Object(one) if !is_wrapping(&one) => Ok(vec![Value::Object(one)]),
        other => documents::list(other),
    }
}

async fn import(client: &Client, file: &ImportFile) -> anyhow::Result<()> {
    let mut body = body(&documents::read(&file.file)?)?;
    body.insert("replace".to_owned(), file.replace.into());
    match client.post("/workers/import", &Value::Object(body)).await {
        Ok(told) => print(&imported(&told)),
        Err(ApiError::Refused { status: StatusCode::BAD_REQUEST, body, .. }) => bail!("{}", problems(&body)),
        Err(error) => Err(advise(error)),
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Worker name not given");
    Ok(format!("/workers/{}", segment(name)))
}

/// A definition, in strict JSON or as configurations are written.
fn object(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    match serde_json::from_str(&relaxed::to_strict(&documents::read(path)?)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => bail!("{name} must have a JSON object"),
        Err(error) => bail!("{name} is no JSON: {error}"),
    }
}

/// The body of an import: what the file has, which may be a list, an export with its own wrapping, or a document on each line.
fn body(text: &str) -> anyhow::Result<Map<String, Value>> {
    let documents = |list: Vec<Value>| Map::from_iter([("documents".to_owned(), Value::Array(list))]);
    match documents::parse(text)? {
        Value::Array(list) => Ok(documents(list)),
        Value::Object(one) if one.contains_key("_id") => Ok(documents(vec![Value::Object(one)])),
        Value::Object(wrapped) => Ok(wrapped),
        _ => bail!("expected documents"),
    }
}

/// What is wrong with which definition, a line for each.
fn problems(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let each = body.get("problems").and_then(Value::as_array).into_iter().flatten();
    let line = |one: &Value| format!("\n  {}: {}", plain(one.get("name")), plain(one.get("error")));
    format!("{}{}", plain(body.get("error")), each.map(line).collect::<String>())
}

fn imported(told: &Value) -> String {
    let words = [
        ("created", "Created"),
        ("updated", "Updated"),
        ("unchanged", "Already there"),
        ("left", "Left alone, as another worker has the name (--replace takes its place)"),
    ];
    let line = |(key, words): (&str, &str)| {
        let names: Vec<String> = told
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|name| shown_name(&plain(Some(name))))
            .collect();
        (!names.is_empty()).then(|| format!("{words}: {}\n", names.join(", ")))
    };
    let warnings = told.get("warnings").and_then(Value::as_array).into_iter().flatten();
    let warnings = warnings.map(|warning| format!("Warning: {}\n", shown_name(&plain(Some(warning)))));
    words.into_iter().filter_map(line).chain(warnings).collect()
}

fn removed(name: &str, gone: &Value) -> String {
    let queues = gone.get("queues").and_then(Value::as_array).into_iter().flatten();
    let queues: Vec<String> = queues.map(|queue| shown_name(&plain(Some(queue)))).collect();
    let waiting = if queues.is_empty() {
        String::new()
    } else {
        format!("; tasks of these queues wait until it is there again: {}", queues.join(", "))
    };
    format!("Removed worker {}{waiting}\n", shown_name(name))
}

/// What it does, or why it does nothing.
fn about(worker: &Value) -> String {
    match worker.get("problem").and_then(Value::as_str) {
        Some(problem) => format!("wrong: {problem}"),
        None => plain(worker.get("description")),
    }
}

fn text(worker: &Value) -> String {
    let facts = [
        ("Worker", plain(worker.get("name"))),
        ("Engine", plain(worker.get("engine"))),
        ("Runs", plain(worker.get("runs"))),
        ("About", about(worker)),
        ("Revision", plain(worker.get("rev"))),
        ("Changed", plain(worker.get("at"))),
        ("By", plain(worker.get("by"))),
    ];
    let facts = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
    let facts: String = facts.map(|(title, fact)| format!("{title:<10}{}\n", visible(&fact))).collect();
    let definition = worker.get("definition").cloned().unwrap_or_else(|| json!({}));
    let definition = pretty(&definition).unwrap_or_default();
    let lines: String = definition.lines().map(|line| format!("{}\n", visible(line))).collect();
    format!("{facts}\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Value {
        json!({
            "name": "My::Report", "engine": "http", "runs": "https://x/", "description": "Writes", "version": "",
            "problem": null, "definition": { "engine": "http" }, "rev": 3, "by": "ann", "at": "2026-11-20T08:24:27",
        })
    }

    #[test]
    fn a_worker_is_what_it_runs_and_its_definition() {
        let text = text(&worker());
        assert!(text.starts_with("Worker    My::Report\nEngine    http\n"), "{text}");
        assert!(text.contains("Revision  3\n") && text.contains("\"engine\""), "{text}");
        let wrong = json!({ "name": "A", "problem": "engine is wrong" });
        let table = TABLE.render(&[worker(), wrong], Screen::default());
        assert!(table.contains("My::Report") && table.contains("wrong: engine is wrong"), "{table}");
    }

    #[test]
    fn documents_come_in_several_wrappings() {
        let one = json!({ "_id": "a" });
        let of = |text: &str| body(text).map(Value::Object).map_err(|error| format!("{error:#}"));
        let listed = Ok(json!({ "documents": [one] }));
        assert_eq!(of("[{\"_id\": \"a\"}]"), listed);
        assert_eq!(of("{\"_id\": \"a\"}"), listed);
        let lines = "{\"_id\": \"a\"}\n\n{\"_id\": \"b\"}\n";
        assert_eq!(of(lines), Ok(json!({ "documents": [{ "_id": "a" }, { "_id": "b" }] })));
        assert_eq!(of("{\"rows\": []}"), Ok(json!({ "rows": [] })));
        assert!(of("{").unwrap_err().starts_with("this is no JSON"));
        assert!(of("{}\nx\n").unwrap_err().contains("line 2 is no JSON"));
    }

    #[test]
    fn what_became_of_definitions_is_told() {
        let told = json!({ "created": ["a", "b"], "updated": [], "unchanged": [], "left": ["c"] });
        let text = imported(&told);
        assert!(text.starts_with("Created: a, b\nLeft alone, as another"), "{text}");
        let warned = json!({ "created": ["a"], "warnings": ["a: no node has the engine kubernetes"] });
        assert_eq!(imported(&warned), "Created: a\nWarning: a: no node has the engine kubernetes\n");
        assert_eq!(removed("a", &json!({ "queues": [] })), "Removed worker a\n");
        assert!(removed("a", &json!({ "queues": ["mail"] })).ends_with("is there again: mail\n"));
        let body =
            json!({ "error": "1 of 2 definitions are wrong", "problems": [{ "name": "b", "error": "no" }] });
        assert_eq!(problems(&body.to_string()), "1 of 2 definitions are wrong\n  b: no");
    }
}
