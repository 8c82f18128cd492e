//! `QueueBalance` next to the node: a task of its own, with a connection of its own as its own user.

use std::time::Duration;

use disbatch_core::balance::run::run;
use disbatch_core::config::{Config, Role};
use disbatch_core::model::NodeName;
use disbatch_core::store::{Store, StoreError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the end of the node waits for it.
pub const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Starts it, unless the configuration has it switched off.
pub fn start(config: &Config, node: &NodeName, stop: &CancellationToken) -> Option<JoinHandle<()>> {
    if !config.balance.enabled.0 {
        tracing::warn!("--balance: QueueBalance does not run, as balance.enabled is not set");
        return None;
    }
    let (config, stop) = (config.clone(), stop.clone());
    // Two processes on one node are two candidates.
    let instance = format!("{node}:{}", std::process::id());
    Some(tokio::spawn(async move {
        match connect(&config, &stop).await {
            Ok(Some(store)) => run(store, config.balance, instance, stop).await,
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "QueueBalance does not run"),
        }
    }))
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
