//! `recorded`: what it costs to record all attempts.

use anyhow::ensure;
use bson::{Document, doc};
use futures::FutureExt;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::drains;
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::Kind;
use crate::world::drain::{Plan, prepare_in, release};
use crate::world::node::Node;
use crate::world::plugins::TRUE;

const NAME: &str = "recorded";

const METHOD: &str = "drains of /bin/true as a plugin, as in `processes`, 64 wide: of a queue that records nothing, and of one that records all \
    attempts (`record: {share: 1}`), each by a fresh node in a database of its own";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const TASKS: u32 = 8_000;
const WIDTH: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    Off,
    On,
}

impl Recording {
    fn series(self) -> Series {
        match self {
            Self::Off => Series::fixed(NAME, "off_per_second", "without recordings, per second"),
            Self::On => Series::fixed(NAME, "on_per_second", "with all attempts recorded, per second"),
        }
    }
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(TASKS);
    let named = (|recording: Recording| format!("{NAME}: {recording:?}"), Recording::series);
    drains(turn, tasks, &[Recording::Off, Recording::On], named, async |recording| {
        drained(turn, recording, tasks).await
    })
    .await
}

async fn drained(turn: Turn<'_>, recording: Recording, tasks: u32) -> anyhow::Result<f64> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let plan = Plan { plugin: TRUE, params: Document::new(), tasks, width: WIDTH };
    let node = Node::start(&setup).await?;
    let drain = async |node: &mut Node| {
        let queue = node.create_queue(plan.plugin, 0).await?;
        if recording == Recording::On {
            let queues = node.database.collection::<Document>("queues");
            let record = doc! { "$set": { "record": { "share": 1 } } };
            queues.update_one(doc! { "_id": queue }, record).await?;
        }
        let ready = prepare_in(node, queue, &plan, turn.progress).await?;
        let drained = release(node, ready, &plan, turn.progress).await?;
        let recordings = node.database.collection::<Document>("tasks.recordings");
        let recorded = recordings.count_documents(doc! {}).await?;
        // Each is stored before its task has ended, or is lost.
        let all = recording == Recording::Off || recorded >= u64::from(tasks);
        ensure!(all, "of {tasks} attempts {recorded} are recorded");
        Ok(drained.seconds)
    };
    node.finish(drain).await
}

fn findings(results: &Results) -> Vec<Finding> {
    let values = ratio(results, &Recording::On.series(), &Recording::Off.series());
    vec![Finding::new("on_over_off", "with / without recordings", values).with(Goal::AtLeast(0.97))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_less_is_too_much() {
        let mut results = Results::default();
        results.add(vec![Recording::Off.series().sample(1000.0), Recording::On.series().sample(900.0)]);
        let findings = findings(&results);
        assert_eq!((&findings[0].values[..], findings[0].is_reached()), (&[0.9][..], Some(false)));
    }
}
