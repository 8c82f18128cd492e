//! What is made again and again.

use anyhow::{Context, ensure};
use disbatch_core::model::TaskId;
use serde_json::json;

use crate::{Dci, World, eventually};

/// Schedules, and the last nights of one.
pub(super) async fn fill(world: &World, dci: &Dci) -> anyhow::Result<()> {
    dci.posted("/calendars/holidays", &json!({ "recurring": ["12-25", "12-26", "01-01"] })).await?;
    let orders = json!({ "shop": "shop-eu", "since": "yesterday" });
    let covers = json!({ "image": "covers/newest.jpg", "sizes": [160, 640] });
    for (name, queue, cron, zone, params) in [
        ("orders-of-the-night", "imports", "30 2 * * *", "Europe/Berlin", orders),
        ("month-end", "reports", "0 6 L * *", "America/New_York", json!({ "month": "the last one" })),
        ("thumbnails-again", "thumbnails", "*/15 8-18 * * mon-fri", "Europe/London", covers),
    ] {
        let schedule = json!({
            "name": name, "queue": queue, "cron": cron, "zone": zone, "params": params,
            "calendars": [{ "name": "holidays", "use": "exclude" }], "paused": name == "thumbnails-again",
        });
        let (status, answer) = dci.post("/schedules", &schedule).await?;
        ensure!(status == 201, "{status} {answer}");
    }
    let week = world.store().now().timestamp_millis() / 1_000 - 7 * 86_400;
    let past = dci.posted("/schedules/orders-of-the-night/backfill", &json!({ "from": week })).await?;
    let newest = past["tasks"].as_array().and_then(|tasks| tasks.last()?.as_str()).context("no task")?;
    let newest: TaskId = newest.parse()?;
    eventually("the nights to be made up for", || async {
        let task = dci.get(&format!("/tasks/{newest}")).await?;
        Ok((task["status"].as_i64() >= Some(1)).then_some(()))
    })
    .await
}
