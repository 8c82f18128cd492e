//! `latency`: how long a task waits when there is nothing else to do.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::Document;
use disbatch_core::task::TaskOptions;
use futures::FutureExt;
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::mkfifo;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe::OpenOptions;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::{Entrant, order};
use crate::figure::{Figure, Rounds, Turn};
use crate::peer::{AGENDA, BULLMQ, BULLMQ_SANDBOXED, CELERY, MINION, RQ};
use crate::results::{Results, Sample, Series};
use crate::statistics::Summary;
use crate::world::node::Node;
use crate::world::plugins::{STARTS, starts_pipe};

const NAME: &str = "latency";

const METHOD: &str = "one task at a time on an idle queue, 30 of them in a round, with pauses of 200 to 300 ms: from \
    just before the call that submits (a majority has acknowledged it when the call returns) to the first moment of the \
    plugin's own code, a small program that writes the time to a named pipe. Both times are CLOCK_REALTIME. The peers \
    do the same, see bench/peers";

/// This figure.
pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const ENTRANTS: [Entrant; 7] = [
    Entrant::Ours,
    Entrant::Peer(&RQ),
    Entrant::Peer(&MINION),
    Entrant::Peer(&CELERY),
    Entrant::Peer(&AGENDA),
    Entrant::Peer(&BULLMQ),
    Entrant::Peer(&BULLMQ_SANDBOXED),
];

const SAMPLES: u32 = 30;

/// How many are enough, whatever is asked for.
const MOST_SAMPLES: u32 = 100;

/// How many of our tasks may run at once; one does.
const THREADS: u32 = 8;

/// If a task is not started for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let count = turn.args.tasks_or(SAMPLES).min(MOST_SAMPLES);
    for entrant in order(&ENTRANTS, turn.round) {
        turn.begin(&format!("{NAME}: {}", entrant.label()));
        let waited = match entrant {
            Entrant::Peer(peer) => turn.world.peers.latency(peer, count).await,
            Entrant::Ours | Entrant::Floor => Some(ours(turn, count).await?),
        };
        let waited = waited.unwrap_or_default();
        let Some(summary) = Summary::of(&waited) else { continue };
        let mut new = vec![of_round(entrant, "p50").sample(summary.median)];
        new.push(of_round(entrant, "p95").sample(summary.p95));
        new.extend(waited.into_iter().map(|value| all(entrant).sample(value)));
        turn.end(&new);
        samples.extend(new);
    }
    Ok(samples)
}

async fn ours(turn: Turn<'_>, count: u32) -> anyhow::Result<Vec<f64>> {
    let node = turn.world.node(NAME).await?;
    let pipe = starts_pipe(&turn.world.folder);
    if !pipe.exists() {
        mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a named pipe")?;
    }
    node.finish(async |node| waits(node, &pipe, count, turn).await).await
}

/// The first task is not counted: peers have connections to make then.
async fn waits(node: &Node, pipe: &Path, count: u32, turn: Turn<'_>) -> anyhow::Result<Vec<f64>> {
    let queue = node.create_queue(STARTS, THREADS).await?;
    // Open for both, so that the end of one plugin is not the end of the file.
    let mut lines = BufReader::new(OpenOptions::new().read_write(true).open_receiver(pipe)?).lines();
    let mut waited = Vec::new();
    for number in 0..=count {
        // The DEN becomes idle again. Pauses differ, so that no sample keeps step with its looks.
        tokio::time::sleep(Duration::from_millis(u64::from(200 + number * 37 % 100))).await;
        let submitted = now()?;
        node.store.submit_tasks(queue, vec![Document::new()], &TaskOptions::default()).await?;
        let line =
            tokio::time::timeout(STALLED_AFTER, lines.next_line()).await.context("a task is not run")?;
        let started: i64 = line?.context("the pipe has ended")?.parse().context("that is no time")?;
        ensure!(started > submitted, "a task began before it was submitted: the clock was set");
        waited.push(i32::try_from((started - submitted) / 1000).map(f64::from)? / 1000.0);
        turn.progress.at(u64::from(number), u64::from(count));
    }
    waited.remove(0);
    Ok(waited)
}

/// Nanoseconds since the epoch.
fn now() -> anyhow::Result<i64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// All waits of an entrant.
fn all(entrant: Entrant) -> Series {
    let (key, label) = (entrant.key(), entrant.label());
    Series { figure: NAME, key: format!("{key}_ms").into(), label: format!("{label}, ms").into() }
}

/// What is said of the waits of one round.
fn of_round(entrant: Entrant, what: &str) -> Series {
    let (key, label) = (entrant.key(), entrant.label());
    Series {
        figure: NAME,
        key: format!("{key}_{what}_ms").into(),
        label: format!("{label}, {what} of a round, ms").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let ours = results.values(&all(Entrant::Ours)).to_vec();
    let mut findings = vec![
        Finding::new("p50_ms", "Disbatch, all rounds, ms", ours.clone()).with(Goal::AtMost(5.0)),
        Finding::new("p95_ms", "Disbatch, all rounds, ms", ours).with(Goal::P95AtMost(9.0)),
    ];
    for other in ENTRANTS.into_iter().filter(|entrant| !matches!(entrant, Entrant::Ours)) {
        for what in ["p50", "p95"] {
            findings.push(Finding::new(
                format!("{what}_over_{}", other.key()),
                format!("{what}: Disbatch / {}", other.label()),
                ratio(results, &of_round(Entrant::Ours, what), &of_round(other, what)),
            ));
        }
    }
    findings
}
