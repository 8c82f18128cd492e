//! The indexes that a DEN ensures at its start.

use bson::{Document, doc};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

use super::{Store, StoreError};

/// One index: collection, keys, unique. Names are MongoDB's default names, as Perl creates them.
fn all() -> [(&'static str, Document, bool); 8] {
    [
        ("tasks", doc! { "node": 1, "status": 1, "queue": 1 }, false),
        ("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 }, false),
        ("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": -1 }, false),
        ("tasks", doc! { "queue": 1, "status": 1 }, false),
        ("queues", doc! { "name": 1 }, true),
        ("nodes", doc! { "node": 1 }, true),
        ("tasks.chunks", doc! { "files_id": 1, "n": 1 }, true),
        ("tasks.files", doc! { "filename": 1, "metadata.task_id": 1 }, false),
    ]
}

impl Store {
    /// Creates every index that is missing (Disbatch 4 design, Database Collections). One that the server
    /// refuses does not keep the others from being created.
    ///
    /// # Errors
    /// The database cannot be reached; or it refuses an index, for instance because documents violate a
    /// unique one. The message names it.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn ensure_indexes(&self) -> Result<(), StoreError> {
        let mut refused = None;
        for (collection, keys, unique) in all() {
            let options = unique.then(|| IndexOptions::builder().unique(true).build());
            let index = IndexModel::builder().keys(keys).options(options).build();
            let created = self.database().collection::<Document>(collection).create_index(index).await;
            if let Err(error) = created.map_err(StoreError::from) {
                if error.is_transient() {
                    return Err(error);
                }
                refused.get_or_insert(error);
            }
        }
        refused.map_or(Ok(()), Err)
    }
}
