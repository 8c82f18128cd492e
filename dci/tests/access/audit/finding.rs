//! How entries are found, and that there is one for each change whatever happens.

use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::model::QueueId;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{change, entries};
use crate::world::{PASSWORD, World};

/// When nothing but what a test has put there was done.
const THEN: DateTime = DateTime::from_millis(1_000_000_000_000);

/// Three changes of queues by alice, one of a node by bob, and a bulk job of an older release.
async fn fill(world: &World) -> anyhow::Result<()> {
    let (store, queue) = (&world.store, world.mine);
    let alice = Actor::new(Some("alice".into()), Via::Session, "10.0.0.1");
    let bob = Actor::new(Some("bob".into()), Via::Password, "10.0.0.2");
    let entry = |who: &Actor, what, object| AuditEntry::new(who.clone(), what, object);
    let of_queue = |what, id: QueueId| AuditEntry {
        queue: Some(id),
        ..entry(&alice, what, Object::with_id(ObjectKind::Queue, id.0))
    };
    store.record_audit(&of_queue(Verb::QueueCreate, queue)).await?;
    store.record_audit(&of_queue(Verb::QueueUpdate, queue)).await?;
    store.record_audit(&of_queue(Verb::QueueUpdate, world.other)).await?;
    let node = Object::with_name(ObjectKind::Node, "vm");
    store.record_audit(&entry(&bob, Verb::NodeUpdate, node)).await?;
    let audit = world.database.database.collection::<Document>("audit");
    // As older releases have left them.
    let old = doc! { "at": THEN, "by": "the REST API from 10.0.0.3", "what": "bulk retry",
    "filter": { "queue": queue.0 }, "job": ObjectId::new(), "count": 3_i64 };
    audit.insert_one(old).await?;
    Ok(())
}

#[tokio::test]
async fn entries_are_found_by_all_that_they_say() -> anyhow::Result<()> {
    let world = World::new().await?;
    fill(&world).await?;
    let queue = world.mine;
    let number = async |search: &str| anyhow::Ok(entries(&world, search).await?.len());
    for (search, expected) in [
        ("", 5),
        ("what=queue", 3),
        ("what=queue%20update", 2),
        ("what=que", 0),
        ("user=alice", 3),
        ("user=ali", 0),
        ("by=ALI", 3),
        ("by=10.0.0.", 5),
        ("object=node", 1),
        ("object=node&name=vm&user=bob", 1),
        ("object=bulk", 1),
        ("to=2001-09-08", 0),
        ("from=2001-09-09&to=2001-09-09", 1),
        ("from=1000000001", 4),
    ] {
        assert_eq!(number(search).await?, expected, "{search}");
    }
    assert_eq!(number(&format!("queue={queue}")).await?, 3);
    assert_eq!(number(&format!("about={queue}&what=bulk")).await?, 1);
    for wrong in ["what[]=x", "from=yesterday", "object=thing", ".limit=0", ".after=x"] {
        let answer = world.request(Method::GET, &format!("/audit?{wrong}"), Some("admin")).send().await?;
        assert_eq!(answer.status(), 400, "{wrong}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn pages_have_each_entry_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    fill(&world).await?;
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/audit?.limit=2{after}");
        let page = world.request(Method::GET, &path, Some("admin")).send().await?.text().await?;
        let page: Vec<Value> = serde_json::from_str(&page)?;
        let Some(last) = page.last() else { break };
        after = format!("&.after={}", last["key"].as_str().context("it has no place")?);
        seen.extend(page);
    }
    assert_eq!((seen.len(), &seen), (5, &entries(&world, "").await?));
    world.database.drop_database().await
}

/// Asks for a queue, and hangs up after so long.
async fn ask_and_hang_up(world: &World, after: Duration) -> anyhow::Result<()> {
    let url = world.server.request(Method::GET, "/").build()?.url().clone();
    let address = format!("{}:{}", url.host_str().context("no host")?, url.port().context("no port")?);
    let body = json!({ "name": format!("hung up {after:?}"), "plugin": "My::Plugin" }).to_string();
    let request = format!(
        "POST /queues HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        STANDARD.encode(format!("operator:{PASSWORD}")),
        body.len(),
    );
    let mut connection = TcpStream::connect(&address).await?;
    connection.write_all(request.as_bytes()).await?;
    tokio::time::sleep(after).await;
    Ok(())
}

#[tokio::test]
async fn whoever_hangs_up_is_recorded_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    // From then on the password is known, and requests are quick.
    change(&world, Method::POST, &format!("/queues/{}", world.mine), json!({ "threads": 1 })).await?;
    let audit = world.database.database.collection::<Document>("audit");
    let queues = world.database.database.collection::<Document>("queues");
    let numbers = async || {
        let made = queues.count_documents(doc! { "name": { "$regex": "^hung up" } }).await?;
        anyhow::Ok((made, audit.count_documents(doc! { "what": "queue create" }).await?))
    };
    let (mut made, mut recorded) = (0, 0);
    // Each time at another moment of a request's life, which is longer on a busy machine.
    for step in [150, 1_500, 15_000].map(Duration::from_micros) {
        for number in 1..=60 {
            ask_and_hang_up(&world, step * number).await?;
        }
        // Until nothing has come for a while.
        let mut quiet = 0;
        while quiet < 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = numbers().await?;
            quiet = if now == (made, recorded) { quiet + 1 } else { 0 };
            (made, recorded) = now;
        }
        if made > 0 {
            break;
        }
    }
    ensure!(made > 0, "the server did not even begin with any of them");
    assert_eq!(recorded, made);
    world.database.drop_database().await
}
