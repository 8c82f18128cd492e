//! The tasks that a node has: claimed or running there.

use bson::{Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::ERROR;
use super::external::{DETACHED, attached};
use crate::model::{QueueId, Status};
use crate::store::{Store, StoreError};

/// The server merges so many parts of an index in order at most.
const MOST_QUEUES: usize = 200;

/// Params of so many bytes are shown on a line.
const SMALL: i64 = 4096;

impl Store {
    /// The tasks that are claimed or running on the node with this name, at most `limit` of them, as stored and without what
    /// may be large: `queue`, `status`, `started`, `mtime`, `attempt`, `progress`, and `params` and `array` that are small, `final_of`. Found by an
    /// index. Those that web services work on are on no node.
    #[operation(%node)]
    pub async fn tasks_on_node(&self, node: &str, limit: i64) -> Result<Vec<Document>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "started": 1, "mtime": 1, "attempt": 1, "progress": 1, "params": small("$params"),
        "array": small("$array"), "final_of": 1 };
        let filter = doc! { "node": node, "status": { "$in": [-1, 0] }, DETACHED: attached() };
        let found = self.tasks().find(filter).projection(only).limit(limit).await?;
        Ok(found.map_ok(Document::from).try_collect().await?)
    }

    /// The newest of those that failed on the node with this name, of these queues, at most `limit` of them. Of more queues than
    /// an index is read for at once there are none.
    #[operation(%node)]
    pub async fn failed_on_node(
        &self,
        node: &str,
        queues: &[QueueId],
        limit: i64,
    ) -> Result<Vec<Document>, StoreError> {
        if queues.len() > MOST_QUEUES {
            return Ok(Vec::new());
        }
        let only = doc! {
            "queue": 1, "status": 1, "mtime": 1, "exit": 1, ERROR: 1, "params": small("$params"), "array": small("$array"), "final_of": 1,
        };
        let filter = doc! { "node": node, "status": Status::Failed, "queue": { "$in": queues } };
        let found = self.tasks().find(filter).projection(only).sort(doc! { "_id": -1 }).limit(limit).await?;
        Ok(found.map_ok(Document::from).try_collect().await?)
    }
}

/// What is at a path, if that is an object that is no larger than a line shows.
fn small(path: &str) -> Document {
    let is_object = doc! { "$eq": [{ "$type": path }, "object"] };
    let size = doc! { "$cond": [is_object, { "$bsonSize": path }, i64::MAX] };
    doc! { "$cond": [{ "$lte": [size, SMALL] }, path, bson::Bson::Null] }
}
