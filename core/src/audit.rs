//! Who did what to many tasks at once, in `audit`.

use bson::oid::ObjectId;
use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::Collection;

use crate::store::{Store, StoreError};

impl Store {
    /// Adds an entry, with the server's time as `at`.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn record_audit(&self, entry: Document) -> Result<(), StoreError> {
        let mut fields = doc! { "at": "$$NOW" };
        fields.extend(entry.into_iter().map(|(name, value)| (name, doc! { "$literal": value }.into())));
        let id = doc! { "_id": ObjectId::new() };
        self.audit().update_one(id, vec![doc! { "$set": fields }]).upsert(true).await?;
        Ok(())
    }

    /// The entries as stored, the latest first.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn list_audit(&self, limit: i64) -> Result<Vec<Document>, StoreError> {
        let found = self.audit().find(doc! {}).sort(doc! { "at": -1, "_id": -1 }).limit(limit).await?;
        Ok(found.try_collect().await?)
    }

    fn audit(&self) -> Collection<Document> {
        self.database().collection("audit")
    }
}
