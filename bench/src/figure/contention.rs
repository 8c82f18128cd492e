//! `contention`: how fast tasks of one queue are claimed and ended by one DEN and by many, and whether that lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use bson::{Bson, Document, doc};
use disbatch_core::model::{NodeName, Queue, Status};
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Claim, Claimant, Finish, RunWrite, Start, TaskOptions};
use futures::FutureExt;
use futures::future::try_join_all;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant};

use crate::compare::{Finding, Goal, ratio};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::statistics::rate;
use crate::world::arena::Arena;

pub const NAME: &str = "contention";

pub const METHOD: &str = "no DEN runs: as many claimers as said, each with a name, an instance and a memory of what it \
    has read ahead of its own, take tasks of one queue 8 at a time (claim, start, end, the last two acknowledged by a \
    majority) until none is left. They share 64 connections. CPU is mongod's, for all of it. Tenths are of the tasks \
    taken by 8 claimers; deep: with a million more in the queue. Writes: start and end of tasks that are claimed, \
    so many in one command, one command at a time";

/// How many claimers there are.
const CLAIMERS: [u32; 4] = [1, FEW, 64, 256];

/// How many places each of them has.
const PLACES: u32 = 8;

/// The number of them whose tenths are compared.
const FEW: u32 = 8;

/// Tasks of a run, unless it is said how many.
const TASKS: u32 = 60_000;

/// How many more wait in a deep queue.
const DEEP: u32 = 1_000_000;

/// Tasks are submitted so many at a time.
const AT_ONCE: u32 = 50_000;

const CONNECTIONS: u32 = 64;
const LEASE: Duration = Duration::from_secs(60);

static FIRST: Series = Series::fixed(NAME, "first_tenth_per_second", "claims/s, first tenth");
static LAST: Series = Series::fixed(NAME, "last_tenth_per_second", "claims/s, last tenth");
static DEEP_FIRST: Series = Series::fixed(NAME, "deep_first_tenth_per_second", "claims/s, first tenth, deep");
static DEEP_LAST: Series = Series::fixed(NAME, "deep_last_tenth_per_second", "claims/s, last tenth, deep");

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

fn speed(claimers: u32) -> Series {
    Series {
        figure: NAME,
        key: format!("claims_per_second_{claimers}").into(),
        label: format!("claims/s, {claimers} claimers").into(),
    }
}

