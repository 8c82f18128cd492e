//! `fair`: how fast tasks are claimed from a queue with many groups, beside one that goes by age.

use anyhow::{Context, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::model::whole_number;
use disbatch_core::task::Ahead;
use futures::{FutureExt, TryStreamExt};
use tokio::time::{Duration, Instant};

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contention::claimant;
use crate::figure::{Figure, Rounds, Turn};
use crate::progress::Progress;
use crate::results::{Results, Sample, Series};
use crate::statistics::rate;
use crate::world::arena::Arena;
use crate::world::fill::{self, fill};

pub const NAME: &str = "fair";

const METHOD: &str = "no DEN runs: 1,000,000 tasks of 10,000 groups wait (--tasks and --groups say otherwise), and one claimer \
    claims a tenth of them, 64 at a time, each in a place of its own; the same with tasks that have no groups in a queue \
    with the order fifo, in every other round before that. All groups must have got the same. CPU is mongod's. First: the \
    first claim, with a read of who waits";

/// Groups and tasks, unless it is said how many.
const GROUPS: u32 = 10_000;
const TASKS: u32 = 1_000_000;

/// So many are claimed at a time.
const TOGETHER: u32 = 64;

/// They are claimed within this time, or not at all.
const DEADLINE: Duration = Duration::from_secs(600);

static FAIR: Series = Series::fixed(NAME, "fair_claims_per_second", "claims/s, fair");
static FIFO: Series = Series::fixed(NAME, "fifo_claims_per_second", "claims/s, fifo");
static FAIR_CPU: Series = Series::fixed(NAME, "fair_cpu_us", "CPU of mongod per claim, us, fair");
static FIFO_CPU: Series = Series::fixed(NAME, "fifo_cpu_us", "CPU of mongod per claim, us, fifo");
static FAIR_FIRST: Series = Series::fixed(NAME, "fair_first_ms", "first claim, ms, fair");
static FIFO_FIRST: Series = Series::fixed(NAME, "fifo_first_ms", "first claim, ms, fifo");

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

fn findings(results: &Results) -> Vec<Finding> {
    vec![
        Finding::new("fair_to_fifo", "claims/s, fair to fifo", ratio(results, &FAIR, &FIFO))
            .with(Goal::AtLeast(0.5)),
        Finding::new("fair_to_fifo_cpu", "CPU per claim, fair to fifo", ratio(results, &FAIR_CPU, &FIFO_CPU)),
    ]
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let (groups, tasks) = (turn.args.groups_or(GROUPS), turn.args.tasks_or(TASKS));
    let wanted = (tasks / 10).max(1);
    let mut samples = Vec::new();
    let mut ways = [(Some(groups), &FAIR, &FAIR_CPU, &FAIR_FIRST), (None, &FIFO, &FIFO_CPU, &FIFO_FIRST)];
    if !turn.round.is_multiple_of(2) {
        ways.reverse();
    }
    for (groups, all, cpu, first) in ways {
        turn.begin(if groups.is_some() { "a fair queue" } else { "fifo" });
        let arena = Arena::in_groups(turn, groups, tasks).await?;
        let drained = arena.claim_some(wanted, turn.progress).await?;
        if let Some(groups) = groups {
            arena.check_groups(groups, wanted).await?;
        }
        samples.extend(rate(drained.claims, drained.seconds).map(|value| all.sample(value)));
        samples.push(cpu.sample(drained.cpu_us));
        samples.push(first.sample(drained.first_ms));
        arena.end().await?;
    }
    turn.end(&samples);
    Ok(samples)
}

struct Drained {
    claims: u32,
    seconds: f64,
    cpu_us: f64,
    first_ms: f64,
}

impl Arena {
    /// One with so many tasks, in groups or in none.
    async fn in_groups(turn: Turn<'_>, groups: Option<u32>, tasks: u32) -> anyhow::Result<Self> {
        let policy = if groups.is_some() { "fair" } else { "fifo" };
        let fields = doc! { "threads": 1_000_000_000_i64, "policy": policy };
        let arena = Self::new(turn.world, NAME, fields, None).await?;
        let kind = groups.map_or(fill::Kind::Queued, fill::Kind::Grouped);
        fill(&arena.database, &[arena.queue.id], tasks, kind, turn.progress).await?;
        // Last: that is faster.
        arena.store.ensure_indexes().await?;
        Ok(arena)
    }

    async fn claim_some(&self, wanted: u32, progress: &Progress) -> anyhow::Result<Drained> {
        let (claimant, mut ahead) = (claimant(0), Ahead::default());
        let (cpu, began) = (self.cpu()?, Instant::now());
        let (mut claims, mut slot, mut first_ms) = (0, 0, None);
        while claims < wanted {
            let now = u64::from(TOGETHER.min(wanted - claims));
            let slots: Vec<u64> = (slot..slot + now).collect();
            slot += now;
            let batch = self.store.claim_tasks(&self.queue, &claimant, &slots, &mut ahead).await?;
            ensure!(batch.taken.is_empty(), "a place of its own is taken: {:?}", batch.taken);
            ensure!(
                !(batch.exhausted && batch.claims.is_empty()),
                "only {claims} of {wanted} tasks were found"
            );
            ensure!(
                began.elapsed() < DEADLINE,
                "only {claims} of {wanted} tasks were claimed in {DEADLINE:?}"
            );
            claims += u32::try_from(batch.claims.len())?;
            first_ms.get_or_insert_with(|| began.elapsed().as_secs_f64() * 1e3);
            progress.at(u64::from(claims), u64::from(wanted));
        }
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), self.cpu()? - cpu);
        let first_ms = first_ms.unwrap_or_default();
        Ok(Drained { claims, seconds, cpu_us: cpu * 1e6 / f64::from(claims), first_ms })
    }

    /// No group has got more than one task more than another.
    async fn check_groups(&self, groups: u32, wanted: u32) -> anyhow::Result<()> {
        let counted = [
            doc! { "$match": { "queue": self.queue.id, "status": -1 } },
            doc! { "$group": { "_id": "$group", "tasks": { "$sum": 1 } } },
            doc! { "$group": {
                "_id": Bson::Null, "groups": { "$sum": 1 }, "least": { "$min": "$tasks" }, "most": { "$max": "$tasks" },
            } },
        ];
        let tasks = self.database.collection::<Document>("tasks");
        let counted: Vec<Document> = tasks.aggregate(counted).await?.try_collect().await?;
        let counted = counted.first().context("nothing was claimed")?;
        let number = |field: &str| counted.get(field).and_then(whole_number).context("no number");
        let (least, most) = (number("least")?, number("most")?);
        ensure!(most - least <= 1, "a group got {least} tasks, and another one {most}");
        let expected = i64::from(groups.min(wanted));
        ensure!(number("groups")? == expected, "not all of {expected} groups got a task");
        Ok(())
    }
}
