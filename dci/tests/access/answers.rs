//! What tasks have asked: who may answer, once, and by which links.

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::world::World;

/// A task of a queue that asks something.
async fn asking(world: &World, queue: ObjectId, fields: Document) -> anyhow::Result<ObjectId> {
    let id = ObjectId::new();
    let form = doc! { "properties": { "go": { "type": "boolean" }, "n": { "type": "integer" } }, "required": ["go"] };
    let mut awaiting = doc! {
        "title": "Deploy <it>?", "form": form, "who": [], "on_deadline": "cancel", "attempt": 1, "asked": world.store.now(),
    };
    awaiting.extend(fields);
    let task = doc! {
        "_id": id, "queue": queue, "status": -7, "params": { "secret": "zyxw" }, "attempt": 1, "awaiting": awaiting,
        "stdout": null, "stderr": null, "node": null, "ctime": world.store.now(), "mtime": world.store.now(),
    };
    world.database.database.collection("tasks").insert_one(task).await?;
    Ok(id)
}

async fn answer(
    world: &World,
    id: ObjectId,
    user: Option<&str>,
    body: &Value,
) -> anyhow::Result<(u16, Value)> {
    let request = world.request(Method::POST, &format!("/tasks/{id}/answer"), user);
    let response = request.json(body).send().await?;
    Ok((response.status().as_u16(), response.json().await?))
}

async fn stored(world: &World, id: ObjectId) -> anyhow::Result<Document> {
    let tasks = world.database.database.collection::<Document>("tasks");
    tasks.find_one(doc! { "_id": id }).await?.context("it is gone")
}

fn go() -> Value {
    json!({ "value": { "go": true } })
}

#[tokio::test]
async fn those_may_answer_whom_the_question_names_and_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mine = world.mine.0;
    for (who, by) in [
        (vec![], [("guest", 403), ("viewer", 403), ("submitter", 403), ("operator", 200), ("admin", 409)]),
        (vec!["guest"], [("admin", 403), ("operator", 403), ("viewer", 403), ("guest", 200), ("guest", 409)]),
        (
            vec!["role:submitter"],
            [("guest", 403), ("viewer", 403), ("submitter", 200), ("operator", 409), ("admin", 409)],
        ),
    ] {
        let id = asking(&world, mine, doc! { "who": &who }).await?;
        let (status, _) = answer(&world, id, None, &go()).await?;
        ensure!(status == 401, "{status}");
        for (user, expected) in by {
            let (status, body) = answer(&world, id, Some(user), &go()).await?;
            ensure!(status == expected, "{who:?} {user}: {status} {body}");
            if status == 409 {
                ensure!(body["answer"]["value"] == json!({ "go": true }), "{body}");
            }
        }
        let task = stored(&world, id).await?;
        ensure!(task.get_i32("status")? == -2 && !task.contains_key("awaiting"), "{task}");
    }
    // A token that may only read does not answer in the name of its user, and one that may submit does.
    for (role, expected) in [("viewer", 403), ("submitter", 200)] {
        let id = asking(&world, mine, doc! { "who": ["operator"] }).await?;
        let token = json!({ "name": role, "role": role, "days": 1 });
        let made = world.request(Method::POST, "/account/tokens", Some("operator")).json(&token);
        let made: Value = made.send().await?.json().await?;
        let token = made["token"].as_str().context("no token")?;
        for (path, body) in [("answer/link", json!({})), ("answer", go())] {
            let asked = world.server.request(Method::POST, &format!("/tasks/{id}/{path}")).bearer_auth(token);
            let status = asked.json(&body).send().await?.status().as_u16();
            ensure!(status == expected, "{role} {path}: {status}");
        }
    }
    // Of a queue that they cannot see, nobody is told anything.
    let hidden = asking(&world, world.other.0, doc! { "who": ["guest"] }).await?;
    ensure!(answer(&world, hidden, Some("guest"), &go()).await?.0 == 404);
    let audit = world.request(Method::GET, "/audit?.limit=100", Some("admin")).send().await?;
    ensure!(audit.text().await?.contains("task answer"));
    world.database.drop_database().await
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_the_field() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = asking(&world, world.mine.0, doc! {}).await?;
    for (body, field) in [
        (json!({ "value": { "go": "yes" } }), "/go"),
        (json!({ "value": { "go": true, "n": 1.5 } }), "/n"),
        (json!({ "/go": "true", "/n": "x" }), "/n"),
    ] {
        let (status, told) = answer(&world, id, Some("operator"), &body).await?;
        ensure!(status == 400 && told["fields"].get(field).is_some(), "{body}: {status} {told}");
    }
    for body in [json!({}), json!({ "value": 5 }), json!({ "value": {}, "x": 1 }), json!({ "value": {} })] {
        ensure!(answer(&world, id, Some("operator"), &body).await?.0 == 400, "{body}");
    }
    let passed = asking(&world, world.mine.0, doc! { "deadline": DateTime::from_millis(1_000) }).await?;
    ensure!(answer(&world, passed, Some("operator"), &go()).await?.0 == 409);
    let ended = world.task(world.mine).await?;
    ensure!(answer(&world, ended, Some("operator"), &go()).await?.0 == 409);
    let retried = world.request(Method::POST, &format!("/tasks/{id}/retry"), Some("operator"));
    let told: Value = retried.json(&json!({})).send().await?.json().await?;
    ensure!(told["error"].as_str().is_some_and(|error| error.contains("waits for an answer")), "{told}");
    world.database.drop_database().await
}

