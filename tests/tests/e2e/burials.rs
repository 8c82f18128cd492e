//! Several bury a run at once, or its end comes before theirs: what is kept of the attempt has its output, and no other file is left.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::live::LiveStream;
use disbatch_core::metrics::labels::{Burial, Cause, RetriedBy};
use disbatch_core::model::{Status, Task};
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::task::{
    Buried, CancelRequest, Cancelled, Evidence, Finish, Finished, Pause, Run, commit_name,
};
use disbatch_tests::World;
use futures::TryStreamExt;
use futures::future::try_join_all;
use mongodb::Collection;

use crate::leases::{ENDLESS, run, success};

/// What a run had printed: no text, so it goes into a file.
const OUTPUT: &[u8] = b"\xff\xfe so far";

/// A run that has printed something, and whose lease is over. Its queue wants it tried again.
async fn lapsed(world: &World) -> anyhow::Result<(Run, Task)> {
    let (queue, store) = (world.script_queue(ENDLESS, 1).await?, world.store());
    world.update_queue(queue, doc! { "on_orphan": "requeue" }).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let run = run(world, queue, "n1").await?;
    let printed = LiveStream { task: run.task, attempt: run.attempt, stream: StreamName::Stdout };
    store.append_live(printed, 0, OUTPUT).await?;
    world.set(run.task, doc! { "lease_until": DateTime::from_millis(1_000) }).await?;
    let seen = store.expired_runs().await?.pop().context("none has expired")?;
    assert_eq!(seen.id, run.task);
    Ok((run, seen))
}

fn files(world: &World) -> Collection<Document> {
    world.database().collection("tasks.files")
}

/// Keeps an outcome of a run with a file of its own, as one does whose update then finds no match.
async fn overtaken(world: &World, run: &Run, status: i32) -> anyhow::Result<ObjectId> {
    let (store, file) = (world.store(), ObjectId::new());
    store.put_output(file, (run.task, StreamName::Stdout), Encoding::Binary, OUTPUT).await?;
    let kept = doc! {
        "task": run.task, "attempt": run.attempt, "node": "n1", "status": status, "stdout": file,
        "stderr": Bson::Null, "complete": false, "ended": store.now(), "note": "by another",
    };
    world.database().collection::<Document>("tasks.attempts").insert_one(kept).await?;
    Ok(file)
}

/// What is kept of a run. It has its output, and no other file says that it is of this task.
async fn kept(world: &World, run: &Run) -> anyhow::Result<Document> {
    let store = world.store();
    assert_eq!(store.list_attempts(run.task).await?.len(), 1);
    let kept = store.find_attempt(run.task, run.attempt).await?.context("nothing is kept")?;
    let bytes: Vec<Vec<u8>> = store.read_output(kept.get_object_id("stdout")?).await?.try_collect().await?;
    assert_eq!(bytes.concat(), OUTPUT);
    assert_eq!(files(world).count_documents(doc! { "metadata.task_id": run.task }).await?, 1);
    Ok(kept)
}

#[tokio::test]
async fn of_several_at_once_one_has_its_output_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    for _ in 0..10 {
        let (run, seen) = lapsed(&world).await?;
        let all = (0..8).map(|_| store.bury(&seen, Evidence::LeaseExpired, "silent"));
        let buried = try_join_all(all).await?;
        assert_eq!(buried.iter().filter(|what| **what == Buried::Again).count(), 1, "{buried:?}");
        assert_eq!(kept(&world, &run).await?.get_i32("status")?, -6);
    }
    let chunks = world.database().collection::<Document>("tasks.chunks");
    assert_eq!(chunks.count_documents(doc! {}).await?, 10);
    world.end().await
}

#[tokio::test]
async fn what_an_overtaken_burial_has_kept_gives_way_to_what_happened() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    // Its runner was not dead.
    let (run, _) = lapsed(&world).await?;
    let stray = overtaken(&world, &run, -6).await?;
    let failed = Finish { status: Status::Failed, ..success() };
    for _ in 0..2 {
        assert_eq!(store.retry_later(&run, &failed, Duration::ZERO).await?, Finished::Stored);
    }
    let outcome = store.find_attempt(run.task, run.attempt).await?.context("nothing is kept")?;
    assert_eq!((outcome.get_i32("status")?, outcome.get_str("stdout")?), (2, "late"));
    assert!(!outcome.contains_key("note"), "{outcome}");
    assert_eq!(store.list_attempts(run.task).await?.len(), 1);
    assert!(world.file(stray).await.is_err(), "nothing refers to it");
    // Another burial comes through.
    let (run, seen) = lapsed(&world).await?;
    let stray = overtaken(&world, &run, -6).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Again);
    let outcome = kept(&world, &run).await?;
    assert_eq!((outcome.get_str("note")?, outcome.get_object_id("stdout")? == stray), ("silent", false));
    // Its runner had kept what came out, and then died.
    let (run, seen) = lapsed(&world).await?;
    let file = overtaken(&world, &run, 2).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Again);
    assert_eq!(kept(&world, &run).await?.get_object_id("stdout")?, file);
    world.end().await
}

