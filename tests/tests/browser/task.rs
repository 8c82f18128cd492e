//! The page of a task: what it says of its life, and what is done there.

use bson::{DateTime, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::browser::visit;
use serde_json::{Value, json};

use crate::site::Site;

const SHELL: &str = "Disbatch::Plugin::Shell";

/// Submits a task of shell commands with options.
async fn submit(site: &Site, queue: QueueId, command: &str, options: Value) -> anyhow::Result<TaskId> {
    let mut task = json!({ "queue": queue.to_string(), "params": { "command": command } });
    if let (Some(task), Some(options)) = (task.as_object_mut(), options.as_object()) {
        task.extend(options.clone());
    }
    site.post("/tasks", &task).await?;
    let newest = site.world.tasks().find_one(doc! { "params.command": command }).await?;
    let id = newest.and_then(|task| task.get_object_id("_id").ok());
    id.map(TaskId).ok_or_else(|| anyhow::anyhow!("it is not there"))
}

#[tokio::test]
async fn a_deferred_task_with_locks_runs_when_it_is_told_to() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 1 }).await?;
    let options = json!({ ".delay": 3600, ".locks": "db" });
    let id = submit(&site, queue, "echo it has run", options).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("The task is deferred until").await?;
        page.click("link", "Run now").await?;
        page.click("button", "Yes, queue it now").await?;
        browser.part("#log-stdout", "it has run").until_text("it has run").await?;
        browser.part("#task-head", "succeeded").until_text("succeeded").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_history_of_a_task_that_waited_for_a_lock_says_so() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 0 }).await?;
    let id = world.submit(queue, vec![doc! { "command": "true" }]).await?[0];
    let at = |seconds: i64| DateTime::from_millis(1_795_163_067_344 + seconds * 1000);
    // It was blocked by a lock, has failed once, and waits for its next attempt.
    let fields = doc! {
        "status": -7, "ctime": at(0), "mtime": at(50), "locks": ["db"], "failures": 1, "attempt": 1, "run_at": DateTime::MAX,
        "history": [{ "at": at(40), "status": -2 }, { "at": at(41), "status": 0 }, { "at": at(50), "status": -7 }],
    };
    world.set(id, fields).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser
            .part("#task-timeline", "It ")
            .until_text("It was blocked for 40.0 s, waited 1.0 s, ran 9.0 s")
            .await?;
        // A state has the same colour in the picture as in words.
        let same = "const of = (tone) => getComputedStyle(document.querySelector(`.life .${tone}`)).fill;
            return of('blocked') !== of('queued') && of('blocked') === of('deferred')";
        browser.until("colours as those of the statuses", same).await.map(drop)
    })
    .await?;
    site.end().await
}
