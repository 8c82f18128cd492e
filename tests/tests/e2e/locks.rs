//! Locks: that tasks hold them alone, shared or as one of several places, in the order in which they came, and that nobody
//! keeps one who is gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::explain::{Reader, explain};
use disbatch_core::gates::{LockFilter, LockRequest};
use disbatch_core::model::{QueueId, Selector, TaskId};
use disbatch_core::node::{Draining, NodeChange};
use disbatch_core::task::rerun::Downstream;
use disbatch_core::task::{CancelRequest, Cancelled, Retried, StartAt, TaskOptions};
use disbatch_tests::{Script, World, always, eventually};
use futures::TryStreamExt;
use mongodb::Collection;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::gates::{QUICK, end, is_found, pass, statuses, world};

/// Goes on until it is killed.
pub const ENDLESS: Script<'_> =
    Script { name: "Endless", text: "#!/bin/sh\necho started\nwhile :; do sleep 0.1; done\n" };

fn holding(locks: &[&str]) -> anyhow::Result<TaskOptions> {
    Ok(TaskOptions { locks: LockRequest::list(locks.iter().copied())?, ..TaskOptions::default() })
}

async fn submit(world: &World, queue: QueueId, locks: &[&str]) -> anyhow::Result<TaskId> {
    let ids = world.store().submit_tasks(queue, vec![doc! {}], &holding(locks)?).await?.ids;
    ids.first().copied().context("no task")
}

fn locks(world: &World) -> Collection<Document> {
    world.database().collection("locks")
}

#[tokio::test]
async fn a_lock_is_held_by_one_after_the_other() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(submit(&world, queue, &["db"]).await?);
    }
    pass(&store).await?;
    assert_eq!(statuses(&world, &tasks).await?, [-2, -4, -4]);
    let facts = store.facts_of_task(tasks[2]).await?.context("no task")?;
    let explained = explain(&facts, Reader::OfAll);
    assert_eq!(explained.summary, "The task is blocked: it waits for the lock db.");
    let holder =
        format!("It wants the lock db alone, which is held by the task {} (queued, since ", tasks[0]);
    assert!(explained.gates[1].text.starts_with(&holder), "{explained:?}");
    assert_eq!(explained.gates[2].text, "1 task waits for the lock db before it.");
    let listed = store.locks_list(&LockFilter::default(), 10).await?;
    assert_eq!((listed.len(), listed[0].held_by, listed[0].waiting), (1, 1, 2));
    let lock = store.lock("db").await?.context("no lock")?;
    let waiters: Vec<Option<TaskId>> = lock.waiters.iter().map(|(_, task)| task.id).collect();
    assert_eq!(waiters, [Some(tasks[1]), Some(tasks[2])]);
    // A claim that is given back keeps it, and so does a run.
    for status in [-1, 0, -2] {
        world.set(tasks[0], doc! { "status": status }).await?;
        pass(&store).await?;
        assert_eq!(world.status(tasks[1]).await?, -4);
    }
    for (number, status) in [1, -6].into_iter().enumerate() {
        end(&world, tasks[number], status).await?;
        assert!(is_found(&world).await?);
        pass(&store).await?;
        assert_eq!(world.status(tasks[number + 1]).await?, -2);
    }
    end(&world, tasks[2], 17).await?;
    pass(&store).await?;
    assert_eq!(locks(&world).count_documents(doc! {}).await?, 0, "nobody holds it or wants it");
    assert_eq!(world.count(queue, doc! { "holds_locks": { "$exists": true } }).await?, 0);
    assert!(!is_found(&world).await?);
    world.end().await
}

#[tokio::test]
async fn a_task_of_a_deleted_queue_keeps_its_lock_until_it_is_cancelled_and_is_named() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let deleted = world.queue("P", doc! { "threads": 1 }).await?;
    let (holder, next) = (submit(&world, deleted, &["db"]).await?, submit(&world, queue, &["db"]).await?);
    pass(&store).await?;
    let explained = async || {
        let facts = store.facts_of_task(next).await?.context("no task")?;
        anyhow::Ok(explain(&facts, Reader::OfAll).gates[1].text.clone())
    };
    let text = explained().await?;
    assert!(text.contains(&format!("{holder} (queued, since ")) && !text.contains("gone"), "{text}");
    store.delete_queue(&Selector::Id(deleted.0)).await?.context("no queue")?;
    let text = explained().await?;
    assert!(text.contains(&holder.to_string()) && text.ends_with(", its queue is gone)."), "{text}");
    let request = CancelRequest { by: "ann".to_owned(), reason: None };
    assert_eq!(store.cancel_task(holder, &request).await?, Cancelled::Cancelled);
    pass(&store).await?;
    assert_eq!(world.status(next).await?, -2);
    world.end().await
}

