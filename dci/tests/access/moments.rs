//! A moment of the past, for those who may see some queues: what is within their rights, and nothing else.

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{Grant, NewToken, PasswordHash, Role, Scope};
use disbatch_core::model::QueueId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{MARKER, PASSWORD, World};

/// A task that a schedule has made, and that failed on the node `n1` a second ago.
async fn failed(world: &World, queue: QueueId, tenant: Option<&str>) -> anyhow::Result<String> {
    let now = world.store.now().timestamp_millis();
    let at = |ago: i64| DateTime::from_millis(now - ago);
    let entry = |ago, status| doc! { "at": at(ago), "status": status, "attempt": 1, "node": "n1" };
    let seconds = u32::try_from(now / 1000 - 3).context("a time")?;
    let task = ObjectId::from_parts(seconds, *b"then!", ObjectId::new().bytes()[9..].try_into()?);
    let mut stored = doc! {
        "_id": task, "queue": queue, "status": 2, "node": "n1", "attempt": 1, "ctime": at(3000), "mtime": at(1000),
        "schedule": ObjectId::new(), "history": [entry(2500, -1), entry(2000, 0), entry(1000, 2)],
    };
    if let Some(tenant) = tenant {
        stored.insert("tenant", tenant);
    }
    world.database.database.collection::<Document>("tasks").insert_one(stored).await?;
    Ok(task.to_hex())
}

/// Tasks of the first queue, of the second one, and of acme in that; a node that was lost, and changes of both queues.
async fn prepare(world: &World) -> anyhow::Result<[String; 3]> {
    let hash = PasswordHash::of(PASSWORD)?;
    for (name, scope, role) in [
        ("chief", Scope::Queue(world.mine), Role::Admin),
        ("ann", Scope::Tenant("acme".to_owned()), Role::Viewer),
    ] {
        world.store.add_user(&World::name(name)?, None, &[Grant { scope, role }], Some(&hash)).await?;
    }
    let seen = DateTime::from_millis(world.store.now().timestamp_millis() - 5_000);
    let node = doc! { "node": "n1", "instance": "i", "state": "alive", "seen": seen, "timestamp": seen, "lease_ms": 1_i64 };
    world.database.database.collection::<Document>("nodes").insert_one(node).await?;
    for (queue, threads) in [(world.mine, 7), (world.other, 9)] {
        let set = world.request(Method::POST, &format!("/queues/{queue}"), Some("operator"));
        set.json(&json!({ "threads": threads })).send().await?.error_for_status()?;
    }
    Ok([
        failed(world, world.mine, None).await?,
        failed(world, world.other, None).await?,
        failed(world, world.other, Some("acme")).await?,
    ])
}

/// What is told to somebody: events by their kinds, with what they are about, and limits.
fn told(moment: &Value) -> (Vec<(&str, &str)>, Vec<&str>) {
    let list = |name: &str| moment[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let about = |event: &Value| ["task", "words"].into_iter().find(|name| event[*name].is_string());
    let mut events: Vec<(&str, &str)> = Vec::new();
    for event in list("events") {
        let about = about(event).and_then(|name| event[name].as_str()).unwrap_or_default();
        events.push((event["kind"].as_str().unwrap_or_default(), about));
    }
    events.sort_unstable();
    (events, list("limits").iter().filter_map(|limits| limits["name"].as_str()).collect())
}

async fn get(world: &World, path: &str, user: &str, accept: &str) -> anyhow::Result<(u16, String)> {
    let answer = world.request(Method::GET, path, Some(user)).header("accept", accept).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[tokio::test]
async fn a_moment_is_told_as_far_as_rights_reach() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [mine, other, ours] = prepare(&world).await?;
    let (mine, other, ours) = (mine.as_str(), other.as_str(), ours.as_str());
    let of_marker = format!("queue update {MARKER}: threads nothing → 9");
    let [change, changed, lost] = [
        ("change", "queue update mine: threads nothing → 7"),
        ("change", &*of_marker),
        ("node", "lost: last heard of then"),
    ];
    let of = |task| [("schedule", task), ("task", task)];
    let all = [of(mine), of(other), of(ours)].concat();
    let everything = vec!["mine", MARKER, "n1"];
    for (user, mut events, limits) in [
        ("guest", of(mine).to_vec(), vec!["mine"]),
        ("chief", [&[change][..], &of(mine)].concat(), vec!["mine"]),
        ("ann", of(ours).to_vec(), vec![]),
        ("viewer", [&[lost][..], &all].concat(), everything.clone()),
        ("admin", [&[change, changed, lost][..], &all].concat(), everything),
    ] {
        events.sort_unstable();
        let (status, text) = get(&world, "/moments", user, "application/json").await?;
        let moment: Value = serde_json::from_str(&text)?;
        assert_eq!((status, told(&moment)), (200, (events, limits)), "{user}: {moment:#}");
        let sees_other = ["viewer", "admin"].contains(&user);
        assert_eq!(text.contains(MARKER), sees_other, "{user}: {text}");
        let ran = moment["ran"].as_array().context("no list")?;
        assert_eq!(ran.len(), if sees_other { 3 } else { 1 }, "{user}: {moment:#}");
        let (status, page) = get(&world, "/moments", user, "text/html").await?;
        assert!(status == 200 && page.contains("/tasks/") && page.contains("n1"), "{user}: {status} {page}");
        assert_eq!(
            (page.contains(MARKER), page.contains("/nodes/n1")),
            (sees_other, sees_other),
            "{user}: {page}"
        );
        for path in [format!("/moments?queue={MARKER}"), format!("/moments?queue={}", world.other)] {
            let status = get(&world, &path, user, "application/json").await?.0;
            assert_eq!(status, if sees_other { 200 } else { 404 }, "{user}: {path}");
        }
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_token_for_one_queue_tells_of_that_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [mine, ..] = prepare(&world).await?;
    let (user, queues) = (World::name("admin")?, Some([world.mine].into()));
    let token = NewToken { user, name: "narrow".to_owned(), role: Role::Admin, queues, lasts: None };
    let token = world.store.create_token(&token).await?;
    let request = world.server.request(Method::GET, "/moments").bearer_auth(token);
    let text = request.send().await?.error_for_status()?.text().await?;
    let moment: Value = serde_json::from_str(&text)?;
    let change = ("change", "queue update mine: threads nothing → 7");
    assert_eq!(
        told(&moment),
        (vec![change, ("schedule", &mine), ("task", &mine)], vec!["mine"]),
        "{moment:#}"
    );
    world.database.drop_database().await
}
