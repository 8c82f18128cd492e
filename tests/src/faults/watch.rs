//! Waits, and says how far it is.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use bson::{Document, doc};
use disbatch_core::model::TaskId;
use futures::TryStreamExt;
use tokio::sync::Mutex;
use tokio::time::{Instant, interval};

use super::boxes;
use super::checks::{self, Evidence};
use super::notifications;
use super::poison;
use super::report::say;
use super::ticking::Ticking;
use super::world::World;

/// How often progress is shown.
const EVERY: Duration = Duration::from_secs(5);

/// How long all tasks may take to end after everything was mended and the last of them was to be heard of.
const STANDSTILL: Duration = Duration::from_secs(90);

/// How long DENs may take to notice what dead runners have left: the janitor of one that was killed has its lease for a minute.
const TIDYING: Duration = Duration::from_secs(90);

/// How long processes may take to end after the last task has.
const LAST_PROCESSES: Duration = Duration::from_secs(20);

/// Shows progress until it is dropped.
pub async fn show_progress(world: &World, faults: &Mutex<u64>) -> Infallible {
    let begin = Instant::now();
    let mut looks = interval(EVERY);
    loop {
        looks.tick().await;
        let faults = *faults.lock().await;
        let at = begin.elapsed().as_secs();
        match tokio::time::timeout(EVERY, counts(world)).await {
            Ok(Ok(counts)) => say(&format!("{at:>4} s  {faults} faults; {}", shown(&counts))),
            Ok(Err(_)) | Err(_) => say(&format!("{at:>4} s  {faults} faults; the database is away")),
        }
    }
}

/// Waits until every task has ended. Gives up when nothing has changed for long; a check says then which
/// tasks are stuck.
pub async fn until_all_ended(world: &World) -> anyhow::Result<()> {
    let begin = Instant::now();
    let (mut last_change, mut before) = (Instant::now(), BTreeMap::new());
    let mut looks = interval(Duration::from_millis(250));
    let mut said = Instant::now();
    loop {
        looks.tick().await;
        let counts = counts(world).await?;
        if !counts.keys().any(|status| [-7, -4, -2, -1, 0].contains(status)) {
            say(&format!("all tasks have ended after another {} s", begin.elapsed().as_secs()));
            return Ok(());
        }
        if said.elapsed() > EVERY {
            said = Instant::now();
            say(&format!("waiting; {}", shown(&counts)));
        }
        if counts != before {
            (last_change, before) = (Instant::now(), counts);
        }
        if last_change.elapsed() > STANDSTILL {
            say("nothing happens any more");
            return Ok(());
        }
    }
}

/// Waits until the schedule has made all of its tasks. Gives up after long; a check says then which are missing.
pub async fn until_all_fired(world: &World, ticking: &Ticking) -> anyhow::Result<()> {
    let deadline = Instant::now() + STANDSTILL;
    let mut looks = interval(Duration::from_millis(250));
    while Instant::now() < deadline && !ticking.is_over(world).await? {
        looks.tick().await;
    }
    Ok(())
}

/// Waits until all poison is over, or set aside. Gives up after long; returns what is left of it.
pub async fn until_poison_is_over(world: &World) -> anyhow::Result<Vec<String>> {
    let deadline = Instant::now() + STANDSTILL;
    let mut looks = interval(Duration::from_millis(250));
    loop {
        looks.tick().await;
        let left = poison::left(world).await?;
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
    }
}

/// Waits until all that has happened was told, and nothing is to be delivered any more. Gives up after long; a check says then what was
/// not told.
pub async fn until_all_is_told(world: &World) -> anyhow::Result<()> {
    let (begin, happened) = (Instant::now(), notifications::happened(world).await?);
    // Whoever had it may be dead.
    notifications::end_lease(world).await;
    let mut looks = interval(Duration::from_millis(250));
    while begin.elapsed() < STANDSTILL {
        looks.tick().await;
        let (told, _) = notifications::told(world)?;
        if told == happened && notifications::count_open(world).await? == 0 {
            say(&format!("all was told after another {} s", begin.elapsed().as_secs()));
            break;
        }
    }
    Ok(())
}

/// Gives the DENs time to tidy up after dead runners.
pub async fn until_tidy(world: &World) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIDYING;
    let mut looks = interval(Duration::from_millis(100));
    while Instant::now() < deadline {
        looks.tick().await;
        if checks::left_folders(world)?.is_empty()
            && checks::left_live(world).await?.is_empty()
            && checks::left_locks(world).await?.is_empty()
            && checks::all_is_told(world).await?
        {
            break;
        }
    }
    Ok(())
}

/// Waits until the web service has nothing to call back any more. Gives up after long; a check says then what was not told.
pub async fn until_nothing_is_said(world: &World) {
    let deadline = Instant::now() + STANDSTILL;
    let mut looks = interval(Duration::from_millis(100));
    while Instant::now() < deadline && !world.service.is_idle() {
        looks.tick().await;
    }
}

/// Waits until all containers are gone; returns those that are not.
pub async fn until_no_containers(world: &World) -> anyhow::Result<Vec<String>> {
    let deadline = Instant::now() + STANDSTILL;
    let mut looks = interval(Duration::from_secs(1));
    loop {
        looks.tick().await;
        let left = boxes::left(world.podman.as_ref()).await?;
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
    }
}

/// Waits until all processes have ended; returns those that have not.
pub async fn until_nothing_is_left(world: &World) -> Vec<String> {
    let deadline = Instant::now() + LAST_PROCESSES;
    let mut looks = interval(Duration::from_millis(100));
    loop {
        looks.tick().await;
        let left = checks::left_processes(world);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
    }
}

pub async fn read_tasks(world: &World) -> anyhow::Result<HashMap<TaskId, Document>> {
    let mut found = world.tasks().find(poison::none()).await?;
    let mut tasks = HashMap::new();
    while let Some(task) = found.try_next().await? {
        tasks.insert(TaskId(task.get_object_id("_id")?), task);
    }
    Ok(tasks)
}

async fn counts(world: &World) -> anyhow::Result<BTreeMap<i64, i64>> {
    let of_group = doc! { "$group": { "_id": "$status", "n": { "$sum": 1 } } };
    let ours = doc! { "$match": poison::none() };
    let groups: Vec<Document> = world.tasks().aggregate([ours, of_group]).await?.try_collect().await?;
    let count = |group: &Document| i64::from(group.get_i32("n").unwrap_or(0));
    let status = |group: &Document| Evidence::status(&doc! { "status": group.get("_id").cloned() });
    Ok(groups.iter().map(|group| (status(group), count(group))).collect())
}

fn shown(counts: &BTreeMap<i64, i64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{status}: {count}")).collect();
    format!("tasks by status: {}", counts.join(", "))
}
