//! What a DEN does next to the node's loop, so that heartbeats and claims do not wait for it. Most of it is done by one DEN at a time: the
//! one that has the lease.

mod auditor;
mod clockwork;
mod gates;
mod inbox;
mod janitor;
mod notifier;
mod shadows;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::balance;
use disbatch_core::config::{Config, Role};
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::Metrics;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::NodeName;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::wake::{self, Hints};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::clockwork::Clockwork;

/// How long the end of the node waits for them: they give their leases back.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Does a round of a chore, and notes how long that took.
pub async fn measured<T>(
    store: &Store,
    worker: Worker,
    round: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let began = Instant::now();
    let done = round.await;
    store.measure_worker(worker, began.elapsed(), done.is_ok());
    done
}

#[derive(Debug)]
pub struct Chores {
    clockwork: Clockwork,
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl Chores {
    /// Starts those that the configuration has not switched off.
    pub fn start(
        config: &Config,
        store: &Store,
        hints: &Arc<Hints>,
        (node, with_balance): (&NodeName, bool),
    ) -> Self {
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        // Two processes on one node are two candidates.
        let instance = format!("{node}:{}", std::process::id());
        let leader = |lease| Leader::new(store, lease, &instance);
        let clockwork = Clockwork::new(config.schedules.0);
        running.spawn(wake::follow_changes(store.clone(), Arc::clone(hints), stop.clone()));
        running.spawn(gates::run(leader(gates::LEASE), Arc::clone(hints), stop.clone()));
        running.spawn(clockwork::fire_schedules(clockwork.clone(), store.clone(), stop.clone()));
        running.spawn(clockwork::look_after_arrays(
            leader(clockwork::LEASE_OF_ARRAYS),
            clockwork.clone(),
            stop.clone(),
        ));
        running.spawn(shadows::run(leader(shadows::LEASE), clockwork.clone(), stop.clone()));
        let url = config.notifications.url.clone();
        running.spawn(notifier::run(leader(notifier::LEASE), url, stop.clone()));
        running.spawn(inbox::run(leader(inbox::LEASE), (Arc::clone(hints), clockwork.clone()), stop.clone()));
        if janitor::is_enabled(config.janitor) {
            running.spawn(janitor::run(leader(janitor::LEASE), config.janitor, stop.clone()));
        }
        if auditor::is_enabled(config.auditor) {
            running.spawn(auditor::run(leader(auditor::LEASE), config.auditor, stop.clone()));
        }
        if with_balance && is_balance_enabled(config) {
            running.spawn(balance_queues(
                config.clone(),
                Arc::clone(store.metrics()),
                instance.clone(),
                stop.clone(),
            ));
        }
        Self { clockwork, running, stop }
    }

    /// What the node tells of what it has seen.
    pub fn clockwork(&self) -> &Clockwork {
        &self.clockwork
    }

    pub async fn end(mut self) {
        self.stop.cancel();
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _ended = tokio::time::timeout(LAST_MOMENT, ended).await;
    }
}

/// A candidate for the lease of what one DEN at a time does.
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

fn is_balance_enabled(config: &Config) -> bool {
    if !config.balance.enabled.0 {
        tracing::warn!("--balance: QueueBalance does not run, as balance.enabled is not set");
    }
    config.balance.enabled.0
}

/// `QueueBalance` next to the node: a task of its own, with a connection of its own as its own user.
async fn balance_queues(config: Config, metrics: Arc<Metrics>, instance: String, stop: CancellationToken) {
    match connect_balance(&config, &stop).await {
        Ok(Some(store)) => {
            balance::run::run(store.counting_in(metrics), config.balance, instance, stop).await
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "QueueBalance does not run"),
    }
}

/// Waits for a name server that is away. `None`: it is time to end.
async fn connect_balance(config: &Config, stop: &CancellationToken) -> Result<Option<Store>, StoreError> {
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
