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
    DEN, by four DENs on the same machine and database, each with maxthreads 16, and by one beside 16 with maxthreads 0, \
    which have nothing to do but hear of it";

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

/// The nodes of a database.
#[derive(Debug, Clone, Copy)]
struct Fleet {
    /// They run all tasks.
    at_work: u32,
    /// They could, and have no places.
    idle: u32,
}

const ALONE: Fleet = Fleet { at_work: 1, idle: 0 };
const FOUR: Fleet = Fleet { at_work: 4, idle: 0 };
const BESIDE_IDLE: Fleet = Fleet { at_work: 1, idle: 16 };

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(TASKS);
    let named = (|fleet: Fleet| format!("{NAME}: {}", fleet.label()), speed);
    let fleets = [ALONE, FOUR, BESIDE_IDLE];
    drains(turn, tasks, &fleets, named, async |fleet| drain_by(turn, fleet, tasks).await).await
}

async fn drain_by(turn: Turn<'_>, fleet: Fleet, tasks: u32) -> anyhow::Result<f64> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let first = Node::start(&setup).await?;
    first
        .finish(async |first| {
            let others = others(&setup, fleet.at_work + fleet.idle).await?;
            let (at_work, idle) = others.split_at((fleet.at_work - 1) as usize);
            for node in at_work.iter().chain([&*first]).take_while(|_| fleet.at_work > 1) {
                node.set_maxthreads(fleet.places()).await?;
            }
            for node in idle {
                node.set_maxthreads(0).await?;
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

impl Fleet {
    /// Of each node that works.
    fn places(self) -> u32 {
        WIDTH / self.at_work
    }

    fn label(self) -> String {
        let beside = if self.idle > 0 { format!(" beside {} idle", self.idle) } else { String::new() };
        format!("{} x {}{beside}", self.at_work, self.places())
    }
}

fn speed(fleet: Fleet) -> Series {
    let Fleet { at_work, idle } = fleet;
    let beside = if idle > 0 { format!("_beside_{idle}") } else { String::new() };
    Series {
        figure: NAME,
        key: format!("{at_work}_nodes_of_{}{beside}_per_second", fleet.places()).into(),
        label: format!("nodes x tasks at once: {}, per second", fleet.label()).into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let over_alone = |fleet: Fleet| ratio(results, &speed(fleet), &speed(ALONE));
    vec![
        Finding::new("4_nodes_over_1", "4 x 16 / 1 x 64", over_alone(FOUR)).with(Goal::AtLeast(0.9)),
        Finding::new("beside_idle_nodes", "1 x 64 beside 16 idle nodes / alone", over_alone(BESIDE_IDLE))
            .with(Goal::AtLeast(0.7)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_are_compared_with_one_node() {
        let mut results = Results::default();
        let speeds = [(ALONE, 1000.0), (FOUR, 880.0), (BESIDE_IDLE, 750.0)];
        results.add(speeds.map(|(fleet, each)| speed(fleet).sample(each)).to_vec());
        let reached: Vec<_> =
            findings(&results).iter().map(|found| (found.values.clone(), found.is_reached())).collect();
        assert_eq!(reached, [(vec![0.88], Some(false)), (vec![0.75], Some(true))]);
    }
}
