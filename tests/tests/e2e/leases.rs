//! Runners, nodes and claims that went silent: who notices, and that a late one changes nothing.

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::live::LiveStream;
use disbatch_core::model::{NodeName, QueueId, Selector, Status, TaskId, whole_number};
use disbatch_core::output::StreamName;
use disbatch_core::task::{
    Ahead, Buried, Claim, Claimant, Evidence, Finish, Finished, Interim, Run, Start, Started,
};
use disbatch_tests::{Den, Script, World, always, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::detour::Held;

/// Says that it works, and goes on until it is killed.
pub const ENDLESS: Script<'_> =
    Script { name: "Endless", text: "#!/bin/sh\necho started\nwhile :; do sleep 0.1; done\n" };

const LEASE: Duration = Duration::from_secs(60);

async fn claim(world: &World, queue: QueueId, node: &str) -> anyhow::Result<Claim> {
    let claimant =
        Claimant { node: NodeName::new(node), instance: "1".to_owned(), lease: Some(LEASE), fence: None };
    let queue = world.store().find_queue(&Selector::Id(queue.0)).await?.context("no queue")?;
    let batch = world.store().claim_tasks(&queue, &claimant, &[0], &mut Ahead::default()).await?;
    batch.claims.into_iter().next().context("nothing was claimed")
}

async fn start(world: &World, claim: &Claim) -> anyhow::Result<Started> {
    let store = world.store();
    let start = Start {
        task: claim.task,
        from: Status::Claimed,
        node: claim.node.clone(),
        claim: Some((claim.attempt, claim.instance.clone())),
        claimed: None,
        at: store.now(),
        lease: LEASE,
        pid: 4_000_000,
        waiting: None,
    };
    Ok(store.start_task(&start).await?)
}

pub async fn run(world: &World, queue: QueueId, node: &str) -> anyhow::Result<Run> {
    let claim = claim(world, queue, node).await?;
    match start(world, &claim).await? {
        Started::Running(_, run) => Ok(run),
        Started::NotClaimed => anyhow::bail!("not claimed"),
    }
}

pub fn success() -> Finish {
    Finish {
        status: Status::Succeeded,
        stdout: "late".into(),
        stderr: Bson::Null,
        complete: true,
        result: None,
        exit: None,
        note: None,
        last_line: None,
        pause: None,
        recorded: None,
        trial: None,
    }
}

/// Moves the end of a task's lease into the past.
async fn expire(world: &World, task: TaskId) -> anyhow::Result<()> {
    world.set(task, doc! { "lease_until": DateTime::from_millis(1_000) }).await
}

#[tokio::test]
async fn a_runner_of_an_earlier_claim_does_not_start_a_later_one() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let first = claim(&world, queue, "n1").await?;
    world.store().unclaim_task(&first, "a test").await?;
    let second = claim(&world, queue, "n1").await?;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert!(matches!(start(&world, &first).await?, Started::NotClaimed));
    assert!(matches!(start(&world, &second).await?, Started::Running(..)));
    world.end().await
}

#[tokio::test]
async fn a_runner_whose_task_was_taken_away_changes_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.update_queue(queue, doc! { "on_orphan": "requeue" }).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let store = world.store();
    let first = run(&world, queue, "n1").await?;
    expire(&world, first.task).await?;
    let seen = store.expired_runs().await?.pop().expect("one has expired");
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Again);
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::NotRunning);
    world.set(first.task, doc! { "run_at": DateTime::from_millis(1_000) }).await?;
    assert_eq!(store.sweep_tasks().await?.due, 1);
    // The same node gets it again: only the attempt tells the two runs apart.
    let second = run(&world, queue, "n1").await?;
    assert_eq!(second.attempt, 2);
    let before = world.task(first.task).await?;
    assert_eq!(store.finish_task(&first, &success()).await?, Finished::NotRunning);
    assert_eq!(store.retry_later(&first, &success(), Duration::ZERO).await?, Finished::NotRunning);
    assert_eq!(store.renew_lease(&first, LEASE).await?, disbatch_core::task::Renewed::Lost);
    store.keep_interim(&first, &Interim::Progress(doc! { "percent": 99 })).await?;
    assert_eq!(world.task(first.task).await?, before);
    assert_eq!(store.list_attempts(first.task).await?.len(), 1, "what it had printed was kept once");
    assert_eq!(store.finish_task(&second, &success()).await?, Finished::Stored);
    world.end().await
}

#[tokio::test]
async fn a_lease_that_was_renewed_meanwhile_keeps_the_task_with_its_runner() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let store = world.store();
    let run = run(&world, queue, "n1").await?;
    expire(&world, run.task).await?;
    let seen = store.expired_runs().await?.pop().expect("one has expired");
    store.renew_lease(&run, LEASE).await?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::NotRunning);
    assert_eq!(world.status(run.task).await?, 0);
    world.end().await
}

