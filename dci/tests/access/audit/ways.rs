//! Every way to change something.

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use reqwest::Method;
use serde_json::{Value, json};

use super::{SECRET, change, task};
use crate::world::World;

/// A request, and what its entry says: what was done, and to what kind of thing.
type Case = (String, Value, &'static str, &'static str);

fn case(path: impl Into<String>, body: Value, what: &'static str, kind: &'static str) -> Case {
    (path.into(), body, what, kind)
}

/// What is changed besides tasks.
fn settings(queue: &str) -> Vec<Case> {
    let first = json!({ "max_tasks": {}, "queues": [["mine"]], ".base": "" });
    let second = json!({ "max_tasks": { "* 07:00": 5 }, "queues": [["mine"]] });
    let threads = json!({ "queueid": queue, "attr": "threads", "value": 2 });
    let node = json!({ "maxthreads": 5, "draining": true });
    vec![
        case("/nodes/vm", node, "node update", "node"),
        case("/ui/balance", first, "balance update", "balance"),
        case("/balance", second, "balance update", "balance"),
        case("/ui/balance/disable", json!({ "hours": 1 }), "balance pause", "balance"),
        case("/set-queue-attr-json", threads, "queue update", "queue"),
        case("/counters/audit", json!({}), "counters audit", "counters"),
        case("/start-queue-json", json!({ "type": "My::Plugin", "name": "old" }), "queue create", "queue"),
    ]
}

/// What is done with schedules and calendars.
fn of_schedules(queue: &str) -> Vec<Case> {
    let schedule = |path: &str, body, what| case(format!("/schedules{path}"), body, what, "schedule");
    let new = json!({ "name": "nightly", "queue": queue, "cron": "0 3 * * *", "params": { "to": "all" } });
    let past = json!({ "from": "2025-03-01", "to": "2025-03-03" });
    let day = json!({ "name": "holidays", "dates": ["2026-12-24"] });
    vec![
        schedule("", new, "schedule create"),
        schedule("/nightly", json!({ "cron": "@hourly", "options": { "timeout": 5 } }), "schedule update"),
        schedule("/nightly/pause", json!({}), "schedule pause"),
        schedule("/nightly/run", json!({}), "schedule run"),
        schedule("/nightly", json!({ "paused": false }), "schedule resume"),
        schedule("/nightly", json!({ "cron": "0 3 * * *" }), "schedule update"),
        schedule("/nightly/backfill", past, "schedule backfill"),
        case("/calendars", day, "calendar set", "calendar"),
        case("/calendars/holidays", json!({ "dates": ["2026-12-31"] }), "calendar set", "calendar"),
    ]
}

/// What is done with tasks.
fn of_tasks(queue: &str, waiting: ObjectId, ended: ObjectId) -> Vec<Case> {
    let tasks = json!([{ "to": SECRET }]);
    let pattern = json!({ "name": "document.name" });
    let from_query = json!({
        "queueid": queue, "collection": "queues", "jsonfilter": { "plugin": "My::Plugin" }, "params": pattern,
    });
    let submit = |path: String, body| case(path, body, "tasks submit", "queue");
    vec![
        case(format!("/tasks/{waiting}/cancel"), json!({ "reason": "late" }), "task cancel", "task"),
        case(format!("/tasks/{ended}/retry"), json!({ "reason": "again" }), "task retry", "task"),
        submit(format!("/tasks/{queue}/queues"), json!({ "filter": {}, "params": pattern })),
        submit("/tasks".into(), json!({ "queue": queue, "params": tasks })),
        submit(format!("/ui/queues/{queue}/tasks"), json!({ "json": "{\"a\":1}" })),
        submit(format!("/tasks/{queue}"), tasks.clone()),
        submit("/queue-create-tasks-json".into(), json!({ "queueid": queue, "object": tasks })),
        submit("/queue-create-tasks-from-query-json".into(), from_query),
    ]
}

/// Makes the changes one after another, and returns what they have left.
async fn made(world: &World, cases: Vec<Case>) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for (path, body, what, kind) in cases {
        let entry = change(world, Method::POST, &path, body).await?;
        ensure!(entry["what"] == what && entry["object"]["kind"] == kind, "{path}: {entry}");
        all.push(entry);
    }
    Ok(all)
}

