//! Makes entries.

use bson::oid::ObjectId;
use disbatch_operation::operation;
use mongodb::Collection;

use super::{AuditEntry, COLLECTION};
use crate::store::{Store, StoreError, Stored};

impl Store {
    /// Adds an entry, with this host's time as `at`. Nothing that there is already is changed, so that nobody who makes
    /// entries needs the right to.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the entry.
    #[operation]
    pub async fn record_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.audit().insert_one(Stored(entry.document(ObjectId::new(), self.now()))).await?;
        Ok(())
    }

    /// The same for what has been done already, and stays done: if it cannot be recorded, the log says what it was.
    #[operation]
    pub async fn note_audit(&self, entry: &AuditEntry) {
        if let Err(error) = self.record_audit(entry).await {
            let object = &entry.object;
            tracing::error!(
                %error, what = entry.what.words(), by = entry.who.words(), kind = object.kind.as_str(),
                id = object.id.map(tracing::field::display), name = object.name,
                "this was done, and has no entry in the audit"
            );
        }
    }

    pub(super) fn audit(&self) -> Collection<Stored> {
        self.database().collection(COLLECTION)
    }
}