async fn link(world: &World, id: ObjectId, user: &str) -> anyhow::Result<(u16, Value)> {
    let request = world.request(Method::POST, &format!("/tasks/{id}/answer/link"), Some(user));
    let response = request.json(&json!({})).send().await?;
    Ok((response.status().as_u16(), response.json().await?))
}

async fn send(world: &World, path: &str, fields: &[(&str, &str)]) -> anyhow::Result<Response> {
    Ok(world.request(Method::POST, path, None).form(fields).send().await?)
}

#[tokio::test]
async fn a_link_is_for_one_question_and_one_answer_and_tells_nothing_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = asking(&world, world.mine.0, doc! {}).await?;
    ensure!(link(&world, id, "viewer").await?.0 == 403);
    let (status, made) = link(&world, id, "operator").await?;
    ensure!(status == 200, "{made}");
    let path = made["path"].as_str().context("no path")?.to_owned();
    let shown = world
        .request(Method::GET, &format!("/tasks/{id}?.full=1"), Some("operator"))
        .send()
        .await?
        .text()
        .await?;
    ensure!(shown.contains("Deploy") && !shown.contains("links"), "{shown}");
    let page = world.request(Method::GET, &path, None).send().await?;
    ensure!(
        page.headers()["referrer-policy"] == "same-origin" && page.headers()["cache-control"] == "no-store"
    );
    let page = page.text().await?;
    ensure!(page.contains("Deploy &#60;it&#62;?") && page.contains("name=\"/go\""), "{page}");
    ensure!(!page.contains("zyxw") && !page.contains(&id.to_hex()), "{page}");
    let wrong = send(&world, &path, &[("/go", "true"), ("/n", "x")]).await?;
    ensure!(wrong.status() == 400 && wrong.text().await?.contains("n "), "it is shown again");
    let foreign = world.request(Method::POST, &path, None).header("origin", "https://evil.example");
    ensure!(foreign.form(&[("/go", "true")]).send().await?.status() == 403, "of another site");
    ensure!(stored(&world, id).await?.get_i32("status")? == -7);
    ensure!(send(&world, &path, &[("/go", "true")]).await?.status() == 200);
    let task = stored(&world, id).await?;
    let by = task.get_document("answer")?.get_str("by")?;
    ensure!(by.starts_with("somebody with a link of operator from "), "{by}");
    ensure!(send(&world, &path, &[("/go", "false")]).await?.status() == 401, "it works once");
    let other = asking(&world, world.mine.0, doc! {}).await?;
    let stolen = path.replace(&id.to_hex(), &other.to_hex());
    ensure!(send(&world, &stolen, &[("/go", "true")]).await?.status() == 401, "it is for one task");
    world.database.drop_database().await
}

#[tokio::test]
async fn links_end_with_their_time_and_are_not_guessed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let soon = DateTime::from_millis(world.store.now().timestamp_millis() + 3_600_000);
    let id = asking(&world, world.mine.0, doc! { "deadline": soon }).await?;
    let (_, made) = link(&world, id, "operator").await?;
    ensure!(made["until"].as_str() == soon.try_to_rfc3339_string()?.get(..19), "{made}");
    let path = made["path"].as_str().context("no path")?;
    let tasks = world.database.database.collection::<Document>("tasks");
    let past = doc! { "$set": { "awaiting.links.0.until": DateTime::from_millis(1_000) } };
    tasks.update_one(doc! { "_id": id }, past).await?;
    ensure!(world.request(Method::GET, path, None).send().await?.status() == 401);
    let mut last = 0;
    for number in 0..40 {
        let guess = format!("/answers/{id}-{number:064x}");
        last = world.request(Method::GET, &guess, None).send().await?.status().as_u16();
        if last == 429 {
            break;
        }
        ensure!(last == 401, "{last}");
    }
    ensure!(last == 429, "nobody guesses as often as they like");
    world.database.drop_database().await
}
