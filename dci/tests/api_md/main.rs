//! Runs the commands of `docs/api.md` against the built `dci`, and compares the answers with those on the page.

#[path = "../replay/server.rs"]
mod server;

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::accounts::{PasswordHash, Role};
use disbatch_core::clock::SystemClock;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use reqwest::Method;
use serde_json::{Value, json};
use server::Server;
use tokio::process::Command;

const PAGE: &str = include_str!("../../../docs/api.md");

/// Around the commands for a DCI that has users.
const WITH_USERS: [&str; 2] = ["<!-- with users -->", "<!-- /with users -->"];

/// The password of its user, who is called `alice`.
const PASSWORD: &str = "correct horse battery";

/// Ends the output of a command.
const END: char = '\u{1e}';

/// A command on the page.
#[derive(Debug)]
struct Example {
    command: String,
    /// What the page says that it prints: the kind of the block, and the text.
    printed: Option<(String, String)>,
}

/// Each block of `sh` in a part of the page, with the block after it that shows its output.
fn examples(part: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in part.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap_or((block, ""));
        match (kind, examples.last_mut()) {
            ("sh", _) => examples.push(Example { command: text.to_owned(), printed: None }),
            ("json" | "text", Some(example)) => example.printed = Some((kind.to_owned(), text.to_owned())),
            _ => {} // A setting, before the first command.
        }
    }
    examples
}

/// `value` with ids, times and ages made the same.
fn normalised(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()) => json!("ID"),
        Value::String(text) if text.len() == 19 && text.as_bytes()[10] == b'T' => json!("TIME"),
        Value::Number(number) if number.as_f64().is_some_and(|number| number > 1e9) => json!("TIME"),
        Value::Array(items) => items.iter().map(normalised).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                ("fresh", Value::Object(ages)) => (key.clone(), ages.keys().map(String::as_str).collect()),
                (_, value) => (key.clone(), normalised(value)),
            })
            .collect(),
        other => other.clone(),
    }
}

/// The words of a command's lines that go to the DCI, as method and path.
fn requests(command: &str) -> Vec<(String, String)> {
    let joined = command.replace("\\\n", " ");
    let lines: Vec<&str> = joined.lines().collect();
    let mut found = Vec::new();
    for line in lines.iter().filter(|line| line.contains("curl ")) {
        let Some((_, path)) = line.split_once("$DISBATCH_URL") else { continue };
        let path = path.split(['"', '?', ' ']).next().unwrap_or_default();
        let method = match line.split_once(" -X ") {
            Some((_, rest)) => rest.split(' ').next().unwrap_or_default(),
            None if line.contains(" -d ") => "POST",
            None => "GET",
        };
        match lines.iter().find_map(|line| line.strip_prefix("for path in ")) {
            Some(list) => {
                let paths = list.trim_end_matches("; do").split(' ');
                found.extend(paths.map(|path| (method.to_owned(), path.to_owned())));
            }
            None => found.push((method.to_owned(), path.to_owned())),
        }
    }
    found
}

/// Whether `path` is one of the addresses that `template` stands for.
fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template.iter().zip(path).all(|(part, word)| part.starts_with('{') || *part == word)
}

#[test]
fn every_route_has_an_example() {
    let description: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    let shown: BTreeSet<_> = examples(PAGE).iter().flat_map(|example| requests(&example.command)).collect();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let found = shown.iter().any(|(used, address)| *used == method && fits(path, address));
            assert!(found, "docs/api.md has no example of {method} {path}: {shown:?}");
        }
    }
}

/// A DCI with a database of its own and a user.
async fn with_users(database: &TestDatabase) -> anyhow::Result<Server> {
    let store = Store::with_clock(database.database.clone(), std::sync::Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let hash = PasswordHash::of(PASSWORD)?;
    store.add_user(&"alice".parse()?, Some(Role::Admin), &[], Some(&hash)).await?;
    Server::start(&json!({ "mongohost": database.uri, "database": database.name })).await
}

fn url(server: &Server) -> anyhow::Result<String> {
    let url = server.request(Method::GET, "").build()?.url().to_string();
    Ok(url.trim_end_matches('/').to_owned())
}

/// All commands, each for the DCI that it is meant for.
fn script() -> anyhow::Result<String> {
    let (before, rest) = PAGE.split_once(WITH_USERS[0]).context("no commands for a DCI with users")?;
    let (inside, after) = rest.split_once(WITH_USERS[1]).context("no end of them")?;
    let mut script = "set -eu\nOPEN=$DISBATCH_URL\n".to_owned();
    for (part, server) in [(before, "OPEN"), (inside, "CLOSED"), (after, "OPEN")] {
        script.push_str(&format!("DISBATCH_URL=${server}\n"));
        for example in examples(part) {
            script.push_str(&format!("{}\nprintf '\\036'\n", example.command));
        }
    }
    Ok(script)
}

#[tokio::test]
async fn the_examples_answer_what_the_page_says() -> anyhow::Result<()> {
    let curl = Command::new("curl").arg("--version").output().await;
    curl.context("this test runs the commands of docs/api.md, which need curl: please install it")?;
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let store = Store::with_clock(database.database.clone(), std::sync::Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let node = doc! { "node": "worker1", "timestamp": store.now() };
    database.database.collection("nodes").insert_one(node).await?;
    let config = json!({
        "mongohost": database.uri, "database": database.name, "plugins": ["Disbatch::Plugin::Demo"],
        "monitoring": true, "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"],
    });
    let server = Server::start(&config).await?;
    let closed_database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let closed = with_users(&closed_database).await?;

    let examples = examples(PAGE);
    let run = Command::new("bash")
        .args(["-c", &script()?])
        .env("DISBATCH_URL", url(&server)?)
        .env("CLOSED", url(&closed)?)
        .env("no_proxy", "*")
        .output()
        .await?;
    let printed = String::from_utf8(run.stdout)?;
    ensure!(run.status.success(), "{printed}\n{}", String::from_utf8_lossy(&run.stderr));
    let outputs: Vec<&str> = printed.trim_end_matches(END).split(END).collect();
    ensure!(outputs.len() == examples.len(), "{} outputs of {}", outputs.len(), examples.len());
    for (example, output) in examples.iter().zip(outputs) {
        let command = &example.command;
        match &example.printed {
            None => assert_eq!(output, "", "{command}"),
            Some((kind, text)) if kind == "json" => {
                let expected: Value = serde_json::from_str(text).context(command.clone())?;
                let actual: Value =
                    serde_json::from_str(output).with_context(|| format!("{command}{output}"))?;
                assert_eq!(normalised(&actual), normalised(&expected), "{command}");
            }
            Some((_, text)) => assert_eq!(output.trim(), text.trim(), "{command}"),
        }
    }
    closed_database.drop_database().await?;
    database.drop_database().await
}