#[tokio::test]
async fn who_dies_while_it_buries_a_task_leaves_no_output_behind() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let store = world.store();
    let run = run(&world, queue, "n1").await?;
    let of = LiveStream { task: run.task, attempt: run.attempt, stream: StreamName::Stdout };
    store.append_live(of, 0, "x".repeat(2 << 20).as_bytes()).await?;
    expire(&world, run.task).await?;
    let seen = store.expired_runs().await?.pop().expect("one has expired");
    // It comes as far as to all chunks of a file.
    let way = Held::at(&world, "tasks.files").await?;
    tokio::select! {
        buried = way.store.bury(&seen, Evidence::LeaseExpired, "silent") => anyhow::bail!("{buried:?}"),
        reached = way.reached() => reached?,
    }
    let chunks = world.database().collection::<Document>("tasks.chunks");
    assert!(chunks.count_documents(doc! {}).await? > 0);
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::Orphaned);
    let task = world.task(run.task).await?;
    let file = task.get_object_id("stdout")?;
    assert_eq!(chunks.count_documents(doc! { "files_id": { "$ne": file } }).await?, 0);
    assert_eq!(world.file(file).await?.get_i32("length")?, 2 << 20);
    assert!(!world.chunks(file).await?.is_empty() && !task.contains_key("uploads"));
    world.end().await
}

#[tokio::test]
async fn a_claim_that_ran_out_is_given_back_by_anyone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 0).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let claim = claim(&world, queue, "gone").await?;
    expire(&world, claim.task).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(claim.task, -2).await?;
    assert_eq!(task.get("node"), Some(&Bson::Null));
    assert!(!task.contains_key("slot"), "its place is free again");
    assert!(matches!(start(&world, &claim).await?, Started::NotClaimed), "too late");
    world.end().await
}

#[tokio::test]
async fn runs_without_a_lease_are_left_alone_unless_the_operator_sets_a_limit() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 2 }))?;
    let queue = world.script_queue(ENDLESS, 5).await?;
    let nodes = world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "perl" }).await?;
    let perls = world.claimed(queue, doc! {}, "perl").await?;
    let hour_ago = DateTime::from_millis(world.store().now().timestamp_millis() - 3_600_000);
    world.set(perls, doc! { "status": 0, "mtime": hour_ago }).await?;
    let _den = world.den("n1")?;
    always("it is left alone", Duration::from_secs(3), || async { Ok(world.status(perls).await? == 0) })
        .await?;
    world.update_queue(queue, doc! { "unleased_limit": 1800, "on_orphan": "requeue" }).await?;
    let task = world.until_status(perls, -6).await?;
    assert_eq!(task.get_str("node")?, "perl");
    world.end().await
}

#[tokio::test]
async fn a_limit_without_a_lease_is_kept_soon_after_a_den_has_started() -> anyhow::Result<()> {
    let world = World::new().await?;
    // After so long a lease nobody would see it.
    world.configure(json!({ "lease": 3600 }))?;
    let queue = world.script_queue(ENDLESS, 5).await?;
    world.update_queue(queue, doc! { "unleased_limit": 1 }).await?;
    let perls = world.claimed(queue, doc! {}, "perl").await?;
    let hour_ago = DateTime::from_millis(world.store().now().timestamp_millis() - 3_600_000);
    world.set(perls, doc! { "status": 0, "mtime": hour_ago }).await?;
    let _den = world.den("n1")?;
    world.until_status(perls, -6).await?;
    world.end().await
}

/// A task that runs under `den`, its first output written, and the process of its runner.
pub async fn running(world: &World, queue: QueueId) -> anyhow::Result<(TaskId, Pid)> {
    let ids = world.submit(queue, vec![doc! {}]).await?;
    eventually("output while it runs", || async {
        let (stdout, _) = world.live(ids[0], 1).await?;
        Ok((stdout == b"started\n").then_some(()))
    })
    .await?;
    let pid = world.task(ids[0]).await?.get("pid").and_then(whole_number).context("no pid")?;
    Ok((ids[0], Pid::from_raw(i32::try_from(pid)?)))
}

/// Processes that carry the task's id in their environment: its plugin and what that started.
pub fn plugins_of(task: TaskId) -> usize {
    let variable = format!("DISBATCH_TASK_ID={task}");
    let carries = |entry: &std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == variable.as_bytes())
    };
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok).filter(carries).count()
}

pub async fn world_with_short_lease() -> anyhow::Result<(World, QueueId, Den)> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 3 }))?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    let den = world.den("n1")?;
    Ok((world, queue, den))
}

#[tokio::test]
async fn a_plugin_dies_with_its_runner_and_its_output_is_kept() -> anyhow::Result<()> {
    let (world, queue, _den) = world_with_short_lease().await?;
    let (task, runner) = running(&world, queue).await?;
    kill(runner, Signal::SIGKILL)?;
    let stored = world.until_status(task, -6).await?;
    assert_eq!(plugins_of(task), 0, "when the task has ended, its plugin is gone");
    assert_eq!(stored.get_str("stdout")?, "started\n");
    assert_eq!(stored.get("complete"), Some(&Bson::Boolean(false)));
    world.end().await
}

