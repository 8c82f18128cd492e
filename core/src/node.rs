//! Nodes: the heartbeat of a DEN and the limit that operators put on it.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use crate::model::{Node, NodeName, Selector};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// What an update found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// Documents that matched: 0 or 1.
    pub matched: u64,
    /// Documents that changed: 0 or 1.
    pub modified: u64,
}

impl Store {
    /// Records that the DEN of `node` is alive, and reads its entry, limit included, in the same operation.
    ///
    /// # Errors
    /// The database cannot be reached, or the entry cannot be understood.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn heartbeat(&self, node: &NodeName) -> Result<Node, StoreError> {
        let entry = self
            .nodes()
            .find_one_and_update(doc! { "node": node }, doc! { "$set": { "timestamp": self.now() } })
            .upsert(true)
            .return_document(mongodb::options::ReturnDocument::After)
            .await?;
        // With `upsert` and `After` there always is one.
        let entry = entry.unwrap_or_else(|| doc! { "_id": ObjectId::new(), "node": node });
        typed("nodes", entry)
    }

    /// All nodes as stored, in order of name.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn list_nodes(&self) -> Result<Vec<Document>, StoreError> {
        Ok(self.nodes().find(doc! {}).sort(doc! { "node": 1 }).await?.try_collect().await?)
    }

    /// One node as stored.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn find_node(&self, selector: &Selector) -> Result<Option<Document>, StoreError> {
        Ok(self.nodes().find_one(node_filter(selector)).await?)
    }

    /// Sets how many tasks may run on a node. The value is stored as given; the caller has validated it.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn set_node_maxthreads(
        &self,
        selector: &Selector,
        maxthreads: Bson,
    ) -> Result<Updated, StoreError> {
        let result = self
            .nodes()
            .update_one(node_filter(selector), doc! { "$set": { "maxthreads": maxthreads } })
            .await?;
        Ok(Updated { matched: result.matched_count, modified: result.modified_count })
    }
}

fn node_filter(selector: &Selector) -> Document {
    match selector {
        Selector::Id(id) => doc! { "_id": id },
        Selector::Name(name) => doc! { "node": name },
    }
}
