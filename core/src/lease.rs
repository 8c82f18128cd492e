//! Leases: who does what one process at a time may do. However many ask, one has the lease of a name.
//!
//! A lease is a document. It is taken and prolonged by one conditional update that matches a lease of one's own
//! or one that has run out, and its times are the server's: clocks of hosts do not matter.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::Collection;

use crate::store::collections::LEASES;
use crate::store::{Store, StoreError};
use crate::task::transition::server_time_in;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseName {
    collection: &'static str,
    pub(crate) id: &'static str,
    /// How long it lasts unless it is prolonged.
    pub length: Duration,
}

impl LeaseName {
    /// A lease of its own in the collection `leases`.
    pub const fn new(id: &'static str, length: Duration) -> Self {
        Self { collection: LEASES.name, id, length }
    }

    /// One in another collection.
    pub(crate) const fn in_collection(collection: &'static str, id: &'static str, length: Duration) -> Self {
        Self { collection, id, length }
    }
}

impl Store {
    /// Takes the lease for `instance`, or prolongs it. Returns whether `instance` has it for its length from
    /// now; if not, someone else has.
    #[operation(lease = name.id)]
    pub async fn take_lease(&self, name: LeaseName, instance: &str) -> Result<bool, StoreError> {
        if let Some(had) = self.prolong_or_take(name, instance).await? {
            return Ok(had);
        }
        // The first lease of this database: one that has run out, for whoever is first to take it.
        let first = doc! { "_id": name.id, "instance": Bson::Null, "until": DateTime::from_millis(0) };
        StoreError::unless_duplicate(self.leases(name).insert_one(first).await)?;
        Ok(self.prolong_or_take(name, instance).await?.unwrap_or(false))
    }

    /// `None`: there is no lease to take.
    async fn prolong_or_take(&self, name: LeaseName, instance: &str) -> Result<Option<bool>, StoreError> {
        let ours_or_free = doc! { "_id": name.id, "$or": [
            { "instance": instance },
            { "$expr": { "$lte": ["$until", "$$NOW"] } },
        ] };
        let until = server_time_in(name.length);
        let take = vec![doc! { "$set": { "instance": { "$literal": instance }, "until": until } }];
        if self.leases(name).update_one(ours_or_free, take).await?.matched_count == 1 {
            return Ok(Some(true));
        }
        let exists = self.leases(name).find_one(doc! { "_id": name.id }).await?.is_some();
        Ok(exists.then_some(false))
    }

    /// Gives the lease back if `instance` has it, so that the next one need not wait for its end.
    #[operation(lease = name.id)]
    pub async fn release_lease(&self, name: LeaseName, instance: &str) -> Result<(), StoreError> {
        let end = vec![doc! { "$set": { "instance": Bson::Null, "until": "$$NOW" } }];
        self.leases(name).update_one(doc! { "_id": name.id, "instance": instance }, end).await?;
        Ok(())
    }

    pub(crate) fn leases(&self, name: LeaseName) -> Collection<Document> {
        self.database().collection(name.collection)
    }
}
