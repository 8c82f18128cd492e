//! What a rule has come to: what of its tasks still waits or runs.

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use super::{GATE, Scope};
use crate::counters::count::Amount;
use crate::model::{Status, TaskId};
use crate::store::{Store, StoreError};
use crate::task::{DETACHED, TaskQuery, attached};

/// Up to so many tasks are counted.
const BOUND: u64 = 10_000;

/// A count that takes longer is left out: what a user has submitted is in no index.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many tasks of nodes that are not alive are told.
const MOST_STRANDED: i64 = 5;

/// A task that a node has that is not alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranded {
    /// The task.
    pub task: TaskId,
    /// The node.
    pub node: String,
}

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

    /// The oldest tasks of a scope that are claimed or running in the name of a node that is not alive. Those that have a lease
    /// are ended when it is over; those of other programs may never be.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation]
    pub async fn stranded_tasks(&self, scope: &Scope) -> Result<Vec<Stranded>, StoreError> {
        let mut filter = scope.filter();
        if matches!(scope, Scope::All | Scope::Owner(_)) {
            let queues = self.list_queues().await?;
            let queues: Vec<ObjectId> = queues.iter().map(|queue| queue.id.0).collect();
            filter.insert("queue", doc! { "$in": queues });
        }
        let alive: Vec<Bson> = self.nodes_not_gone().await?;
        filter.extend(doc! {
            "status": { "$in": [-1, 0] }, "node": { "$nin": alive }, DETACHED: attached(),
        });
        let only = doc! { "node": 1 };
        let tasks = self.tasks();
        let found = tasks.find(filter).projection(only).sort(doc! { "_id": 1 }).limit(MOST_STRANDED);
        let found: Vec<Document> = match found.max_time(PATIENCE).await.map_err(StoreError::from) {
            Ok(found) => found.map_ok(Document::from).try_collect().await?,
            // They are counted all the same.
            Err(error) if error.is_out_of_time() => Vec::new(),
            Err(error) => return Err(error),
        };
        let stranded = |task: &Document| {
            let node = task.get_str("node").unwrap_or_default().to_owned();
            Some(Stranded { task: TaskId(task.get_object_id("_id").ok()?), node })
        };
        Ok(found.iter().filter_map(stranded).collect())
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
