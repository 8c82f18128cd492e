//! `QueueBalance`: one loop works at a time, and its limits are those that DENs keep to.

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::balance::run::LEASE;
use disbatch_core::model::QueueId;
use disbatch_tests::{Script, World, eventually};
use futures::future::try_join_all;
use serde_json::json;

async fn set_balance(world: &World, document: Document) -> anyhow::Result<()> {
    let balance = world.database().collection::<Document>("balance");
    balance.delete_many(doc! {}).await?;
    balance.insert_one(document).await?;
    Ok(())
}

async fn named_queue(world: &World, name: &str, queued: usize) -> anyhow::Result<QueueId> {
    let queue = world.queue("NoSuchPlugin", doc! { "name": name }).await?;
    world.submit(queue, vec![doc! {}; queued]).await?;
    Ok(queue)
}

/// What `threads` holds, null and absent included.
async fn threads(world: &World, queue: QueueId) -> anyhow::Result<Option<Bson>> {
    let queues = world.database().collection::<Document>("queues");
    let queue = queues.find_one(doc! { "_id": queue }).await?.context("no such queue")?;
    Ok(queue.get("threads").cloned())
}

async fn verdict(world: &World, status: &str) -> anyhow::Result<Document> {
    let balance = world.database().collection::<Document>("balance");
    eventually("a round of QueueBalance", || async {
        Ok(balance.find_one(doc! { "status": status, "timestamp": { "$type": "long" } }).await?)
    })
    .await
}

#[tokio::test]
async fn of_eight_contenders_one_has_the_lease() -> anyhow::Result<()> {
    let world = World::new().await?;
    let contenders: Vec<String> = (0..8).map(|number| format!("contender {number}")).collect();
    let mut winner = None;
    for _ in 0..20 {
        let attempts = contenders.iter().map(|name| {
            let store = world.store();
            async move { anyhow::Ok((name, store.take_lease(LEASE, name).await?)) }
        });
        let winners: Vec<&String> =
            try_join_all(attempts).await?.into_iter().filter(|(_, won)| *won).map(|(name, _)| name).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(*winner.get_or_insert(winners[0]), winners[0], "a lease that has not run out is kept");
    }
    let winner = winner.context("nobody won")?;
    let lease = world.database().collection::<Document>("balance.lease");
    assert_eq!(lease.count_documents(doc! {}).await?, 1);

    // Those who do not have it cannot give it back.
    let other = contenders.iter().find(|name| *name != winner).context("another")?;
    world.store().release_lease(LEASE, other).await?;
    assert!(!world.store().take_lease(LEASE, other).await?);
    world.store().release_lease(LEASE, winner).await?;
    assert!(world.store().take_lease(LEASE, other).await?);

    // One whose owner is dead runs out, and again one of all gets it.
    lease.update_one(doc! {}, doc! { "$set": { "until": bson::DateTime::from_millis(1) } }).await?;
    let attempts = contenders.iter().filter(|name| *name != other).map(|name| {
        let store = world.store();
        async move { anyhow::Ok(store.take_lease(LEASE, name).await?) }
    });
    assert_eq!(try_join_all(attempts).await?.into_iter().filter(|won| *won).count(), 1);
    world.end().await
}

#[tokio::test]
async fn its_limits_are_those_that_a_den_keeps_to() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "balance": { "enabled": 1, "verbose": 1 } }))?;
    let plugin = Script { name: "Quick", text: "#!/bin/sh\ntrue\n" };
    let queue = world.script_queue(plugin, 0).await?;
    world.update_queue(queue, doc! { "name": "default" }).await?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    set_balance(&world, doc! { "max_tasks": { "* 00:00": 2 }, "queues": [["default"]] }).await?;
    let plain = world.den_at_work("n1").await?;
    assert_eq!(world.status(ids[0]).await?, -2, "nobody balances without --balance");
    let _balancing = world.den_with("n2", &["--balance"])?;
    assert_eq!(verdict(&world, "OK").await?.get_str("message")?, "QueueBalance is running");
    assert_eq!(threads(&world, queue).await?, Some(Bson::Int32(2)));
    world.until_all_ended(queue).await?;
    assert!(!plain.log()?.contains("QueueBalance"));
    world.end().await
}

