//! `threads` of a queue is never exceeded: not by many DENs that claim at once, not while it changes, and not
//! by our own claims next to a program that counts and then claims.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::QueueId;
use disbatch_tests::faults::limits::Limits;
use disbatch_tests::faults::moments::{Claims, Moment};
use disbatch_tests::faults::records::{self, Run};
use disbatch_tests::faults::work::{Work, boot_time, wall_time};
use disbatch_tests::{Den, World, eventually, install_recorder};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::{Instant, interval, sleep};

/// How long so many tasks may take on a busy machine.
fn patience(tasks: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(250) * u32::try_from(tasks).unwrap_or(u32::MAX)
}

/// Tasks of the tests here: `make faults` asks for 2000.
fn many(default: usize) -> usize {
    std::env::var("DISBATCH_LIMIT_TASKS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn queue_of(world: &World, threads: i32) -> anyhow::Result<QueueId> {
    install_recorder(&world.plugins(), "Recorder", &world.path().join("records"))?;
    world.queue("Recorder", doc! { "threads": threads, "sort": "fifo" }).await
}

async fn submit(world: &World, queue: QueueId, tasks: usize, millis: u32) -> anyhow::Result<()> {
    world.submit(queue, vec![Work { millis, lines: 1, fails: 0 }.params(); tasks]).await?;
    Ok(())
}

fn runs(world: &World) -> anyhow::Result<Vec<Run>> {
    records::read(&world.path().join("records"))
}

async fn dens(world: &World, count: usize) -> anyhow::Result<Vec<Den>> {
    let mut dens = Vec::new();
    for number in 0..count {
        dens.push(world.den_at_work(&format!("n{number}")).await?);
    }
    Ok(dens)
}

/// How many tasks of a queue are claimed or running, at one moment: an index that is read while tasks change
/// their status may show one of them twice.
async fn taken(world: &World, queue: QueueId) -> anyhow::Result<usize> {
    let filter = doc! { "queue": queue, "status": { "$in": [-1, 0] } };
    let tasks = world.tasks();
    let found =
        tasks.find(filter).projection(doc! { "_id": 1 }).read_concern(ReadConcern::snapshot()).await?;
    let tasks: Vec<Document> = found.try_collect().await?;
    Ok(tasks.len())
}

async fn all_ended(world: &World, queue: QueueId) -> anyhow::Result<bool> {
    Ok(world.count(queue, doc! { "status": { "$in": [-7, -2, -1, 0] } }).await? == 0)
}

/// Looks at the count all the time until every task has ended. Returns the largest.
async fn watch_taken(world: &World, queue: QueueId) -> anyhow::Result<usize> {
    let tasks = usize::try_from(world.count(queue, doc! {}).await?)?;
    let deadline = Instant::now() + patience(tasks);
    let mut most = 0;
    let mut looks = interval(Duration::from_millis(20));
    while !all_ended(world, queue).await? {
        for _ in 0..10 {
            looks.tick().await;
            most = most.max(taken(world, queue).await?);
        }
        anyhow::ensure!(Instant::now() < deadline, "the tasks do not end");
    }
    Ok(most)
}

#[tokio::test]
async fn eight_dens_keep_to_a_limit_of_five() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue_of(&world, 5).await?;
    let tasks = many(1000);
    let _dens = dens(&world, 8).await?;
    submit(&world, queue, tasks, 5).await?;
    assert_eq!(watch_taken(&world, queue).await?, 5, "claimed or running by the database");
    let runs = runs(&world)?;
    assert_eq!(runs.len(), tasks, "each ran once");
    let mut limits = Limits::default();
    limits.changed(5, Duration::ZERO, Duration::ZERO);
    let moments = Moment::all(&runs, &Claims::default(), &limits);
    assert!(moments.iter().all(|moment| moment.alive.len() <= 5), "plugins by their own account");
    assert!(
        moments.iter().any(|moment| moment.alive.len() >= 2),
        "nothing ran at once: the test tests nothing"
    );
    assert_eq!(world.count(queue, doc! { "status": 1 }).await?, tasks as u64);
    world.end().await
}

async fn change(world: &World, queue: QueueId, threads: i32, limits: &mut Limits) -> anyhow::Result<()> {
    let from = wall_time();
    world.update_queue(queue, doc! { "threads": threads }).await?;
    limits.changed(u64::try_from(threads)?, from, wall_time());
    Ok(())
}

