//! The auditor next to the node: compares the counters of queues with their tasks, and mends what has drifted. Every DEN
//! has one; whoever holds the lease works.

use std::time::Duration;

use bson::DateTime;
use disbatch_core::counters::AuditNote;
use disbatch_core::counters::audit::{Due, Window};
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::{Metrics, labels};
use disbatch_core::model::QueueId;
use disbatch_core::store::StoreError;

use super::{Leader, measured, rounds};

/// Prolonged with each window, which takes some seconds, and longer only where many millions of tasks are counted.
pub const LEASE: LeaseName = LeaseName::new("auditor", Duration::from_secs(60));

/// After which time all is done again unless configured otherwise.
pub const EVERY: Duration = Duration::from_secs(300);

/// It looks so many times for what is to be done in the time after which all is to be done again.
const LOOKS: u32 = 10;

/// Looks are not further apart.
const LONGEST: Duration = Duration::from_secs(30);

/// Counting takes at most one part in so many of the time.
const SHARE: u32 = 50;

struct Worker {
    leader: Leader,
    every: Duration,
}

/// All is to be done again after `every`.
pub async fn run(leader: Leader, every: Duration) {
    // The DEN before this may have been killed, and what it had not written is lost.
    leader.store.doubt_counters();
    let (stop, mut looks) = (leader.stop.clone(), rounds((every / LOOKS).min(LONGEST)));
    let worker = Worker { leader, every };
    while stop.run_until_cancelled(looks.tick()).await.is_some() {
        match stop.run_until_cancelled(worker.look()).await {
            None => break,
            Some(Ok(())) => {}
            Some(Err(error)) if error.is_forbidden() => {
                tracing::info!(%error, "counters are not audited; `disbatch create-users` gives the right to");
                return;
            }
            Some(Err(error)) => tracing::warn!(%error, "the auditor could not work"),
        }
    }
    worker.leader.resign().await;
}

impl Worker {
    async fn look(&self) -> Result<(), StoreError> {
        if !self.leader.leads().await? {
            return Ok(());
        }
        measured(&self.leader.store, labels::Worker::Audit, self.audit_what_is_due()).await
    }

    async fn audit_what_is_due(&self) -> Result<(), StoreError> {
        match self.leader.store.audit_due(self.every).await? {
            Due::Nothing => Ok(()),
            Due::New(queues) => self.audit(&queues).await.map(|_| ()),
            Due::All { queues, at } => self.audit_all(&queues, at).await,
        }
    }

    async fn audit_all(&self, queues: &[QueueId], at: DateTime) -> Result<(), StoreError> {
        let Some((corrected, counting)) = self.audit(queues).await? else { return Ok(()) };
        let note = AuditNote {
            at: Some(at),
            corrected,
            queues: queues.len() as u64,
            counting_ms: u64::try_from(counting.as_millis()).unwrap_or(u64::MAX),
        };
        self.leader.store.audited(&note).await?;
        tracing::debug!(
            queues = queues.len(),
            corrected,
            counting_s = counting.as_secs_f32(),
            "the counters were audited"
        );
        Ok(())
    }

    /// Window after window. Returns how many tasks were corrected, and for how long was counted; `None` if the lease is
    /// someone else's by now.
    async fn audit(&self, mut queues: &[QueueId]) -> Result<Option<(u64, Duration)>, StoreError> {
        let (mut corrected, mut counting) = (0, Duration::ZERO);
        while !queues.is_empty() {
            if !self.leader.leads().await? {
                return Ok(None);
            }
            let window = self.leader.store.audit_window(queues).await?;
            corrected += report(self.leader.store.metrics(), &window);
            counting += window.counting;
            queues = queues.get(window.queues..).unwrap_or_default();
            tokio::time::sleep(window.counting * SHARE).await;
        }
        Ok(Some((corrected, counting)))
    }
}

/// Says what has drifted, and returns by how much.
fn report(metrics: &Metrics, window: &Window) -> u64 {
    for correction in &window.corrections {
        metrics.queues.of(correction.queue.0.bytes()).drift.add(correction.by.unsigned_abs());
        tracing::warn!(
            queue = %correction.queue, status = correction.status, tasks = correction.by,
            "a counter had drifted and was corrected"
        );
    }
    window.corrections.iter().map(|correction| correction.by.unsigned_abs()).sum()
}
