//! The gatekeeper next to the node: lets blocked tasks go on when what they wait for has come. Every DEN has one.
//!
//! Whoever holds the lease follows the hints of the change stream and looks from time to time whether anything was missed.
//! The others do something when a look of their node finds that there is something to do: without hints, or when the
//! one with the lease is gone or cannot keep up. Nothing depends on the lease but how often the same is looked at.
//!
//! It is not part of the node's loop, so that long chains and large fans hold up no heartbeat.

use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::gates::Passed;
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels;
use disbatch_core::model::TaskId;
use disbatch_core::store::StoreError;
use disbatch_core::wake::{Hints, Listener};
use tokio::time::sleep;

use super::{Leader, measured, rounds};
use crate::pace::is_due;

pub const LEASE: LeaseName = LeaseName::new("gates", Duration::from_secs(90));

const PROLONGED: Duration = Duration::from_secs(30);

const RECHECKED: Duration = Duration::from_secs(60);

/// How long it waits when the database is away.
const PAUSE: Duration = Duration::from_secs(1);

struct Worker {
    leader: Leader,
    hints: Arc<Hints>,
    leads: bool,
    rechecked: Option<Instant>,
    last: Option<TaskId>,
    /// That it has no right to the locks has been said.
    complained: bool,
}

pub async fn run(leader: Leader, hints: Arc<Hints>) {
    let (stop, mut turns) = (leader.stop.clone(), rounds(PROLONGED));
    let mut worker = Worker {
        leader,
        hints: Arc::clone(&hints),
        leads: false,
        rechecked: None,
        last: None,
        complained: false,
    };
    loop {
        let worked = tokio::select! {
            () = stop.cancelled() => break,
            _ = turns.tick() => worker.turn().await,
            () = hints.gates_noticed() => if worker.leads { worker.pass().await } else { Ok(()) },
            () = hints.gates_found.notified() => worker.pass().await,
        };
        let Err(error) = worked else { continue };
        if error.is_forbidden() {
            // A user that an older release made.
            if !std::mem::replace(&mut worker.complained, true) {
                tracing::warn!(%error, "tasks with locks do not run; `disbatch create-users` gives the right to");
            }
            continue;
        }
        tracing::warn!(%error, "the gatekeeper could not work");
        // Once more, unless the node finds something before that.
        hints.gates_found.notify_one();
        if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
            break;
        }
    }
    worker.leader.resign().await;
}

impl Worker {
    async fn turn(&mut self) -> Result<(), StoreError> {
        self.leads = self.leader.leads().await?;
        self.hints.needs_at_once(Listener::Gates, self.leads);
        if !self.leads || !is_due(&mut self.rechecked, RECHECKED, Instant::now()) {
            return Ok(());
        }
        let store = &self.leader.store;
        self.last = measured(store, labels::Worker::Gates, store.recheck_gates(self.last)).await?;
        Ok(())
    }

    async fn pass(&mut self) -> Result<(), StoreError> {
        let mut more = true;
        while more && !self.leader.stop.is_cancelled() {
            let store = &self.leader.store;
            let passed = measured(store, labels::Worker::Gates, store.pass_gates()).await?;
            self.report(&passed);
            more = passed.more;
        }
        Ok(())
    }

    fn report(&self, passed: &Passed) {
        if passed.released > 0 {
            // Where no change stream tells of it.
            self.hints.queued();
        }
        if passed.cancelled > 0 {
            tracing::info!(tasks = passed.cancelled, "tasks that waited for failed ones were cancelled");
        }
        tracing::debug!(?passed, "looked after the gates");
    }
}
