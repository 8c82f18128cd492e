//! Who does what one DEN at a time does.

use disbatch_core::lease::LeaseName;
use disbatch_core::store::{Store, StoreError};

/// A candidate for a lease.
#[derive(Debug)]
pub struct Leader {
    pub store: Store,
    lease: LeaseName,
    instance: String,
}

impl Leader {
    pub fn new(store: &Store, lease: LeaseName, instance: &str) -> Self {
        Self { store: store.clone(), lease, instance: instance.to_owned() }
    }

    /// Who it is for others.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Takes the lease, or prolongs it. Returns whether it is ours.
    pub async fn leads(&self) -> Result<bool, StoreError> {
        self.store.take_lease(self.lease, &self.instance).await
    }

    /// Gives the lease back, if it is ours.
    pub async fn resign(&self) {
        if let Err(error) = self.store.release_lease(self.lease, &self.instance).await {
            tracing::debug!(%error, lease = ?self.lease, "cannot give a lease back: it will run out");
        }
    }
}
