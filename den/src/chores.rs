//! What a DEN does next to the node's loop, so that heartbeats and claims do not wait for it. Most of it is done by one DEN at a time: the
//! one that has the lease.

mod auditor;
mod balance;
mod clockwork;
mod gates;
mod inbox;
mod janitor;
mod notifier;
mod shadows;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::NodeName;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::wake::{self, Hints};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};
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

/// When the rounds of a chore begin: at once, and then so often. One that comes late puts off those that follow.
fn rounds(every: Duration) -> Interval {
    let mut rounds = interval(every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rounds
}

#[derive(Debug)]
pub struct Chores {
    /// What the node tells of what it has seen.
    pub clockwork: Clockwork,
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl Chores {
    pub fn start(
        config: &Config,
        store: &Store,
        hints: &Arc<Hints>,
        (node, with_balance): (&NodeName, bool),
    ) -> Self {
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        // Two processes on one node are two candidates.
        let instance = format!("{node}:{}", std::process::id());
        let leader = |lease| {
            let (store, instance, stop) = (store.clone(), instance.clone(), stop.clone());
            Leader { store, lease, instance, stop }
        };
        let clockwork = Clockwork::new(config.schedules.0);
        running.spawn(wake::follow_changes(store.clone(), Arc::clone(hints), stop.clone()));
        running.spawn(gates::run(leader(gates::LEASE), Arc::clone(hints)));
        running.spawn(clockwork::fire_schedules(clockwork.clone(), store.clone(), stop.clone()));
        running.spawn(clockwork::look_after_arrays(leader(clockwork::LEASE_OF_ARRAYS), clockwork.clone()));
        running.spawn(shadows::run(leader(shadows::LEASE), clockwork.clone()));
        running.spawn(notifier::run(
            leader(notifier::LEASE),
            Arc::clone(hints),
            config.notifications.url.clone(),
        ));
        running.spawn(inbox::run(leader(inbox::LEASE), Arc::clone(hints), clockwork.clone()));
        if config.janitor.enabled.0 {
            let every = config.janitor.every.unwrap_or(janitor::EVERY);
            running.spawn(janitor::run(leader(janitor::LEASE), every));
        } else {
            tracing::info!("janitor.enabled is off: nothing is archived or deleted from here");
        }
        if config.auditor.enabled.0 {
            let every = config.auditor.every.unwrap_or(auditor::EVERY);
            running.spawn(auditor::run(leader(auditor::LEASE), every));
        } else {
            tracing::info!("auditor.enabled is off: counters are not audited from here");
        }
        if with_balance && config.balance.enabled.0 {
            running.spawn(balance::run(leader(balance::LEASE), config.clone()));
        } else if with_balance {
            tracing::warn!("--balance: QueueBalance does not run, as balance.enabled is not set");
        }
        Self { clockwork, running, stop }
    }

    pub async fn end(mut self) {
        self.stop.cancel();
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _ended = tokio::time::timeout(LAST_MOMENT, ended).await;
    }
}

#[derive(Debug)]
pub struct Leader {
    pub store: Store,
    lease: LeaseName,
    /// Who it is for others.
    pub instance: String,
    pub stop: CancellationToken,
}

impl Leader {
    /// Takes the lease, or prolongs it. Returns whether it is ours.
    pub async fn leads(&self) -> Result<bool, StoreError> {
        self.store.take_lease(self.lease, &self.instance).await
    }

    pub async fn resign(&self) {
        if let Err(error) = self.store.release_lease(self.lease, &self.instance).await {
            tracing::debug!(%error, lease = ?self.lease, "cannot give a lease back: it will run out");
        }
    }
}