#[tokio::test]
async fn those_who_share_do_not_keep_one_out_who_wants_it_alone() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let mut tasks = Vec::new();
    for lock in ["db/shared", "db/shared", "db", "db/shared"] {
        tasks.push(submit(&world, queue, &[lock]).await?);
        pass(&store).await?;
    }
    assert_eq!(statuses(&world, &tasks).await?, [-2, -2, -4, -4], "the last one came after the writer");
    end(&world, tasks[0], 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &tasks[2..]).await?, [-4, -4]);
    end(&world, tasks[1], 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &tasks[2..]).await?, [-2, -4]);
    end(&world, tasks[2], 1).await?;
    pass(&store).await?;
    assert_eq!(world.status(tasks[3]).await?, -2);
    world.end().await
}

#[tokio::test]
async fn a_lock_may_have_places() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let tasks = store.submit_tasks(queue, vec![doc! {}; 5], &holding(&["licence/3"])?).await?.ids;
    pass(&store).await?;
    assert_eq!(statuses(&world, &tasks).await?, [-2, -2, -2, -4, -4]);
    end(&world, tasks[1], 1).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &tasks).await?, [-2, 1, -2, -2, -4]);
    world.end().await
}

#[tokio::test]
async fn a_retry_waits_for_its_locks_anew() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let (first, second) =
        (submit(&world, queue, &["a", "b"]).await?, submit(&world, queue, &["a", "b"]).await?);
    pass(&store).await?;
    assert_eq!(statuses(&world, &[first, second]).await?, [-2, -4]);
    // By hand, and before anybody has taken its locks back.
    end(&world, first, 2).await?;
    assert_eq!(store.retry_task(first, "again").await?, Retried::Blocked);
    assert_eq!(world.task(first).await?.get_i64("lock_round")?, 2);
    pass(&store).await?;
    let all = statuses(&world, &[first, second]).await?;
    assert_eq!(all, [-2, -4], "it is older, so it is first again");
    // By itself: it waits for its time without its locks.
    world.set(first, doc! { "status": -7, "run_at": DateTime::from_millis(1_000) }).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[first, second]).await?, [-7, -2]);
    let swept = store.sweep_tasks().await?;
    assert_eq!((swept.due, swept.blocked), (1, 1));
    pass(&store).await?;
    assert_eq!(statuses(&world, &[first, second]).await?, [-4, -2]);
    end(&world, second, 1).await?;
    pass(&store).await?;
    assert_eq!(world.status(first).await?, -2);
    let later = TaskOptions { start: Some(StartAt::In(Duration::from_secs(3_600))), ..holding(&["a"])? };
    let later = store.submit_tasks(queue, vec![doc! {}], &later).await?.ids[0];
    assert_eq!(world.status(later).await?, -7, "a task that is not due yet wants nothing");
    world.end().await
}

#[tokio::test]
async fn a_task_that_waits_for_others_again_keeps_none_of_its_locks() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let parent = world.submit(queue, vec![doc! {}]).await?[0];
    let holder = submit(&world, queue, &["b"]).await?;
    let behind = TaskOptions { after: vec![parent], ..holding(&["a", "b"])? };
    let task = store.submit_tasks(queue, vec![doc! {}], &behind).await?.ids[0];
    end(&world, parent, 1).await?;
    pass(&store).await?;
    let next = submit(&world, queue, &["a"]).await?;
    pass(&store).await?;
    assert_eq!(statuses(&world, &[holder, task, next]).await?, [-2, -4, -4], "it has a and waits for b");
    let plan = store.plan_rerun(parent, Downstream::All).await?;
    assert_eq!(store.retry_task(parent, "again").await?, Retried::Queued);
    assert_eq!(store.reset_waiter(&plan.waiters[0], "again").await?, Retried::Blocked);
    pass(&store).await?;
    assert_eq!(statuses(&world, &[holder, task, next]).await?, [-2, -4, -2]);
    world.end().await
}

