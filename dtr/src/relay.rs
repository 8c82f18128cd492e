//! Passes a running plugin's progress and reports on to the database without holding up the plugin's output.

use std::time::Duration;

use bson::Document;
use disbatch_core::config::{Config, Role};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::Run;
use tokio::sync::{OnceCell, mpsc, watch};

use crate::ledger::Ledger;
use crate::notes::Notes;
use crate::retry::{Patience, retry};

/// Progress is written at most so often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A plugin that reports faster than the database takes it has to wait after so many.
const WAITING_REPORTS: usize = 64;

/// The plugin's side.
#[derive(Debug)]
pub struct Relay {
    progress: watch::Sender<Option<Document>>,
    reports: mpsc::Sender<Document>,
}

/// The database's side.
#[derive(Debug)]
pub struct Inbox {
    progress: watch::Receiver<Option<Document>>,
    reports: mpsc::Receiver<Document>,
}

/// Both sides.
pub fn channel() -> (Relay, Inbox) {
    let (progress, progress_inbox) = watch::channel(None);
    let (reports, reports_inbox) = mpsc::channel(WAITING_REPORTS);
    (Relay { progress, reports }, Inbox { progress: progress_inbox, reports: reports_inbox })
}

impl Relay {
    /// Remembers how far the task is; the latest word counts.
    pub fn progress(&self, progress: Document) {
        self.progress.send_replace(Some(progress));
    }

    /// Hands over a report.
    pub async fn report(&self, report: Document) {
        if self.reports.send(report).await.is_err() {
            tracing::error!("a report came after the end of the task and is lost");
        }
    }
}

impl Inbox {
    /// The next report, `None` when the plugin's side is closed.
    pub async fn next_report(&mut self) -> Option<Document> {
        self.reports.recv().await
    }

    /// Writes everything to the database until the plugin's side is closed. Returns complaints about
    /// reports that the database refused.
    pub async fn work(
        mut self,
        ledger: &Ledger,
        config: &Config,
        run: &Run,
        lifecycle: &Lifecycle,
    ) -> Vec<String> {
        let progress = write_progress(self.progress.clone(), ledger, run);
        let reports = async {
            let mut complaints = Notes::default();
            let writer = OnceCell::new();
            while let Some(report) = self.next_report().await {
                if let Err(error) = write_report(&writer, ledger, config, report, lifecycle).await
                    && complaints.add(&format!("a report could not be stored: {error}"))
                {
                    tracing::error!(%error, "a report could not be stored");
                }
            }
            complaints.lines("reports could not be stored").collect()
        };
        tokio::join!(progress, reports).1
    }
}

async fn write_progress(mut latest: watch::Receiver<Option<Document>>, ledger: &Ledger, run: &Run) {
    while latest.changed().await.is_ok() {
        let Some(progress) = latest.borrow_and_update().clone() else { continue };
        if let Err(error) = ledger.progress(run, progress).await {
            tracing::warn!(%error, "cannot record progress");
        }
        // Wait before the next write, but not when the plugin has ended.
        let mut ended = latest.clone();
        let closed = async { while ended.changed().await.is_ok() {} };
        tokio::select! {
            () = tokio::time::sleep(PROGRESS_EVERY) => {}
            () = closed => {}
        }
    }
}

/// Reports are written as the user `plugin` where there is one: the runner's own may lack the privilege.
async fn write_report(
    writer: &OnceCell<Store>,
    ledger: &Ledger,
    config: &Config,
    mut report: Document,
    lifecycle: &Lifecycle,
) -> Result<(), StoreError> {
    let connect = || async {
        match config.auth.password(Role::Plugin) {
            Some(_) => Store::connect(config, Role::Plugin).await,
            None => ledger.store().await.cloned(),
        }
    };
    // With an id of its own, a repeated insert is recognised.
    if !report.contains_key("_id") {
        report.insert("_id", bson::oid::ObjectId::new());
    }
    let report = &report;
    retry("storing a report", Patience::Endless, lifecycle, |again| async move {
        match writer.get_or_try_init(connect).await?.insert_report(report.clone()).await {
            Err(error) if again && error.write_failure().is_some_and(|f| f.is_duplicate_key()) => Ok(()),
            other => other,
        }
    })
    .await
}
