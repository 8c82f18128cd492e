//! Whether a queue had more plugins at work than it may. See [`crate::faults::limits`] for the rule.

use super::Evidence;
use crate::faults::moments::{Claims, Moment};
use crate::faults::records::Run;
use crate::faults::world::Queue;

/// How many plugins of a queue were alive at once at most.
#[derive(Debug)]
pub struct Concurrency {
    pub queue: String,
    /// So many at most.
    pub most: usize,
    /// The limit in force at that time.
    pub limit: u64,
    /// The largest limit that was ever in force.
    pub largest: u64,
}

/// How many plugins were alive at once, for each queue.
pub fn concurrency(evidence: &Evidence<'_>) -> Vec<Concurrency> {
    let of_queue = |queue: &Queue| {
        let moments = moments(evidence, queue);
        let peak = moments.iter().max_by_key(|moment| moment.alive.len());
        Concurrency {
            queue: queue.name.clone(),
            most: peak.map_or(0, |moment| moment.alive.len()),
            limit: peak.map_or(0, |moment| moment.limit),
            largest: queue.limits().most(),
        }
    };
    evidence.world.queues.iter().map(of_queue).collect()
}

/// Moments at which there were more than allowed.
pub(super) fn exceeded(evidence: &Evidence<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for queue in &evidence.world.queues {
        for moment in moments(evidence, queue).iter().filter(|moment| moment.is_over()) {
            violations.push(format!("queue {}: {}", queue.name, moment.describe()));
        }
    }
    violations
}

fn moments<'a>(evidence: &'a Evidence<'_>, queue: &Queue) -> Vec<Moment<'a>> {
    let of_queue = |run: &&Run| evidence.queue_of(run.task).is_some_and(|other| other.id == queue.id);
    Moment::all(evidence.runs.iter().filter(of_queue), &Claims::of(evidence.tasks.values()), &queue.limits())
}
