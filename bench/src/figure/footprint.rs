//! `footprint`: what a node costs when it has nothing to do, and when it has much to do at once.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::task::TaskOptions;
use futures::{FutureExt, TryStreamExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, interval, sleep};

use crate::compare::{Finding, Goal};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::drain::{Plan, drain};
use crate::world::node::Node;
use crate::world::plugins::{SLEEPS, TRUE};
use crate::world::processes::{Family, cpu_seconds, memory};
use crate::world::{Kind, OWN_NAME};

const NAME: &str = "footprint";

const METHOD: &str = "a node that has run 64 tasks, 8 at once, and then nothing for 10 s: memory from \
    /proc/PID/smaps_rollup, the DEN's CPU time from /proc/PID/stat over 20 s, the server's opcounters over the same \
    20 s, less what they count in 20 s without the DEN. Then 500 tasks of /bin/sleep, submitted in ten parts a second apart, \
    all running: memory of each kind of process, all of them together, the connections of the node, which the server lists \
    ($currentOp), without the benchmark's own, and the server's opcounters over 20 s";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const SETTLE: Duration = Duration::from_secs(10);
const LOOK_FOR: Duration = Duration::from_secs(20);
/// Tasks are submitted in so many parts, one after the other, so that not all of their leases are from the same moment.
const PARTS: u32 = 10;
const PART_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(300);

static IDLE_DEN: Series = Series::fixed(NAME, "idle_den_rss_mib", "idle DEN, RSS, MiB");
static IDLE_DEN_PSS: Series = Series::fixed(NAME, "idle_den_pss_mib", "idle DEN, PSS, MiB");
static IDLE_RUNNER: Series = Series::fixed(NAME, "idle_runner_rss_mib", "idle DTR, RSS, MiB");
static IDLE_GUARD: Series = Series::fixed(NAME, "idle_guard_rss_mib", "idle guard, RSS, MiB");
static IDLE_OPERATIONS: Series =
    Series::fixed(NAME, "idle_operations_per_second", "idle DEN, database operations/s");
static IDLE_CPU: Series = Series::fixed(NAME, "idle_cpu_percent", "idle DEN, % of a CPU");
static ALONE_OPERATIONS: Series = Series::fixed(
    NAME,
    "standalone_idle_operations_per_second",
    "idle DEN on a standalone server, database operations/s",
);
static ALONE_CPU: Series =
    Series::fixed(NAME, "standalone_idle_cpu_percent", "idle DEN on a standalone server, % of a CPU");
static TASKS: Series = Series::fixed(NAME, "running_tasks", "tasks running");
static DEN: Series = Series::fixed(NAME, "den_rss_mib", "DEN, RSS, MiB");
static RUNNERS: Series = Series::fixed(NAME, "runners_rss_mib", "all DTRs, RSS, MiB");
static RUNNERS_PSS: Series = Series::fixed(NAME, "runners_pss_mib", "all DTRs, PSS, MiB");
static GUARDS: Series = Series::fixed(NAME, "guards_rss_mib", "all guards, RSS, MiB");
static GUARDS_PSS: Series = Series::fixed(NAME, "guards_pss_mib", "all guards, PSS, MiB");
static CONNECTIONS: Series = Series::fixed(NAME, "connections", "connections to the database");
static RUNNING_OPERATIONS: Series =
    Series::fixed(NAME, "running_operations_per_second", "database operations/s while they run");

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for kind in [Kind::ReplicaSet, Kind::Standalone] {
        turn.begin(&format!("{NAME}: idle, {kind:?}"));
        let node = Node::start(&turn.world.setup(NAME, kind).await?).await?;
        let new = node.finish(async |node| idle(turn, node, kind).await).await?;
        turn.end(&new);
        samples.extend(new);
    }
    let count = turn.args.tasks_or(500);
    turn.begin(&format!("{NAME}: {count} tasks"));
    let node = turn.world.node(NAME).await?;
    let new = node.finish(async |node| loaded(turn, node, count).await).await?;
    turn.end(&new);
    samples.extend(new);
    Ok(samples)
}

async fn idle(turn: Turn<'_>, node: &mut Node, kind: Kind) -> anyhow::Result<Vec<Sample>> {
    let plan = Plan { plugin: TRUE, params: Document::new(), tasks: 48, width: 8 };
    drain(node, &plan, turn.progress).await?;
    sleep(SETTLE).await;
    let (den, family) = (memory(&[node.pid()]), Family::of(node.pid())?);
    let mut samples = Vec::new();
    if kind == Kind::ReplicaSet {
        samples.extend([IDLE_DEN.sample(den.rss), IDLE_DEN_PSS.sample(den.pss)]);
        samples.extend(family.runners.iter().map(|pid| IDLE_RUNNER.sample(memory(&[*pid]).rss)));
        samples.extend(family.guards.iter().map(|pid| IDLE_GUARD.sample(memory(&[*pid]).rss)));
    }
    let used_before = cpu_seconds(node.pid());
    let with_den = operations_per_second(node).await?;
    let used = cpu_seconds(node.pid()).zip(used_before).map(|(after, before)| after - before);
    node.end().await?;
    let without = operations_per_second(node).await?;
    let share = 100.0 * used.context("the DEN has ended")? / LOOK_FOR.as_secs_f64();
    let (operations, cpu) = match kind {
        Kind::ReplicaSet => (&IDLE_OPERATIONS, &IDLE_CPU),
        Kind::Standalone => (&ALONE_OPERATIONS, &ALONE_CPU),
    };
    samples.extend([operations.sample((with_den - without).max(0.0)), cpu.sample(share)]);
    Ok(samples)
}

