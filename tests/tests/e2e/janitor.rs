//! The janitor of a node that has more to do than it does at once.

use anyhow::Context;
use bson::doc;
use disbatch_core::model::TaskId;
use disbatch_tests::{PATIENCE, World, eventually};
use futures::TryStreamExt;
use serde_json::json;
use tokio::time::timeout;

use crate::bulk::ended;

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
