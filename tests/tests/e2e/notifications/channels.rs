//! Messages for chats, whose addresses are secrets.

use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::notifications::QUEUE;
use disbatch_tests::eventually;
use disbatch_tests::hook::Manner;
use serde_json::{Value, json};

use super::{Scene, soon};
use crate::secrets::{not_in_files, not_in_the_database};

/// What arrived at an address, the last attempt.
fn last_at(scene: &Scene, path: &str) -> anyhow::Result<Value> {
    let mut received = scene.hook.received();
    received.retain(|received| received.path().ends_with(path));
    received.pop().map_or(Ok(Value::Null), |received| received.json())
}

#[tokio::test]
async fn chats_get_what_they_can_read_at_addresses_that_nobody_sees() -> anyhow::Result<()> {
    // What goes wrong does not show the address either.
    let scene = Scene::with(&json!({}), vec![Manner::Refuses, Manner::Refuses]).await?;
    let world = &scene.world;
    let queue = scene.queue("<imports>").await?;
    let secret = ObjectId::new().to_hex();
    for channel in ["slack", "teams"] {
        let url = format!("{}/{secret}/{channel}", scene.hook.url());
        let settings = json!({ "channel": channel, "url": url, "events": ["failed"] });
        let made = scene.subscribe(channel, &settings).await?;
        assert_eq!((&made["url"], &made["has_secret"]), (&json!(null), &json!(true)));
        // It stays.
        let again = json!({ "channel": channel, "url": null, "events": ["failed"] });
        assert_eq!(scene.subscribe(channel, &again).await?["has_secret"], true);
    }
    world.update_queue(QUEUE, doc! { "backoff": soon() }).await?;
    let _den = world.den_at_work("n1").await?;
    let failed = scene.run(queue, "fail", 1).await?[0];
    let notified = eventually("both messages", || async {
        let tasks = world.tasks_of(QUEUE).await?;
        let are_there = tasks.len() == 2
            && tasks.iter().all(|task| task.get_i32("status").is_ok_and(|status| status == 1));
        Ok(are_there.then_some(tasks))
    })
    .await?;
    assert_eq!(notified.len(), 2);

    let slack = last_at(&scene, "/slack")?;
    let text = slack["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("*queue &lt;imports&gt;: 1 task failed*\n"), "{slack}");
    assert!(text.contains(&failed.to_string()), "{slack}");
    let teams = last_at(&scene, "/teams")?;
    assert_eq!(teams["type"], "message");
    let attachment = &teams["attachments"][0];
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    assert_eq!(attachment["content"]["type"], "AdaptiveCard");
    assert!(attachment.to_string().contains("queue <imports>: 1 task failed"), "{teams}");
    assert_eq!(scene.hook.received().len(), 4, "each was refused once, or one was twice");

    not_in_the_database(world, &secret).await?;
    not_in_files(world.path(), &secret)?;
    assert!(!scene.dci.get("/subscriptions").await?.to_string().contains(&secret));
    scene.world.end().await
}