#[tokio::test]
async fn every_way_to_change_settings_leaves_one_entry() -> anyhow::Result<()> {
    let world = World::new().await?;
    let nodes = world.database.database.collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "vm", "maxthreads": 2 }).await?;
    let all = made(&world, settings(&world.mine.to_string())).await?;
    let node = (&all[0]["before"], &all[0]["after"]);
    assert_eq!(node, (&json!({ "maxthreads": 2 }), &json!({ "maxthreads": 5, "draining": true })));
    assert_eq!((&all[1]["before"], &all[1]["after"]["queues"]), (&Value::Null, &json!([["mine"]])));
    let balance = (&all[2]["before"], &all[2]["after"]);
    assert_eq!(balance, (&json!({ "max_tasks": {} }), &json!({ "max_tasks": { "* 07:00": 5 } })));
    assert!(all[3]["after"]["disabled"].is_number() && all[3]["before"].is_null(), "{}", all[3]);
    let old = world.store.list_queues().await?.into_iter().find(|queue| queue.display_name() == "old");
    let id = old.context("the queue is not there")?.id.to_string();
    let gone = change(&world, Method::POST, "/delete-queue-json", json!({ "id": id })).await?;
    assert_eq!((&gone["what"], &gone["before"]["name"]), (&json!("queue delete"), &json!("old")));
    world.database.drop_database().await
}

#[tokio::test]
async fn every_way_to_change_a_schedule_leaves_one_entry() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.mine.to_string();
    let all = made(&world, of_schedules(&queue)).await?;
    for entry in &all[..7] {
        assert_eq!(
            (&entry["queue"], &entry["object"]["name"]),
            (&json!(queue), &json!("nightly")),
            "{entry}"
        );
    }
    let updated = (&all[1]["before"], &all[1]["after"]);
    let after = json!({ "cron": "@hourly", "options": { "timeout": 5 } });
    assert_eq!(updated, (&json!({ "cron": "0 3 * * *" }), &after));
    assert_eq!(
        (&all[2]["before"], &all[2]["after"]),
        (&json!({ "paused": false }), &json!({ "paused": true }))
    );
    assert_eq!((&all[3]["count"], &all[6]["count"]), (&json!(1), &json!(2)));
    assert_eq!(all[8]["after"], json!({ "dates": ["2026-12-31"] }));
    for (path, body, expected) in [
        ("/schedules/nightly", json!({ "cron": "0 3 * * *" }), 200),
        ("/schedules/nightly/resume", json!({}), 200),
        ("/schedules/nightly/backfill", json!({ "from": "2025-03-01", "to": "2025-03-03" }), 200),
        ("/schedules/nightly", json!({ "cron": "nonsense" }), 400),
        ("/calendars/holidays", json!({ "dates": ["2026-12-31"] }), 200),
        ("/calendars", json!({ "name": "holidays" }), 409),
    ] {
        super::nothing(&world, "operator", path, body, expected).await?;
    }
    for (path, what) in
        [("/schedules/nightly", "schedule delete"), ("/calendars/holidays", "calendar delete")]
    {
        let gone = change(&world, Method::DELETE, path, json!({})).await?;
        assert_eq!(gone["what"], what, "{gone}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn every_way_to_do_something_with_tasks_leaves_one_entry() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.mine.to_string();
    let (waiting, ended) = (task(&world, -2).await?, task(&world, 2).await?);
    let all = made(&world, of_tasks(&queue, waiting, ended)).await?;
    let cancelled = (&all[0]["before"], &all[0]["after"], &all[0]["reason"]);
    assert_eq!(cancelled, (&json!({ "status": -2 }), &json!({ "status": -5 }), &json!("late")));
    assert_eq!((&all[1]["before"]["status"], &all[1]["after"]["status"]), (&json!(2), &json!(-2)));
    assert_eq!((&all[2]["count"], &all[2]["collection"]), (&json!(2), &json!("queues")));
    for entry in &all {
        assert_eq!(entry["queue"], queue.as_str(), "{entry}");
        assert!(!entry.to_string().contains(SECRET), "{entry}");
    }
    for entry in &all[3..7] {
        let tasks = entry["tasks"].as_array().map(Vec::len);
        assert_eq!((&entry["count"], tasks), (&json!(1), Some(1)), "{entry}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn the_first_subscription_leaves_an_entry_about_the_queue_of_messages_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    let body = json!({ "channel": "webhook", "url": "https://hooks.example/x", "events": ["failed"] });
    let first = world.request(Method::POST, "/subscriptions/first", Some("operator")).json(&body);
    let (status, mut entries) = super::left(&world, first).await?;
    entries.sort_by_key(|entry| entry["what"].as_str().map(str::to_owned));
    let what: Vec<&Value> = entries.iter().map(|entry| &entry["what"]).collect();
    assert_eq!((status, what), (200, vec![&json!("queue create"), &json!("subscription set")]));
    let made = (&entries[0]["object"]["name"], &entries[0]["after"]["plugin"], &entries[0]["user"]);
    let expected = (json!("notifications"), json!("Disbatch::Plugin::Notify"), json!("operator"));
    assert_eq!(made, (&expected.0, &expected.1, &expected.2));
    let second = change(&world, Method::POST, "/subscriptions/second", body).await?;
    assert_eq!(second["what"], "subscription set");
    world.database.drop_database().await
}
