//! `QueueBalance` next to the node: every 30 seconds it sets `threads` of the queues that it is told about, see [`disbatch_core::balance`].
//! DENs have it with `--balance`; whoever holds the lease works. A round ends well before the lease does, so no two rounds overlap.

use std::sync::Arc;
use std::time::Duration;

pub use disbatch_core::balance::run::LEASE;
use disbatch_core::balance::run::{Report, round};
use disbatch_core::config::{Balance, Config, Role};
use disbatch_core::metrics::labels;
use disbatch_core::store::{Store, StoreError};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Leader;

const INTERVAL: Duration = Duration::from_secs(30);

/// How often the lease is prolonged, or looked after by those who do not have it.
const LOOK: Duration = Duration::from_secs(5);

/// How long a round may take: with a lease of 30 seconds it is over before anyone else can begin one.
const ROUND: Duration = Duration::from_secs(15);

/// How long it waits for a name server that is away.
const AWAY: Duration = Duration::from_secs(30);

struct Worker {
    leader: Leader,
    settings: Balance,
    leads: bool,
    /// When the next round is due; at once if `None`.
    due: Option<Instant>,
    failing: bool,
    /// How the last round went, so that the same is not said every time.
    last: Option<Report>,
}

/// It has a connection of its own, as its own user.
pub async fn run(mut leader: Leader, config: Config) {
    let Some(store) = connect(&leader, &config).await else { return };
    leader.store = store;
    let stop = leader.stop.clone();
    let mut worker =
        Worker { leader, settings: config.balance, leads: false, due: None, failing: false, last: None };
    let mut next = Instant::now();
    while stop.run_until_cancelled(sleep_until(next)).await.is_some() {
        let began = Instant::now();
        let looked = worker.look(began).await;
        worker.note(looked);
        next = next_look(worker.due, began);
    }
    worker.leader.resign().await;
}

async fn connect(leader: &Leader, config: &Config) -> Option<Store> {
    loop {
        match Store::connect(config, Role::QueueBalance).await {
            Ok(store) => return Some(store.counting_in(Arc::clone(leader.store.metrics()))),
            // A name server that is away is waited for.
            Err(error) if error.is_transient() => leader.stop.run_until_cancelled(sleep(AWAY)).await?,
            Err(error) => {
                tracing::error!(%error, "QueueBalance does not run");
                return None;
            }
        }
    }
}

fn is_due(due: Option<Instant>, now: Instant) -> bool {
    due.is_none_or(|due| due <= now)
}

/// The time of the look after one that began at `now`: no later than a round is due.
fn next_look(due: Option<Instant>, now: Instant) -> Instant {
    let look = now + LOOK;
    due.filter(|due| now < *due).map_or(look, |due| due.min(look))
}

impl Worker {
    /// Looks at `now`, which is the time before it asks for anything.
    async fn look(&mut self, now: Instant) -> Result<(), StoreError> {
        // The lease is counted from before it was asked for: the answer may have taken its time.
        let end = now + ROUND;
        let leads = self.leader.leads().await?;
        if leads != std::mem::replace(&mut self.leads, leads) {
            let what = if leads { "QueueBalance works here" } else { "QueueBalance works elsewhere" };
            tracing::info!(instance = self.leader.instance, "{what}");
        }
        if !leads || !is_due(self.due, now) {
            return Ok(());
        }
        self.due = Some(now + INTERVAL);
        let store = &self.leader.store;
        let rounded = timeout_at(end, round(store, self.settings)).await;
        store.measure_worker(labels::Worker::Balance, now.elapsed(), matches!(rounded, Ok(Ok(_))));
        let Ok(rounded) = rounded else {
            tracing::error!(limit_s = ROUND.as_secs(), "a round of QueueBalance took too long");
            return Ok(());
        };
        let report = rounded?;
        if report.status != "OK" && self.last.as_ref() != Some(&report) {
            tracing::warn!(status = report.status, "{}", report.message);
        }
        self.last = Some(report);
        Ok(())
    }

    /// Says once that the database is away, and once that it is back.
    fn note(&mut self, looked: Result<(), StoreError>) {
        let was_failing = std::mem::replace(&mut self.failing, looked.is_err());
        match looked {
            Ok(()) if was_failing => tracing::info!("QueueBalance has the database back"),
            Ok(()) => {}
            Err(error) => {
                self.due = None;
                if was_failing {
                    tracing::debug!(%error, "QueueBalance still cannot work with the database");
                } else {
                    tracing::error!(%error, "QueueBalance cannot work with the database");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_every_thirty_seconds() {
        let begin = Instant::now();
        let (mut now, mut due, mut rounds) = (begin, None, Vec::new());
        while now < begin + 3 * INTERVAL {
            if is_due(due, now) {
                due = Some(now + INTERVAL);
                rounds.push((now - begin).as_secs());
            }
            // Each look takes its time.
            now = next_look(due, now).max(now + Duration::from_millis(20));
            assert!(now - begin <= 3 * INTERVAL);
        }
        assert_eq!(rounds, [0, 30, 60]);
        assert!(is_due(None, now) && next_look(None, now) == now + LOOK);
    }
}
