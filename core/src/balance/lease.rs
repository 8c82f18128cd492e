//! Who balances. However many loops are started, one at a time has the lease.
//!
//! The lease is a document of its own collection, so that `balance` keeps having one document. It is taken
//! and prolonged by one conditional update that matches a lease of one's own or one that has run out, and its
//! times are the server's: clocks of hosts do not matter.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::Collection;

use crate::store::{Store, StoreError};

/// How long a lease lasts unless it is prolonged.
pub const LEASE: Duration = Duration::from_secs(30);

/// The collection of the lease.
pub(crate) const COLLECTION: &str = "balance.lease";

const ID: &str = "queuebalance";

impl Store {
    /// Takes the lease for `instance`, or prolongs it. Returns whether `instance` has it for the next
    /// [`LEASE`]; if not, someone else has.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn take_balance_lease(&self, instance: &str) -> Result<bool, StoreError> {
        if let Some(had) = self.prolong_or_take(instance).await? {
            return Ok(had);
        }
        // The first lease of this database: one that has run out, for whoever is first to take it.
        let first = doc! { "_id": ID, "instance": Bson::Null, "until": DateTime::from_millis(0) };
        if let Err(error) = self.balance_lease().insert_one(first).await.map_err(StoreError::from)
            && !error.write_failure().is_some_and(|failure| failure.is_duplicate_key())
        {
            return Err(error);
        }
        Ok(self.prolong_or_take(instance).await?.unwrap_or(false))
    }

    /// `None`: there is no lease to take.
    async fn prolong_or_take(&self, instance: &str) -> Result<Option<bool>, StoreError> {
        let ours_or_free = doc! { "_id": ID, "$or": [
            { "instance": instance },
            { "$expr": { "$lte": ["$until", "$$NOW"] } },
        ] };
        let milliseconds = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
        let until = doc! { "$add": ["$$NOW", milliseconds] };
        let take = vec![doc! { "$set": { "instance": { "$literal": instance }, "until": until } }];
        if self.balance_lease().update_one(ours_or_free, take).await?.matched_count == 1 {
            return Ok(Some(true));
        }
        let exists = self.balance_lease().find_one(doc! { "_id": ID }).await?.is_some();
        Ok(exists.then_some(false))
    }

    /// Gives the lease back if `instance` has it, so that the next one need not wait for its end.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn release_balance_lease(&self, instance: &str) -> Result<(), StoreError> {
        let end = vec![doc! { "$set": { "instance": Bson::Null, "until": "$$NOW" } }];
        self.balance_lease().update_one(doc! { "_id": ID, "instance": instance }, end).await?;
        Ok(())
    }

    fn balance_lease(&self) -> Collection<Document> {
        self.database().collection(COLLECTION)
    }
}
