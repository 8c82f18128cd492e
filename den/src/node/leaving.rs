//! How a node ends: it gives back what no runner has started, and may wait for what runs.

use std::time::{Duration, Instant};

use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::store::StoreError;

use super::Node;
use crate::pace::INTERVAL;

/// How often it is looked whether the last slots have been handed over.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Node {
    /// Gives back every task that no runner has started. A runner that starts now finds its claim gone.
    pub(super) async fn drain(mut self, lifecycle: &Lifecycle) {
        tracing::info!(running = self.runners.launcher.running(), "draining: claiming nothing more");
        let deadline = Instant::now() + Duration::from_secs(10);
        self.end_handover(|_| true);
        while self.runners.launcher.handover().is_under_way()
            && Instant::now() < deadline
            && !lifecycle.is_ending()
        {
            // What was started last is told to its runners, or given back.
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = lifecycle.ending() => {}
            }
        }
        loop {
            self.runners.take_all();
            let error = match self.give_back_all().await {
                Ok(tasks) => {
                    tracing::info!(given_back = tasks, "gave back what no runner has started");
                    break;
                }
                Err(error) => error,
            };
            if Instant::now() > deadline || lifecycle.is_ending() {
                tracing::error!(%error, "cannot give back claimed tasks; others do when their lease has run out");
                return;
            }
            tracing::warn!(%error, "cannot give back claimed tasks, trying again");
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = lifecycle.ending() => {}
            }
        }
        if self.stay {
            self.stay_for_running(lifecycle).await;
        }
        if let Err(error) = self.store.leave(&self.name, &self.instance).await {
            tracing::warn!(%error, "cannot say that this node has ended");
        }
        tracing::info!("ended; running tasks go on by themselves");
    }

    /// Gives back what no runner has started, or was told of. Returns how many tasks these were.
    async fn give_back_all(&mut self) -> Result<u64, StoreError> {
        self.runners.untold.append(&mut self.runners.refused);
        self.give_back_untold().await?;
        let of = (&self.name, self.instance.as_str());
        let is_known = !self.runners.launcher.handover().is_under_way();
        self.store.unclaim_all(of, (&[], &self.runners.launcher.unburdened(is_known)), "its DEN ended").await
    }

    /// Looks after the node until none of its tasks runs any more.
    async fn stay_for_running(&mut self, lifecycle: &Lifecycle) {
        let mut reported = u64::MAX;
        while !lifecycle.is_ending() {
            tokio::select! {
                () = self.something_to_do() => {}
                () = lifecycle.ending() => return,
            }
            if self.database.left(Instant::now()).is_some() {
                continue;
            }
            let running = match self.look(lifecycle).await {
                Ok(()) => self.store.running_on_node(&self.name, &[]).await,
                Err(error) => Err(error),
            };
            match running {
                Ok(0) => return,
                Ok(running) if running != reported => {
                    reported = running;
                    tracing::info!(running, "waiting for running tasks to end");
                }
                Ok(_) => self.database.worked(),
                Err(error) => self.leave_database_alone(&error),
            }
        }
    }
}
