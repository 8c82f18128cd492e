//! `drained`: how long a task waits in a queue that has worked, beside the same queue when it was fresh.

use bson::doc;
use disbatch_core::model::{QueueId, Selector};
use futures::FutureExt;
use tokio::time::sleep;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::latency::{THREADS, samples, submit};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::statistics::{Summary, rate};
use crate::world::drain::{Plan, REST, prepare_in, release};
use crate::world::node::Node;
use crate::world::plugins::{STARTS, WARM};
use crate::world::starts::Starts;

const NAME: &str = "drained";

const METHOD: &str = "one task at a time, as Disbatch in `latency`, first in a fresh database; then 100,000 tasks (--drained) \
    are drained by the same queue on the same node, 64 at once, by the warm demo plugin as in `warm`; a second later one \
    task at a time again. The server steps over what has left the queue in the last five minutes";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const WIDTH: u32 = 64;

static DRAIN: Series = Series::fixed(NAME, "drain_per_second", "the drain between, per second");

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let node = turn.world.node(NAME).await?;
    let mut starts = Starts::open(turn.world)?;
    let tasks = turn.args.drained.get();
    let [fresh, drained, after] = ["fresh", "drain", "after the drain"].map(|what| format!("{NAME}: {what}"));
    node.finish(async |node| {
        turn.begin(&fresh);
        let queue = node.create_queue(STARTS, THREADS).await?;
        let waits = starts.waits(samples(turn), async || submit(node, queue).await, turn.progress).await?;
        let mut all = said("fresh", &waits);
        turn.end(&all);
        turn.begin(&drained);
        become_one_of(node, queue, WARM, 0).await?;
        let plan = Plan { plugin: WARM, params: doc! { "noreport": true }, tasks, width: WIDTH };
        let ready = prepare_in(node, queue, &plan, turn.progress).await?;
        let done = release(node, ready, &plan, turn.progress).await?;
        let speed: Vec<Sample> =
            rate(tasks, done.seconds).map(|speed| DRAIN.sample(speed)).into_iter().collect();
        turn.end(&speed);
        turn.begin(&after);
        become_one_of(node, queue, STARTS, THREADS).await?;
        sleep(REST).await;
        let waits = starts.waits(samples(turn), async || submit(node, queue).await, turn.progress).await?;
        let new = said("after", &waits);
        turn.end(&new);
        all.extend(new.into_iter().chain(speed));
        Ok(all)
    })
    .await
}

/// Gives the queue another plugin.
async fn become_one_of(node: &Node, queue: QueueId, plugin: &str, threads: u32) -> anyhow::Result<()> {
    let change = doc! { "plugin": plugin, "threads": i64::from(threads) };
    node.store.update_queue(&Selector::Id(queue.0), change).await?;
    Ok(())
}

fn said(when: &str, waits: &[f64]) -> Vec<Sample> {
    let Some(summary) = Summary::of(waits) else { return Vec::new() };
    vec![wait(when, "p50").sample(summary.median), wait(when, "p95").sample(summary.p95)]
}

fn wait(when: &str, what: &str) -> Series {
    Series {
        figure: NAME,
        key: format!("{when}_{what}_ms").into(),
        label: format!("{when}, {what} of a round, ms").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let compared = |what: &str| {
        let values = ratio(results, &wait("after", what), &wait("fresh", what));
        Finding::new(format!("{what}_after_over_fresh"), format!("{what}: after the drain / fresh"), values)
    };
    vec![compared("p50").with(Goal::AtMost(1.2)), compared("p95").with(Goal::AtMost(1.2))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_has_worked_is_compared_with_itself() {
        let mut results = Results::default();
        results.add([said("fresh", &[4.0; 30]), said("after", &[6.0; 30])].concat());
        let findings = findings(&results);
        assert_eq!((&findings[0].values[..], findings[0].is_reached()), (&[1.5][..], Some(false)));
        assert_eq!(findings[1].key, "p95_after_over_fresh");
    }
}
