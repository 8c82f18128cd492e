//! Nobody waits for ever: whoever dies, however many do the same at once, and whatever becomes of what is waited for.

use std::sync::Arc;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::gates::AfterFailed;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::{CancelRequest, TaskOptions};
use disbatch_core::wake::{Hints, follow_changes};
use disbatch_tests::{PATIENCE, World, eventually};
use tokio_util::sync::CancellationToken;

use super::{PASSES, after, end, is_found, last_note, pass, statuses, submit, world};
use crate::detour::Held;

#[tokio::test]
async fn nobody_waits_for_the_retry_of_an_archived_task() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    let options = TaskOptions { after_failed: AfterFailed::Wait, ..after(&[parent]) };
    let child = submit(&world, queue, &options).await?;
    end(&world, parent, 2).await?;
    assert_eq!(store.archive_tasks(&[parent]).await?.moved, 0, "its dependents have not been told");
    assert_eq!(store.delete_tasks(&[parent]).await?, 0);
    pass(&store).await?;
    assert_eq!(store.archive_tasks(&[parent]).await?.moved, 1);
    assert!(is_found(&world).await?, "they look again");
    pass(&store).await?;
    let cancelled = world.task(child).await?;
    assert_eq!(cancelled.get_i32("status")?, -5);
    assert!(last_note(&cancelled).ends_with("ended as failed (2) and was archived"), "{cancelled}");
    // A success counts from there, too.
    let good = submit(&world, queue, &TaskOptions::default()).await?;
    end(&world, good, 1).await?;
    store.archive_tasks(&[good]).await?;
    let late = submit(&world, queue, &after(&[good])).await?;
    assert_eq!(world.status(late).await?, -2, "it is linked at once");
    world.end().await
}

#[tokio::test]
async fn nobody_waits_for_a_deleted_task() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let waits = |parent| TaskOptions { after_failed: AfterFailed::Wait, ..after(&[parent]) };
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let parent = submit(&world, queue, &TaskOptions::default()).await?;
        let child = submit(&world, queue, &waits(parent)).await?;
        end(&world, parent, 2).await?;
        tasks.push((parent, child));
    }
    pass(&store).await?;
    let is_cancelled = async |child| {
        pass(&store).await?;
        let child = world.task(child).await?;
        assert_eq!(child.get_i32("status")?, -5, "{child}");
        assert!(last_note(&child).ends_with("no longer exists"), "{child}");
        anyhow::Ok(())
    };
    let (parent, child) = tasks[0];
    assert_eq!(store.delete_tasks(&[parent]).await?, 1);
    is_cancelled(child).await?;
    // Its deleter died when the task was gone.
    let (parent, child) = tasks[1];
    let stored = world.task(parent).await?;
    let tombstone = doc! {
        "_id": parent, "status": 2, "mtime": stored.get("mtime").cloned(), "dependents": false, "from": "tasks",
        "at": DateTime::from_millis(1_000), "files": [],
    };
    world.database().collection::<Document>("tasks.deleting").insert_one(tombstone).await?;
    world.tasks().delete_one(doc! { "_id": parent }).await?;
    pass(&store).await?;
    assert_eq!(world.status(child).await?, -4, "nobody has told it");
    assert_eq!(store.finish_deleting().await?, 1);
    is_cancelled(child).await?;
    // A program that knows nothing of all this has deleted it.
    let (parent, child) = tasks[2];
    world.tasks().delete_one(doc! { "_id": parent }).await?;
    assert_eq!(store.recheck_gates(None).await?, None);
    is_cancelled(child).await?;
    world.end().await
}

/// What a DCI leaves that dies right after it has inserted a task, and after each further step.
#[tokio::test]
async fn a_task_that_nobody_has_linked_is_linked_by_any_den() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    for (ended, marked) in [(false, false), (false, true), (true, false), (true, true)] {
        let parent = submit(&world, queue, &TaskOptions::default()).await?;
        if marked {
            world.set(parent, doc! { "dependents": true }).await?;
        }
        if ended {
            end(&world, parent, 1).await?;
        }
        let child = TaskId(ObjectId::new());
        let task = doc! {
            "_id": child, "queue": queue, "status": -4, "node": Bson::Null, "params": {}, "gate": "new",
            "after": [parent], "waiting_for": [parent], "after_when": "succeeded", "after_failed": "cancel",
            "ctime": store.now(), "mtime": store.now(),
        };
        world.tasks().insert_one(task).await?;
        assert!(is_found(&world).await?);
        pass(&store).await?;
        if !ended {
            assert_eq!(world.task(child).await?.get_str("gate")?, "after");
            end(&world, parent, 1).await?;
            pass(&store).await?;
        }
        assert_eq!(world.status(child).await?, -2, "{ended} {marked}");
        assert!(!is_found(&world).await?);
    }
    world.end().await
}

