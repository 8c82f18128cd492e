//! Secure parameters: what the built `dci` takes, and what it shows and stores of them, which is nothing.

#[path = "../replay/server.rs"]
mod server;

mod refused;
mod world;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{DateTime, doc};
use disbatch_core::model::TaskId;
use reqwest::Method;
use serde_json::{Value, json};
use world::World;

/// Ends a task as a runner does.
async fn end(world: &World, task: ObjectId) -> anyhow::Result<()> {
    let at = DateTime::from_millis(1_795_163_067_344);
    let set = doc! { "status": 2, "node": "n", "attempt": 1, "started": at, "mtime": at, "complete": true };
    world.tasks().update_one(doc! { "_id": task }, doc! { "$set": set }).await?;
    Ok(())
}

/// What there is to look at: lists, and all about these tasks, of which the second has ended and the third is archived.
fn paths(queue: ObjectId, tasks: [ObjectId; 3]) -> Vec<String> {
    let ended = tasks[1];
    let mut paths = vec![
        "/".to_owned(),
        "/tasks?.limit=10".to_owned(),
        "/tasks?.limit=10&.archive=1&.details=1".to_owned(),
        "/tasks?.limit=10&.order=-id&.details=1".to_owned(),
        format!("/tasks?queue={queue}&.full=1&.epoch=1&.details=1"),
        format!("/tasks?queue={queue}&.text=mark&.columns=params,result,exit"),
        format!("/queues/{queue}"),
        format!("/queues/{queue}?task={ended}"),
        "/queues?.details=1".to_owned(),
        "/bulk".to_owned(),
        "/audit".to_owned(),
        format!("/tasks/{ended}/events"),
    ];
    for task in tasks {
        for rest in ["", "?.details=1", "/attempts", "/wait?.timeout=0", "/stdout", "/stderr"] {
            paths.push(format!("/tasks/{task}{rest}"));
        }
    }
    let [waits, ended, _archived] = tasks;
    // What is in the archive is not explained.
    paths.extend([waits, ended].map(|task| format!("/tasks/{task}/explain")));
    paths
}