#[tokio::test]
async fn an_attempt_that_was_the_last_after_all_is_not_kept_beside_its_task() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let (run, seen) = lapsed(&world).await?;
    let never_again = doc! { "collMod": "tasks", "validator": { "status": { "$ne": -7 } } };
    world.database().run_command(never_again).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Orphaned);
    assert_eq!(store.list_attempts(run.task).await?, Vec::<Document>::new());
    assert_eq!(files(&world).count_documents(doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn neither_a_pause_is_counted_as_a_retry_nor_a_committed_success_as_lost() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    // Each run has a queue of its own.
    let counted = |run: &Run| {
        let series = store.metrics().queues.of(run.queue.0.bytes());
        (series.retried.of(RetriedBy::Policy).get(), series.attempts_failed.of(Cause::Lost).get())
    };
    let pause = Finish { pause: Some(Pause::Interrupted), ..success() };
    let failed = Finish { status: Status::Failed, ..success() };
    for (finish, retries) in [(pause, 0.0), (failed, 1.0)] {
        let (run, _) = lapsed(&world).await?;
        assert_eq!(store.retry_later(&run, &finish, Duration::ZERO).await?, Finished::Stored);
        assert_eq!(counted(&run), (retries, 0.0), "{finish:?}");
    }
    let (run, seen) = lapsed(&world).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Again);
    assert_eq!(counted(&run), (1.0, 1.0));
    let (run, seen) = lapsed(&world).await?;
    let committed = doc! { "_id": commit_name(run.task, run.attempt), "status": 1 };
    world.database().collection::<Document>("tasks.commits").insert_one(committed).await?;
    let buried = store.bury(&seen, Evidence::LeaseExpired, "silent").await?;
    assert_eq!(buried, Buried::Committed(Status::Succeeded));
    assert_eq!(counted(&run), (0.0, 0.0));
    world.end().await
}

#[tokio::test]
async fn what_is_cancelled_is_not_tried_again_whatever_becomes_of_its_run() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let cancel = async |run: &Run| {
        let request = CancelRequest { by: "ann".to_owned(), reason: None };
        assert_eq!(store.cancel_task(run.task, &request).await?, Cancelled::Requested);
        anyhow::Ok(())
    };
    // Before whoever buries it has read it, and after that.
    for is_known in [true, false] {
        let (run, mut seen) = lapsed(&world).await?;
        cancel(&run).await?;
        if is_known {
            seen = store.expired_runs().await?.pop().context("none has expired")?;
        }
        assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Orphaned);
        assert_eq!(world.status(run.task).await?, -6);
        assert!(store.list_attempts(run.task).await?.is_empty());
        let file = world.task(run.task).await?.get_object_id("stdout")?;
        assert_eq!(files(&world).count_documents(doc! { "metadata.task_id": run.task }).await?, 1);
        assert!(world.file(file).await.is_ok());
    }
    let (run, _) = lapsed(&world).await?;
    cancel(&run).await?;
    let failed = Finish { status: Status::Failed, ..success() };
    for _ in 0..2 {
        assert_eq!(store.retry_later(&run, &failed, Duration::ZERO).await?, Finished::Stored);
    }
    assert_eq!(world.status(run.task).await?, 2);
    assert!(store.list_attempts(run.task).await?.is_empty());
    world.end().await
}

#[tokio::test]
async fn a_lease_is_lost_also_where_its_runner_has_ended_the_attempt_for_that() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let lost = || {
        let lost = &store.metrics().leases_lost;
        (lost.of(Burial::Requeued).get(), lost.of(Burial::Ended).get())
    };
    let stopped = Finish {
        status: Status::Orphaned,
        exit: Some(doc! { "signal": 9, "reason": "lease" }),
        note: Some("its lease ran out".to_owned()),
        ..success()
    };
    let (run, seen) = lapsed(&world).await?;
    assert_eq!(store.retry_later(&run, &stopped, Duration::ZERO).await?, Finished::Stored);
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::NotRunning);
    assert_eq!(lost(), (1.0, 0.0));
    let (run, seen) = lapsed(&world).await?;
    for _ in 0..2 {
        assert_eq!(store.finish_task(&run, &stopped).await?, Finished::Stored);
    }
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::NotRunning);
    assert_eq!(lost(), (1.0, 1.0));
    let (_, seen) = lapsed(&world).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Again);
    assert_eq!(lost(), (2.0, 1.0));
    world.end().await
}
