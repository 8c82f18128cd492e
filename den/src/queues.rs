//! The queues as the node knows them. What is known may be old: a limit is read again with each confirmation
//! (`Store::look_at_queues`), so an old one delays a claim and never exceeds a limit.

use std::time::{Duration, Instant};

use disbatch_core::model::Queue;
use disbatch_core::store::{Store, StoreError};

/// They are read again after so long, also when nothing tells of a change.
const KEPT: Duration = Duration::from_secs(4);

/// All queues.
#[derive(Debug, Default)]
pub struct Queues {
    all: Vec<Queue>,
    read: Option<Instant>,
}

impl Queues {
    /// One of them has changed.
    pub fn changed(&mut self) {
        self.read = None;
    }

    /// Whether they are to be read again. Where no hints tell of a change they always are.
    pub fn are_old(&self, now: Instant, hints: bool) -> bool {
        !hints || self.read.is_none_or(|read| now.saturating_duration_since(read) >= KEPT)
    }

    /// They have been read.
    pub fn set(&mut self, all: Vec<Queue>, now: Instant) {
        self.all = all;
        self.read = Some(now);
    }

    /// All queues, as they were read last.
    pub fn known(&self) -> &[Queue] {
        &self.all
    }

    /// All queues, read again if one has changed.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn get(&mut self, store: &Store) -> Result<&[Queue], StoreError> {
        if self.read.is_none() {
            let all = store.list_queues().await?;
            self.set(all, Instant::now());
        }
        Ok(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
