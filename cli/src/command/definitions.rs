//! `disbatch workers ..` and `disbatch plugins`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use disbatch_values::json::to_strict;
use disbatch_wire::definitions::{Definition, DefinitionCheck, DefinitionDeleted, DefinitionsImported};
use reqwest::StatusCode;
use serde_json::{Map, Value};

use crate::api::{ApiError, Client, read, segment};
use crate::args::WorkersCommand;
use crate::command::{Session, in_perls_words};
use crate::input;
use crate::output::{Column, Cut, Table, known, list, plain, pretty, print, say, shown_name, visible};
use crate::status::FAILED;

const TABLE: Table<Definition> = Table {
    columns: &[
        Column { title: "Name", cell: |d| d.name.clone(), cut: Cut::Late },
        Column { title: "Engine", cell: |d| known(&d.engine), cut: Cut::Never },
        Column { title: "Runs", cell: |d| d.runs.clone(), cut: Cut::Early },
        Column { title: "Revision", cell: |d| d.rev.to_string(), cut: Cut::Never },
        Column { title: "Changed", cell: |d| known(&d.at), cut: Cut::Never },
        Column { title: "What it does", cell: about, cut: Cut::Early },
    ],
    noun: "workers",
};

/// Does what the command asks for. The exit status of `check` tells whether the definition is right.
pub async fn run(session: &Session, command: WorkersCommand) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        WorkersCommand::List => session.print_list("/workers", &TABLE).await?,
        WorkersCommand::Show { worker } => session.print_document(&path(&worker)?, text).await?,
        WorkersCommand::Set { worker, file, rev } => {
            let mut body = object(&file)?;
            body.extend(rev.map(|rev| (".rev".to_owned(), rev.into())));
            let Definition { rev, .. } = read(client.put(&path(&worker)?, &body).await?)?;
            print(&format!("Set worker {}, revision {rev}\n", shown_name(&worker)))?;
        }
        WorkersCommand::Check { file } => return check(client, &file).await,
        WorkersCommand::Rm { worker } => {
            print(&removed(&worker, &read(client.delete(&path(&worker)?).await?)?))?;
        }
        WorkersCommand::Import { file, replace } => import(client, &file, replace).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(client: &Client, file: &Path) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for definition in definitions(file)? {
        let check: DefinitionCheck = read(client.post("/workers/validate", &definition).await?)?;
        if check.valid {
            let (name, engine) = (check.name.unwrap_or_default(), check.engine.unwrap_or_default());
            let (name, engine) = (shown_name(&name), visible(&engine));
            print(&format!("{name} is right: a plugin with the engine {engine}\n"))?;
            continue;
        }
        let name = definition.get("_id").or_else(|| definition.get("name")).map(|name| plain(Some(name)));
        let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
        say(&format!("{name}{}", check.error.unwrap_or_default()));
        code = ExitCode::from(FAILED);
    }
    Ok(code)
}

/// The definitions of a file: one, as configurations may be written, or what an import takes.
fn definitions(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = input::read(path)?;
    let parsed = match serde_json::from_str(&to_strict(&text)) {
        Ok(whole) => whole,
        Err(error) => input::parse(&text).map_err(|_| anyhow!("{} is no JSON: {error}", path.display()))?,
    };
    let is_wrapping = |fields: &Map<String, Value>| {
        ["documents", "docs", "rows"].iter().any(|key| fields.contains_key(*key))
    };
    match parsed {
        Value::Object(one) if !is_wrapping(&one) => Ok(vec![Value::Object(one)]),
        other => input::documents(other),
    }
}

async fn import(client: &Client, file: &Path, replace: bool) -> anyhow::Result<()> {
    let mut body = body(&input::read(file)?)?;
    body.insert("replace".to_owned(), replace.into());
    match client.post("/workers/import", &body).await {
        Ok(told) => print(&imported(&read(told)?)),
        Err(ApiError::Refused { status: StatusCode::BAD_REQUEST, body, .. }) => bail!("{}", problems(&body)),
        Err(error) => Err(error.into()),
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Worker name not given");
    Ok(format!("/workers/{}", segment(name)))
}

fn object(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    match serde_json::from_str(&to_strict(&input::read(path)?)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => bail!("{name} must have a JSON object"),
        Err(error) => bail!("{name} is no JSON: {error}"),
    }
}

/// The body of an import: what the file has, which may be a list, an export with its own wrapping, or a document on each line.
fn body(text: &str) -> anyhow::Result<Map<String, Value>> {
    let documents = |list: Vec<Value>| Map::from_iter([("documents".to_owned(), Value::Array(list))]);
    match input::parse(text)? {
        Value::Array(list) => Ok(documents(list)),
        Value::Object(one) if one.contains_key("_id") => Ok(documents(vec![Value::Object(one)])),
        Value::Object(wrapped) => Ok(wrapped),
        _ => bail!("expected documents"),
    }
}

fn problems(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let each = body.get("problems").and_then(Value::as_array).into_iter().flatten();
    let line = |one: &Value| format!("\n  {}: {}", plain(one.get("name")), plain(one.get("error")));
    format!("{}{}", plain(body.get("error")), each.map(line).collect::<String>())
}

fn imported(told: &DefinitionsImported) -> String {
    let words = [
        (&told.created, "Created"),
        (&told.updated, "Updated"),
        (&told.unchanged, "Already there"),
        (&told.left, "Left alone, as another worker has the name (--replace takes its place)"),
    ];
    let words = words.into_iter().filter(|(names, _)| !names.is_empty());
    let line = |(names, words): (&Vec<String>, &str)| format!("{words}: {}\n", listed(names));
    let warnings = told.warnings.iter().map(|warning| format!("Warning: {}\n", shown_name(warning)));
    words.map(line).chain(warnings).collect()
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| shown_name(name)).collect::<Vec<_>>().join(", ")
}

