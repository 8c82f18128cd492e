//! What a DEN does next to the node's loop, so that heartbeats and claims do not wait for it. Most of it is done by one DEN at a time: the
//! one that has the lease.

mod arrays;
mod auditor;
mod balance;
mod clockwork;
mod gates;
mod inbox;
mod janitor;
mod leader;
mod notifier;
mod shadows;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::NodeName;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::wake::{self, Hints};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::clockwork::Clockwork;
use self::leader::Leader;

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
        running.spawn(clockwork::run(clockwork.clone(), store.clone(), stop.clone()));
        running.spawn(arrays::run(leader(arrays::LEASE), clockwork.clone(), stop.clone()));
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
        if with_balance && balance::is_enabled(config) {
            running.spawn(balance::run(
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