#[tokio::test]
async fn lower_tiers_get_what_higher_ones_leave() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "balance": { "enabled": true } }))?;
    let low = named_queue(&world, "low", 30).await?;
    let high = named_queue(&world, "high", 4).await?;
    let idle = named_queue(&world, "idle", 0).await?;
    world.update_queue(idle, doc! { "threads": 7 }).await?;
    set_balance(
        &world,
        doc! { "max_tasks": { "* 00:00": "10" }, "queues": [["low"], ["high", "gone"], ["idle"]] },
    )
    .await?;
    let den = world.den_with("n1", &["--balance"])?;
    let verdict = verdict(&world, "WARNING").await?;
    assert_eq!(verdict.get_str("message")?, "QueueBalance: unknown queue gone", "{}", den.log()?);
    assert_eq!(threads(&world, low).await?, Some(Bson::Int32(6)));
    assert_eq!(threads(&world, high).await?, Some(Bson::Int32(4)));
    assert_eq!(threads(&world, idle).await?, Some(Bson::Int32(0)));
    world.end().await
}

#[tokio::test]
async fn it_touches_nothing_while_disabled_pretending_or_misconfigured() -> anyhow::Result<()> {
    let later = 4_102_444_800_i64;
    let cases = [
        (json!({}), doc! { "disabled": later, "max_tasks": { "* 00:00": 5 }, "queues": [["q"]] }, "OK"),
        (json!({ "pretend": 1 }), doc! { "max_tasks": { "* 00:00": 5 }, "queues": [["q"]] }, "OK"),
        (json!({}), doc! { "max_tasks": { "* 00:00": 5 } }, "CRITICAL"),
        (json!({}), doc! { "max_tasks": {}, "queues": [["q"]] }, "WARNING"),
    ];
    for (switches, document, status) in cases {
        let world = World::new().await?;
        let mut balance = switches;
        balance["enabled"] = json!(1);
        world.configure(json!({ "balance": balance }))?;
        let queue = named_queue(&world, "q", 3).await?;
        set_balance(&world, document.clone()).await?;
        let _den = world.den_with("n1", &["--balance"])?;
        let verdict = verdict(&world, status).await?;
        assert_eq!(threads(&world, queue).await?, None, "{verdict}");
        assert_eq!(verdict.get("disabled").cloned(), document.get("disabled").cloned());
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_loop_that_ends_hands_over_and_one_that_is_not_enabled_says_so() -> anyhow::Result<()> {
    let world = World::new().await?;
    let off = world.den_with("off", &["--balance"])?;
    eventually("a word about it", || async {
        Ok(off.log()?.contains("balance.enabled is not set").then_some(()))
    })
    .await?;
    world.configure(json!({ "balance": { "enabled": 1 } }))?;
    let first = world.den_with("n1", &["--balance"])?;
    eventually("the first to work", || async {
        Ok(first.log()?.contains("QueueBalance works here").then_some(()))
    })
    .await?;
    let second = world.den_with("n2", &["--balance"])?;
    let status = first.end_with(nix::sys::signal::Signal::SIGTERM).await?;
    assert!(status.success());
    eventually("the second to take over", || async {
        Ok(second.log()?.contains("QueueBalance works here").then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn without_a_document_it_begins_with_an_empty_one() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "balance": { "enabled": 1 } }))?;
    let _den = world.den_with("n1", &["--balance"])?;
    let document = verdict(&world, "WARNING").await?;
    assert_eq!(document.get_document("max_tasks")?, &doc! {});
    assert!(document.get_array("queues")?.is_empty());
    assert!(document.get_str("message")?.starts_with("QueueBalance: max_tasks has no entry"));
    world.end().await
}
