//! Passes a running plugin's progress, reports and storage on to the database without holding up the plugin's output.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_core::model::STEPS;
use disbatch_core::task::{Run, STORAGE};
use tokio::sync::{mpsc, watch};

use crate::ledger::Ledger;
use crate::local::Word;
use crate::recorder::Recorder;
use crate::steps::OfStep;

/// Progress and storage are written at most so often.
const EVERY: Duration = Duration::from_secs(1);

/// A plugin that reports faster than the database takes it has to wait after so many.
const WAITING_REPORTS: usize = 64;

/// After so many complaints the rest is only counted.
const MOST_COMPLAINTS: usize = 10;

/// What is quoted may be long; a complaint has so many characters at most.
const LONGEST_COMPLAINT: usize = 300;

/// The plugin's side. The other one works until all clones are gone.
#[derive(Debug, Clone)]
pub struct Relay {
    progress: watch::Sender<Option<Document>>,
    storage: watch::Sender<Option<Bson>>,
    /// How far the steps are.
    pub steps: watch::Sender<Option<Vec<Document>>>,
    reports: mpsc::Sender<Document>,
    /// How many there were.
    reported: Arc<AtomicUsize>,
    /// The step whose plugin this is for, if the task has several.
    pub step: Option<OfStep>,
    /// What records the attempt, if that is wanted.
    pub recorder: Option<Recorder>,
}

/// The database's side.
#[derive(Debug)]
pub struct Inbox {
    progress: watch::Receiver<Option<Document>>,
    storage: watch::Receiver<Option<Bson>>,
    steps: watch::Receiver<Option<Vec<Document>>>,
    reports: mpsc::Receiver<Document>,
}

pub fn channel() -> (Relay, Inbox) {
    let (progress, storage, steps) = Default::default();
    let (reports, reports_inbox) = mpsc::channel(WAITING_REPORTS);
    let reported = Arc::default();
    let relay = Relay { progress, storage, steps, reports, reported, step: None, recorder: None };
    let inbox = Inbox {
        progress: relay.progress.subscribe(),
        storage: relay.storage.subscribe(),
        steps: relay.steps.subscribe(),
        reports: reports_inbox,
    };
    (relay, inbox)
}

impl Relay {
    /// The same for the plugin of a step.
    pub fn within(&self, step: OfStep) -> Self {
        Self { step: Some(step), ..self.clone() }
    }

    /// Remembers how far the task is; the latest word counts.
    pub fn progress(&self, progress: Document) {
        let progress = match &self.step {
            Some(step) => step.progress(&progress),
            None => progress,
        };
        self.progress.send_replace(Some(progress));
    }

    /// Remembers what is to be saved; the latest word counts.
    pub fn save(&self, storage: Bson) {
        self.storage.send_replace(Some(storage));
    }

    /// What is to be saved, if anything was said.
    pub fn saved(&self) -> Option<Bson> {
        self.storage.borrow().clone()
    }

    /// How many bytes of the task's document all that takes.
    pub fn written(&self) -> u64 {
        let states = self.steps.borrow().clone().unwrap_or_default();
        let written = bson::serialize_to_vec(&doc! { STORAGE: self.saved(), STEPS: states });
        written.map_or(0, |bytes| bytes.len() as u64)
    }

    pub async fn report(&self, report: Document) {
        self.reported.fetch_add(1, Ordering::Relaxed);
        if self.reports.send(report).await.is_err() {
            tracing::error!("a report came after the end of the task and is lost");
        }
    }

    /// How many reports there were so far, with those that wait.
    pub fn reported(&self) -> usize {
        self.reported.load(Ordering::Relaxed)
    }

    /// Whether the next report has to wait for the database.
    pub fn is_held_up(&self) -> bool {
        self.reports.capacity() == 0
    }
}

impl Inbox {
    /// Does `work`, which has the plugin's side, and what is to be done here beside it. Most tasks have nothing to say; nothing is
    /// begun for them then. No clone of the plugin's side may outlive `work`: it would be waited for. Returns complaints as well.
    pub async fn beside<T>(
        self,
        work: impl Future<Output = T>,
        (ledger, run): (&Ledger, &Run),
    ) -> (T, Vec<String>) {
        let mut work = pin!(work);
        let mut written = pin!(async {
            // Nobody is woken up for that: this is polled right after the work.
            let is_used = poll_fn(|_| self.is_used()).await;
            if is_used { Box::pin(self.work(ledger, run)).await } else { Vec::new() }
        });
        tokio::select! {
            biased;
            done = &mut work => (done, written.await),
            complaints = &mut written => (work.await, complaints),
        }
    }

    /// Whether anything was said: no as soon as nothing can be any more.
    fn is_used(&self) -> Poll<bool> {
        let has_word = self.progress.borrow().is_some()
            || self.storage.borrow().is_some()
            || self.steps.borrow().is_some()
            || !self.reports.is_empty();
        if has_word || self.reports.is_closed() { Poll::Ready(has_word) } else { Poll::Pending }
    }

    /// The next report, `None` when the plugin's side is closed.
    pub async fn next_report(&mut self) -> Option<Document> {
        self.reports.recv().await
    }