/// Who tells of ends has looked for new tasks before there was one, and who links it has seen the other go on before it ended.
/// The one looks for those that wait before the other has it wait.
#[tokio::test]
async fn an_end_that_falls_between_two_looks_is_told() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    // Its first word about ends, and the first about what a task waits for.
    let (teller, linker) = (Held::at(&world, "dependents").await?, Held::at(&world, "$setDifference").await?);
    let telling = async {
        let told = teller.store.pass_gates().await?;
        linker.release();
        anyhow::Ok(told)
    };
    let linking = async {
        teller.reached().await?;
        let options = after(&[parent]);
        anyhow::Ok(linker.store.submit_tasks(queue, vec![doc! {}], &options).await?.ids)
    };
    let ending = async {
        linker.reached().await?;
        end(&world, parent, 1).await?;
        teller.release();
        anyhow::Ok(())
    };
    let (told, children, ()) = tokio::try_join!(telling, linking, ending)?;
    assert_eq!((told.released, told.linked), (0, 0), "it did not see who waits");
    assert_eq!(statuses(&world, &children).await?, [-4]);
    assert_eq!(world.task(children[0]).await?.get_str("gate")?, "after");
    assert!(is_found(&world).await?, "nobody would tell it");
    pass(&world.store()).await?;
    assert_eq!(world.status(children[0]).await?, -2);
    assert!(!is_found(&world).await?);
    world.end().await
}

#[tokio::test]
async fn an_end_that_somebody_waits_for_is_hinted_at() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let (hints, stop) = (Arc::new(Hints::default()), CancellationToken::new());
    let _stops = stop.clone().drop_guard();
    tokio::spawn(follow_changes(world.store(), hints.clone(), stop));
    tokio::time::timeout(PATIENCE, hints.gates_noticed()).await.context("a new stream says nothing")?;
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    submit(&world, queue, &after(&[parent])).await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    store.cancel_task(parent, &request).await?;
    tokio::time::timeout(PATIENCE, hints.gates_noticed()).await.context("nobody is told of the end")?;
    assert!(world.task(parent).await?.contains_key("awaited"));
    pass(&store).await?;
    assert!(!world.task(parent).await?.contains_key("awaited"));
    world.end().await
}

/// Any number of processes may do the same at once.
#[tokio::test]
async fn many_at_once_release_each_task_once() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parents = world.submit(queue, vec![doc! {}; 20]).await?;
    let children = store.submit_tasks(queue, vec![doc! {}; 300], &after(&parents)).await?.ids;
    let mut workers = Vec::new();
    for _ in 0..6 {
        let store = world.store();
        workers.push(tokio::spawn(async move {
            let mut released = 0;
            for _ in 0..PASSES {
                released += store.pass_gates().await?.released;
                tokio::task::yield_now().await;
            }
            Ok::<u64, anyhow::Error>(released)
        }));
    }
    for parent in &parents {
        end(&world, *parent, 1).await?;
    }
    let mut released = 0;
    for worker in workers {
        released += worker.await??;
    }
    released += store.pass_gates().await?.released;
    assert_eq!(released, children.len() as u64, "each is released by one of them");
    eventually("all children to be queued", || async {
        pass(&world.store()).await?;
        let queued = world.count(queue, doc! { "status": -2 }).await?;
        Ok((queued == children.len() as u64).then_some(()))
    })
    .await?;
    world.end().await
}

/// A task that is as large as the server allows: another entry in its history is too much.
async fn largest(world: &World, queue: QueueId, fields: Document) -> anyhow::Result<TaskId> {
    let (id, now) = (ObjectId::new(), world.store().now());
    let mut task =
        doc! { "_id": id, "queue": queue, "node": Bson::Null, "ctime": now, "mtime": now, "params": "" };
    task.extend(fields);
    let room = 16 * 1024 * 1024 - bson::serialize_to_vec(&task)?.len();
    task.insert("params", "x".repeat(room));
    world.tasks().insert_one(task).await?;
    Ok(TaskId(id))
}

#[tokio::test]
async fn a_task_that_cannot_be_changed_is_no_hindrance_for_others() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let new = doc! { "status": -4, "gate": "new" };
    let due = doc! { "status": -7, "run_at": DateTime::from_millis(0) };
    for (fields, is_blocked) in [(new, true), (due, false)] {
        let large = largest(&world, queue, fields.clone()).await?;
        let mut small = fields;
        small.extend(doc! { "_id": ObjectId::new(), "queue": queue, "node": Bson::Null });
        let other = TaskId(small.get_object_id("_id")?);
        world.tasks().insert_one(small).await?;
        if is_blocked {
            pass(&store).await?;
        } else {
            assert_eq!(store.sweep_tasks().await?.due, 1);
        }
        assert_eq!(statuses(&world, &[large, other]).await?, [-3, -2]);
        let large = world.task(large).await?;
        assert!(!large.contains_key("gate") && !large.contains_key("history"));
        world.tasks().delete_many(doc! {}).await?;
    }
    world.end().await
}
