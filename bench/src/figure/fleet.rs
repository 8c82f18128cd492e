//! `fleet`: the same places on one node, and on several that share a queue.

use bson::doc;
use futures::FutureExt;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::drains;
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::Kind;
use crate::world::drain::{Plan, drain};
use crate::world::node::{Node, Setup};
use crate::world::plugins::WARM;

const NAME: &str = "fleet";

const METHOD: &str = "drains of tasks that do nothing in the warm demo plugin, as in `warm`, of a queue with threads 64: by one \
    DEN, and by four DENs on the same machine and database, each with maxthreads 16";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const TASKS: u32 = 20_000;

/// How many tasks run at once, over all nodes.
const WIDTH: u32 = 64;

/// By how many nodes.
const FLEETS: [u32; 2] = [1, 4];

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(TASKS);
    let named = (|nodes: u32| format!("{NAME}: {nodes} x {}", WIDTH / nodes), speed);
    drains(turn, tasks, &FLEETS, named, async |nodes| drain_by(turn, nodes, tasks).await).await
}

async fn drain_by(turn: Turn<'_>, nodes: u32, tasks: u32) -> anyhow::Result<f64> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let first = Node::start(&setup).await?;
    first
        .finish(async |first| {
            let others = others(&setup, nodes).await?;
            if nodes > 1 {
                for node in others.iter().chain([&*first]) {
                    node.set_maxthreads(WIDTH / nodes).await?;
                }
            }
            let plan = Plan { plugin: WARM, params: doc! { "noreport": true }, tasks, width: WIDTH };
            let drained = drain(first, &plan, turn.progress).await;
            // Before their database is dropped.
            for node in others {
                node.leave().await?;
            }
            Ok(drained?.seconds)
        })
        .await
}

/// Further nodes on the same database.
async fn others(setup: &Setup, nodes: u32) -> anyhow::Result<Vec<Node>> {
    let mut others = Vec::new();
    for number in 1..nodes {
        let name = format!("{}_{number}", setup.name);
        let folder = setup.folder.join(&name);
        others.push(Node::start(&Setup { name, folder, ..setup.clone() }).await?);
    }
    Ok(others)
}

fn speed(nodes: u32) -> Series {
    let each = WIDTH / nodes;
    Series {
        figure: NAME,
        key: format!("{nodes}_nodes_of_{each}_per_second").into(),
        label: format!("nodes x tasks at once: {nodes} x {each}, per second").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let values = ratio(results, &speed(4), &speed(1));
    vec![Finding::new("4_nodes_over_1", "4 x 16 / 1 x 64", values).with(Goal::AtLeast(0.9))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_nodes_are_compared_with_one() {
        let mut results = Results::default();
        results.add(vec![speed(1).sample(1000.0), speed(4).sample(880.0)]);
        let findings = findings(&results);
        assert_eq!((&findings[0].values[..], findings[0].is_reached()), (&[0.88][..], Some(false)));
    }
}
