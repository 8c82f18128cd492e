//! What is refused.

use anyhow::{Context, ensure};
use bson::doc;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::server::Server;
use crate::world::{World, config, database, post, write_key};

#[tokio::test]
async fn without_a_key_a_submission_says_what_to_do() -> anyhow::Result<()> {
    let (database, _store, queue) = database().await?;
    let server = Server::start(&config(&database, &json!({}))).await?;
    let body = json!({ "queue": "mail", "params": { "a": 1 }, ".secure_params": { "password": "horse" } });
    let (status, answer) = post(&server, "/tasks", &body).await?;
    ensure!(status == 503, "{status} {answer}");
    let message = answer["error"].as_str().context("no message")?;
    ensure!(message.contains("secrets.key_file") && message.contains("disbatch secrets-key"), "{message}");
    let form = [("json", "{\"a\":1}"), (".secure_params", "{\"password\":\"horse\"}")];
    let form = server.request(Method::POST, &format!("/ui/queues/{queue}/tasks")).form(&form);
    ensure!(form.send().await?.status() == 503);
    let none = json!({ "queue": "mail", "params": { "a": 1 }, ".secure_params": {} });
    ensure!(post(&server, "/tasks", &none).await?.0 == 200, "there is nothing to encrypt");
    let tasks = database.database.collection::<bson::Document>("tasks");
    ensure!(tasks.count_documents(doc! {}).await? == 1);
    let page = server.request(Method::GET, &format!("/queues/{queue}?tab=new")).header("accept", "text/html");
    ensure!(!page.send().await?.text().await?.contains(".secure_params"), "a field that is of no use");
    database.drop_database().await
}

#[tokio::test]
async fn values_that_are_wrong_are_not_shown_again() -> anyhow::Result<()> {
    let world = World::new().await?;
    for wrong in
        [json!("horse"), json!(["horse"]), json!("{\"a\": horse"), json!({ "a": "horse".repeat(14_000) })]
    {
        let body = json!({ "queue": "mail", "params": { "a": 1 }, ".secure_params": wrong });
        let (status, answer) = world.post("/tasks", &body).await?;
        ensure!(status == 400 && !answer.to_string().contains("horse"), "{status} {answer}");
        ensure!(
            answer["error"].as_str().is_some_and(|error| error.starts_with(".secure_params")),
            "{answer}"
        );
    }
    ensure!(world.tasks().count_documents(doc! {}).await? == 0);
    world.database.drop_database().await
}

