//! What a rule has come to: what of its tasks still waits or runs.

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::{GATE, Scope};
use crate::counters::count::Amount;
use crate::model::Status;
use crate::store::{Store, StoreError};
use crate::task::TaskQuery;

/// Up to so many tasks are counted.
const BOUND: u64 = 10_000;

/// A count that takes longer is left out: what a user has submitted is in no index.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many tasks a scope has that have not ended. `None`: counting them took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Those that wait: deferred, blocked, held or queued.
    pub waiting: Option<Amount>,
    /// Those of them that a rule holds.
    pub held: Option<Amount>,
    /// Those that are claimed or run.
    pub running: Option<Amount>,
}

impl Standing {
    /// Whether nothing runs, and nothing waits but what is held.
    pub fn is_idle(&self) -> bool {
        let runs = self.running != Some(Amount::Exactly(0));
        let waits = match (self.waiting, self.held) {
            (Some(Amount::Exactly(waiting)), Some(Amount::Exactly(held))) => waiting > held,
            _ => true, // There are many, or nobody knows.
        };
        !runs && !waits
    }
}

impl Store {
    /// How many tasks a scope has that have not ended. Tasks of queues that were deleted are not among those of all.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation]
    pub async fn standing_of(&self, scope: &Scope) -> Result<Standing, StoreError> {
        let mut tasks = scope.filter();
        if matches!(scope, Scope::All | Scope::Owner(_)) {
            // There is no index over statuses alone.
            let queues = self.list_queues().await?;
            let queues: Vec<ObjectId> = queues.iter().map(|queue| queue.id.0).collect();
            tasks.insert("queue", doc! { "$in": queues });
        }
        let with = |condition: Document| {
            let mut filter = tasks.clone();
            filter.extend(condition);
            filter
        };
        let (waiting, held, running) = futures::try_join!(
            self.count_patiently(with(doc! { "status": { "$in": [-7, -4, -2] } })),
            self.count_patiently(with(doc! { "status": Status::Blocked, "gate": GATE })),
            self.count_patiently(with(doc! { "status": { "$in": [-1, 0] } })),
        )?;
        Ok(Standing { waiting, held, running })
    }

    async fn count_patiently(&self, filter: Document) -> Result<Option<Amount>, StoreError> {
        let query = TaskQuery { filter, max_time: Some(PATIENCE), ..TaskQuery::default() };
        match self.count_query_up_to(&query, BOUND).await {
            Ok(amount) => Ok(Some(amount)),
            Err(error) if error.is_out_of_time() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_idle_when_nothing_is_left_but_what_is_held() {
        let of = |waiting, held, running| Standing { waiting, held, running }.is_idle();
        let exactly = |tasks| Some(Amount::Exactly(tasks));
        assert!(of(exactly(0), exactly(0), exactly(0)) && of(exactly(3), exactly(3), exactly(0)));
        assert!(!of(exactly(3), exactly(2), exactly(0)) && !of(exactly(0), exactly(0), exactly(1)));
        assert!(!of(None, exactly(0), exactly(0)) && !of(exactly(0), exactly(0), None));
        assert!(!of(Some(Amount::MoreThan(9)), Some(Amount::MoreThan(9)), exactly(0)));
    }
}
