//! Whether a limit has to be looked after by counting, after a claim. Pure.
//!
//! Slots keep the limit of a queue among nodes that know of them: a unique index gives each once, and there are as many as `threads`. Two
//! things they do not keep. A program that knows nothing of slots takes tasks beside them, so as long as one may be there, all that is
//! claimed or running is counted. And when the limit is lowered, tasks run in slots above it, so for a while after each change of a queue
//! its tasks are counted as well: until every node has heard of the change, and has seen what the others started before they did.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use disbatch_core::model::{Queue, QueueId};

/// How old may be what is known of a queue's settings, when a task of it is started.
pub const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// So long after a change is heard of, everybody else has heard of it and has been seen since.
const SETTLES_IN: Duration = Duration::from_secs(3);

/// What is known of limits.
#[derive(Debug, Default)]
pub struct Limits {
    /// Whether there may be programs that know nothing of slots. `None`: it has not been looked yet.
    strangers: Option<bool>,
    /// The settings of queues, and when they were first seen like that.
    queues: HashMap<QueueId, (Queue, Instant)>,
}

impl Limits {
    /// It was looked who is there.
    pub fn met(&mut self, strangers: bool) {
        if self.strangers != Some(strangers) {
            tracing::debug!(strangers, "whether limits are kept by counting");
        }
        self.strangers = Some(strangers);
    }

    /// These are the queues now.
    pub fn heard(&mut self, queues: &[Queue], now: Instant) {
        self.queues.retain(|id, _| queues.iter().any(|queue| queue.id == *id));
        for queue in queues {
            match self.queues.get_mut(&queue.id) {
                Some((known, _)) if known == queue => {}
                Some(other) => *other = (queue.clone(), now),
                None => drop(self.queues.insert(queue.id, (queue.clone(), now))),
            }
        }
    }

    /// Whether tasks of a queue that were claimed have to be counted. `read`: when the queue was read; `has_others`: tasks were seen that
    /// have no slot.
    pub fn must_count(
        &self,
        queue: QueueId,
        (read, has_others): (Option<Instant>, bool),
        now: Instant,
    ) -> bool {
        let changed = self.queues.get(&queue).map(|(_, changed)| *changed);
        let is_new = changed.is_none_or(|changed| now.saturating_duration_since(changed) < SETTLES_IN);
        let is_old = read.is_none_or(|read| now.saturating_duration_since(read) >= HEARD_WITHIN);
        self.strangers != Some(false) || has_others || is_new || is_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(threads: i32) -> Queue {
        let id = QueueId([1; 12].into());
        let queue = bson::doc! { "_id": id, "name": "q", "plugin": "P", "threads": threads };
        bson::deserialize_from_document(queue).unwrap()
    }

    #[test]
    fn tasks_are_counted_until_everybody_has_heard_of_a_change() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut limits = Limits::default();
        let id = queue(1).id;
        let count = |limits: &Limits, at: Instant| limits.must_count(id, (Some(at), false), at);
        limits.met(false);
        assert!(count(&limits, begun), "it is not known");
        limits.heard(&[queue(5)], begun);
        assert!(count(&limits, begun + second * 2));
        limits.heard(&[queue(5)], begun + second * 2);
        assert!(!count(&limits, begun + SETTLES_IN), "it is the same");
        limits.heard(&[queue(4)], begun + second * 9);
        assert!(count(&limits, begun + second * 11));
        assert!(!count(&limits, begun + second * 9 + SETTLES_IN));
    }

    #[test]
    fn tasks_are_counted_where_somebody_knows_nothing_of_slots_or_nothing_is_known() {
        let begun = Instant::now();
        let later = begun + SETTLES_IN;
        let mut limits = Limits::default();
        limits.heard(&[queue(5)], begun);
        let id = queue(5).id;
        assert!(limits.must_count(id, (Some(later), false), later), "nobody has looked");
        limits.met(true);
        assert!(limits.must_count(id, (Some(later), false), later));
        limits.met(false);
        assert!(!limits.must_count(id, (Some(later), false), later));
        assert!(limits.must_count(id, (Some(later), true), later), "a task has no slot");
        assert!(limits.must_count(id, (Some(later - HEARD_WITHIN), false), later));
        assert!(limits.must_count(id, (None, false), later));
        limits.heard(&[], later);
        assert!(limits.must_count(id, (Some(later), false), later), "it is gone");
    }
}