/// What somebody leaves who dies between giving a lock and telling the task.
#[tokio::test]
async fn whoever_dies_at_a_lock_leaves_it_to_the_next() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let dirty = |holder: TaskId, round: i64| {
        let holder = doc! { "task": holder, "round": round, "mode": "exclusive", "queue": queue };
        doc! { "$set": { "holders": [holder], "dirty": true, "rev": ObjectId::new() } }
    };
    // The lock was given, and the task does not know it.
    let task = submit(&world, queue, &["a"]).await?;
    locks(&world).update_one(doc! { "_id": "a" }, dirty(task, 1)).await?;
    pass(&store).await?;
    assert_eq!(world.status(task).await?, -2);
    end(&world, task, 1).await?;
    pass(&store).await?;
    // The task knows, and goes on to the next lock, which does not know that.
    let task = submit(&world, queue, &["a", "b"]).await?;
    locks(&world).update_one(doc! { "_id": "a" }, dirty(task, 1)).await?;
    world.set(task, doc! { "needs_lock": "b" }).await?;
    assert!(locks(&world).find_one(doc! { "_id": "b" }).await?.is_none());
    pass(&store).await?;
    assert_eq!(world.status(task).await?, -2);
    // The lock was given to a task that was cancelled, after its locks had been taken back. Nobody is told.
    end(&world, task, -5).await?;
    pass(&store).await?;
    let stale = doc! { "task": task, "round": 1, "mode": "exclusive", "queue": queue };
    locks(&world).insert_one(doc! { "_id": "a", "holders": [stale], "rev": ObjectId::new() }).await?;
    let next = submit(&world, queue, &["a"]).await?;
    pass(&store).await?;
    assert_eq!(world.status(next).await?, -2, "who comes next looks whether the holder is one");
    // Nobody has told the lock that somebody waits for it.
    let last = submit(&world, queue, &["c"]).await?;
    locks(&world).delete_one(doc! { "_id": "c" }).await?;
    world.set(last, doc! { "gate": "locks", "needs_lock": "c", "holds_locks": true }).await?;
    pass(&store).await?;
    assert_eq!(world.status(last).await?, -4);
    store.recheck_gates(None).await?;
    pass(&store).await?;
    assert_eq!(world.status(last).await?, -2, "it is looked at from time to time");
    world.end().await
}

/// Runs tasks whenever they are queued, and checks that no two of those that run together may not.
struct Runner {
    running: HashMap<TaskId, Vec<String>>,
    ended: HashSet<TaskId>,
}

impl Runner {
    /// Whether a task with these locks may run beside those that do.
    fn agrees(&self, locks: &[String]) -> bool {
        let name = |lock: &str| lock.split('/').next().unwrap_or_default().to_owned();
        locks.iter().all(|lock| {
            let same: Vec<&String> =
                self.running.values().flatten().filter(|held| name(held) == name(lock)).collect();
            match lock.split_once('/') {
                None => same.is_empty(),
                Some((_, "shared")) => same.iter().all(|held| held.ends_with("/shared")),
                Some((_, places)) => {
                    let places: usize = places.parse().unwrap_or(0);
                    same.len() < places && same.iter().all(|held| held.ends_with(&format!("/{places}")))
                }
            }
        })
    }

