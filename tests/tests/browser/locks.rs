//! The page of a lock.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn a_lock_is_followed_until_it_is_free() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 2 }).await?;
    let gone = world.path().join("gone");
    let command = format!("while [ ! -e {} ]; do sleep 0.1; done", gone.display());
    for command in [command.as_str(), "true"] {
        let task = json!({ "queue": "reports", "params": [{ "command": command }], ".locks": "db:1" });
        site.post("/tasks", &task).await?;
    }
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url("/locks")).await?;
        browser.page().click("link", "db:1").await?;
        let lock = browser.part("#lock", "db:1");
        for name in ["reports", "node1"] {
            lock.until_there("link", name).await?;
        }
        lock.until_text("Waiting: 1").await?;
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        std::fs::write(&gone, "")?;
        lock.until_text("Nobody holds it.").await?;
        lock.until_text("free").await?;
        ensure!(browser.script("return globalThis.stillTheSame", json!([])).await? == true);
        // Who comes then is told the same.
        browser.open(&site.url("/locks/db:1")).await?;
        lock.until_text("free").await?;
        world.until_all_ended(queue).await.map(drop)
    })
    .await?;
    site.end().await
}
