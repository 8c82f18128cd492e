//! `QueueBalance` next to the node: a task of its own, with a connection of its own as its own user.

use std::sync::Arc;
use std::time::Duration;

use disbatch_core::balance;
use disbatch_core::config::{Config, Role};
use disbatch_core::metrics::Metrics;
use disbatch_core::store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

pub fn is_enabled(config: &Config) -> bool {
    if !config.balance.enabled.0 {
        tracing::warn!("--balance: QueueBalance does not run, as balance.enabled is not set");
    }
    config.balance.enabled.0
}

pub async fn run(config: Config, metrics: Arc<Metrics>, instance: String, stop: CancellationToken) {
    match connect(&config, &stop).await {
        Ok(Some(store)) => {
            balance::run::run(store.counting_in(metrics), config.balance, instance, stop).await
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "QueueBalance does not run"),
    }
}

/// Waits for a name server that is away. `None`: it is time to end.
async fn connect(config: &Config, stop: &CancellationToken) -> Result<Option<Store>, StoreError> {
    loop {
        match Store::connect(config, Role::QueueBalance).await {
            Ok(store) => return Ok(Some(store)),
            Err(error) if error.is_transient() => tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(30)) => {}
                () = stop.cancelled() => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
}
