//! Who balances. However many loops are started, one at a time has the lease (see [`crate::lease`]).
//!
//! The lease is a document of its own collection, so that `balance` keeps having one document.

use disbatch_operation::operation;
use std::time::Duration;

use crate::lease::LeaseName;
use crate::store::collections;
use crate::store::{Store, StoreError};

/// How long a lease lasts unless it is prolonged.
pub const LEASE: Duration = Duration::from_secs(30);

pub(crate) const COLLECTION: &str = collections::BALANCE_LEASE.name;

const NAME: LeaseName = LeaseName::in_collection(COLLECTION, "queuebalance", LEASE);

impl Store {
    /// Takes the lease for `instance`, or prolongs it. Returns whether `instance` has it for the next
    /// [`LEASE`]; if not, someone else has.
    #[operation]
    pub async fn take_balance_lease(&self, instance: &str) -> Result<bool, StoreError> {
        self.take_lease(NAME, instance).await
    }

    /// Gives the lease back if `instance` has it, so that the next one need not wait for its end.
    #[operation]
    pub async fn release_balance_lease(&self, instance: &str) -> Result<(), StoreError> {
        self.release_lease(NAME, instance).await
    }
}
