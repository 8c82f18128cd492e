//! `warm`: tasks that do nothing, in plugins that take one after the other.

use bson::doc;
use futures::FutureExt;

use crate::compare::{Finding, Goal};
use crate::figure::contest::{Entrant, order, peer_drain, times, widths};
use crate::figure::{Figure, Rounds, Turn, cost};
use crate::peer::{AGENDA, BULLMQ, BULLMQ_SANDBOXED, CELERY};
use crate::results::{Results, Sample};
use crate::statistics::rate;
use crate::world::drain::{Plan, drain};
use crate::world::plugins::WARM;

const NAME: &str = "warm";

const METHOD: &str = "the demo plugin, declared as warm, with parameters that have it do nothing; else as `processes`. \
    The peers that reuse a process for many jobs do the same with jobs that do nothing, see bench/peers";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const ENTRANTS: [Entrant; 5] = [
    Entrant::Ours,
    Entrant::Peer(&AGENDA),
    Entrant::Peer(&BULLMQ),
    Entrant::Peer(&BULLMQ_SANDBOXED),
    Entrant::Peer(&CELERY),
];

/// Tasks in a second that a node can reach at best which claims and finishes in bulk and hands tasks to waiting
/// processes, without limits, leases or private folders. Recorded on a 2-core machine; it is not measured here.
const IDEAL_TASKS_PER_SECOND: f64 = 17_300.0;

/// What DEN, runner and guard may use for a task.
const NODE_MICROSECONDS: f64 = 80.0;

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(20_000);
    let mut samples = Vec::new();
    for width in turn.args.widths_or(&[64]) {
        for entrant in order(&ENTRANTS, turn.round) {
            turn.begin(&format!("{NAME}: {}, {width} wide", entrant.label()));
            let new = match entrant {
                Entrant::Peer(peer) => {
                    peer_drain(turn, NAME, peer, (tasks / 5, width)).await.into_iter().collect()
                }
                Entrant::Ours | Entrant::Shell | Entrant::Floor => {
                    ours(turn, (NAME, WARM), (tasks, width)).await?
                }
            };
            turn.end(&new);
            samples.extend(new);
        }
    }
    Ok(samples)
}

/// A drain of so many tasks by a plugin, so many at once, with what it costs.
pub async fn ours(
    turn: Turn<'_>,
    (figure, plugin): (&'static str, &'static str),
    (tasks, width): (u32, u32),
) -> anyhow::Result<Vec<Sample>> {
    let node = turn.world.node(figure).await?;
    let plan = Plan { plugin, params: doc! { "noreport": true }, tasks, width };
    let drained = node.finish(async |node| drain(node, &plan, turn.progress).await).await?;
    let speed = rate(tasks, drained.seconds).map(|speed| Entrant::Ours.series(figure, width).sample(speed));
    Ok(speed.into_iter().chain(cost::samples(figure, (tasks, width), drained.cpu)).collect())
}

fn goal(entrant: Entrant) -> Option<Goal> {
    match entrant {
        Entrant::Peer(peer) if peer.key == BULLMQ_SANDBOXED.key => Some(Goal::MoreThan(1.0)),
        Entrant::Ours | Entrant::Shell | Entrant::Floor | Entrant::Peer(_) => None,
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let mut findings = Vec::new();
    for width in widths(results, NAME) {
        let ours = results.values(&Entrant::Ours.series(NAME, width)).to_vec();
        let ideal = ours.iter().map(|speed| speed / IDEAL_TASKS_PER_SECOND).collect();
        let label = format!("Disbatch, {width} wide, per second");
        findings
            .push(Finding::new(format!("per_second_{width}_wide"), label, ours).with(Goal::AtLeast(8000.0)));
        findings.push(Finding::new(
            format!("over_ideal_recorded_{width}_wide"),
            format!("Disbatch / the best possible, recorded, {width} wide"),
            ideal,
        ));
        let others = ENTRANTS.into_iter().filter(|entrant| !matches!(entrant, Entrant::Ours));
        findings.extend(others.map(|other| times(results, NAME, (other, width), goal(other))));
        findings.push(cost::finding(results, NAME, width, NODE_MICROSECONDS));
    }
    findings
}
