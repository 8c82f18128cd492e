//! The page of a task: what it says of its life, and what is done there.

use bson::doc;
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