async fn operations_per_second(node: &Node) -> anyhow::Result<f64> {
    let (before, begun) = (operations(node).await?, Instant::now());
    sleep(LOOK_FOR).await;
    let counted = operations(node).await? - before;
    Ok(f64::from(i32::try_from(counted)?) / begun.elapsed().as_secs_f64())
}

/// Everything that the server has done for clients so far.
pub async fn operations(node: &Node) -> anyhow::Result<i64> {
    let status = node.admin().run_command(doc! { "serverStatus": 1 }).await?;
    let counters = status.get_document("opcounters").context("the server does not count")?;
    let kinds = ["insert", "query", "update", "delete", "getmore", "command"];
    let number =
        |kind: &str| counters.get(kind).and_then(|value| value.as_i64().or(value.as_i32().map(i64::from)));
    kinds.iter().map(|kind| number(kind).with_context(|| format!("the server does not count {kind}"))).sum()
}

async fn loaded(turn: Turn<'_>, node: &mut Node, count: u32) -> anyhow::Result<Vec<Sample>> {
    let measured = run_and_look(turn, node, count).await;
    // The plugins end before the node, whatever came out: their runners would outlive it.
    for pid in Family::of(node.pid())?.plugins {
        // One that has ended meanwhile is as good.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let mut samples = measured?;
    wait_for(node, "the tasks do not end", async |node| {
        Ok(running(node).await? == 0 && Family::of(node.pid())?.plugins.is_empty())
    })
    .await?;
    node.end().await?;
    wait_for(node, "the runners do not end", async |node| Ok(Family::of(node.pid())?.runners.is_empty()))
        .await?;
    // Whatever is connected now is not the node's.
    let others = connections(node).await?;
    for sample in samples.iter_mut().filter(|sample| sample.series == CONNECTIONS) {
        sample.value -= others;
    }
    Ok(samples)
}

async fn run_and_look(turn: Turn<'_>, node: &mut Node, count: u32) -> anyhow::Result<Vec<Sample>> {
    let queue = node.create_queue(SLEEPS, count).await?;
    for part in 0..PARTS {
        let tasks = count / PARTS + u32::from(part < count % PARTS);
        let params = (0..tasks).map(|_| Document::new()).collect();
        node.store.submit_tasks(queue, params, &TaskOptions::default()).await?;
        sleep(PART_EVERY).await;
    }
    let all = usize::try_from(count)?;
    wait_for(node, "not all tasks run", async |node| {
        let plugins = Family::of(node.pid())?.plugins.len();
        turn.progress.at(u64::try_from(plugins)?, u64::from(count));
        Ok(running(node).await? == u64::from(count) && plugins == all)
    })
    .await?;
    sleep(SETTLE).await;
    let family = Family::of(node.pid())?;
    ensure!(family.plugins.len() == all, "{} of {count} plugins are left", family.plugins.len());
    let (runners, guards) = (memory(&family.runners), memory(&family.guards));
    Ok(vec![
        RUNNING_OPERATIONS.sample(operations_per_second(node).await?),
        CONNECTIONS.sample(connections(node).await?),
        TASKS.sample(f64::from(count)),
        DEN.sample(memory(&[node.pid()]).rss),
        RUNNERS.sample(runners.rss),
        RUNNERS_PSS.sample(runners.pss),
        GUARDS.sample(guards.rss),
        GUARDS_PSS.sample(guards.pss),
    ])
}

async fn running(node: &Node) -> anyhow::Result<u64> {
    let tasks = node.database.collection::<Document>("tasks");
    Ok(tasks.count_documents(doc! { "status": 0 }).await?)
}

/// All connections from outside the server, except for the benchmark's.
async fn connections(node: &Node) -> anyhow::Result<f64> {
    let list = vec![
        doc! { "$currentOp": { "allUsers": true, "idleConnections": true, "localOps": true } },
        doc! { "$match": { "client": { "$exists": true }, "appName": { "$ne": OWN_NAME } } },
        doc! { "$group": { "_id": "$connectionId" } },
    ];
    let found: Vec<Document> = node.admin().aggregate(list).await?.try_collect().await?;
    Ok(f64::from(u32::try_from(found.len())?))
}

async fn wait_for(
    node: &mut Node,
    failure: &'static str,
    mut reached: impl AsyncFnMut(&mut Node) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (begun, mut look) = (Instant::now(), interval(LOOK_EVERY));
    while !reached(node).await? {
        ensure!(begun.elapsed() < DEADLINE, failure);
        look.tick().await;
    }
    Ok(())
}

fn findings(results: &Results) -> Vec<Finding> {
    let goals = [
        (&IDLE_DEN, 25.0),
        (&IDLE_RUNNER, 8.0),
        (&IDLE_OPERATIONS, 2.0),
        (&IDLE_CPU, 0.5),
        (&ALONE_OPERATIONS, 2.0),
        (&ALONE_CPU, 0.5),
        (&CONNECTIONS, 12.0),
    ];
    let of = |(series, goal): (&Series, f64)| {
        let values = results.values(series).to_vec();
        Finding::new(series.key.clone(), series.label.clone(), values).with(Goal::AtMost(goal))
    };
    goals.into_iter().map(of).collect()
}
