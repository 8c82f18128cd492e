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

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::NodeName;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::wake::{self, Hints};
use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

pub use self::clockwork::Clockwork;

/// How long the end of the node waits for them: they give their leases back.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// How long it waits after a chore has panicked: what it panicked over is probably still there.
const PANICKED: Duration = Duration::from_secs(10);

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
        let clockwork = Clockwork::new(config.schedules.0);
        let mut chores = Self { clockwork, running: JoinSet::new(), stop: CancellationToken::new() };
        // Two processes on one node are two candidates.
        let instance = format!("{node}:{}", std::process::id());
        let leader =
            Leader { store: store.clone(), lease: gates::LEASE, instance, stop: chores.stop.clone() };
        chores.keep_what_all_do(&leader, hints, config.notifications.url.as_ref());
        if config.janitor.enabled.0 {
            let every = config.janitor.every.unwrap_or(janitor::EVERY);
            let leader = leader.of(janitor::LEASE);
            chores.keep("janitor", move || janitor::run(leader.clone(), every));
        } else {
            tracing::info!("janitor.enabled is off: nothing is archived or deleted from here");
        }
        if config.auditor.enabled.0 {
            let every = config.auditor.every.unwrap_or(auditor::EVERY);
            let leader = leader.of(auditor::LEASE);
            chores.keep("auditor", move || auditor::run(leader.clone(), every));
        } else {
            tracing::info!("auditor.enabled is off: counters are not audited from here");
        }
        if with_balance && config.balance.enabled.0 {
            let (leader, config) = (leader.of(balance::LEASE), config.clone());
            chores.keep("balance", move || balance::run(leader.clone(), config.clone()));
        } else if with_balance {
            tracing::warn!("--balance: QueueBalance does not run, as balance.enabled is not set");
        }
        chores
    }

    fn keep_what_all_do(&mut self, leader: &Leader, hints: &Arc<Hints>, url: Option<&String>) {
        let of = |lease| (leader.of(lease), Arc::clone(hints), self.clockwork.clone());
        let (gates, arrays) = (of(gates::LEASE), of(clockwork::LEASE_OF_ARRAYS));
        let (shadows, inbox) = (of(shadows::LEASE), of(inbox::LEASE));
        let (notifier, url) = (of(notifier::LEASE), url.cloned());
        let (any, hints, clockwork) = of(gates::LEASE);
        let changes = any.clone();
        self.keep("changes", move || {
            wake::follow_changes(changes.store.clone(), Arc::clone(&hints), changes.stop.clone())
        });
        self.keep("schedules", move || {
            clockwork::fire_schedules(clockwork.clone(), any.store.clone(), any.stop.clone())
        });
        self.keep("gates", move || gates::run(gates.0.clone(), Arc::clone(&gates.1)));
        self.keep("arrays", move || clockwork::look_after_arrays(arrays.0.clone(), arrays.2.clone()));
        self.keep("shadows", move || shadows::run(shadows.0.clone(), shadows.2.clone()));
        self.keep("notifier", move || {
            notifier::run(notifier.0.clone(), Arc::clone(&notifier.1), url.clone())
        });
        self.keep("inbox", move || inbox::run(inbox.0.clone(), Arc::clone(&inbox.1), inbox.2.clone()));
    }

    /// Does a chore until the node ends.
    fn keep<F>(&mut self, chore: &'static str, begin: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.running.spawn(kept(chore, begin, self.stop.clone()));
    }

    pub async fn end(mut self) {
        self.stop.cancel();
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _ended = tokio::time::timeout(LAST_MOMENT, ended).await;
    }
}

/// A chore that panics begins anew: it would else stay undone for as long as this DEN lives, and nobody would know.
async fn kept<F: Future<Output = ()>>(chore: &str, begin: impl Fn() -> F, stop: CancellationToken) {
    while let Err(panic) = AssertUnwindSafe(begin()).catch_unwind().await {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let why = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        tracing::error!(chore, why, "a mistake of ours has ended a chore of the node: it begins anew");
        if stop.run_until_cancelled(sleep(PANICKED)).await.is_none() {
            return;
        }
    }
}

#[derive(Debug, Clone)]
pub struct Leader {
    pub store: Store,
    lease: LeaseName,
    /// Who it is for others.
    pub instance: String,
    pub stop: CancellationToken,
}

impl Leader {
    /// The same for another lease.
    fn of(&self, lease: LeaseName) -> Self {
        Self { lease, ..self.clone() }
    }

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_chore_that_panics_begins_anew() {
        let begun = AtomicU32::new(0);
        let began = Instant::now();
        let chore = || async {
            assert!(begun.fetch_add(1, Ordering::Relaxed) >= 2, "twice it panics");
        };
        kept("some", chore, CancellationToken::new()).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        assert!(began.elapsed() < PANICKED, "no time passes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chore_that_panicked_does_not_hold_the_end_up() {
        let stop = CancellationToken::new();
        stop.cancel();
        kept("some", || async { panic!("always") }, stop).await;
    }
}
