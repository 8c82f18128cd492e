//! What there is to do about arrays, next to the node: elements that are missing, and the end of arrays whose elements have
//! ended. The node sees with each of its looks whether any array is open. One DEN looks after all of them: that costs an index entry
//! for each array, again and again, which is not to be paid by every node. Nothing else depends on the lease.

use std::time::Duration;

use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels;
use disbatch_core::store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Clockwork;
use super::leader::Leader;
use super::measured;

/// Who looks after arrays.
pub const LEASE: LeaseName = LeaseName::new("arrays", Duration::from_secs(15));

/// How often the lease is taken or prolonged.
const PROLONGED: Duration = Duration::from_secs(5);

/// The shortest time from one look to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// Looking takes one part in so many of the time at most.
const SHARE: u32 = 20;

struct Worker {
    leader: Leader,
    clockwork: Clockwork,
    stop: CancellationToken,
    /// When it was last found out who has the lease, and whether it was this one.
    lease: Option<(Instant, bool)>,
}

/// Looks after arrays, whenever the clockwork says that there is something to do, until `stop`.
pub async fn run(leader: Leader, clockwork: Clockwork, stop: CancellationToken) {
    Worker { leader, clockwork, stop, lease: None }.run().await;
}

impl Worker {
    async fn run(mut self) {
        let (stop, clockwork) = (self.stop.clone(), self.clockwork.clone());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = clockwork.arrays_noticed() => {}
            }
            let began = Instant::now();
            match Box::pin(self.look()).await {
                Ok(()) => {}
                Err(error) if error.is_forbidden() => {
                    tracing::warn!(%error, "arrays are not looked after from here; `disbatch create-users` gives the right to");
                    return;
                }
                // What is left is found again with the next look.
                Err(error) => tracing::warn!(%error, "arrays cannot be looked after"),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(PAUSE.max(began.elapsed() * SHARE)) => {}
            }
        }
        if self.lease.is_some_and(|(_, leads)| leads) {
            self.leader.resign().await;
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        if !self.leads().await? {
            return Ok(());
        }
        let store = &self.leader.store;
        let passed = measured(store, labels::Worker::Arrays, store.pass_arrays()).await?;
        if passed.filled + passed.closed > 0 {
            tracing::info!(filled = passed.filled, done = passed.closed, "looked after arrays");
        }
        Ok(())
    }

    /// Whether it is this one that looks after arrays. The lease is taken only while there are some.
    async fn leads(&mut self) -> Result<bool, StoreError> {
        if let Some((at, leads)) = self.lease
            && at.elapsed() < PROLONGED
        {
            return Ok(leads);
        }
        let leads = self.leader.leads().await?;
        self.lease = Some((Instant::now(), leads));
        Ok(leads)
    }
}
