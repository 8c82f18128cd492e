//! Which tasks change, from a change stream where the server has them.

use bson::{Bson, doc};
use disbatch_operation::operation;
use futures::StreamExt;
use serde::Deserialize;

use crate::model::TaskId;
use crate::store::collections::{LIVE, TASKS};
use crate::store::{Rows, Store, StoreError, attended};

/// 40573: "The $changeStream stage is only supported on replica sets".
const NOT_A_REPLICA_SET: i32 = 40_573;

/// A change, as far as it matters.
#[derive(Debug, Deserialize)]
struct Change {
    task: Option<Bson>,
}

impl Store {
    /// The ids of tasks as they change, and as their live output grows, from now on. A hint, not a record: a
    /// change that is told may be visible already, and one before this call is not told.
    ///
    /// # Errors
    /// The database cannot be reached, or has no change streams ([`has_no_change_streams`]); within the stream
    /// when it is lost.
    #[operation]
    pub async fn task_changes(&self) -> Result<Rows<TaskId>, StoreError> {
        let of_interest = doc! { "$match": { "$or": [
            { "ns.coll": TASKS.name, "operationType": { "$in": ["insert", "update", "replace", "delete"] } },
            { "ns.coll": LIVE.name, "operationType": { "$in": ["insert", "update"] } },
        ] } };
        // Nothing of the tasks themselves, which may be large. The ids of live output name their task.
        let task = doc! { "$ifNull": ["$documentKey._id.task", "$documentKey._id"] };
        let only_ids = doc! { "$project": { "_id": 1, "task": task } };
        let changes = self.database().watch().pipeline([of_interest, only_ids]).await?.with_type::<Change>();
        let ids = changes.filter_map(|change| {
            std::future::ready(match change {
                Ok(change) => change.task.and_then(|id| id.as_object_id()).map(|id| Ok(TaskId(id))),
                Err(error) => Some(Err(StoreError::from(error))),
            })
        });
        Ok(attended(ids))
    }
}

/// Whether the error says that this kind of server never has change streams.
pub fn has_no_change_streams(error: &StoreError) -> bool {
    error.write_failure().is_some_and(|failure| failure.code == NOT_A_REPLICA_SET)
}
