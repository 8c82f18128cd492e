//! The queues as the node knows them. What is known may be old: where it is, a limit is read again after each claim
//! (`limits.rs`, `Store::look_at_queues`), so an old one delays a claim and never exceeds a limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use disbatch_core::model::{Queue, QueueId};
use disbatch_core::store::{Store, StoreError};

/// They are read again after so long, also when nothing tells of a change.
const KEPT: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub struct Queues {
    all: Vec<Queue>,
    read: Option<Instant>,
    /// Orders that nobody knows, which have been warned about.
    unknown_sorts: HashMap<QueueId, String>,
}

impl Queues {
    pub fn changed(&mut self) {
        self.read = None;
    }

    /// Whether they are to be read again. Where no hints tell of a change they always are.
    pub fn are_old(&self, now: Instant, hints: bool) -> bool {
        !hints || self.read.is_none_or(|read| now.saturating_duration_since(read) >= KEPT)
    }

    /// When that began.
    pub fn read_at(&self) -> Option<Instant> {
        self.read
    }

    pub fn set(&mut self, all: Vec<Queue>, now: Instant) {
        for queue in self.with_new_unknown_sorts(&all) {
            let (queue, sort) = (queue.display_name(), queue.unknown_sort());
            tracing::warn!(queue, sort, "the queue's order (sort) is unknown: its default order is used");
        }
        self.all = all;
        self.read = Some(now);
    }

    /// Those whose order is unknown and was not so when they were read before.
    fn with_new_unknown_sorts<'a>(&mut self, all: &'a [Queue]) -> Vec<&'a Queue> {
        let unknown = all.iter().filter_map(|queue| Some((queue, queue.unknown_sort()?)));
        let unknown: Vec<(&Queue, String)> = unknown.collect();
        let sorts = unknown.iter().map(|(queue, sort)| (queue.id, sort.clone())).collect();
        let before = std::mem::replace(&mut self.unknown_sorts, sorts);
        let is_new = |(queue, sort): &(&Queue, String)| before.get(&queue.id) != Some(sort);
        unknown.into_iter().filter(is_new).map(|(queue, _)| queue).collect()
    }

    /// All queues, as they were read last.
    pub fn known(&self) -> &[Queue] {
        &self.all
    }

    /// All queues, read again if one has changed.
    pub async fn get(&mut self, store: &Store) -> Result<&[Queue], StoreError> {
        if self.read.is_none() {
            let began = Instant::now();
            let all = store.list_queues().await?;
            self.set(all, began);
        }
        Ok(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_order_is_warned_about_once() {
        let id = disbatch_core::queue::new_queue_id();
        let queue = |sort: &str| Queue { id, rest: bson::doc! { "sort": sort } };
        let mut queues = Queues::default();
        let mut warned = |sort| queues.with_new_unknown_sorts(&[queue(sort)]).len();
        assert_eq!([warned("weird"), warned("weird"), warned("odd")], [1, 0, 1]);
        assert_eq!([warned("fifo"), warned("odd")], [0, 1]);
    }

    #[test]
    fn queues_are_kept_while_hints_would_tell_of_a_change() {
        let now = Instant::now();
        let mut queues = Queues::default();
        assert!(queues.are_old(now, true), "they have not been read");
        queues.set(Vec::new(), now);
        assert!(!queues.are_old(now, true));
        assert!(queues.are_old(now, false), "nothing would tell");
        assert!(queues.are_old(now + KEPT, true), "a hint may have been lost");
        queues.changed();
        assert!(queues.are_old(now, true));
    }
}