#[tokio::test]
async fn no_answer_and_no_page_shows_them() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue;
    let (waits, ended, archived) =
        (world.submit(json!({})).await?, world.submit(json!({})).await?, world.submit(json!({})).await?);
    end(&world, ended).await?;
    end(&world, archived).await?;
    world.store.archive_tasks(&[TaskId(archived)]).await?;
    world.until_retried(ended).await?;
    end(&world, ended).await?;

    for path in paths(queue, [waits, ended, archived]) {
        for accept in ["application/json", "text/html"] {
            let request = world.server.request(Method::GET, &path).header("accept", accept);
            let answer = request.send().await?;
            let (status, text) = (answer.status(), answer.text().await?);
            // An error would show nothing in any case.
            ensure!(status == 200, "{path} as {accept}: {status} {text}");
            world.shows_nothing(&text).with_context(|| format!("{path} as {accept}"))?;
        }
    }
    // As long as it waits, its page is told what changes, and all of it first.
    let told = world.told(&format!("/ui/tasks/{waits}"), "task-outcome").await?;
    world.shows_nothing(&told)?;
    let everything =
        json!({ "filter": {}, "terse": 0, "options": { "limit": 100 }, ".archive": 1, ".details": 1 });
    for (path, body) in [("/tasks/search", everything), ("/search-tasks-json", json!({ "filter": {} }))] {
        let (status, found) = world.post(path, &body).await?;
        ensure!(status == 200 && found.as_array().is_some_and(|found| found.len() >= 2), "{path}: {found}");
        world.shows_nothing(&found.to_string()).context(path)?;
        ensure!(found[0]["has_secure_params"] == true, "{path}: {found}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_task_tells_that_it_has_some() -> anyhow::Result<()> {
    let world = World::new().await?;
    let with = world.submit(json!({})).await?;
    let (status, answer) = world.post("/tasks", &json!({ "queue": "mail", "params": { "a": 1 } })).await?;
    ensure!(status == 200, "{answer}");
    let tasks = world.get("/tasks?.order=id&.limit=5").await?;
    let told: Vec<Option<&Value>> =
        tasks.as_array().context("no tasks")?.iter().map(|task| task.get("has_secure_params")).collect();
    ensure!(told == [Some(&json!(true)), None], "{tasks}");
    ensure!(world.get(&format!("/tasks/{with}")).await?["has_secure_params"] == true);

    let id = with.to_hex();
    let fields = [("id", &*id), (".fields", r#"["status","has_secure_params"]"#), (".limit", "1")];
    let request = world.server.request(Method::GET, "/tasks").query(&fields);
    let one: Value = serde_json::from_str(&request.send().await?.text().await?)?;
    let expected = json!({ "_id": { "$oid": id }, "status": -2, "has_secure_params": true });
    ensure!(one == expected, "{one}");

    let page = world.server.request(Method::GET, &format!("/tasks/{with}")).header("accept", "text/html");
    let html = page.send().await?.error_for_status()?.text().await?;
    ensure!(html.contains("has secure parameters, which are shown to nobody"), "{html}");
    world.database.drop_database().await
}

#[tokio::test]
async fn they_are_encrypted_however_they_come() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue.to_hex();
    let secret = world.secret();
    let text = secret.to_string();
    world.submit(json!({ ".idempotency_key": "k" })).await?;
    world.submit(json!({ ".secure_params": text, ".unique": "u" })).await?;
    let people = world.database.database.collection("people");
    people.insert_many([doc! { "name": "ada" }, doc! { "name": "bob" }]).await?;
    world
        .submit(json!({ "collection": "people", "filter": {}, "params": { "name": "document.name" } }))
        .await?;
    let form =
        [("queue", &*queue), ("params", "{\"a\":1}"), (".secure_params", &*text), (".then", "/tasks/{id}")];
    let answer = world.server.request(Method::POST, "/tasks").form(&form).send().await?;
    ensure!(answer.status() == 303, "{}", answer.text().await?);
    let form = [("json", "[{\"a\":1},{\"a\":2}]"), (".secure_params", &*text)];
    let answer = world.server.request(Method::POST, &format!("/ui/queues/{queue}/tasks")).form(&form);
    let answer = answer.send().await?;
    ensure!(answer.status() == 200, "{}", answer.text().await?);

    let sealed = world.sealed().await?;
    ensure!(sealed.len() == 7, "{} tasks", sealed.len());
    for field in sealed {
        ensure!(world.open(&field)? == secret, "{field}");
    }
    for none in [json!(null), json!({}), json!("")] {
        let body = json!({ "queue": "mail", "params": { "b": 1 }, ".secure_params": none });
        ensure!(world.post("/tasks", &body).await?.0 == 200);
    }
    ensure!(world.sealed().await?.len() == 7, "nothing given is nothing stored");
    world.stores_nothing().await?;
    world.database.drop_database().await
}

#[tokio::test]
async fn a_repeated_request_is_known_by_them_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = world.submit(json!({ ".idempotency_key": "k" })).await?;
    ensure!(world.submit(json!({ ".idempotency_key": "k" })).await? == first);
    let body = |secure: Value| json!({ "queue": "mail", "params": { "a": 1 }, ".secure_params": secure, ".idempotency_key": "k" });
    for other in [json!({ "password": "another" }), json!({})] {
        let (status, answer) = world.post("/tasks", &body(other)).await?;
        ensure!(status == 409, "{answer}");
    }
    ensure!(world.tasks().count_documents(doc! {}).await? == 1);
    world.stores_nothing().await?;
    world.database.drop_database().await
}

#[tokio::test]
async fn what_becomes_of_a_task_changes_nothing_of_them() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.submit(json!({})).await?;
    let before = world.tasks().find_one(doc! { "_id": task }).await?.context("no task")?;
    let sealed = before.get("secure_params").cloned();
    ensure!(sealed.is_some());
    let is_same =
        |now: Option<bson::Document>| now.and_then(|now| now.get("secure_params").cloned()) == sealed;

    end(&world, task).await?;
    let (status, answer) = world.post(&format!("/tasks/{task}/retry"), &json!({})).await?;
    ensure!(status == 200, "{answer}");
    ensure!(is_same(world.tasks().find_one(doc! { "_id": task }).await?), "retried");

    end(&world, task).await?;
    world.until_retried(task).await?;
    ensure!(is_same(world.tasks().find_one(doc! { "_id": task }).await?), "retried by a bulk job");

    end(&world, task).await?;
    world.store.archive_tasks(&[TaskId(task)]).await?;
    let archive = world.database.database.collection::<bson::Document>("tasks.archive");
    ensure!(is_same(archive.find_one(doc! { "_id": task }).await?), "archived");
    let attempts = world.database.database.collection::<bson::Document>("tasks.attempts");
    let kept = attempts.find_one(doc! { "task": task }).await?.context("no attempt")?;
    ensure!(!kept.contains_key("secure_params"), "{kept}");
    world.database.drop_database().await
}
