//! The clockwork next to the node: fires schedules whose time has come, and tells schedules how their tasks have ended.
//! The node sees with each of its looks whether there is any of it. Every DEN has one, and they need not agree: each
//! step is a conditional update.
//!
//! It is not part of the node's loop, so that heartbeats do not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disbatch_core::metrics::labels::Worker;
use disbatch_core::schedules::Fired;
use disbatch_core::schema::Schemas;
use disbatch_core::store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::measured;

#[derive(Debug, Clone, Default)]
pub struct Clockwork {
    wake: Arc<Notify>,
    /// It may not work with schedules.
    ended: Arc<AtomicBool>,
    arrays: Arc<Notify>,
    schemas: watch::Sender<Option<Schemas>>,
    /// Whether the node knows of a queue whose tasks have shadows.
    shadows: Arc<AtomicBool>,
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

    /// Whether tasks of any queue have shadows, as the node has read it.
    pub fn knows_of_shadows(&self, wanted: bool) {
        self.shadows.store(wanted, Ordering::Relaxed);
    }

    pub fn are_shadows_wanted(&self) -> bool {
        self.shadows.load(Ordering::Relaxed)
    }

    /// Has it looked what there is to do about arrays, which is done by [`super::arrays`].
    pub fn look_at_arrays(&self) {
        self.arrays.notify_one();
    }

    /// What whoever looks after arrays waits for.
    pub async fn arrays_noticed(&self) {
        self.arrays.notified().await;
    }
}

/// Fires schedules, and tells them of the ends of their tasks, until `stop`.
pub async fn run(clockwork: Clockwork, store: Store, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = clockwork.wake.notified() => {}
        }
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
    let (settled, more) = store.settle_scheduled().await?;
    let fired = match clockwork.fires_not {
        true => Fired::default(),
        false => Box::pin(store.fire_schedules(&clockwork.schemas().await)).await?,
    };
    if fired.fired + fired.skipped + fired.completed > 0 {
        tracing::info!(
            fired = fired.fired,
            skipped = fired.skipped,
            completed = fired.completed,
            "schedules were due"
        );
    }
    if settled > 0 {
        tracing::debug!(tasks = settled, "schedules were told of the ends of tasks");
    }
    Ok(more || fired.more)
}
