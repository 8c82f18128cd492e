//! Writes for the runners of this node: whatever they have to say at the same time goes to the database in one
//! operation. While one is under way, the next fills up; so the busier the node, the less each write costs.
//!
//! Nothing depends on it. A runner that gets no answer writes by itself, with the same values; each write names the
//! run that it is for, so it does no harm if both do.

use std::time::{Duration, Instant};

use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{RunWrite, Written};
use tokio::sync::mpsc;

use crate::boot_time::boot_time;

/// So many writes go together at most.
const MOST: usize = 1_000;

/// How long a write is repeated while the database is away. After that the runners do it, who have more patience.
const PATIENCE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What became of a write.
#[derive(Debug)]
pub struct Outcome {
    /// What was written, or why nothing was.
    pub written: Result<Written, String>,
    /// The moment before it was first sent, by [`boot_time`]. A lease that was asked for counts from then: if it was
    /// sent again, it may be the first that has been heard.
    pub asked: Duration,
}

/// Who is told of it.
type Tell = Box<dyn FnOnce(Outcome) + Send>;

struct Job {
    write: RunWrite,
    tell: Tell,
}

/// Takes writes. Clones speak to the same scribe, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Scribe(mpsc::UnboundedSender<Job>);

impl Scribe {
    /// Starts to write to `store`, in a task of the runtime.
    pub fn start(store: Store) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(work(store, receiver));
        Self(sender)
    }

    /// Writes `write` together with others, and tells what became of it.
    pub fn write(&self, write: RunWrite, tell: impl FnOnce(Outcome) + Send + 'static) {
        let job = Job { write, tell: Box::new(tell) };
        if let Err(lost) = self.0.send(job) {
            let written = Err("the DEN is ending".to_owned());
            (lost.0.tell)(Outcome { written, asked: Duration::ZERO });
        }
    }
}

async fn work(store: Store, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut batch = Vec::new();
    while jobs.recv_many(&mut batch, MOST).await > 0 {
        let (writes, tells): (Vec<_>, Vec<_>) = batch.drain(..).map(|job| (job.write, job.tell)).unzip();
        let (asked, outcomes) = write(&store, &writes).await;
        for (tell, written) in tells.into_iter().zip(outcomes) {
            tell(Outcome { written, asked });
        }
    }
}

/// Writes a batch, repeating it for a while if the database is away.
async fn write(store: &Store, writes: &[RunWrite]) -> (Duration, Vec<Result<Written, String>>) {
    let begun = Instant::now();
    let asked = boot_time();
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match store.write_runs(writes).await {
            Ok(outcomes) => {
                let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(told));
                return (asked, outcomes.collect());
            }
            Err(error) => error,
        };
        if !error.is_transient() || begun.elapsed() + pause > PATIENCE {
            tracing::error!(%error, writes = writes.len(), "cannot write for the runners: they do it by themselves");
            return (asked, writes.iter().map(|_| Err(error.to_string())).collect());
        }
        tracing::warn!(%error, retry_in_ms = pause.as_millis(), "cannot write for the runners, trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn told(error: StoreError) -> String {
    error.to_string()
}
