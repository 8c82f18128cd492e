//! Orphan: a task whose runner never came to start it, or died while it ran, becomes -6.

use std::time::Duration;

use bson::{DateTime, doc};

use crate::model::{NodeName, Status, TaskId};
use crate::store::{Store, StoreError};

/// How long a task may stay claimed without being started (Disbatch 4 design, Orphaned Tasks).
pub const CLAIM_EXPIRES_AFTER: Duration = Duration::from_secs(5 * 60);

impl Store {
    /// Orphans the tasks of `node` that were claimed more than five minutes ago and never started. Returns
    /// how many. Old documents hold the time as epoch seconds; those count too.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn orphan_stale_claims(&self, node: &NodeName) -> Result<u64, StoreError> {
        let now = self.now();
        let limit = DateTime::from_millis(now.timestamp_millis() - millis(CLAIM_EXPIRES_AFTER));
        let filter = doc! {
            "node": node,
            "status": Status::Claimed,
            "$or": [
                { "mtime": { "$lt": limit } },
                { "mtime": { "$lt": limit.timestamp_millis() / 1000 } },
            ],
        };
        let update = doc! { "$set": { "status": Status::Orphaned, "mtime": now } };
        Ok(self.tasks().update_many(filter, update).await?.modified_count)
    }

    /// Orphans a task of `node` whose runner is known to have died while it ran. Returns whether it was
    /// still running: a runner that died after it had stored its result leaves nothing to do.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn orphan_task(&self, id: TaskId, node: &NodeName) -> Result<bool, StoreError> {
        let filter = doc! { "_id": id, "node": node, "status": Status::Running };
        let update = doc! { "$set": { "status": Status::Orphaned, "mtime": self.now() } };
        Ok(self.tasks().update_one(filter, update).await?.matched_count == 1)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
