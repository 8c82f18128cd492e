//! What the load of a site is, by multiplication alone. Pure.

use super::cluster::PROMPT;
use super::{Assumptions, Scenario, Wakes};

/// Seconds of a core that the databases need in each second, by what for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Storing, claiming, starting and ending tasks.
    pub tasks: f64,
    /// Change streams: each is told of each task.
    pub streams: f64,
    /// Nodes that ask for tasks and get none.
    pub fruitless: f64,
    /// Heartbeats and looks.
    pub idle: f64,
}

impl Load {
    pub fn of(assumptions: &Assumptions, scenario: Scenario) -> Self {
        let (a, rate, nodes) = (assumptions, scenario.rate(), f64::from(scenario.nodes));
        let asking = f64::from(a.queues) * a.fruitless_us;
        let first = nodes.min(f64::from(PROMPT));
        let (prompt, others) = match scenario.wakes {
            Wakes::Looks => (0.0, nodes),
            Wakes::Streams => (first, nodes - first),
        };
        let asked_us = if scenario.wakes == Wakes::Streams { a.asked_us } else { 0.0 };
        let streams = rate * (prompt * a.stream_us + others * asked_us);
        // A node that is told asks again when it has asked all queues and gathered hints; one that looks, once a second at most.
        let questions = prompt * rate.min(1.0 / most_often(a)) + others * rate.min(1.0);
        let fruitless = questions * asking;
        Self {
            tasks: rate * (a.submit_us + a.run_us) / 1e6,
            streams: streams / 1e6,
            fruitless: fruitless / 1e6,
            idle: (first * a.look_us + (nodes - first) * a.own_look_us + nodes * a.beat_us) / 1e6,
        }
    }

    pub fn total(self) -> f64 {
        self.tasks + self.streams + self.fruitless + self.idle
    }

    /// How many shards it takes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and not so many"
    )]
    pub fn shards(self, assumptions: &Assumptions) -> u32 {
        let one = f64::from(assumptions.cores) * assumptions.most_used;
        ((self.total() / one).ceil() as u32).max(1)
    }
}

/// The shortest time, in seconds, between two fruitless questions of a node.
pub fn most_often(assumptions: &Assumptions) -> f64 {
    (assumptions.gather_ms + f64::from(assumptions.queues) * assumptions.round_trip_ms) / 1e3
}

/// Which share of what the nodes can do is needed: of their places, or of their starts.
pub fn used_nodes(assumptions: &Assumptions, scenario: Scenario) -> f64 {
    let of_each = scenario.rate() / f64::from(scenario.nodes);
    let places = of_each * assumptions.task_seconds / f64::from(assumptions.places);
    places.max(of_each / assumptions.starts_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: Scenario = Scenario { nodes: 1_000, millions: 100, factor: 3.0, wakes: Wakes::Streams };

    #[test]
    fn a_load_has_its_shards() {
        let a = Assumptions { cores: 10, most_used: 0.5, ..Assumptions::default() };
        let load = |total| Load { tasks: total, streams: 0.0, fruitless: 0.0, idle: 0.0 }.shards(&a);
        assert_eq!((load(0.0), load(5.0), load(5.1), load(50.0)), (1, 1, 2, 10));
    }

    #[test]
    fn streams_cost_by_nodes_and_tasks() {
        let a = Assumptions { stream_us: 10.0, asked_us: 1.0, ..Assumptions::default() };
        let streams = |nodes| Load::of(&a, Scenario { nodes, ..SCENARIO }).streams * 1e6 / SCENARIO.rate();
        for (nodes, each) in [(1, 10.0), (4, 40.0), (5, 41.0), (1_000, 1_036.0)] {
            assert!((streams(nodes) - each).abs() < 1e-6, "{nodes}");
        }
        let many = Load::of(&a, SCENARIO);
        let few = Load::of(&a, Scenario { nodes: 100, ..SCENARIO });
        assert!((many.tasks - few.tasks).abs() < f64::EPSILON);
        let looks = Load::of(&a, Scenario { wakes: Wakes::Looks, ..SCENARIO });
        assert!(looks.streams == 0.0 && looks.fruitless < many.fruitless);
    }

    #[test]
    fn few_nodes_look_for_all() {
        let a = Assumptions { look_us: 100.0, own_look_us: 10.0, beat_us: 1.0, ..Assumptions::default() };
        let idle = |nodes| Load::of(&a, Scenario { nodes, ..SCENARIO }).idle * 1e6;
        for (nodes, all) in [(1, 101.0), (4, 404.0), (1_000, 11_360.0)] {
            assert!((idle(nodes) - all).abs() < 1e-6, "{nodes}");
        }
    }

    #[test]
    fn nodes_are_full_by_places_or_by_starts() {
        let a =
            Assumptions { places: 10, task_seconds: 2.0, starts_per_second: 100.0, ..Assumptions::default() };
        let scenario = Scenario { nodes: 1, millions: 1, factor: 0.864, ..SCENARIO };
        assert!((used_nodes(&a, scenario) - 2.0).abs() < 1e-9);
        let short = Assumptions { task_seconds: 0.0, ..a };
        assert!((used_nodes(&short, scenario) - 0.1).abs() < 1e-9);
    }
}
