//! The tasks that a node has: claimed or running there.

use bson::{Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::external::{DETACHED, attached};
use crate::store::{Store, StoreError};

impl Store {
    /// The tasks that are claimed or running on the node with this name, at most `limit` of them, as stored and without what
    /// may be large: `queue`, `status`, `started`, `mtime`, `attempt` and `progress`. Found by an index. Those that web
    /// services work on are on no node.
    #[operation(%node)]
    pub async fn tasks_on_node(&self, node: &str, limit: i64) -> Result<Vec<Document>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "started": 1, "mtime": 1, "attempt": 1, "progress": 1 };
        let filter = doc! { "node": node, "status": { "$in": [-1, 0] }, DETACHED: attached() };
        let found = self.tasks().find(filter).projection(only).limit(limit).await?;
        Ok(found.map_ok(Document::from).try_collect().await?)
    }
}