#[tokio::test]
async fn routes_that_do_not_take_them_say_so() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.database.database.collection("people").insert_one(doc! { "a": 1 }).await?;
    let params = json!({ "a": 1 });
    let bodies = [
        ("/tasks/mail", json!([params])),
        ("/tasks/mail/people", json!({ "filter": {}, "params": params })),
        ("/queue-create-tasks-json", json!({ "queueid": "mail", "object": [params] })),
        (
            "/queue-create-tasks-from-query-json",
            json!({ "queueid": "mail", "collection": "people", "jsonfilter": { "a": 1 }, "params": params }),
        ),
    ];
    for (path, body) in &bodies {
        let secure = json!({ "password": "horse" });
        let with = match body.as_object() {
            Some(object) => {
                let mut object = object.clone();
                object.insert(".secure_params".to_owned(), secure);
                Value::Object(object)
            }
            None => json!({ "params": body, ".secure_params": secure }),
        };
        for (path, body) in
            [((*path).to_owned(), &with), (format!("{path}?.secure_params=%7B%22a%22%3A1%7D"), body)]
        {
            let (status, answer) = world.post(&path, body).await?;
            let text = answer.to_string();
            ensure!(status == 400 && text.contains(".secure_params"), "{path}: {status} {text}");
            ensure!(!text.contains("horse"), "{path}: {text}");
        }
    }
    ensure!(world.tasks().count_documents(doc! {}).await? == 0);
    for (path, body) in &bodies {
        let (status, answer) = world.post(path, body).await?;
        ensure!(status == 200, "{path} without them: {status} {answer}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn nobody_searches_for_them_or_sorts_by_them() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.submit(json!({})).await?;
    // An index on the field makes no difference.
    let keys = doc! { "secure_params.key": 1 };
    let index = doc! { "createIndexes": "tasks", "indexes": [{ "key": keys, "name": "secure" }] };
    world.database.database.run_command(index).await?;
    let queue = world.queue.to_hex();
    let queries = [
        [("queue", &*queue), (".fields", r#"["secure_params"]"#)],
        [("queue", &*queue), (".fields", r#"{"secure_params.data":1}"#)],
        [("queue", &*queue), (".fields", r#"{"secure_params":0}"#)],
        [("secure_params.key", "x"), (".limit", "5")],
        [("secure_params", "x"), (".limit", "5")],
    ];
    for query in queries {
        let response = world.server.request(Method::GET, "/tasks").query(&query).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status == 400, "{query:?}: {status} {text}");
    }
    let exists = json!({ "$exists": true });
    let bodies: [(&str, Value); 5] = [
        ("/tasks/search", json!({ "filter": { "secure_params": exists } })),
        (
            "/tasks/search",
            json!({ "filter": { "$or": [{ "a": 1 }, { "secure_params.key": exists }] }, "count": 1 }),
        ),
        ("/tasks/search", json!({ "filter": {}, "options": { "sort": { "secure_params.data": 1 } } })),
        ("/search-tasks-json", json!({ "filter": { "secure_params.data": { "$regex": "^a" } } })),
        ("/search-tasks-json", json!({ "filter": { "$nor": [{ "secure_params": exists }] }, "count": 1 })),
    ];
    for (path, body) in bodies {
        let (status, answer) = world.post(path, &body).await?;
        ensure!(status == 400, "{path} {body}: {status} {answer}");
        ensure!(answer.to_string().contains("is for plugins only"), "{path} {body}: {answer}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn no_tasks_are_made_of_what_others_gave_in_confidence() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.submit(json!({})).await?;
    let pattern = json!({ "stolen": "document.secure_params" });
    for collection in ["accounts.users", "audit", "tasks.archive", "schedules", "workers"] {
        let body = json!({ "queue": "mail", "collection": collection, "filter": {}, "params": pattern });
        let (status, answer) = world.post("/tasks", &body).await?;
        ensure!(status == 403, "{collection}: {status} {answer}");
        ensure!(answer["error"].as_str().is_some_and(|error| error.contains("Disbatch's own")), "{answer}");
        let body = json!({ "filter": {}, "params": pattern });
        let (status, answer) = world.post(&format!("/tasks/mail/{collection}"), &body).await?;
        ensure!(status == 403, "{collection}: {status} {answer}");
        let body = json!({ "queueid": "mail", "collection": collection, "jsonfilter": { "a": 1 },
            "params": pattern });
        let (status, answer) = world.post("/queue-create-tasks-from-query-json", &body).await?;
        ensure!(status == 403 && answer[0] == 0, "{collection}: {status} {answer}");
    }
    let by_filter = json!({ "queue": "mail", "collection": "tasks", "filter": { "secure_params.key": "x" },
        "params": { "a": 1 } });
    let copied = json!({ "queue": "mail", "collection": "tasks", "filter": {}, "params": pattern });
    for body in [by_filter, copied] {
        let (status, answer) = world.post("/tasks", &body).await?;
        ensure!(status == 400, "{body}: {status} {answer}");
    }
    ensure!(world.tasks().count_documents(doc! {}).await? == 1);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_key_file_that_is_open_to_everybody_is_refused_at_the_start() -> anyhow::Result<()> {
    let (database, _store, _queue) = database().await?;
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("secrets.key");
    write_key(&key, 0o644)?;
    let path = folder.path().join("config.json");
    std::fs::write(
        &path,
        config(&database, &json!({ "secrets": { "key_file": "secrets.key" } })).to_string(),
    )?;
    let mut dci = Command::new(env!("CARGO_BIN_EXE_dci"));
    let ended = dci.arg("--config").arg(&path).args(["--listen", "127.0.0.1:0"]).output().await?;
    let said = String::from_utf8(ended.stderr)?;
    ensure!(ended.status.code() == Some(3), "{}: {said}", ended.status);
    let advice = format!("(mode 0644): chmod o-rwx {}\n", key.display());
    ensure!(said.contains("dci: secrets.key_file ") && said.ends_with(&advice), "{said}");
    database.drop_database().await
}