    /// Hands on everything as it comes until the plugin's side is closed. Of what comes faster than that, save reports, the
    /// last word.
    pub async fn tell(mut self, mut say: impl FnMut(Word)) {
        let json = |document: Document| Bson::Document(document).into_relaxed_extjson();
        let mut open = [true; 3];
        while open.contains(&true) {
            tokio::select! {
                progress = newest(&mut self.progress), if open[0] => match progress {
                    Some(progress) => say(Word::Progress(json(progress))),
                    None => open[0] = false,
                },
                storage = newest(&mut self.storage), if open[1] => match storage {
                    Some(storage) => say(Word::Storage(storage.into_relaxed_extjson())),
                    None => open[1] = false,
                },
                report = self.reports.recv(), if open[2] => match report {
                    Some(report) => say(Word::Report(json(report))),
                    None => open[2] = false,
                },
            }
        }
    }

    /// Writes everything to the database until the plugin's side is closed. Returns complaints about what the database
    /// refused.
    async fn work(mut self, ledger: &Ledger, run: &Run) -> Vec<String> {
        let progress = write_progress(self.progress.clone(), ledger, run);
        let storage = write_storage(self.storage.clone(), ledger, run);
        let steps = write_steps(self.steps.clone(), ledger, run);
        let reports = async {
            let mut complaints = Notes::default();
            while let Some(report) = self.next_report().await {
                if let Err(error) = ledger.store_report(report).await
                    && complaints.add(&format!("a report could not be stored: {error}"))
                {
                    tracing::error!(%error, "a report could not be stored");
                }
            }
            complaints.lines("reports could not be stored").collect()
        };
        let ((), unsaved, (), mut complaints): (_, _, _, Vec<String>) =
            tokio::join!(progress, storage, steps, reports);
        complaints.extend(unsaved);
        complaints
    }
}

/// The last word since it was asked for the last time; `None`: nothing more comes. Nothing is lost when this is dropped.
async fn newest<T: Clone>(latest: &mut watch::Receiver<Option<T>>) -> Option<T> {
    latest.changed().await.ok()?;
    latest.borrow_and_update().clone()
}

async fn write_progress(mut latest: watch::Receiver<Option<Document>>, ledger: &Ledger, run: &Run) {
    while let Some(progress) = newest(&mut latest).await {
        if let Err(error) = ledger.progress(run, progress).await {
            tracing::warn!(%error, "cannot record progress");
        }
        pause(&latest).await;
    }
}

/// Waits before the next write, but not when the plugin has ended.
async fn pause<T>(latest: &watch::Receiver<T>) {
    let mut ended = latest.clone();
    let closed = async { while ended.changed().await.is_ok() {} };
    let _ended = tokio::time::timeout(EVERY, closed).await;
}

/// Writes what was saved last, however long the database is away. Returns a line about the last word, if that was refused.
async fn write_storage(
    mut latest: watch::Receiver<Option<Bson>>,
    ledger: &Ledger,
    run: &Run,
) -> Option<String> {
    let mut refused = None;
    while let Some(storage) = newest(&mut latest).await {
        let write = |_| ledger.save_storage(run, storage.clone());
        refused = ledger.keep_trying("saving the storage", write).await.err();
        if let Some(error) = &refused {
            tracing::error!(%error, "what the plugin has saved could not be stored");
        }
        pause(&latest).await;
    }
    refused.map(|error| format!("disbatch: what the plugin has saved could not be stored: {error}\n"))
}

/// Writes how far the steps are: each change at once, unless the one before is still under way.
async fn write_steps(mut latest: watch::Receiver<Option<Vec<Document>>>, ledger: &Ledger, run: &Run) {
    while let Some(states) = newest(&mut latest).await {
        let write = |_| ledger.record_steps(run, &states);
        if let Err(error) = ledger.keep_trying("recording the steps", write).await {
            tracing::error!(%error, "cannot record how far the steps are");
        }
    }
}

/// What was wrong with what a plugin said, as lines for its task's standard error: neither many nor long, however much it says.
#[derive(Debug, Default)]
pub struct Notes {
    first: Vec<String>,
    more: usize,
}

impl Notes {
    /// Notes a complaint. Tells whether it is among the first, which are worth a word in the log too.
    pub fn add(&mut self, complaint: &str) -> bool {
        if self.first.len() == MOST_COMPLAINTS {
            self.more += 1;
            return false;
        }
        let mut short: String = complaint.chars().take(LONGEST_COMPLAINT).collect();
        if short.len() < complaint.len() {
            short.push('…');
        }
        self.first.push(format!("disbatch: {short}\n"));
        true
    }

    /// The lines. `more` says what those are that were only counted.
    pub fn lines(&self, more: &str) -> impl Iterator<Item = String> {
        let rest = (self.more > 0).then(|| format!("disbatch: and {} more {more}\n", self.more));
        self.first.iter().cloned().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_many_nor_long_complaints_are_kept() {
        let mut notes = Notes::default();
        assert_eq!(notes.lines("complaints").count(), 0);
        assert!(notes.add("short") && notes.add(&"é".repeat(1_000_000)));
        let kept = (2..100).filter(|number| notes.add(&number.to_string())).count();
        assert_eq!(kept, MOST_COMPLAINTS - 2);
        let lines: Vec<String> = notes.lines("complaints").collect();
        assert_eq!(lines.len(), MOST_COMPLAINTS + 1);
        assert_eq!(
            (lines[0].as_str(), lines[1].chars().count()),
            ("disbatch: short\n", LONGEST_COMPLAINT + 12)
        );
        assert_eq!(lines[MOST_COMPLAINTS], "disbatch: and 90 more complaints\n");
    }
}
