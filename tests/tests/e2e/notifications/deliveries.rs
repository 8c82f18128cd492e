//! Messages that do not arrive at once, or never may.

use bson::doc;
use disbatch_core::model::whole_number;
use disbatch_core::notifications::QUEUE;
use disbatch_tests::eventually;
use disbatch_tests::hook::{Manner, count_events};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{PAGES, Scene, soon, task_of};

/// So many seconds the task of a message may take.
const TIMEOUT: i32 = 4;

#[tokio::test]
async fn a_message_is_sent_until_it_is_taken_and_is_the_same_each_time() -> anyhow::Result<()> {
    let manners = vec![Manner::Refuses, Manner::IsSilent, Manner::HangsUp];
    let scene = Scene::with(&json!({}), manners).await?;
    let world = &scene.world;
    let queue = scene.queue("imports").await?;
    scene.subscribe("each", &json!({ "events": ["failed"] })).await?;
    world.update_queue(QUEUE, doc! { "timeout": TIMEOUT, "backoff": soon() }).await?;
    let _den = world.den_at_work("n1").await?;
    scene.run(queue, "fail", 1).await?;
    let received = eventually("four attempts", || async {
        let received = scene.hook.received();
        Ok((received.len() == 4).then_some(received))
    })
    .await?;
    let task = received[0].id()?.parse()?;
    for attempt in &received {
        assert_eq!((attempt.id()?, attempt.json()?), (received[0].id()?, received[0].json()?));
    }
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get("attempt").and_then(whole_number), Some(4));
    let attempts = world.store().list_attempts(task).await?;
    let mut statuses = Vec::new();
    for attempt in &attempts {
        statuses.push(attempt.get_i32("status")?);
    }
    assert_eq!(statuses, [2, -3, 2], "{attempts:?}");
    assert!(attempts[0].get_str("stderr")?.contains("has answered with 500"), "{}", attempts[0]);
    assert!(attempts[2].get_str("stderr")?.contains("may have the message"), "{}", attempts[2]);
    // Whoever looks at the ids has been told once.
    assert_eq!(count_events(&scene.hook.messages()?, "failed"), 1);
    scene.world.end().await
}

#[tokio::test]
async fn an_answer_that_comes_late_is_an_answer() -> anyhow::Result<()> {
    let scene = Scene::with(&json!({}), vec![Manner::Waits]).await?;
    let queue = scene.queue("imports").await?;
    scene.subscribe("each", &json!({ "events": ["failed"] })).await?;
    let _den = scene.world.den_at_work("n1").await?;
    scene.run(queue, "fail", 1).await?;
    let messages = scene.until_events("failed", 1).await?;
    let task = task_of(&messages[0])?;
    assert_eq!(scene.world.status(task).await?, 0, "it waits");
    scene.hook.answer();
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get("attempt").and_then(whole_number), Some(1));
    assert_eq!(scene.hook.received().len(), 1);
    scene.world.end().await
}

#[tokio::test]
async fn private_addresses_are_for_nodes_that_allow_them_whatever_their_names() -> anyhow::Result<()> {
    let scene = Scene::with(&json!({ "notifications": { "url": PAGES } }), vec![]).await?;
    let world = &scene.world;
    let hosts = ["127.0.0.1", "localhost", "127.1", "2130706433"];
    let mut tasks = Vec::new();
    for (number, host) in hosts.into_iter().enumerate() {
        let name = format!("hook{number}");
        scene.subscribe(&name, &json!({ "events": ["failed"], "url": scene.hook.url_of(host) })).await?;
        tasks.push(scene.test(&name).await?);
    }
    world.update_queue(QUEUE, doc! { "max_attempts": 1 }).await?;
    let den = world.den_at_work("n1").await?;
    for (task, host) in tasks.iter().zip(hosts) {
        let refused = world.until_status(*task, 2).await?;
        let why = refused.get_str("stderr")?;
        assert!(why.contains("is not public") && why.contains("notifications.allow"), "{host}: {why}");
    }
    assert!(scene.hook.received().is_empty());
    den.end_with(Signal::SIGTERM).await?;

    // A network is meant whatever its hosts are called.
    world.configure(json!({ "notifications": { "allow": ["127.0.0.0/8"] } }))?;
    let _den = world.den_at_work("n1").await?;
    for task in tasks {
        scene.dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
        world.until_status(task, 1).await?;
    }
    assert_eq!(count_events(&scene.hook.messages()?, "test"), 4);
    scene.world.end().await
}
