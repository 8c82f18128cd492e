//! The janitor of a node that has more to do than it does at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Finished, Place, Started};
use disbatch_tests::{PATIENCE, World, eventually};
use futures::TryStreamExt;
use serde_json::json;
use tokio::time::timeout;

use crate::bulk::ended;
use crate::claims::{claimant, queue, start, success};

/// A world in which a janitor does not look again while a test waits.
async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    world.configure(json!({ "janitor": { "every": 3600 } }))?;
    world.store().ensure_indexes().await?;
    Ok(world)
}

/// The tasks of a new queue, which are to be deleted.
async fn to_delete(world: &World, many: usize) -> anyhow::Result<Vec<TaskId>> {
    let policy = doc! { "threads": 0, "retention": { "delete_after": 60 } };
    let queue = world.queue("Disbatch::Plugin::Demo", policy).await?;
    ended(world, queue, 1, many).await
}

#[tokio::test]
async fn a_queue_with_much_to_delete_keeps_no_other_waiting() -> anyhow::Result<()> {
    let world = world().await?;
    to_delete(&world, 1_100).await?;
    let of_other = to_delete(&world, 1).await?[0];
    let tasks = world.tasks();
    let mut gone = tasks.watch().pipeline([doc! { "$match": { "operationType": "delete" } }]).await?;
    let _den = world.den("n1")?;
    let mut before = 0;
    loop {
        let event = timeout(PATIENCE, gone.try_next()).await.context("it is not deleted")??;
        let key = event.and_then(|event| event.document_key).context("no change")?;
        if key.get_object_id("_id")? == of_other.0 {
            break;
        }
        before += 1;
    }
    assert!(before <= 500, "{before} were deleted before the one of the other queue");
    world.end().await
}

#[tokio::test]
async fn what_is_too_much_for_a_round_is_done_by_the_next_one_at_once() -> anyhow::Result<()> {
    let world = world().await?;
    for _ in 0..103 {
        to_delete(&world, 1).await?;
    }
    let _den = world.den("n1")?;
    eventually("the tasks of all queues to be deleted", || async {
        Ok((world.tasks().count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn an_archive_that_was_dropped_is_tidied_without_its_indexes() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 0 }).await?;
    world.database().collection::<Document>("tasks.archive").drop().await?;
    let tasks = ended(&world, queue, 1, 2).await?;
    let store = world.store();
    // That makes it anew, and a DEN makes indexes at its start.
    assert_eq!(store.archive_tasks(&tasks).await?.moved, 2);
    assert_eq!(world.database().collection::<Document>("tasks.archive").list_index_names().await?, ["_id_"]);
    let mut old = store.ended_before(queue, Place::Archive, Duration::from_secs(60), 10).await?;
    old.sort();
    assert_eq!(old, tasks);
    world.end().await
}

/// The clock of a host that is an hour late.
#[derive(Debug)]
struct Late;

impl Clock for Late {
    fn now(&self) -> DateTime {
        DateTime::from_millis(SystemClock.now().timestamp_millis() - 3_600_000)
    }
}

#[tokio::test]
async fn what_has_just_ended_on_a_node_whose_clock_is_late_is_not_old() -> anyhow::Result<()> {
    let world = world().await?;
    let (store, late) = (world.store(), Store::with_clock(world.database().clone(), Arc::new(Late)));
    let id = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    let task = world.submit(id, vec![doc! {}]).await?[0];
    let queue = queue(&world, id).await?;
    let claims = late.claim_tasks(&queue, &claimant("n1"), &[0], &mut Ahead::default()).await?.claims;
    let claim = claims.first().context("nothing was claimed")?;
    ensure!(matches!(late.start_task(&start(claim, &late, 1)).await?, Started::Running(..)));
    assert_eq!(late.finish_task(&claim.run(), &success("done\n")).await?, Finished::Stored);
    let half_an_hour = Duration::from_secs(1_800);
    let old = || store.ended_before(id, Place::Tasks, half_an_hour, 10);
    assert!(old().await?.is_empty());
    // What Perl's programs have ended has nothing but the time of their host.
    world.tasks().update_one(doc! { "_id": task }, doc! { "$unset": { "history": "" } }).await?;
    assert_eq!(old().await?, [task]);
    world.end().await
}
