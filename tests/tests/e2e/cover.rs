//! Runs that need no lease, as their DEN answers for them: what that costs, and who takes over when it does not.

use std::time::Duration;

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::explain::{Reader, explain};
use disbatch_core::model::{NodeName, QueueId, TaskId, whole_number};
use disbatch_core::task::{Buried, Evidence, Renewed, Run, RunWrite, Wishes, Written};
use disbatch_tests::{Den, Server, World, always, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::leases::{ENDLESS, plugins_of, run, running, world_with_short_lease};

const LEASE: Duration = Duration::from_secs(60);

const HELD: Written = Written::Renewed(Renewed::Held(Wishes { cancel: false, interrupt: false }));

async fn lease_until(world: &World, task: TaskId) -> anyhow::Result<DateTime> {
    Ok(*world.task(task).await?.get_datetime("lease_until")?)
}

/// How long the lease is yet, in seconds.
async fn left(world: &World, task: TaskId) -> anyhow::Result<i64> {
    let now = world.store().server_time().await?;
    Ok((lease_until(world, task).await?.timestamp_millis() - now.timestamp_millis()) / 1000)
}

async fn is_covered(world: &World, task: TaskId) -> anyhow::Result<bool> {
    Ok(lease_until(world, task).await?.to_string().contains("9000-01-01"))
}

/// A task that runs under a DEN which answers for it, and the process of its runner.
async fn covered() -> anyhow::Result<(World, QueueId, Den, TaskId, Pid)> {
    let (world, queue, den) = world_with_short_lease().await?;
    let (task, runner) = running(&world, queue).await?;
    eventually("no lease", || async { Ok(is_covered(&world, task).await?.then_some(())) }).await?;
    Ok((world, queue, den, task, runner))
}

#[tokio::test]
async fn a_run_that_goes_on_is_not_written_to_while_its_den_lives() -> anyhow::Result<()> {
    let world = World::new().await?;
    // A runner that is late gets a lease for a moment: longer than this machine may be busy.
    world.configure(json!({ "lease": 9 }))?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    let _den = world.den("n1")?;
    let (task, _) = running(&world, queue).await?;
    eventually("no lease", || async { Ok(is_covered(&world, task).await?.then_some(())) }).await?;
    let before = world.task(task).await?;
    let unchanged = || async { Ok(world.task(task).await? == before && plugins_of(task) > 0) };
    always("it goes on, beyond its lease", Duration::from_secs(10), unchanged).await?;
    let facts = world.store().facts_of_task(task).await?.context("it is there")?;
    let told = explain(&facts, Reader::OfAll);
    assert!(told.gates.iter().any(|gate| gate.text.contains("Its DEN answers for it")), "{told:?}");
    world.end().await
}

#[tokio::test]
async fn a_runner_whose_den_is_gone_takes_a_lease_for_its_task() -> anyhow::Result<()> {
    let (world, _, den, task, _) = covered().await?;
    let _other = world.den_at_work("n2").await?;
    den.end_with(Signal::SIGKILL).await?;
    eventually("a lease", || async { Ok((!is_covered(&world, task).await?).then_some(())) }).await?;
    let untouched = || async { Ok(world.status(task).await? == 0 && plugins_of(task) > 0) };
    always("the task goes on", Duration::from_secs(5), untouched).await?;
    world.end().await
}

#[tokio::test]
async fn a_node_that_dies_with_its_runner_is_noticed_by_another() -> anyhow::Result<()> {
    let (world, queue, den, task, runner) = covered().await?;
    world
        .update_queue(queue, doc! { "on_orphan": "requeue", "backoff": { "base": 0.05, "factor": 1 } })
        .await?;
    let _other = world.den_at_work("n2").await?;
    den.signal(Signal::SIGKILL)?;
    kill(runner, Signal::SIGKILL)?;
    eventually("it to run on the other node", || async {
        let stored = world.task(task).await?;
        let again = stored.get("attempt").and_then(whole_number) == Some(2);
        Ok((again && stored.get_str("node").ok() == Some("n2")).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn what_a_runner_left_that_died_with_its_den_is_noticed_by_the_next_den() -> anyhow::Result<()> {
    let (world, _, den, task, runner) = covered().await?;
    kill(runner, Signal::SIGSTOP)?;
    den.end_with(Signal::SIGKILL).await?;
    let _next = world.den("n1")?;
    world.until_status(task, -6).await?;
    assert_eq!(plugins_of(task), 0);
    world.end().await
}

#[tokio::test]
async fn a_runner_that_does_not_ask_any_more_is_killed_by_its_den() -> anyhow::Result<()> {
    let (world, _, _den, task, runner) = covered().await?;
    kill(runner, Signal::SIGSTOP)?;
    world.until_status(task, -6).await?;
    assert_eq!(plugins_of(task), 0);
    assert!(kill(runner, None).is_err(), "the runner is gone");
    world.end().await
}

/// A task that runs on node `n1`, whose entry is that of a DEN which has just been heard of.
async fn run_of_living_den(world: &World) -> anyhow::Result<Run> {
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let nodes = world.database().collection::<Document>("nodes");
    let entry = doc! { "node": "n1", "instance": "1", "lease_ms": 60_000, "seen": world.store().server_time().await? };
    nodes.insert_one(entry).await?;
    run(world, queue, "n1").await
}

async fn cover(world: &World, run: &Run, lease: Duration) -> anyhow::Result<Written> {
    let write = RunWrite::Renew { run: run.clone(), lease };
    Ok(world.store().write_runs(&[write]).await?.pop().context("one was written")??)
}

#[tokio::test]
async fn who_takes_a_covered_run_away_waits_for_a_whole_lease() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, run) = (world.store(), run_of_living_den(&world).await?);
    let own = NodeName::new("n1");
    assert_eq!(cover(&world, &run, 2 * LEASE).await?, HELD);
    assert!(is_covered(&world, run.task).await?);
    let before = world.task(run.task).await?;
    assert_eq!(cover(&world, &run, 2 * LEASE).await?, HELD);
    assert_eq!(world.task(run.task).await?, before, "nothing is written");
    // Its DEN answers for it.
    assert_eq!(store.uncover_own(&own, &[run.task], LEASE).await?, 0);
    assert!(store.silent_owners().await?.silent.is_empty());
    // Its runner is silent. Its own leases are longer than those of who finds that.
    assert_eq!(store.uncover_own(&own, &[], LEASE).await?, 1);
    assert!((115..=121).contains(&left(&world, run.task).await?));
    assert!(store.expired_runs().await?.is_empty());
    let seen = store.find_task(run.task).await?.context("it is there")?;
    assert_eq!(store.bury(&seen, Evidence::LeaseExpired, "silent").await?, Buried::NotRunning);
    // It was not, and asks: nobody's lease counts any more.
    assert_eq!(cover(&world, &run, LEASE).await?, HELD);
    assert!(is_covered(&world, run.task).await?);
    // Its node has been silent for more than half of its lease.
    let nodes = world.database().collection::<Document>("nodes");
    let silent = DateTime::from_millis(store.server_time().await?.timestamp_millis() - 31_000);
    nodes.update_one(doc! { "node": "n1" }, doc! { "$set": { "seen": silent } }).await?;
    let owners = store.silent_owners().await?;
    assert_eq!((owners.silent, owners.unknown.is_empty()), (vec!["n1".to_owned()], true));
    assert_eq!(store.uncover_silent(&["n2".to_owned()], LEASE).await?, 0);
    assert_eq!(store.uncover_silent(&["n1".to_owned()], 3 * LEASE).await?, 1);
    assert!((55..=61).contains(&left(&world, run.task).await?), "it is that of the run");
    world.end().await
}

#[tokio::test]
async fn a_server_that_stands_alone_is_a_primary() -> anyhow::Result<()> {
    let world = World::on(Server::Standalone).await?;
    let run = run_of_living_den(&world).await?;
    for _ in 0..2 {
        assert_eq!(cover(&world, &run, LEASE).await?, HELD);
        assert!(is_covered(&world, run.task).await?);
    }
    world.end().await
}

#[tokio::test]
async fn what_a_den_answers_for_is_read_in_one_answer() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = run_of_living_den(&world).await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let both = [first, run(&world, queue, "n1").await?];
    let renewals = both.map(|run| RunWrite::Renew { run, lease: LEASE });
    world.database().run_command(doc! { "profile": 2 }).await?;
    for _ in 0..2 {
        for written in world.store().write_runs(&renewals).await? {
            assert_eq!(written?, HELD);
        }
    }
    world.database().run_command(doc! { "profile": 0 }).await?;
    let profile = world.database().collection::<Document>("system.profile");
    let tasks = format!("{}.tasks", world.database().name());
    let count = async |op: &str| profile.count_documents(doc! { "ns": &tasks, "op": op }).await;
    assert!(count("query").await? > 0);
    assert_eq!(count("getmore").await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_den_answers_for_its_own_runs_alone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let run = run_of_living_den(&world).await?;
    assert_eq!(cover(&world, &run, LEASE).await?, HELD);
    // A node that nobody knows is silent.
    world.database().collection::<Document>("nodes").delete_many(doc! {}).await?;
    let owners = world.store().silent_owners().await?;
    assert!(owners.unknown.contains("n1") && owners.silent == ["n1"], "{owners:?}");
    assert_eq!(world.store().uncover_silent(&owners.silent, LEASE).await?, 1);
    world.set(run.task, doc! { "attempt": 7 }).await?;
    let before = world.task(run.task).await?;
    assert_eq!(cover(&world, &run, LEASE).await?, Written::Renewed(Renewed::Lost));
    assert_eq!(world.task(run.task).await?, before, "what is not its own is left alone");
    world.end().await
}

#[tokio::test]
async fn entries_of_any_kind_keep_no_silent_node_from_being_noticed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let run = run_of_living_den(&world).await?;
    assert_eq!(cover(&world, &run, LEASE).await?, HELD);
    let nodes = world.database().collection::<Document>("nodes");
    nodes.update_one(doc! { "node": "n1" }, doc! { "$set": { "seen": "a moment ago" } }).await?;
    for odd in [doc! { "node": "a", "seen": 5 }, doc! { "node": 7, "seen": world.store().now() }, doc! {}] {
        nodes.insert_one(odd).await?;
    }
    let far = DateTime::from_millis(DateTime::MAX.timestamp_millis());
    world.set(run.task, doc! { "lease_until": far }).await?;
    let owners = world.store().silent_owners().await?;
    assert!(owners.unknown.is_empty() && owners.silent == ["n1"], "{owners:?}");
    assert_eq!(world.store().uncover_silent(&owners.silent, LEASE).await?, 1);
    assert!(left(&world, run.task).await? <= 61, "whoever has written that: it runs out");
    world.end().await
}