#[tokio::test]
async fn a_limit_that_changes_is_kept_while_dens_are_killed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 2 }))?;
    let queue = queue_of(&world, 5).await?;
    let tasks = many(300);
    let mut dens = dens(&world, 8).await?;
    let mut limits = Limits::default();
    limits.changed(5, Duration::ZERO, Duration::ZERO);
    submit(&world, queue, tasks, 40).await?;
    let ended = async |part: usize| {
        let goal = u64::try_from(tasks * part / 4)?;
        let over = doc! { "status": { "$nin": [-7, -2, -1, 0] } };
        eventually("tasks to end", || async {
            Ok((world.count(queue, over.clone()).await? >= goal).then_some(()))
        })
        .await
    };
    for (part, threads) in [(1, 2), (2, 6), (3, 4)] {
        ended(part).await?;
        change(&world, queue, threads, &mut limits).await?;
        let den = dens.remove(0);
        den.end_with(Signal::SIGKILL).await?;
        dens.push(world.den(&format!("n{}", part - 1))?);
    }
    watch_taken(&world, queue).await?;
    let (runs, tasks) = (runs(&world)?, world.tasks_of(queue).await?);
    let tried: HashSet<_> = runs.iter().map(|run| run.task).collect();
    assert_eq!(tried.len(), runs.len(), "none ran twice");
    for moment in Moment::all(&runs, &Claims::of(&tasks), &limits) {
        assert!(!moment.is_over(), "{}", moment.describe());
    }
    world.end().await
}

/// A task of the program that counts and then claims: from when to when it had it, by the time since the
/// machine was started. The claim itself was a little earlier.
#[derive(Debug)]
struct Foreign {
    claimed: Duration,
    ended: Duration,
}

/// As a Perl DEN works (Disbatch 4 design): it counts what is claimed or running, and if that is below `threads`
/// claims one, which it runs for a moment.
async fn foreign_den(
    world: &World,
    queue: QueueId,
    threads: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Foreign>> {
    let tasks = world.tasks();
    let mut had = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(15)).await;
        if world.count(queue, doc! { "status": { "$in": [-1, 0] } }).await? >= threads {
            continue;
        }
        let unclaimed = [doc! { "node": Bson::Null }, doc! { "node": -1 }];
        let filter = doc! { "$or": unclaimed.to_vec(), "status": -2, "queue": queue };
        let claim = doc! { "$set": { "node": "perl", "status": -1, "mtime": world.store().now() } };
        let Some(task) = tasks.find_one_and_update(filter, claim).await? else { continue };
        let claimed = boot_time();
        let id = task.get_object_id("_id")?;
        let of = |status: i32| doc! { "_id": id, "node": "perl", "status": status };
        let started = tasks.update_one(of(-1), doc! { "$set": { "status": 0 } }).await?;
        assert_eq!(started.matched_count, 1, "somebody took a task that is not his");
        sleep(Duration::from_millis(120)).await;
        let ended = boot_time();
        let result = doc! { "status": 1, "stdout": "perl", "stderr": Bson::Null, "complete": true };
        assert_eq!(tasks.update_one(of(0), doc! { "$set": result }).await?.matched_count, 1);
        had.push(Foreign { claimed, ended });
    }
    Ok(had)
}

#[tokio::test]
async fn next_to_a_den_that_counts_and_then_claims_ours_keep_to_the_limit() -> anyhow::Result<()> {
    const THREADS: usize = 3;
    let world = World::new().await?;
    let queue = queue_of(&world, 3).await?;
    // As each of Perl's DENs does: by its tasks alone it would be known only while it has some.
    let nodes = world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "perl", "timestamp": world.store().now() }).await?;
    let _dens = dens(&world, 4).await?;
    let tasks = many(200);
    submit(&world, queue, tasks, 100).await?;
    let stop = AtomicBool::new(false);
    let work = async {
        let watched = watch_taken(&world, queue).await;
        stop.store(true, Ordering::Relaxed);
        watched
    };
    let (first, second, most) = tokio::try_join!(
        foreign_den(&world, queue, THREADS as u64, &stop),
        foreign_den(&world, queue, THREADS as u64, &stop),
        work
    )?;
    let foreign: Vec<Foreign> = first.into_iter().chain(second).collect();
    let (ours, stored) = (runs(&world)?, world.tasks_of(queue).await?);
    assert_eq!(ours.len() + foreign.len(), tasks);
    assert!(ours.len() > tasks / 10, "ours ran {} of {tasks}", ours.len());
    assert!(foreign.len() > tasks / 20, "the other ran {} of {tasks}", foreign.len());

    // From the time of day, which the history has, to the time since the start of the machine.
    let since_start = wall_time().checked_sub(boot_time()).context("the clocks differ oddly")?;
    let claims = Claims::of(&stored);
    let mut limits = Limits::default();
    limits.changed(THREADS as u64, Duration::ZERO, Duration::ZERO);
    for moment in Moment::all(&ours, &claims, &limits) {
        assert!(!moment.is_over(), "{}", moment.describe());
        let now = moment.alive.iter().map(|run| run.started).max().unwrap_or_default();
        let last = moment.alive.iter().map(|run| claims.at(run)).max().unwrap_or_default();
        let last = last.saturating_sub(since_start);
        // Claimed before the last claim of ours, and still there.
        let others = foreign.iter().filter(|other| other.claimed < last && other.ended > now).count();
        assert!(
            moment.alive.len() + others <= THREADS,
            "{others} of the other, claimed before ours: {}; at most {most} at once",
            moment.describe()
        );
    }
    world.end().await
}
