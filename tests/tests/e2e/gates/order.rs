//! What a task comes after, and what that must have come to.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::explain::{Reader, explain};
use disbatch_core::gates::{AfterFailed, AfterWhen};
use disbatch_core::model::TaskId;
use disbatch_core::task::{CancelRequest, Once, Retried, StartAt, SubmitError, TaskOptions};
use disbatch_tests::World;

use super::{QUICK, after, end, ids_in, is_found, last_note, pass, statuses, submit, world};

#[tokio::test]
async fn a_chain_runs_in_its_order() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(QUICK, 4).await?;
    let params = (0..6).map(|n| doc! { "n": n }).collect();
    let options = TaskOptions { chain: true, ..TaskOptions::default() };
    let chain = world.store().submit_tasks(queue, params, &options).await?.ids;
    assert_eq!(statuses(&world, &chain).await?, [-2, -4, -4, -4, -4, -4]);
    let _den = world.den("n1")?;
    world.until_status(chain[5], 1).await?;
    let tasks = world.tasks_of(queue).await?;
    for (before, then) in tasks.iter().zip(tasks.iter().skip(1)) {
        assert_eq!(ids_in(then, "after"), [TaskId(before.get_object_id("_id")?)]);
        assert!(then.get_datetime("started")? >= before.get_datetime("mtime")?, "{before} {then}");
        assert!(!then.contains_key("gate"), "{then}");
    }
    world.end().await
}

#[tokio::test]
async fn a_diamond_waits_for_both_of_its_sides() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let top = submit(&world, queue, &TaskOptions::default()).await?;
    let left = submit(&world, queue, &after(&[top])).await?;
    let right = submit(&world, queue, &after(&[top])).await?;
    let bottom = submit(&world, queue, &after(&[left, right])).await?;
    let all = [top, left, right, bottom];
    pass(&store).await?;
    assert_eq!(statuses(&world, &all).await?, [-2, -4, -4, -4]);
    assert!(!is_found(&world).await?, "there is nothing to do");
    // A failed attempt that is tried again is no end.
    world.set(top, doc! { "status": -7, "run_at": DateTime::MAX }).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &all).await?, [-7, -4, -4, -4]);
    end(&world, top, 1).await?;
    assert!(is_found(&world).await?);
    pass(&store).await?;
    assert_eq!(statuses(&world, &all).await?, [1, -2, -2, -4]);
    end(&world, right, 1).await?;
    pass(&store).await?;
    assert_eq!(ids_in(&world.task(bottom).await?, "waiting_for"), [left]);
    end(&world, left, 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &all).await?, [1, 1, 1, -2]);
    assert_eq!(last_note(&world.task(bottom).await?), "what it waited for has ended");
    assert!(!is_found(&world).await?);
    let graph = store.neighbours(left, 3, 100).await?;
    let ids: Vec<(TaskId, i32)> = graph.tasks.iter().map(|task| (task.id, task.distance)).collect();
    assert_eq!(ids, [(top, -1), (left, 0), (bottom, 1)]);
    assert_eq!((graph.edges, graph.more), (vec![(0, 1, false), (1, 2, false)], false));
    world.end().await
}

#[tokio::test]
async fn a_failure_cancels_all_that_comes_after() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let options = TaskOptions { chain: true, ..TaskOptions::default() };
    let chain = store.submit_tasks(queue, vec![doc! {}; 30], &options).await?.ids;
    let other = submit(&world, queue, &after(&[chain[0]])).await?;
    end(&world, chain[0], 2).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &chain[1..]).await?, [-5; 29]);
    let note = last_note(&world.task(other).await?);
    assert_eq!(note, "a task that it comes after ended as failed (2)");
    let note = last_note(&world.task(chain[29]).await?);
    assert_eq!(note, "a task that it comes after ended as cancelled (-5)");
    // What is tried again waits for what it comes after: that is to be tried again first.
    assert_eq!(store.retry_task(chain[1], "again").await?, Retried::Blocked);
    pass(&store).await?;
    assert_eq!(world.status(chain[1]).await?, -5);
    assert_eq!(store.retry_task(chain[0], "again").await?, Retried::Queued);
    assert_eq!(store.retry_task(chain[1], "again").await?, Retried::Blocked);
    pass(&store).await?;
    assert_eq!(statuses(&world, &chain[..2]).await?, [-2, -4]);
    end(&world, chain[0], 1).await?;
    pass(&store).await?;
    assert_eq!(world.status(chain[1]).await?, -2);
    world.end().await
}

