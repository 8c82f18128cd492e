//! What a bulk job says of a batch whose worker has died in the middle of it.

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::audit::{Actor, Via};
use disbatch_core::budget::{NOTE, cut};
use disbatch_core::bulk::{Action, BulkFilter, BulkJob, BulkRequest, Queues, State, Worker};
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::CancelRequest;
use disbatch_tests::{World, eventually};

/// What the worker does with a task before it dies.
async fn act(store: &Store, job: &BulkJob, id: TaskId) -> anyhow::Result<()> {
    match job.action {
        Action::Cancel => {
            store.cancel_task(id, &CancelRequest { by: job.by.clone(), reason: None }).await?;
        }
        Action::Retry => {
            let reason = job.reason.as_deref().context("no reason")?;
            let note = format!("tried again by {}: {} (bulk job {})", job.by, cut(reason, NOTE / 2), job.id);
            store.retry_task(id, &note).await?;
        }
        Action::Archive => {
            store.archive_tasks(&[id]).await?;
        }
        Action::Delete => {
            store.delete_tasks(&[id]).await?;
        }
    }
    Ok(())
}

/// What becomes of a job for four tasks, of which its worker has changed two, and somebody else one, when it is taken over.
async fn taken_over(world: &World, action: Action) -> anyhow::Result<BulkJob> {
    let store = world.store();
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let ids = world.submit(queue, vec![doc! {}; 4]).await?;
    for id in ids.iter().filter(|_| action != Action::Cancel) {
        world.set(*id, doc! { "status": 2, "mtime": store.now(), "node": "n1", "complete": true }).await?;
    }
    let filter = BulkFilter { queue: Some(Queues::One(queue)), ..BulkFilter::default() };
    let who = Actor::new(Some("ann".to_owned()), Via::Session, "10.0.0.1");
    // A history has no room for all of it.
    let reason = Some("late".repeat(NOTE));
    let request = BulkRequest { action, filter, reason, who, rerun: None };
    let job = store.create_bulk(&request, "dead").await?;
    act(&store, &job, ids[0]).await?;
    act(&store, &job, ids[1]).await?;
    match action {
        Action::Cancel => {
            store.cancel_task(ids[2], &CancelRequest { by: "ben".to_owned(), reason: None }).await?;
        }
        Action::Retry | Action::Archive | Action::Delete => {
            store.retry_task(ids[2], "tried again by ben").await?;
        }
    }
    let pending: Vec<_> = ids.iter().map(|id| id.0).collect();
    let died = doc! { "$set": { "pending": pending, "lease_until": DateTime::from_millis(0) } };
    world.database().collection::<Document>("bulk").update_one(doc! { "_id": job.id }, died).await?;

    let worker = Worker::new(store.clone());
    worker.start(store.take_over_bulk(worker.instance()).await?.context("nobody has left it")?);
    eventually("the end of the job", || async {
        Ok(store.find_bulk(job.id).await?.filter(|job| job.state != State::Running))
    })
    .await
}

#[tokio::test]
async fn what_was_done_before_its_worker_died_counts_as_done() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    for action in Action::ALL {
        let job = taken_over(&world, action).await?;
        assert_eq!((job.state, job.done, job.skipped), (State::Done, 3, 1), "{job:?}");
    }
    world.end().await
}
