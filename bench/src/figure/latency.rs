//! `latency`: how long a task waits when there is nothing else to do.

use disbatch_core::accounts::{NewToken, Role, UserName};
use disbatch_core::model::QueueId;
use disbatch_core::task::TaskOptions;
use futures::FutureExt;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::order;
use crate::figure::{Figure, Rounds, Turn};
use crate::peer::{AGENDA, BULLMQ, BULLMQ_SANDBOXED, CELERY, MINION, Peer, RQ};
use crate::results::{Results, Sample, Series};
use crate::statistics::Summary;
use crate::world::Kind;
use crate::world::node::Node;
use crate::world::plugins::STARTS;
use crate::world::starts::Starts;
use crate::world::web::Web;

const NAME: &str = "latency";

const METHOD: &str = "one task at a time on an idle queue, 30 of them in a round, with pauses of 200 to 300 ms: from \
    just before the call that submits (a majority has acknowledged it when the call returns) to the first moment of the \
    plugin's own code, a small program that writes the time to a named pipe. Both times are CLOCK_REALTIME. The call is \
    Disbatch's own submission to the database; over HTTP it is POST /tasks by a client that keeps its connection to a DCI \
    and shows a token of the role submitter. The peers do the same, see bench/peers";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

/// Who is told to run a task, and how.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Disbatch, by its own submission.
    Store,
    /// Disbatch, through a DCI.
    Http,
    Peer(&'static Peer),
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Store,
        Self::Http,
        Self::Peer(&RQ),
        Self::Peer(&MINION),
        Self::Peer(&CELERY),
        Self::Peer(&AGENDA),
        Self::Peer(&BULLMQ),
        Self::Peer(&BULLMQ_SANDBOXED),
    ];

    const fn key(self) -> &'static str {
        match self {
            Self::Store => "disbatch",
            Self::Http => "disbatch_http",
            Self::Peer(peer) => peer.key,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Store => "Disbatch",
            Self::Http => "Disbatch over HTTP",
            Self::Peer(peer) => peer.label,
        }
    }

    /// What the median and the p95 are meant to be, in milliseconds.
    const fn goals(self) -> Option<(f64, f64)> {
        match self {
            Self::Store => Some((5.0, 9.0)),
            Self::Http => Some((7.0, 12.0)),
            Self::Peer(_) => None,
        }
    }
}

const SAMPLES: u32 = 30;

/// How many are enough, whatever is asked for.
const MOST_SAMPLES: u32 = 100;

/// How many of our tasks may run at once; one does.
pub const THREADS: u32 = 8;

pub fn samples(turn: Turn<'_>) -> u32 {
    turn.args.tasks_or(SAMPLES).min(MOST_SAMPLES)
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for way in order(&Way::ALL, turn.round) {
        turn.begin(&format!("{NAME}: {}", way.label()));
        let waited = match way {
            Way::Peer(peer) => turn.world.peers.latency(peer, self::samples(turn)).await,
            Way::Store => Some(by_store(turn).await?),
            Way::Http => Some(over_http(turn).await?),
        };
        let waited = waited.unwrap_or_default();
        let Some(summary) = Summary::of(&waited) else { continue };
        let mut new = vec![of_round(way, "p50").sample(summary.median)];
        new.push(of_round(way, "p95").sample(summary.p95));
        new.extend(waited.into_iter().map(|value| all(way).sample(value)));
        turn.end(&new);
        samples.extend(new);
    }
    Ok(samples)
}

async fn by_store(turn: Turn<'_>) -> anyhow::Result<Vec<f64>> {
    let node = turn.world.node(NAME).await?;
    let mut starts = Starts::open(turn.world)?;
    node.finish(async |node| {
        let queue = node.create_queue(STARTS, THREADS).await?;
        starts.waits(samples(turn), async || submit(node, queue).await, turn.progress).await
    })
    .await
}

/// Submits a task without parameters.
pub async fn submit(node: &Node, queue: QueueId) -> anyhow::Result<()> {
    node.store.submit_tasks(queue, vec![bson::Document::new()], &TaskOptions::default()).await?;
    Ok(())
}

async fn over_http(turn: Turn<'_>) -> anyhow::Result<Vec<f64>> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let node = Node::start(&setup).await?;
    let mut starts = Starts::open(turn.world)?;
    node.finish(async |node| {
        let queue = node.create_queue(STARTS, THREADS).await?;
        let token = token(node).await?;
        let mut web = turn.world.web_beside(&setup).await?;
        web.show(token);
        let waits = starts.waits(samples(turn), async || web.submit(queue).await, turn.progress).await;
        // Before its database is dropped.
        Web::end(web).await?;
        waits
    })
    .await
}

/// A token of somebody who may submit tasks; who has none may do nothing as soon as there is a user.
async fn token(node: &Node) -> anyhow::Result<String> {
    let user: UserName = "bench".parse()?;
    node.store.add_user(&user, Some(Role::Submitter), &[], None).await?;
    let new = NewToken { user, name: NAME.to_owned(), role: Role::Submitter, queues: None, lasts: None };
    Ok(node.store.create_token(&new).await?)
}

/// All waits of one.
fn all(way: Way) -> Series {
    let (key, label) = (way.key(), way.label());
    Series { figure: NAME, key: format!("{key}_ms").into(), label: format!("{label}, ms").into() }
}

/// What is said of the waits of one round.
fn of_round(way: Way, what: &str) -> Series {
    let (key, label) = (way.key(), way.label());
    Series {
        figure: NAME,
        key: format!("{key}_{what}_ms").into(),
        label: format!("{label}, {what} of a round, ms").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (way, prefix) in [(Way::Store, ""), (Way::Http, "http_")] {
        let Some((p50, p95)) = way.goals() else { continue };
        let (label, values) =
            (format!("{}, all rounds, ms", way.label()), results.values(&all(way)).to_vec());
        let of = |what: &str| Finding::new(format!("{prefix}{what}_ms"), label.clone(), values.clone());
        findings.extend([of("p50").with(Goal::AtMost(p50)), of("p95").with(Goal::P95AtMost(p95))]);
    }
    for what in ["p50", "p95"] {
        let compared = |above: Way, below: Way, key: String| {
            let label = format!("{what}: {} / {}", above.label(), below.label());
            Finding::new(key, label, ratio(results, &of_round(above, what), &of_round(below, what)))
        };
        findings.push(compared(Way::Http, Way::Store, format!("http_{what}_over_disbatch")));
        let peers = Way::ALL.into_iter().filter(|way| matches!(way, Way::Peer(_)));
        findings.extend(peers.map(|peer| compared(Way::Store, peer, format!("{what}_over_{}", peer.key()))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_compared_with_the_store_and_with_its_own_goals() {
        let mut results = Results::default();
        for (way, wait) in [(Way::Store, 4.0), (Way::Http, 8.0), (Way::Peer(&RQ), 2.0)] {
            let samples = ["p50", "p95"].map(|what| of_round(way, what).sample(wait));
            results.add(samples.into_iter().chain([all(way).sample(wait)]).collect());
        }
        let findings = findings(&results);
        let found = |key: &str| {
            let found = findings.iter().find(|finding| finding.key == key).unwrap();
            (found.values.clone(), found.is_reached())
        };
        assert_eq!(found("http_p50_over_disbatch"), (vec![2.0], None));
        assert_eq!(found("p95_over_rq"), (vec![2.0], None));
        assert_eq!(found("p50_ms"), (vec![4.0], Some(true)));
        assert_eq!(found("http_p50_ms"), (vec![8.0], Some(false)));
        assert_eq!(found("http_p95_ms"), (vec![8.0], Some(true)));
    }
}