    /// Starts all that are queued, then ends one.
    async fn turn(&mut self, world: &World, queue: QueueId) -> anyhow::Result<()> {
        let found = world.tasks().find(doc! { "queue": queue, "status": -2 }).await?;
        let queued: Vec<Document> = found.try_collect().await?;
        for task in queued {
            let id = TaskId(task.get_object_id("_id")?);
            let locks: Vec<String> =
                task.get_array("locks")?.iter().filter_map(Bson::as_str).map(str::to_owned).collect();
            ensure!(self.agrees(&locks), "{id} {locks:?} runs beside {:?}", self.running);
            world.set(id, doc! { "status": 0 }).await?;
            self.running.insert(id, locks);
        }
        if let Some(id) = self.running.keys().next().copied() {
            // Before the database knows it, as others may follow at once.
            self.running.remove(&id);
            self.ended.insert(id);
            end(world, id, 1).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn no_two_run_together_that_may_not_however_many_let_them_in() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let kinds: [&[&str]; 6] =
        [&["a"], &["a/shared", "b"], &["a/shared"], &["b", "c/2"], &["c/2"], &["a", "b", "d"]];
    let mut tasks = 0;
    for _ in 0..8 {
        for locks in kinds {
            submit(&world, queue, locks).await?;
            tasks += 1;
        }
    }
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = world.store();
        workers.spawn(async move {
            loop {
                if store.pass_gates().await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut runner = Runner { running: HashMap::new(), ended: HashSet::new() };
    let deadline = tokio::time::Instant::now() + disbatch_tests::PATIENCE;
    while runner.ended.len() < tasks {
        ensure!(tokio::time::Instant::now() < deadline, "only {} of {tasks} came to run", runner.ended.len());
        runner.turn(&world, queue).await?;
    }
    // What they were about to do is left to others, as when a process dies.
    workers.shutdown().await;
    eventually("all locks to be gone", || async {
        pass(&store).await?;
        Ok((locks(&world).count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn plugins_are_alone_with_their_lock() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let mark = world.path().join("alone");
    let text = format!("#!/bin/sh\nmkdir '{0}' || exit 9\nsleep 0.05\nrmdir '{0}'\n", mark.display());
    let queue = world.script_queue(Script { name: "Alone", text: &text }, 6).await?;
    world.store().submit_tasks(queue, vec![doc! {}; 12], &holding(&["alone", "other/shared"])?).await?;
    let _dens = [world.den("n1")?, world.den("n2")?];
    for task in world.until_all_ended(queue).await? {
        assert_eq!(task.get_i32("status")?, 1, "{task}");
    }
    world.end().await
}

#[tokio::test]
async fn a_lock_is_free_when_the_runner_of_its_holder_was_killed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(ENDLESS, 2).await?;
    let tasks = world.store().submit_tasks(queue, vec![doc! {}; 2], &holding(&["db"])?).await?.ids;
    let _den = world.den("n1")?;
    let running = world.until_status(tasks[0], 0).await?;
    let waits = || async { Ok(world.status(tasks[1]).await? == -4) };
    always("the other one waits", Duration::from_secs(1), waits).await?;
    let runner = running.get_i64("pid")?;
    kill(Pid::from_raw(i32::try_from(runner)?), Signal::SIGKILL)?;
    world.until_status(tasks[0], -6).await?;
    world.until_status(tasks[1], 0).await?;
    world.end().await
}

/// Waits until a task that was claimed without its lock waits for that. It has not run.
async fn until_sent_to_its_lock(world: &World, task: TaskId) -> anyhow::Result<()> {
    let blocked = eventually("the task to be sent to its lock", || async {
        let task = world.task(task).await?;
        Ok((task.get_i64("lock_round").ok() == Some(2)).then_some(task))
    })
    .await?;
    let history = blocked.get_array("history")?;
    let statuses: Vec<i32> =
        history.iter().filter_map(|entry| entry.as_document()?.get_i32("status").ok()).collect();
    ensure!(!statuses.contains(&0), "{statuses:?}");
    Ok(())
}

#[tokio::test]
async fn a_task_that_was_queued_by_hand_does_not_run_without_its_lock() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(QUICK, 2).await?;
    let elsewhere = world.queue("P", doc! { "threads": 1 }).await?;
    let holder = submit(&world, elsewhere, &["db"]).await?;
    let task = submit(&world, queue, &["db"]).await?;
    pass(&world.store()).await?;
    world.set(holder, doc! { "status": 0, "node": "perl" }).await?;
    let unset =
        doc! { "$set": { "status": -2 }, "$unset": { "gate": "", "needs_lock": "", "holds_locks": "" } };
    world.tasks().update_one(doc! { "_id": task }, unset).await?;
    let _den = world.den("n1")?;
    until_sent_to_its_lock(&world, task).await?;
    assert_eq!(world.status(task).await?, -4);
    end(&world, holder, 1).await?;
    world.until_status(task, 1).await?;
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_queued_again_while_its_lock_is_taken_back_does_not_run_without_it()
-> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(QUICK, 2).await?;
    let elsewhere = world.queue("P", doc! { "threads": 1 }).await?;
    let task = submit(&world, queue, &["db"]).await?;
    let next = submit(&world, elsewhere, &["db"]).await?;
    end(&world, task, 1).await?;
    pass(&world.store()).await?;
    assert_eq!(world.status(next).await?, -2);
    world.set(next, doc! { "status": 0, "node": "perl" }).await?;
    // As it was before it ended: the lock has been given away by then.
    world.set(task, doc! { "status": -2, "holds_locks": true }).await?;
    let _den = world.den("n1")?;
    until_sent_to_its_lock(&world, task).await?;
    end(&world, next, 1).await?;
    world.until_status(task, 1).await?;
    world.end().await
}

/// What has locks is claimed first and started then: any runner will do for it, but for one that another task was started for.
#[tokio::test]
async fn tasks_with_locks_take_no_runner_from_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let plain = world.script_queue(QUICK, 1).await?;
    let mut locked = Vec::new();
    for _ in 0..3 {
        locked.push(world.queue(QUICK.name, doc! { "threads": 1 }).await?);
    }
    let den = world.den_at_work("n1").await?;
    let node = Selector::Name("n1".to_owned());
    let drain = async |draining: bool| {
        let change = NodeChange {
            draining: Some(if draining { Draining::Yes } else { Draining::No }),
            ..NodeChange::default()
        };
        store.update_node(&node, change).await?;
        eventually("the node to have heard of it", || async {
            let entry = store.find_node(&node).await?.unwrap_or_default();
            Ok(((entry.get_str("state").ok() == Some("draining")) == draining).then_some(()))
        })
        .await
    };
    // Whose turn it is first differs.
    for _ in 0..5 {
        drain(true).await?;
        let mut tasks = world.submit(plain, vec![doc! {}]).await?;
        for (number, queue) in locked.iter().enumerate() {
            tasks.push(submit(&world, *queue, &[format!("lock{number}").as_str()]).await?);
        }
        eventually("all of them to wait at once", || async {
            pass(&store).await?;
            Ok((statuses(&world, &tasks).await? == [-2; 4]).then_some(()))
        })
        .await?;
        drain(false).await?;
        for task in tasks {
            world.until_status(task, 1).await?;
        }
    }
    let log = den.log()?;
    assert!(!log.contains("cannot start a runner"), "{log}");
    world.end().await
}

#[tokio::test]
async fn a_task_stays_until_its_locks_are_taken_back() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let task = submit(&world, queue, &["db"]).await?;
    pass(&store).await?;
    end(&world, task, 1).await?;
    assert_eq!(store.archive_tasks(&[task]).await?.moved, 0);
    assert_eq!(store.delete_tasks(&[task]).await?, 0);
    pass(&store).await?;
    assert_eq!(store.archive_tasks(&[task]).await?.moved, 1);
    assert_eq!(locks(&world).count_documents(doc! {}).await?, 0);
    world.end().await
}

/// Whoever submits while a lock is given away is seen, and is no hindrance.
#[tokio::test]
async fn a_lock_is_clean_only_when_nobody_has_come_since_it_was_looked_at() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let first = submit(&world, queue, &["db"]).await?;
    let before = locks(&world).find_one(doc! { "_id": "db" }).await?.context("no lock")?;
    let second = submit(&world, queue, &["db"]).await?;
    let after = locks(&world).find_one(doc! { "_id": "db" }).await?.context("no lock")?;
    assert_eq!(before.get("rev"), after.get("rev"), "its holders are the same");
    assert_ne!(before.get("stirred"), after.get("stirred"));
    assert!(after.get_bool("dirty")?);
    pass(&store).await?;
    assert_eq!(statuses(&world, &[first, second]).await?, [-2, -4]);
    let clean = locks(&world).find_one(doc! { "_id": "db" }).await?.context("no lock")?;
    assert!(!clean.contains_key("dirty"), "{clean}");
    world.end().await
}