/// What is paid for a task.
pub fn cost(what: &str) -> Series {
    Series {
        figure: NAME,
        key: format!("cpu_us_{}", what.replace(' ', "_")).into(),
        label: format!("CPU of mongod per task, us, {what}").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    vec![
        Finding::new("claimers_256_to_8", "256 claimers to 8", ratio(results, &speed(256), &speed(8)))
            .with(Goal::AtLeast(1.0)),
        Finding::new("last_to_first_tenth", "last tenth to first", ratio(results, &LAST, &FIRST))
            .with(Goal::AtLeast(0.9)),
        Finding::new("deep_last_to_first", "the same, deep", ratio(results, &DEEP_LAST, &DEEP_FIRST))
            .with(Goal::AtLeast(0.9)),
    ]
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let tasks = turn.args.tasks_or(TASKS);
    for claimers in CLAIMERS {
        turn.begin(&format!("{claimers} claimers"));
        let arena = Arena::with_tasks(turn, tasks).await?;
        let run = arena.run(claimers, tasks).await?;
        samples.extend(rate(tasks, run.seconds()).map(|value| speed(claimers).sample(value)));
        samples.push(cost(&format!("{claimers} claimers")).sample(run.cpu_us));
        if claimers == FEW {
            samples.extend([FIRST.sample(run.tenth(0)), LAST.sample(run.tenth(9))]);
        }
        arena.end().await?;
    }
    turn.begin("deep");
    let arena = Arena::with_tasks(turn, tasks + DEEP).await?;
    let run = arena.run(FEW, tasks).await?;
    samples.extend([DEEP_FIRST.sample(run.tenth(0)), DEEP_LAST.sample(run.tenth(9))]);
    arena.end().await?;
    for together in [8, 64] {
        turn.begin("writes");
        let arena = Arena::with_tasks(turn, 6_400).await?;
        samples.extend(arena.writes(together).await?);
        arena.end().await?;
    }
    turn.end(&samples);
    Ok(samples)
}

struct Outcome {
    tasks: u64,
    began: Instant,
    /// When each tenth of the tasks had ended.
    tenths: Vec<Instant>,
    cpu_us: f64,
}

impl Outcome {
    fn seconds(&self) -> f64 {
        self.tenths.last().map_or(0.0, |end| end.duration_since(self.began).as_secs_f64())
    }

    #[expect(clippy::cast_precision_loss, reason = "thousands of tasks")]
    fn tenth(&self, number: usize) -> f64 {
        let from = number.checked_sub(1).and_then(|before| self.tenths.get(before)).unwrap_or(&self.began);
        let seconds = self.tenths.get(number).map_or(f64::NAN, |to| to.duration_since(*from).as_secs_f64());
        self.tasks as f64 / 10.0 / seconds
    }
}

/// What the claimers of a run share.
struct Race {
    tasks: u64,
    taken: AtomicU64,
    ended: AtomicU64,
    tenths: Mutex<Vec<Instant>>,
}

impl Arena {
    async fn with_tasks(turn: Turn<'_>, tasks: u32) -> anyhow::Result<Self> {
        let fields = doc! { "threads": 1_000_000_i64, "sort": "fifo" };
        let arena = Self::new(turn.world, NAME, fields, Some(CONNECTIONS)).await?;
        arena.store.ensure_indexes().await?;
        let mut left = tasks;
        while left > 0 {
            let now = left.min(AT_ONCE);
            let params = (0..now).map(|_| doc! { "commands": "a" }).collect();
            arena.store.submit_tasks(arena.queue.id, params, &TaskOptions::default()).await?;
            left -= now;
            turn.progress.at(u64::from(tasks - left), u64::from(tasks));
        }
        Ok(arena)
    }

    async fn run(&self, claimers: u32, tasks: u32) -> anyhow::Result<Outcome> {
        let race = Arc::new(Race {
            tasks: u64::from(tasks),
            taken: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            tenths: Mutex::new(Vec::new()),
        });
        let (cpu, began) = (self.cpu()?, Instant::now());
        let claimer =
            |number| tokio::spawn(compete(self.store.clone(), self.queue.clone(), number, race.clone()));
        for outcome in try_join_all((0..claimers).map(claimer)).await? {
            outcome?;
        }
        let cpu_us = (self.cpu()? - cpu) * 1e6 / f64::from(tasks);
        let ended = race.ended.load(Ordering::Relaxed);
        ensure!(ended >= race.tasks, "{ended} of {tasks} tasks have ended");
        let twice = doc! { "attempt": { "$gt": 1 } };
        let tasks_again = self.database.collection::<Document>("tasks").count_documents(twice).await?;
        ensure!(tasks_again == 0, "{tasks_again} tasks were claimed twice");
        let tenths = race.tenths.lock().await.clone();
        Ok(Outcome { tasks: race.tasks, began, tenths, cpu_us })
    }

    /// What it costs to write the start and the end of tasks, so many in one command.
    async fn writes(&self, together: u32) -> anyhow::Result<Vec<Sample>> {
        let claimant = claimant(0);
        let slots: Vec<u64> = (0..6_400).collect();
        let mut ahead = Ahead::default();
        let mut claims = Vec::new();
        for slots in slots.chunks(64) {
            claims.extend(self.store.claim_tasks(&self.queue, &claimant, slots, &mut ahead).await?.claims);
        }
        let (cpu, began) = (self.cpu()?, Instant::now());
        for claims in claims.chunks(usize::try_from(together)?) {
            write(&self.store, claims).await?;
        }
        let tasks = f64::from(u32::try_from(claims.len())?);
        let wall = Series {
            figure: NAME,
            key: format!("write_us_{together}").into(),
            label: format!("start and end per task, us, {together} together").into(),
        };
        Ok(vec![
            wall.sample(began.elapsed().as_secs_f64() * 1e6 / tasks),
            cost(&format!("writes {together} together")).sample((self.cpu()? - cpu) * 1e6 / tasks),
        ])
    }
}

pub fn claimant(number: u32) -> Claimant {
    let node = NodeName::new(format!("n{number}"));
    Claimant { node, instance: format!("start of n{number}"), lease: Some(LEASE), fence: None }
}

/// One claimer. Its places are its own, as those of a DEN are that has just ended as many tasks.
async fn compete(store: Store, queue: Queue, number: u32, race: Arc<Race>) -> anyhow::Result<()> {
    let claimant = claimant(number);
    let places: Vec<u64> = (0..PLACES).map(|place| u64::from(number * PLACES + place)).collect();
    let mut ahead = Ahead::default();
    while race.taken.load(Ordering::Relaxed) < race.tasks {
        let batch = store.claim_tasks(&queue, &claimant, &places, &mut ahead).await?;
        ensure!(batch.taken.is_empty(), "a place of its own is taken: {:?}", batch.taken);
        let claimed = u64::try_from(batch.claims.len())?;
        race.taken.fetch_add(claimed, Ordering::Relaxed);
        if batch.exhausted && claimed == 0 {
            break;
        }
        write(&store, &batch.claims).await?;
        let before = race.ended.fetch_add(claimed, Ordering::Relaxed);
        let tenth = |ended: u64| (ended * 10 / race.tasks).min(10);
        for _ in tenth(before)..tenth(before + claimed) {
            race.tenths.lock().await.push(Instant::now());
        }
    }
    Ok(())
}

/// Starts the claimed tasks and ends them.
pub async fn write(store: &Store, claims: &[Claim]) -> anyhow::Result<()> {
    let start = |claim: &Claim| Start {
        task: claim.task,
        from: Status::Claimed,
        node: claim.node.clone(),
        claim: Some((claim.attempt, claim.instance.clone())),
        claimed: None,
        at: store.now(),
        lease: LEASE,
        pid: 1,
        waiting: None,
    };
    let finish = |number: usize| Finish {
        status: Status::Succeeded,
        stdout: "This is command 'a' for apple.\n".into(),
        stderr: Bson::Null,
        complete: true,
        result: None,
        exit: Some(doc! { "code": 0, "duration": 0.001 * f64::from(u32::try_from(number).unwrap_or(0)) }),
        note: None,
        last_line: None,
        pause: None,
        recorded: None,
        trial: None,
    };
    let starts: Vec<RunWrite> = claims.iter().map(|claim| RunWrite::Start(start(claim))).collect();
    let ends = claims.iter().enumerate();
    let ends: Vec<RunWrite> =
        ends.map(|(number, claim)| RunWrite::Finish { run: claim.run(), finish: finish(number) }).collect();
    for writes in [starts, ends] {
        for written in store.write_runs(&writes).await? {
            written?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_measured_from_the_one_before() {
        let began = Instant::now();
        let tenths = (1..=10).map(|n| began + Duration::from_secs(if n < 10 { n } else { 11 })).collect();
        let outcome = Outcome { tasks: 1_000, began, tenths, cpu_us: 0.0 };
        assert_eq!((outcome.tenth(0), outcome.tenth(9), outcome.seconds()), (100.0, 50.0, 11.0));
    }
}
