//! What happens by the clock, or when the node has seen that there is something of it: schedules fire, and are told of the ends of their
//! tasks; arrays get their elements, and their end.
//!
//! It is not part of the node's loop, so that heartbeats do not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::schema::Schemas;
use disbatch_core::store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Leader, measured};

/// What the node tells those that look after schedules, arrays and shadows, and they tell each other. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clockwork {
    wake: Arc<Notify>,
    /// It may not work with schedules.
    ended: Arc<AtomicBool>,
    /// Told when there may be something to do about arrays, which is done by [`look_after_arrays`].
    pub arrays: Arc<Notify>,
    schemas: watch::Sender<Option<Schemas>>,
    /// Whether the node knows of a queue whose tasks have shadows.
    pub shadows: Arc<AtomicBool>,
    /// The operator has others fire schedules.
    fires_not: bool,
}

impl Clockwork {
    /// `fires`: whether schedules fire from here. They are told of the ends of tasks in any case.
    pub fn new(fires: bool) -> Self {
        if !fires {
            tracing::info!("schedules do not fire from here: others have to see to that");
        }
        Self { fires_not: !fires, ..Self::default() }
    }

    /// Has it look what there is to do. Returns whether it does.
    pub fn look(&self) -> bool {
        self.wake.notify_one();
        !self.fires_not && !self.ended.load(Ordering::Relaxed)
    }

    /// This is known now of what plugins want of parameters.
    pub fn knows(&self, schemas: Schemas) {
        self.schemas.send_replace(Some(schemas));
    }

    /// What is known of that, as soon as anything is.
    pub async fn schemas(&self) -> Schemas {
        let mut known = self.schemas.subscribe();
        known.wait_for(Option::is_some).await.ok().and_then(|schemas| schemas.clone()).unwrap_or_default()
    }
}

/// Fires schedules whose time has come, and tells schedules how their tasks have ended, until `stop`. The node sees with each of its looks
/// whether there is any of it. Every DEN does this, and they need not agree: each step is a conditional update.
pub async fn fire_schedules(clockwork: Clockwork, store: Store, stop: CancellationToken) {
    while stop.run_until_cancelled(clockwork.wake.notified()).await.is_some() {
        match measured(&store, Worker::Schedules, work(&store, &clockwork)).await {
            Ok(true) => clockwork.wake.notify_one(),
            Ok(false) => {}
            Err(error) if error.is_forbidden() => {
                tracing::warn!(%error, "schedules do not fire from here; `disbatch create-users` gives the right to");
                clockwork.ended.store(true, Ordering::Relaxed);
                return;
            }
            // What is left is found again with the next look.
            Err(error) => tracing::warn!(%error, "schedules cannot be looked after"),
        }
    }
}

/// Does what there is to do. Returns whether there may be more.
async fn work(store: &Store, clockwork: &Clockwork) -> Result<bool, StoreError> {
    // What fires has its time; an end can be told later. Neither waits for the other to succeed.
    let fired = if clockwork.fires_not { Ok(false) } else { fire(store, clockwork).await };
    let settled = settle(store).await;
    let more = fired?;
    Ok(settled? || more)
}

async fn fire(store: &Store, clockwork: &Clockwork) -> Result<bool, StoreError> {
    let fired = Box::pin(store.fire_schedules(&clockwork.schemas().await)).await?;
    if fired.fired + fired.skipped + fired.completed > 0 {
        tracing::info!(
            fired = fired.fired,
            skipped = fired.skipped,
            completed = fired.completed,
            "schedules were due"
        );
    }
    Ok(fired.more)
}

async fn settle(store: &Store) -> Result<bool, StoreError> {
    let (settled, more) = store.settle_scheduled().await?;
    if settled > 0 {
        tracing::debug!(tasks = settled, "schedules were told of the ends of tasks");
    }
    Ok(more)
}

pub const LEASE_OF_ARRAYS: LeaseName = LeaseName::new("arrays", Duration::from_secs(15));

const PROLONGED: Duration = Duration::from_secs(5);

const PAUSE: Duration = Duration::from_millis(500);

/// Looking at arrays takes one part in so many of the time at most.
const SHARE: u32 = 20;

struct ArrayWorker {
    leader: Leader,
    /// When it was last found out who has the lease, and whether it was this one.
    lease: Option<(Instant, bool)>,
}

/// Looks after arrays, whenever the clockwork says that there is something to do, until `stop`: elements that are missing, and the end of
/// arrays whose elements have ended. The node sees with each of its looks whether any array is open. One DEN looks after all of them: that
/// costs an index entry for each array, again and again, which is not to be paid by every node. Nothing else depends on the lease.
pub async fn look_after_arrays(leader: Leader, clockwork: Clockwork) {
    let stop = leader.stop.clone();
    let mut worker = ArrayWorker { leader, lease: None };
    while stop.run_until_cancelled(clockwork.arrays.notified()).await.is_some() {
        let began = Instant::now();
        match Box::pin(worker.look()).await {
            Ok(()) => {}
            Err(error) if error.is_forbidden() => {
                tracing::warn!(%error, "arrays are not looked after from here; `disbatch create-users` gives the right to");
                return;
            }
            // What is left is found again with the next look.
            Err(error) => tracing::warn!(%error, "arrays cannot be looked after"),
        }
        let pause = PAUSE.max(began.elapsed() * SHARE);
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            break;
        }
    }
    if worker.lease.is_some_and(|(_, leads)| leads) {
        worker.leader.resign().await;
    }
}

impl ArrayWorker {
    async fn look(&mut self) -> Result<(), StoreError> {
        if !self.leads().await? {
            return Ok(());
        }
        let store = &self.leader.store;
        let passed = measured(store, Worker::Arrays, store.pass_arrays()).await?;
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