#[tokio::test]
async fn a_task_may_wait_until_a_failed_one_is_tried_again() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    let options = TaskOptions { after_failed: AfterFailed::Wait, ..after(&[parent]) };
    let child = submit(&world, queue, &options).await?;
    for _ in 0..2 {
        end(&world, parent, 2).await?;
        pass(&store).await?;
        assert_eq!(world.status(child).await?, -4);
        assert!(!is_found(&world).await?, "it was told");
        let facts = store.facts_of_task(child).await?.context("no task")?;
        let explained = explain(&facts, Reader::OfAll);
        assert_eq!(explained.summary, "The task is blocked: it waits until 1 task succeeds.");
        assert!(explained.gates[1].text.ends_with("it waits until that is tried again and succeeds."));
        assert_eq!(store.retry_task(parent, "once more").await?, Retried::Queued);
    }
    // One that comes while the failed one waits for its next try.
    end(&world, parent, 2).await?;
    pass(&store).await?;
    let late = submit(&world, queue, &options).await?;
    pass(&store).await?;
    assert_eq!(world.status(late).await?, -4);
    store.retry_task(parent, "once more").await?;
    end(&world, parent, 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[child, late]).await?, [-2, -2]);
    world.end().await
}

#[tokio::test]
async fn one_success_or_any_end_may_be_enough() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let mut parents = Vec::new();
    for _ in 0..3 {
        parents.push(submit(&world, queue, &TaskOptions::default()).await?);
    }
    let any = TaskOptions { after_when: AfterWhen::Any, ..after(&parents) };
    let any_of_two = TaskOptions { after_when: AfterWhen::Any, ..after(&parents[..2]) };
    let finished = TaskOptions { after_when: AfterWhen::Finished, ..after(&parents) };
    let (any, none) = (submit(&world, queue, &any).await?, submit(&world, queue, &any_of_two).await?);
    let finished = submit(&world, queue, &finished).await?;
    end(&world, parents[0], 2).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[any, none, finished]).await?, [-4, -4, -4]);
    end(&world, parents[1], -3).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[any, none, finished]).await?, [-4, -5, -4]);
    assert_eq!(last_note(&world.task(none).await?), "none of the tasks that it comes after has succeeded");
    end(&world, parents[2], 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[any, finished]).await?, [-2, -2]);
    world.end().await
}

#[tokio::test]
async fn only_tasks_that_exist_can_be_waited_for() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    let missing = TaskId(ObjectId::new());
    let refused = store.submit_tasks(queue, vec![doc! {}], &after(&[parent, missing])).await;
    assert!(matches!(&refused, Err(SubmitError::NoSuchTasks(ids)) if *ids == [missing]), "{refused:?}");
    let once = Once::new("key".to_owned(), "the request");
    let refused = store.submit_tasks_once(queue, vec![doc! {}], &after(&[missing]), &once).await;
    assert!(matches!(refused, Err(SubmitError::NoSuchTasks(_))), "{refused:?}");
    // What was begun is completed, also if they are gone since.
    let options = TaskOptions { chain: true, ..after(&[parent]) };
    let whole = store.submit_tasks_once(queue, vec![doc! {}; 3], &options, &once).await?.ids;
    world.tasks().delete_many(doc! { "_id": { "$in": [whole[1], whole[2], parent] } }).await?;
    let pending = doc! { "$set": { "state": "pending" } };
    let submissions = world.database().collection::<Document>("submissions");
    let noted = submissions.update_one(doc! { "_id.key": "key" }, pending).await?;
    assert_eq!(noted.modified_count, 1);
    assert_eq!(store.submit_tasks_once(queue, vec![doc! {}; 3], &options, &once).await?.ids, whole);
    assert_eq!(ids_in(&world.task(whole[2]).await?, "after"), [whole[1]]);
    world.end().await
}

#[tokio::test]
async fn a_blocked_task_can_be_cancelled_and_keeps_its_time() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parent = submit(&world, queue, &TaskOptions::default()).await?;
    let later = TaskOptions { start: Some(StartAt::In(Duration::from_secs(3_600))), ..after(&[parent]) };
    let (later, child) =
        (submit(&world, queue, &later).await?, submit(&world, queue, &after(&[parent])).await?);
    let grandchild = submit(&world, queue, &after(&[child])).await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    store.cancel_task(child, &request).await?;
    assert!(!world.task(child).await?.contains_key("gate"));
    end(&world, parent, 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[later, child, grandchild]).await?, [-7, -5, -5]);
    // It waits for what it has not waited for to the end, if it is tried again.
    assert_eq!(store.retry_task(child, "after all").await?, Retried::Blocked);
    assert_eq!(world.status(child).await?, -2);
    world.end().await
}
