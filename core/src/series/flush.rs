//! Writing what has been noted.

use std::time::Duration;

use bson::{Document, doc};
use tokio::time::Instant;

use super::pending::Pending;
use super::{COLLECTION, EVERY};
use crate::store::{Store, StoreError};

/// How long a user without the right to write the numbers notes nothing.
const SILENCE: Duration = Duration::from_secs(600);

/// So many documents are in one command at most.
const AT_ONCE: usize = 1_000;

/// Writes until there is nothing left to write.
pub(super) async fn follow(store: Store) {
    let mut scheduled = Scheduled { store: store.clone(), ended: false };
    while !scheduled.ended {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = store.flush_series().await {
            tracing::debug!(%error, "cannot write numbers over time");
        }
        scheduled.look();
    }
}

/// Lets another take over when the one that was to write is broken off.
struct Scheduled {
    store: Store,
    ended: bool,
}

impl Scheduled {
    /// Under one lock, so that what is noted from now on is written by the next one.
    fn look(&mut self) {
        let mut state = self.store.series.state();
        self.ended = state.pending.is_empty();
        state.scheduled = !self.ended;
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if !self.ended {
            self.store.series.state().scheduled = false;
        }
    }
}

impl Store {
    /// Writes all that this process has noted and not written: counters and numbers over time. A process that ends calls
    /// this last; others need not.
    ///
    /// # Errors
    /// The database cannot be reached: what was noted is kept, and written later.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (counters, series) = futures::join!(self.flush_counters(), self.flush_series());
        counters.and(series)
    }

    /// Writes the numbers over time that this process has noted and not written.
    ///
    /// # Errors
    /// The database cannot be reached: what was noted is kept, and written later.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn flush_series(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.series.flushing.lock().await;
        let pending = std::mem::take(&mut self.series.state().pending);
        match self.write_series(&pending).await {
            Err(error) if error.is_forbidden() => {
                tracing::info!(
                    %error,
                    "numbers over time are not kept by this process; `disbatch create-users` gives the right to"
                );
                let mut state = self.series.state();
                state.pending = Pending::default();
                state.silent_until = Some(Instant::now() + SILENCE);
                Ok(())
            }
            Err(error) => {
                // Some of it may have been written. A runner does not get another chance.
                if self.series.goes_on && may_pass(&error) {
                    self.series.state().pending.put_back(pending);
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    async fn write_series(&self, pending: &Pending) -> Result<(), StoreError> {
        for statements in pending.statements().chunks(AT_ONCE) {
            let command = doc! {
                "update": COLLECTION, "updates": statements.to_vec(), "ordered": false, "writeConcern": { "w": 1 },
            };
            let answer: Document = self.database().run_command(command).await?;
            if let Ok([first, ..]) = answer.get_array("writeErrors").map(Vec::as_slice) {
                tracing::debug!(%first, "some numbers over time were not written");
            }
        }
        Ok(())
    }
}

/// Whether the same may be written later.
fn may_pass(error: &StoreError) -> bool {
    error.is_transient() || error.write_failure().is_some_and(|failure| failure.is_refusal())
}