#[tokio::test]
async fn a_poisonous_task_is_given_up() -> anyhow::Result<()> {
    let world = World::new().await?;
    // Its parent is the guard, whose parent is the runner.
    let text = "#!/bin/sh\nread -r _ _ _ runner _ < /proc/$PPID/stat\nkill -9 $runner\nsleep 1000\n";
    let queue = world.script_queue(Script { name: "Poison", text }, 1).await?;
    let backoff = doc! { "base": 0.05, "factor": 1 };
    world.update_queue(queue, doc! { "on_orphan": "requeue", "max_attempts": 3, "backoff": backoff }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], -6).await?;
    assert_eq!(world.store().list_attempts(ids[0]).await?.len(), 2);
    let last = task.get_array("history")?.last().and_then(Bson::as_document).cloned().unwrap_or_default();
    assert!(last.get_str("note")?.contains("given up after 3 failed attempts"), "{last}");
    world.end().await
}

#[tokio::test]
async fn a_stopped_runner_is_killed_by_its_den_when_its_lease_has_run_out() -> anyhow::Result<()> {
    let (world, queue, _den) = world_with_short_lease().await?;
    let (task, runner) = running(&world, queue).await?;
    kill(runner, Signal::SIGSTOP)?;
    world.until_status(task, -6).await?;
    assert_eq!(plugins_of(task), 0);
    assert!(kill(runner, None).is_err(), "the runner is gone");
    world.end().await
}

#[tokio::test]
async fn a_dead_node_is_noticed_by_another_and_its_task_requeued() -> anyhow::Result<()> {
    let (world, queue, den) = world_with_short_lease().await?;
    world
        .update_queue(queue, doc! { "on_orphan": "requeue", "backoff": { "base": 0.05, "factor": 1 } })
        .await?;
    let (task, runner) = running(&world, queue).await?;
    let _other = world.den_at_work("n2").await?;
    den.signal(Signal::SIGKILL)?;
    kill(runner, Signal::SIGKILL)?;
    let again = eventually("it to run on the other node", || async {
        let stored = world.task(task).await?;
        let there = stored.get_str("node").ok() == Some("n2") && stored.get_i32("status").ok() == Some(0);
        Ok(there.then_some(stored))
    })
    .await?;
    assert_eq!(again.get("attempt").and_then(whole_number), Some(2));
    let nodes = world.database().collection::<Document>("nodes");
    let dead = nodes.find_one(doc! { "node": "n1" }).await?.unwrap_or_default();
    assert_eq!(dead.get_str("state")?, "dead");
    let first = world.store().find_attempt(task, 1).await?.unwrap_or_default();
    assert_eq!(first.get_str("stdout")?, "started\n");
    world.end().await
}

#[tokio::test]
async fn a_restarted_den_has_another_instance_and_leaves_running_tasks_alone() -> anyhow::Result<()> {
    let (world, queue, den) = world_with_short_lease().await?;
    let (task, _runner) = running(&world, queue).await?;
    let nodes = world.database().collection::<Document>("nodes");
    let instance = || async {
        let entry = nodes.find_one(doc! { "node": "n1" }).await?.unwrap_or_default();
        anyhow::Ok(entry.get_str("instance")?.to_owned())
    };
    let first = instance().await?;
    assert_eq!(world.task(task).await?.get_str("instance")?, first);
    den.end_with(Signal::SIGKILL).await?;
    let _successor = world.den("n1")?;
    eventually("the successor", || async { Ok((instance().await? != first).then_some(())) }).await?;
    let untouched = || async { Ok(world.status(task).await? == 0 && plugins_of(task) > 0) };
    always("the task goes on", Duration::from_secs(4), untouched).await?;
    world.end().await
}

/// No loop of a DEN may read the finished tasks.
#[tokio::test]
async fn what_a_den_looks_for_each_second_is_found_by_index() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let is_past = |field: &str| doc! { "$lt": [format!("${field}"), "$$NOW"] };
    let filters = [
        doc! { "status": -7, "run_at": { "$type": "date" }, "$expr": is_past("run_at") },
        doc! { "status": -1, "lease_until": { "$type": "date" }, "$expr": is_past("lease_until") },
        doc! { "status": 0, "lease_until": { "$type": "date" }, "$expr": is_past("lease_until") },
        doc! { "status": { "$in": [-7, -4, -2] }, "deadline": { "$type": "date" }, "$expr": is_past("deadline") },
        doc! { "group_slot": { "$exists": true }, "status": { "$nin": [-1, 0] } },
    ];
    for filter in filters {
        let explain =
            doc! { "explain": { "find": "tasks", "filter": filter.clone() }, "verbosity": "queryPlanner" };
        let plan = world.database().run_command(explain).await?;
        let winning = plan.get_document("queryPlanner")?.get_document("winningPlan")?.to_string();
        assert!(winning.contains("IXSCAN") && !winning.contains("COLLSCAN"), "{filter}: {winning}");
    }
    world.end().await
}
