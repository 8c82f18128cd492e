//! Canaries of queues: looked at now and then, and taken back where they are worse.

use std::time::{Duration, Instant};

use disbatch_core::model::{Canary, Queue};
use disbatch_core::store::StoreError;

use crate::node::Node;

/// They are looked at so often. What runners and DENs have counted is written every five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Somebody may run `disbatch create-users`, so it is tried again after so long.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// When they are to be looked at again.
#[derive(Debug, Default)]
pub struct Canaries(Option<Instant>);

impl Canaries {
    fn are_due(&mut self, now: Instant) -> bool {
        let due = self.0.is_none_or(|next| now >= next);
        if due {
            self.0 = Some(now + LOOK_EVERY);
        }
        due
    }
}

impl Node {
    /// Takes back the canaries of queues that are worse, if it is time to look. Most nodes know of no queue that has one, and ask nothing.
    pub(crate) async fn look_at_canaries(&mut self) -> Result<(), StoreError> {
        let tried: Vec<Queue> =
            self.queues.known().iter().filter(|queue| Canary::of(queue).is_some()).cloned().collect();
        if tried.is_empty() || !self.canaries.are_due(Instant::now()) {
            return Ok(());
        }
        for queue in tried {
            match self.store.judge_canary(&self.name, &queue).await {
                Ok(None) => {}
                Ok(Some(sides)) => {
                    self.queues.changed();
                    tracing::warn!(
                        queue = queue.display_name(),
                        failed = sides.canary.failed,
                        of = sides.canary.ended,
                        others_failed = sides.others.failed,
                        others_of = sides.others.ended,
                        "the canary of the queue is worse: its tasks are run by the other version again"
                    );
                }
                Err(error) if error.is_forbidden() => {
                    self.canaries.0 = Some(Instant::now() + FORBIDDEN);
                    tracing::error!(
                        %error, queue = queue.display_name(),
                        "cannot take the canary of the queue back; `disbatch create-users` gives the right to"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_looked_at_now_and_then() {
        let (mut canaries, now) = (Canaries::default(), Instant::now());
        assert!(canaries.are_due(now));
        assert!(!canaries.are_due(now + LOOK_EVERY / 2) && canaries.are_due(now + LOOK_EVERY));
    }
}
