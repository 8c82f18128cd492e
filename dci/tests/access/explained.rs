//! What somebody who may see one queue is told of nodes, where it is said why a task waits.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use reqwest::{Method, Response, StatusCode};
use tokio::time::timeout;

use crate::world::World;

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of a node, which is nowhere else.
const NODE: &str = "node-qpmz-4471";

/// A task of the first queue that waits, as the only node takes nothing.
async fn waiting(world: &World) -> anyhow::Result<ObjectId> {
    let (id, now, database) = (ObjectId::new(), world.store.now(), &world.database.database);
    let node = doc! { "node": NODE, "timestamp": now, "maxthreads": 0 };
    database.collection::<Document>("nodes").insert_one(node).await?;
    let queues = database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": world.mine.0 }, doc! { "$set": { "threads": 1 } }).await?;
    let task = doc! {
        "_id": id, "queue": world.mine.0, "status": -2, "params": { "a": 1 }, "stdout": null, "stderr": null,
        "node": null, "ctime": now, "mtime": now,
    };
    database.collection::<Document>("tasks").insert_one(task).await?;
    Ok(id)
}

/// What a page is told until this part has come.
async fn told(page: &mut Response, part: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    while !text.contains(part) {
        let chunk = timeout(PATIENCE, page.chunk()).await.with_context(|| format!("only {text}"))??;
        text.push_str(&String::from_utf8_lossy(&chunk.with_context(|| format!("only {text}"))?));
    }
    Ok(text)
}

#[tokio::test]
async fn nodes_are_named_to_those_who_may_look_at_all_queues() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = waiting(&world).await?;
    for (user, is_told) in [("viewer", true), ("guest", false)] {
        for path in [format!("/tasks/{task}/explain"), format!("/tasks/{task}")] {
            let request = world.request(Method::GET, &path, Some(user)).header("accept", "text/html");
            let answer = request.send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            ensure!(status == StatusCode::OK, "{path}, {user}: {status} {text}");
            ensure!(text.contains("No node can claim it"), "{path}, {user}: {text}");
            ensure!(text.contains(NODE) == is_told, "{path}, {user}: {text}");
        }
        let queue = format!("/queues/{}", world.mine.0);
        for (path, kind) in [(format!("{queue}/explain"), "application/json"), (queue.clone(), "text/html")] {
            let answer = world.request(Method::GET, &path, Some(user)).header("accept", kind).send().await?;
            let text = answer.error_for_status()?.text().await?;
            ensure!(text.contains("No node can claim it"), "{path}, {user}: {text}");
            ensure!(text.contains(NODE) == is_told, "{path}, {user}: {text}");
        }
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn events_are_those_of_queues_that_somebody_may_look_at() -> anyhow::Result<()> {
    let world = World::new().await?;
    let follow = async |user: &str, query: &str| -> anyhow::Result<Response> {
        Ok(world.request(Method::GET, &format!("/events{query}"), Some(user)).send().await?)
    };
    let (mut all, mut mine) = (follow("viewer", "").await?, follow("guest", "").await?);
    let other = ObjectId::new();
    let task = doc! { "_id": other, "queue": ObjectId::new(), "status": -2, "params": {}, "node": null };
    world.database.database.collection::<Document>("tasks").insert_one(task).await?;
    let last = waiting(&world).await?.to_hex();
    let text = told(&mut all, &last).await?;
    ensure!(text.contains(&other.to_hex()), "{text}");
    let text = told(&mut mine, &last).await?;
    ensure!(!text.contains(&other.to_hex()), "{text}");
    // A queue is not found, whether there is one or not.
    let unknown = follow("guest", "?queue=nosuch").await?;
    ensure!(unknown.status() == StatusCode::BAD_REQUEST, "{unknown:?}");
    world.database.drop_database().await
}

#[tokio::test]
async fn pages_that_change_by_themselves_tell_each_reader_what_is_theirs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/ui/tasks/{}", waiting(&world).await?);
    let look = async |user: &str| -> anyhow::Result<Response> {
        Ok(world.request(Method::GET, &path, Some(user)).send().await?.error_for_status()?)
    };
    // Both at once: those who look at the same page share what is found out.
    let mut of_viewer = look("viewer").await?;
    let all = told(&mut of_viewer, "task-outcome").await?;
    ensure!(all.contains("No node can claim it") && all.contains(NODE), "{all}");
    let mut of_guest = look("guest").await?;
    let some = told(&mut of_guest, "task-outcome").await?;
    ensure!(some.contains("No node can claim it") && !some.contains(NODE), "{some}");
    world.database.drop_database().await
}
