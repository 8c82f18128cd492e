//! `GET /events`: what happens to all tasks, and what happened meanwhile.

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_mongod::testing;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use super::{World, events, until};

/// A queue with a name.
async fn queue(world: &World, name: &str) -> anyhow::Result<ObjectId> {
    let id = ObjectId::new();
    let queues = world.database.database.collection::<Document>("queues");
    queues.insert_one(doc! { "_id": id, "name": name, "plugin": "P", "threads": 0 }).await?;
    Ok(id)
}

/// Begins to follow, and returns what came at once: where the client is.
async fn follow(world: &World, query: &str) -> anyhow::Result<(Response, String)> {
    let mut answer = world.get(&format!("/events{query}")).await?.error_for_status()?;
    let text = until(&mut answer, "\n\n").await?;
    let id = id(&text)?;
    Ok((answer, id))
}

/// The last id in a text.
fn id(text: &str) -> anyhow::Result<String> {
    let last = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back();
    last.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no id in {text:?}"))
}

/// Status, and whether it is the end, of each event of a task.
fn statuses(text: &str, task: &str) -> Vec<(i64, bool)> {
    let of_task = events(text).into_iter().filter(|(_, data)| data["id"] == task);
    of_task.map(|(name, data)| (data["status"].as_i64().unwrap_or(99), name == "end")).collect()
}

#[tokio::test]
async fn every_change_is_told_once_and_from_any_event_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mail = queue(&world, "mail").await?;
    let (mut told, begin) = follow(&world, "").await?;
    let task = world.task(doc! { "queue": mail, "group": "g" }).await?;
    world.set(task, doc! { "status": -1, "node": "n1" }).await?;
    world.set(task, doc! { "status": 0, "attempt": 1 }).await?;
    // Not a change of its status.
    world.set(task, doc! { "progress": { "percent": 5 } }).await?;
    world.set(task, doc! { "status": 2 }).await?;
    let text = until(&mut told, "event: end").await?;
    let expected = [(-2, false), (-1, false), (0, false), (2, true)];
    assert_eq!(statuses(&text, &task.to_string()), expected, "{text}");
    let end = events(&text).pop().unwrap_or_default().1;
    let wanted = [
        ("queue_name", "mail"),
        ("word", "failed"),
        ("node", "n1"),
        ("group", "g"),
        ("mtime", "2026-11-20T08:24:27"),
    ];
    for (name, value) in wanted {
        assert_eq!(end[name], value, "{name}: {end}");
    }
    assert_eq!((end["attempt"].clone(), end["ended"].clone()), (1.into(), true.into()));
    let seen = id(&text)?;
    drop(told);

    // Nobody listens now.
    world.set(task, doc! { "status": -2 }).await?;
    world.set(task, doc! { "status": 1 }).await?;
    let header = world.server.request(Method::GET, "/events").header("Last-Event-ID", &seen);
    let mut told = header.send().await?.error_for_status()?;
    let text = until(&mut told, "event: end").await?;
    assert_eq!(
        statuses(&text, &task.to_string()).first(),
        Some(&(-2, false)),
        "only what happened since: {text}"
    );
    // From the beginning, only ends.
    let mut told = world.get(&format!("/events?ended=1&.after={begin}")).await?.error_for_status()?;
    let text = until(&mut told, "succeeded").await?;
    assert_eq!(statuses(&text, &task.to_string()), [(2, true), (1, true)], "{text}");
    world.end().await
}

#[tokio::test]
async fn a_filter_leaves_out_the_rest() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (mail, post) = (queue(&world, "mail").await?, queue(&world, "post").await?);
    let schedule = ObjectId::new();
    let (_, begin) = follow(&world, "").await?;
    let tasks = [
        world.task(doc! { "queue": mail, "group": "a" }).await?,
        world.task(doc! { "queue": post, "tenant": "t", "status": -7 }).await?,
        world.task(doc! { "queue": mail, "schedule": schedule }).await?,
        world.task(doc! { "queue": post, "group": "last" }).await?,
    ];
    for (query, expected) in [
        ("queue=mail".to_owned(), vec![0, 2]),
        (format!("queue=mail,{post}"), vec![0, 1, 2, 3]),
        ("queue=post&status=-2".to_owned(), vec![3]),
        (format!("schedule={schedule}"), vec![2]),
        ("tenant=t".to_owned(), vec![1]),
        ("group=last".to_owned(), vec![3]),
    ] {
        let path = format!("/events?{query}&.after={begin}");
        let mut told = world.get(&path).await?.error_for_status()?;
        let mut text = String::new();
        while events(&text).len() < expected.len() {
            text += &until(&mut told, "\n\n").await?;
        }
        let found: Vec<Value> = events(&text).into_iter().map(|(_, data)| data["id"].clone()).collect();
        let expected: Vec<Value> = expected.into_iter().map(|n: usize| tasks[n].to_string().into()).collect();
        assert_eq!(found, expected, "{query}: {text}");
    }
    world.end().await
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_in_words() -> anyhow::Result<()> {
    let world = World::new().await?;
    let odd = "8269226F0B000000012B042C0100296E5A1004";
    for (query, status, word) in [
        ("?queue=nosuch".to_owned(), StatusCode::BAD_REQUEST, "no queue 'nosuch'"),
        ("?status=x".to_owned(), StatusCode::BAD_REQUEST, "status must be"),
        ("?colour=red".to_owned(), StatusCode::BAD_REQUEST, "colour"),
        ("?ended=maybe".to_owned(), StatusCode::BAD_REQUEST, "ended"),
        ("?.after=attempt:1".to_owned(), StatusCode::BAD_REQUEST, "no id of an event"),
        (format!("?.after={odd}"), StatusCode::BAD_REQUEST, "no id of an event"),
        (format!("?.after={}", "0".repeat(60)), StatusCode::BAD_REQUEST, "no id of an event"),
    ] {
        let answer = world.get(&format!("/events{query}")).await?;
        let (found, text) = (answer.status(), answer.text().await?);
        ensure!(found == status && text.contains(word), "{query}: {found} {text}");
    }
    // So many follow, and no more; who leaves makes room.
    let mut followers = Vec::new();
    let refused = loop {
        let answer = world.get("/events").await?;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        followers.push(answer);
        ensure!(followers.len() <= 100, "there is no limit");
    };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let text = refused.text().await?;
    assert!(text.contains("32 clients follow"), "{text}");
    followers.clear();
    let deadline = tokio::time::Instant::now() + super::PATIENCE;
    while world.get("/events").await?.status() != StatusCode::OK {
        ensure!(tokio::time::Instant::now() < deadline, "places do not come back");
    }
    world.end().await
}

#[tokio::test]
async fn a_server_without_a_log_of_changes_is_no_place_to_follow() -> anyhow::Result<()> {
    let world = World::on(testing::standalone().await?).await?;
    let answer = world.get("/events").await?;
    let (status, text) = (answer.status(), answer.text().await?);
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED, "{text}");
    assert!(text.contains("replica set"), "{text}");
    world.end().await
}
