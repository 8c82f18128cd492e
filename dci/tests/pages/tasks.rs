//! What pages say of tasks: how many there are, since when they wait, and what is done to many of them.

use std::sync::Arc;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::store::Store;
use reqwest::Method;
use serde_json::json;

use super::{World, until};

/// 2026-11-20T08:24:27Z
const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

/// A task that was made years ago, failed, and has waited since `NOW` to be tried again.
fn tried_again(queue: ObjectId) -> anyhow::Result<Document> {
    let long_ago = DateTime::from_millis(1_600_000_000_000);
    let entry = |status: i32, at: DateTime| doc! { "status": status, "at": at };
    Ok(doc! {
        "_id": ObjectId::parse_str("5f5e10000000000000000001")?, "queue": queue, "status": -2, "node": Bson::Null,
        "params": { "to": "<Ada>" }, "ctime": long_ago, "mtime": NOW,
        "history": [entry(-1, long_ago), entry(0, long_ago), entry(2, long_ago), entry(-2, NOW)],
    })
}

/// A world in which tasks can be searched for.
async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    let store = Store::with_clock(world.database.database.clone(), Arc::new(SystemClock));
    store.ensure_indexes().await?;
    Ok(world)
}

fn ids(html: &str) -> Vec<String> {
    let rows = html.split("<tr id=\"task-").skip(1);
    rows.filter_map(|rest| rest.get(..24)).map(str::to_owned).collect()
}

#[tokio::test]
async fn numbers_lead_to_the_tasks_that_they_count() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue;
    let with = |status: i32| doc! { "_id": ObjectId::new(), "queue": queue, "status": status, "ctime": NOW, "mtime": NOW };
    let mut tasks: Vec<Document> = [-7, -3, -5, -6, 0, 1, 2].map(with).into();
    tasks.push(tried_again(queue)?);
    world.database.database.collection::<Document>("tasks").insert_many(&tasks).await?;
    let html = world.page("/").await?;
    let row = html.split(&format!("<tr id=\"queue-{queue}\" ")).nth(1).context("no row")?;
    let row = row.split("</tr>").next().context("no end")?;
    for (part, path, tasks) in [
        ("&#38;status=-2&#38;status=-7&#38;status=-4\">2<", "status=-2&status=-7&status=-4", 2),
        ("&#38;status=1&#38;status=2\">2<", "status=1&status=2", 2),
        ("&#38;status=2\">1<", "status=2", 1),
        ("&amp;status=-1&amp;status=0\">1<", "status=-1&status=0", 1),
    ] {
        assert!(row.contains(part), "{part} is not in {row}");
        let found = world.page(&format!("/tasks?queue={queue}&{path}")).await?;
        assert_eq!(ids(&found).len(), tasks, "{path}");
    }
    let since = "<time datetime=\"2026-11-20T08:24:27Z\">";
    assert!(row.contains(since), "a task that is tried again waits from then: {row}");
    let html = world.page(&format!("/queues/{queue}")).await?;
    assert!(html.contains(&format!("the oldest since {since}")), "{html}");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_search_finds_text_and_its_actions_spare_what_it_left_out() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue;
    let task = tried_again(queue)?;
    let id = task.get_object_id("_id")?.to_hex();
    let large = doc! {
        "_id": ObjectId::new(), "queue": queue, "status": 2, "params": { "to": "x".repeat(100_000) },
        "result": "y".repeat(100_000),
    };
    world.database.database.collection::<Document>("tasks").insert_many([&task, &large]).await?;
    for path in ["/tasks?.text=ADA", "/tasks?.text=ADA&.archive=1&.limit=5"] {
        assert_eq!(ids(&world.page(path).await?), [id.as_str()], "{path}");
    }
    let html = world.page(&format!("/tasks?queue={queue}&.columns=params,result")).await?;
    assert!(html.contains("(more than 16 KiB: see the task)") && html.len() < 90_000, "{}", html.len());
    assert!(html.contains("name=\"archive\" value=\"0\""), "{html}");
    let html = world.page(&format!("/tasks?queue={queue}&.archive=1")).await?;
    assert!(!html.contains("name=\"archive\" value=\"0\"") && html.contains("only be deleted"), "{html}");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_task_is_run_again_with_what_it_was_submitted_with() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queues = world.database.database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": world.queue }, doc! { "$set": { "index": ["params.to"] } }).await?;
    let mut task = tried_again(world.queue)?;
    task.extend(doc! {
        "locks": ["db/2", "schedule:x"], "group": "a/b", "tags": ["to=<Ada>", "urgent"], "grace": 1.5, "unique": "k",
        "files": { "input": { "name": "data", "taken": 3_i64 } },
    });
    let id = task.get_object_id("_id")?;
    world.database.database.collection::<Document>("tasks").insert_one(&task).await?;
    for path in [format!("/tasks/{id}"), format!("/queues/{}?tab=new&task={id}", world.queue)] {
        let html = world.page(&path).await?;
        for part in [
            "name=\".locks\" value=\"db/2\"",
            "name=\".group\" value=\"a/b\"",
            "name=\".tags\" value=\"urgent\"",
            "name=\".grace\" value=\"1.5\"",
            "name=\".files\" value=\"{&#34;input&#34;:{&#34;name&#34;:&#34;data&#34;}}\"",
        ] {
            assert!(html.contains(part), "{part} is not in {path}: {html}");
        }
        assert!(!html.contains("value=\"k\""), "{path}: {html}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn an_ended_task_tells_when_it_is_tried_again() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut task = tried_again(world.queue)?;
    task.insert("status", 2);
    let id = task.get_object_id("_id")?;
    let tasks = world.database.database.collection::<Document>("tasks");
    tasks.insert_one(&task).await?;
    let mut told = world.server.request(Method::GET, &format!("/ui/tasks/{id}")).send().await?;
    until(&mut told, "data-ended=\"true\"").await?;
    let change =
        doc! { "$set": { "status": -2, "mtime": DateTime::from_millis(NOW.timestamp_millis() + 1) } };
    tasks.update_one(doc! { "_id": id }, change).await?;
    until(&mut told, "data-ended=\"false\"").await?;
    world.database.drop_database().await
}

#[tokio::test]
async fn bulk_jobs_have_pages() -> anyhow::Result<()> {
    let world = World::new().await?;
    for _ in 0..3 {
        let job = json!({ "action": "cancel", "filter": { "queue": "*" } });
        let made = world.server.request(Method::POST, "/bulk").json(&job).send().await?;
        assert_eq!(made.status(), 202);
    }
    let rows = |html: &str| html.matches("<tr id=\"bulk-").count();
    let address = |html: &str, rel: &str| {
        let link = html.split(&format!("rel=\"{rel}\" href=\"")).nth(1)?.split('"').next()?;
        Some(link.replace("&#38;", "&"))
    };
    let first = world.page("/bulk?.limit=2").await?;
    assert_eq!((rows(&first), address(&first, "prev")), (2, None));
    let next = address(&first, "next").context("no next page")?;
    let second = world.page(&next).await?;
    assert_eq!((rows(&second), address(&second, "next")), (1, None));
    let back = world.page(&address(&second, "prev").context("no page before")?).await?;
    assert_eq!(rows(&back), 2);
    let mut told = world.server.request(Method::GET, &next.replace("/bulk", "/ui/bulk")).send().await?;
    let sent = until(&mut told, "</table>").await?;
    assert_eq!(rows(&sent), 1, "what is told is of the same page: {sent}");
    world.database.drop_database().await
}
