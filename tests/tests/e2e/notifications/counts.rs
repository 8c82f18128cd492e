//! How many messages there are, and that they count everything.

use bson::doc;
use disbatch_tests::hook::count_events;
use serde_json::{Value, json};

use super::{Scene, WORKER, count_of, with};

/// Tasks that run and fail.
const RUN: usize = 200;

/// Tasks that others say have failed.
const NOTED: usize = 10_000;

#[tokio::test]
async fn ten_thousand_failures_are_one_message_that_counts_them() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let imports = world.queue(WORKER.name, doc! { "name": "imports", "threads": 16 }).await?;
    let elsewhere = world.queue(WORKER.name, doc! { "name": "elsewhere", "threads": 0 }).await?;
    let settings = json!({ "events": ["failed"] });
    scene.subscribe("many", &with(settings.clone(), &json!({ "delay": 3600 }))).await?;
    let _den = world.den_at_work("n1").await?;
    scene.run(imports, "fail", RUN).await?;
    for _ in 0..NOTED / 1_000 {
        world.submit(elsewhere, vec![doc! { "do": "nothing" }; 1_000]).await?;
    }
    let failed = doc! { "$set": { "status": 2, "mtime": world.store().now() } };
    let changed = world.tasks().update_many(doc! { "queue": elsewhere, "status": -2 }, failed).await?;
    assert_eq!(changed.modified_count, NOTED as u64);
    let all = i64::try_from(RUN + NOTED)?;
    scene.until_pending("many", all).await?;
    assert!(scene.hook.received().is_empty());
    scene.subscribe("many", &settings).await?;
    let messages = scene.until_events("failed", all).await?;
    assert_eq!((messages.len(), &messages[0]["count"], &messages[0]["more"]), (1, &json!(all), &json!(0)));
    for (queue, number) in [("imports", RUN), ("elsewhere", NOTED)] {
        assert_eq!(count_of(&messages, "failed", queue), i64::try_from(number)?);
    }
    let events = messages[0]["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |event: &Value| event["tasks"].as_array().map(Vec::len);
    assert!(events.len() == 2 && events.iter().all(|event| named(event) == Some(5)), "{}", messages[0]);
    let messages = scene.until_last().await?;
    assert_eq!((messages.len(), count_events(&messages, "failed")), (2, all + 1));
    assert_eq!(messages[1]["number"], 2);
    scene.world.end().await
}

#[tokio::test]
async fn a_message_waits_until_the_one_before_it_is_old_enough() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let queue = scene.queue("imports").await?;
    let settings = json!({ "events": ["failed"] });
    scene.subscribe("calm", &with(settings.clone(), &json!({ "every": 3600 }))).await?;
    let _den = scene.world.den_at_work("n1").await?;
    scene.run(queue, "fail", 1).await?;
    scene.until_events("failed", 1).await?;
    scene.run(queue, "fail", 2).await?;
    scene.until_pending("calm", 2).await?;
    assert_eq!(scene.hook.messages()?.len(), 1);
    scene.subscribe("calm", &settings).await?;
    let messages = scene.until_events("failed", 3).await?;
    let counts: Vec<Option<i64>> = messages.iter().map(|message| message["count"].as_i64()).collect();
    assert_eq!(counts, [Some(1), Some(2)]);
    scene.world.end().await
}
