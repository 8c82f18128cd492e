//! Shows a running plugin's output to those who watch: what is captured is also written to `tasks.live`, a
//! little later.
//!
//! The plugin never waits for this. When the database is slow or away, the newest bytes are kept and the rest is
//! left out; the stored output at the end of the task has it all.

mod buffer;
mod writer;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disbatch_core::live::LiveStream;
use disbatch_core::output::StreamName;
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;

pub use buffer::Tap;
use writer::Writer;

/// A task that ends sooner is not written about.
const FIRST_AFTER: Duration = Duration::from_millis(100);

/// A plugin that has closed its streams is about to end; it is given so long.
const CLOSED_AFTER: Duration = Duration::from_secs(1);

/// New bytes are written at most so often.
const EVERY: Duration = Duration::from_millis(500);

/// How long the end of the task waits for a write that is under way.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Live output of one attempt of a task.
#[derive(Debug)]
pub struct Live<'a> {
    ledger: &'a Ledger,
    run: &'a Run,
    stdout: Tap,
    stderr: Tap,
    news: Arc<Notify>,
    wrote: AtomicBool,
    stop: CancellationToken,
}

impl<'a> Live<'a> {
    pub fn new(ledger: &'a Ledger, run: &'a Run) -> Self {
        let news = Arc::new(Notify::new());
        let (stdout, stderr) = (Tap::new(Arc::clone(&news)), Tap::new(Arc::clone(&news)));
        let (wrote, stop) = (AtomicBool::new(false), CancellationToken::new());
        Self { ledger, run, stdout, stderr, news, wrote, stop }
    }

    /// Where the capture of a stream is to put what it reads.
    pub fn tap(&self, stream: StreamName) -> Tap {
        match stream {
            StreamName::Stdout => self.stdout.clone(),
            StreamName::Stderr => self.stderr.clone(),
        }
    }

    /// Does `work`, and writes meanwhile what the taps are given. Then it stops, and removes what was written: the task has its
    /// output by then, or is not ours any more; unless the work has failed.
    pub async fn beside<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut follow = pin!(self.follow());
        let mut follows = true;
        let done = {
            let mut work = pin!(work);
            loop {
                tokio::select! {
                    biased;
                    done = work.as_mut() => break done?,
                    () = follow.as_mut(), if follows => follows = false,
                }
            }
        };
        self.stop.cancel();
        if !self.wrote.load(Ordering::Acquire) {
            return Ok(done);
        }
        // A write that reaches the server after the removal would stay.
        if follows {
            let _too_slow = tokio::time::timeout(LAST_WRITE, follow).await;
        }
        if let Err(error) = self.ledger.remove_live(self.run).await {
            tracing::warn!(%error, "cannot remove the live output");
        }
        Ok(done)
    }

    /// Writes what the taps are given, until it is stopped.
    async fn follow(&self) {
        self.news.notified().await;
        // Most tasks say nothing.
        Box::pin(self.write_all()).await;
    }

    async fn write_all(&self) {
        if self.stop.run_until_cancelled(self.await_first()).await.is_none() {
            return;
        }
        let writer = |stream, tap: &Tap| {
            Writer::new(LiveStream { task: self.run.task, attempt: self.run.attempt, stream }, tap.clone())
        };
        let mut writers =
            [writer(StreamName::Stdout, &self.stdout), writer(StreamName::Stderr, &self.stderr)];
        let mut failing = false;
        loop {
            self.wrote.store(true, Ordering::Release);
            // A write is not broken off: it might come true after the live output was removed.
            match self.write(&mut writers).await {
                Ok(()) if failing => {
                    tracing::info!("live output is written again");
                    failing = false;
                }
                Ok(()) => {}
                Err(error) if !error.is_transient() => {
                    tracing::warn!(%error, "output cannot be shown while the task runs");
                    return;
                }
                Err(error) if !failing => {
                    tracing::warn!(%error, "cannot write live output, keeping the newest");
                    failing = true;
                }
                Err(_) => {}
            }
            let pause = async {
                tokio::time::sleep(EVERY).await;
                if !failing {
                    self.news.notified().await;
                }
            };
            if self.stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Waits for something to write, in a task that lasts.
    async fn await_first(&self) {
        tokio::time::sleep(FIRST_AFTER).await;
        if [&self.stdout, &self.stderr].into_iter().all(Tap::is_closed) {
            tokio::time::sleep(CLOSED_AFTER).await;
        }
    }

    async fn write(&self, writers: &mut [Writer; 2]) -> Result<(), StoreError> {
        for writer in writers {
            writer.write(self.ledger).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use disbatch_core::config::Config;
    use disbatch_core::lifecycle::Lifecycle;
    use disbatch_core::model::{NodeName, QueueId};

    use super::*;

    /// Live output for a database that nobody answers for.
    fn unreachable() -> (Ledger, Run) {
        let text = r#"{ "database": "x", "mongohost":
            "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=10&connectTimeoutMS=10" }"#;
        let config = Config::parse(text, Path::new("/config.json")).unwrap();
        let task = bson::oid::ObjectId::new().into();
        let queue = QueueId(bson::oid::ObjectId::new());
        let run = Run { task, queue, node: NodeName::new("n"), attempt: 1, instance: None };
        (Ledger::new(Arc::new(config), Lifecycle::default(), None, crate::ledger::Connection::default()), run)
    }

    #[tokio::test]
    async fn a_task_that_ends_at_once_is_not_written_about() {
        let (ledger, run) = unreachable();
        let live = Live::new(&ledger, &run);
        let tap = live.tap(StreamName::Stdout);
        let work = async {
            tap.push(b"quick\n");
            tap.close();
            tokio::task::yield_now().await;
            Ok::<(), ()>(())
        };
        live.beside(work).await.unwrap();
        assert!(!live.wrote.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn an_absent_database_costs_nothing_but_live_output() {
        let (ledger, run) = unreachable();
        let live = Live::new(&ledger, &run);
        let tap = live.tap(StreamName::Stderr);
        let work = async {
            tap.push(b"slow\n");
            while !live.wrote.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            tap.push(&vec![b'x'; 9 << 20]);
            assert!(tap.held_bytes() <= buffer::HELD_BYTES);
            Ok::<(), ()>(())
        };
        // It would try for a while to remove what may have been written.
        let _tries_on = tokio::time::timeout(Duration::from_millis(500), live.beside(work)).await;
        assert!(live.wrote.load(Ordering::Acquire));
    }
}