fn removed(name: &str, gone: &DefinitionDeleted) -> String {
    let waiting = if gone.queues.is_empty() {
        String::new()
    } else {
        format!("; tasks of these queues wait until it is there again: {}", listed(&gone.queues))
    };
    format!("Removed worker {}{waiting}\n", shown_name(name))
}

fn about(definition: &Definition) -> String {
    match &definition.problem {
        Some(problem) => format!("wrong: {problem}"),
        None => definition.description.clone(),
    }
}

fn text(definition: &Definition) -> String {
    let shown = pretty(&definition.definition).unwrap_or_default();
    let lines: String = shown.lines().map(|line| format!("{}\n", visible(line))).collect();
    let facts = [
        ("Worker", definition.name.as_str()),
        ("Engine", definition.engine.as_deref().unwrap_or_default()),
        ("Runs", &definition.runs),
        ("About", &about(definition)),
        ("Revision", &definition.rev.to_string()),
        ("Changed", definition.at.as_deref().unwrap_or_default()),
        ("By", definition.by.as_deref().unwrap_or_default()),
    ];
    let facts = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
    let facts: String = facts.map(|(title, fact)| format!("{title:<10}{}\n", visible(fact))).collect();
    format!("{facts}\n{lines}")
}

pub async fn list_plugins(session: &Session) -> anyhow::Result<()> {
    let plugins = session.client.get("/plugins", None).await.map_err(in_perls_words)?;
    print(&list(&plugins, &session.listing, |names: &[String]| {
        names.iter().map(|plugin| format!("{}\n", shown_name(plugin))).collect()
    })?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    fn worker() -> Definition {
        let worker = json!({
            "name": "My::Report", "engine": "http", "runs": "https://x/", "description": "Writes", "version": "",
            "problem": null, "definition": { "engine": "http" }, "rev": 3, "by": "ann", "at": "2026-11-20T08:24:27",
        });
        read(worker).unwrap()
    }

    #[test]
    fn a_worker_is_what_it_runs_and_its_definition() {
        let text = text(&worker());
        assert!(text.starts_with("Worker    My::Report\nEngine    http\n"), "{text}");
        assert!(text.contains("Revision  3\n") && text.contains("\"engine\""), "{text}");
        let wrong = json!({
            "name": "A", "engine": null, "runs": "", "description": "", "version": "", "problem": "engine is wrong",
            "definition": {}, "rev": 0, "by": null, "at": null,
        });
        let table = TABLE.render(&[worker(), read(wrong).unwrap()], Screen::default());
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
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let left = DefinitionsImported {
            created: names(&["a", "b"]),
            left: names(&["c"]),
            ..DefinitionsImported::default()
        };
        assert!(imported(&left).starts_with("Created: a, b\nLeft alone, as another"), "{left:?}");
        let warnings = names(&["a: no node has the engine kubernetes"]);
        let warned = DefinitionsImported { warnings, ..DefinitionsImported::default() };
        assert_eq!(imported(&warned), "Warning: a: no node has the engine kubernetes\n");
        let gone = |queues: &[&str]| {
            removed("a", &DefinitionDeleted { name: "a".into(), deleted: true, queues: names(queues) })
        };
        assert_eq!(gone(&[]), "Removed worker a\n");
        assert!(gone(&["mail"]).ends_with("is there again: mail\n"));
        let body =
            json!({ "error": "1 of 2 definitions are wrong", "problems": [{ "name": "b", "error": "no" }] });
        assert_eq!(problems(&body.to_string()), "1 of 2 definitions are wrong\n  b: no");
    }
}
