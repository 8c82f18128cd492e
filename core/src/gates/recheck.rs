//! Whatever the marks have missed: blocked tasks are looked at again from time to time, some after the other. Programs that
//! know nothing of gates may have deleted or changed what they wait for.

use disbatch_operation::operation;
use std::collections::BTreeSet;

use bson::doc;
use bson::oid::ObjectId;

use crate::model::{Status, TaskId};
use crate::store::{Store, StoreError};

/// So many are looked at at once.
const AT_ONCE: i64 = 500;

impl Store {
    /// Has blocked tasks looked at again, the oldest of those behind `from`. Returns the last one, if there may be more
    /// behind it.
    #[operation]
    pub async fn recheck_gates(&self, from: Option<TaskId>) -> Result<Option<TaskId>, StoreError> {
        let mut filter = doc! { "gate": { "$in": ["after", "locks"] } };
        if let Some(from) = from {
            filter.insert("_id", doc! { "$gt": from });
        }
        let blocked = self.blocked(filter, AT_ONCE).await?;
        let after = blocked.iter().filter(|task| task.needs.is_none());
        let after: Vec<ObjectId> = after.map(|task| task.id).collect();
        if !after.is_empty() {
            let still = doc! { "_id": { "$in": after }, "status": Status::Blocked, "gate": "after" };
            self.update_found(still, doc! { "$set": { "gate": "new" } }).await?;
        }
        let locks: BTreeSet<&str> = blocked.iter().filter_map(|task| task.needs.as_deref()).collect();
        for lock in locks {
            self.stir_lock(lock).await?;
        }
        let is_all = i64::try_from(blocked.len()).is_ok_and(|found| found < AT_ONCE);
        Ok(blocked.last().filter(|_| !is_all).map(|task| TaskId(task.id)))
    }
}
