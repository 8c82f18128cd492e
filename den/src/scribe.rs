//! Writes for the runners of this node: whatever they have to say at the same time goes to the database in one
//! operation. While one is under way, the next fills up; so the busier the node, the less each write costs. A few are
//! under way at once, since most of their time is waiting for a majority; but each takes the server as much time as several
//! writes do, so one that begins beside another is worth its while: it has its share of what was to be written at once lately. And
//! as the server goes through the writes of one operation one after the other, many are divided among several.
//!
//! Nothing depends on it. A runner that gets no answer writes by itself, with the same values; each write names the
//! run that it is for, so it does no harm if both do.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::clock::boot_time;
use disbatch_core::metrics::Metrics;
use disbatch_core::metrics::labels::{Renewal, Write};
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::{Renewed, RunWrite, Take, Written};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

/// So many writes go together at most.
const MOST: usize = 1_000;

/// So many operations are under way at once.
const AT_ONCE: usize = 3;

/// An operation is divided when it has more writes than these: the server goes through one after the other, and through two at once.
const DIVIDED: usize = 32;

/// Of what was to be written at once lately, each operation lets such a part be forgotten.
const FORGOTTEN_IN: usize = 8;

/// For so long a write waits for others at most, unless as many operations are under way as may be.
const GATHERS: Duration = Duration::from_millis(20);

/// How long a write is repeated while the database is away. After that the runners do it, who have more patience.
const PATIENCE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct WriteOutcome {
    /// What was written, or why nothing was.
    pub written: Result<Written, String>,
    /// The moment before it was first sent, by [`boot_time`]. A lease that was asked for counts from then: if it was
    /// sent again, it may be the first that has been heard.
    pub asked: Duration,
}

/// Who is told of it, and of what was to be written after it, if something was.
type Tell = Box<dyn FnOnce(WriteOutcome, Option<Result<Written, String>>) + Send>;

struct Job {
    write: RunWrite,
    /// The start of the task that gets the slot of this one.
    then: Option<Take>,
    tell: Tell,
}

/// Takes writes. Clones speak to the same scribe, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Scribe {
    jobs: mpsc::UnboundedSender<Job>,
    metrics: Arc<Metrics>,
}

impl Scribe {
    /// Starts to write to `store`, in a task of the runtime.
    pub fn start(store: Store) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let metrics = Arc::clone(store.metrics());
        tokio::spawn(work(store, receiver));
        Self { jobs: sender, metrics }
    }

    /// Writes `write` together with others, and tells what became of it.
    pub fn write(&self, write: RunWrite, tell: impl FnOnce(WriteOutcome) + Send + 'static) {
        self.send(Job { write, then: None, tell: Box::new(|outcome, _| tell(outcome)) });
    }

    /// Writes the end of a task, and in the same command the start of one that takes its slot. Where there is no answer, the end is
    /// written again, and the start is not: nobody knows then whether it was made.
    pub fn hand_over(
        &self,
        end: RunWrite,
        then: Take,
        tell: impl FnOnce(WriteOutcome, Option<Result<Written, String>>) + Send + 'static,
    ) {
        self.send(Job { write: end, then: Some(then), tell: Box::new(tell) });
    }

    fn send(&self, job: Job) {
        self.metrics.write_backlog.of(kind(&job.write)).inc();
        if let Err(lost) = self.jobs.send(job) {
            let written = Err("the DEN is ending".to_owned());
            (lost.0.tell)(WriteOutcome { written, asked: Duration::ZERO }, None);
        }
    }
}

async fn work(store: Store, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut desk = Desk::default();
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    while open || !under_way.is_empty() {
        let mut arrived = Vec::new();
        let late = desk.begins_late(under_way.len());
        tokio::select! {
            () = sleep_until(late.unwrap_or_else(Instant::now).into()), if late.is_some() => {}
            Some(tasks) = under_way.next() => desk.done(tasks),
            read = jobs.recv_many(&mut arrived, MOST), if open => open = read > 0,
        }
        if desk.waiting.is_empty() && !arrived.is_empty() {
            desk.since = Some(Instant::now());
        }
        desk.waiting.extend(arrived);
        while let Some(batch) = desk.next(under_way.len()) {
            under_way.push(carry_out(&store, batch));
        }
    }
}

/// What is to be written, and what is being written.
#[derive(Default)]
struct Desk {
    waiting: VecDeque<Job>,
    /// Tasks about which something is being written. What comes later about them waits, so that it stays in order.
    busy: HashSet<TaskId>,
    /// Since when something has been waiting; at least.
    since: Option<Instant>,
    /// So many writes waited or were under way at once lately.
    lately: usize,
}

impl Desk {
    /// The next operation, if there is one to begin beside so many.
    fn next(&mut self, under_way: usize) -> Option<Vec<Job>> {
        self.lately = self.lately.max(self.waiting.len() + self.busy.len());
        let has_waited = self.since.is_some_and(|since| since.elapsed() >= GATHERS);
        let is_worth_it = has_waited || self.waiting.len() >= self.lately.div_ceil(AT_ONCE);
        if self.waiting.is_empty() || (under_way > 0 && (under_way >= AT_ONCE || !is_worth_it)) {
            return None;
        }
        let most = self.lately.div_ceil(AT_ONCE).clamp(DIVIDED, MOST);
        self.lately -= self.lately.div_ceil(FORGOTTEN_IN);
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let mut held: HashSet<TaskId> = HashSet::new();
        let mut renewals = None;
        for job in self.waiting.drain(..) {
            let task = job.write.task();
            let is_free = batch.len() < most && !self.busy.contains(&task) && !held.contains(&task);
            // Renewals go by themselves: all tasks of their operation are read, and at a server that asks a majority for it.
            let is_renewal = job.write.is_renewal();
            if !is_free || *renewals.get_or_insert(is_renewal) != is_renewal {
                held.insert(task);
                later.push_back(job);
            } else {
                batch.push(job);
            }
        }
        self.waiting = later;
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        self.busy.extend(batch.iter().map(|job| job.write.task()));
        (!batch.is_empty()).then_some(batch)
    }

    /// When the next operation begins although it is less than its share: the others may take long.
    fn begins_late(&self, under_way: usize) -> Option<Instant> {
        let since = self.since.filter(|_| !self.waiting.is_empty() && under_way < AT_ONCE)?;
        // What waits for an operation on its own task is looked at when that has ended.
        Some(since + GATHERS).filter(|at| *at > Instant::now())
    }

    fn done(&mut self, tasks: Vec<TaskId>) {
        for task in tasks {
            self.busy.remove(&task);
        }
    }
}

/// Writes a batch and tells what became of it. Returns whose it was.
async fn carry_out(store: &Store, batch: Vec<Job>) -> Vec<TaskId> {
    let (mut writes, mut takes, mut tells) = (Vec::new(), Vec::new(), Vec::new());
    for job in batch {
        tells.push((job.tell, job.then.is_some()));
        writes.push(job.write);
        takes.extend(job.then.map(RunWrite::Take));
    }
    let ends = writes.len();
    // Ends first: the slots that these free are given again.
    writes.extend(takes);
    let began = Instant::now();
    let (asked, outcomes) = write(store, &writes, ends).await;
    measure(store.metrics(), (&writes, ends), &outcomes, began.elapsed());
    writes.truncate(ends);
    let mut outcomes = outcomes.into_iter();
    let of_ends: Vec<_> = outcomes.by_ref().take(ends).collect();
    for ((tell, takes), written) in tells.into_iter().zip(of_ends) {
        let taken = takes.then(|| outcomes.next()).flatten();
        tell(WriteOutcome { written, asked }, taken);
    }
    writes.iter().map(RunWrite::task).collect()
}

const KINDS: [Write; 4] = [Write::Start, Write::End, Write::Renew, Write::Output];

fn kind(write: &RunWrite) -> Write {
    match write {
        RunWrite::Start(_) | RunWrite::Take(_) => Write::Start,
        RunWrite::Finish { .. } => Write::End,
        RunWrite::Renew { .. } => Write::Renew,
        RunWrite::Interim { .. } => Write::Output,
    }
}

/// Counts writes that were made at once, of which the first `asked_for` were waited for one by one.
fn measure(
    metrics: &Metrics,
    (writes, asked_for): (&[RunWrite], usize),
    outcomes: &[Result<Written, String>],
    took: Duration,
) {
    for of in KINDS {
        let tasks = writes.iter().filter(|write| kind(write) == of).count();
        if tasks > 0 {
            metrics.write_tasks.of(of).observe_count(tasks);
            metrics.write_seconds.of(of).observe_time(took);
        }
    }
    for (number, (write, outcome)) in writes.iter().zip(outcomes).enumerate() {
        if number < asked_for {
            metrics.write_backlog.of(kind(write)).dec();
        }
        match (write, outcome) {
            (RunWrite::Take(_), Ok(Written::NotClaimed | Written::SlotTaken)) => metrics.claim_lost.inc(),
            _ if kind(write) != Write::Renew => {} // Tasks are counted where they are written.
            (_, Ok(Written::Renewed(Renewed::Held { .. }))) => metrics.lease_renewals.of(Renewal::Held).inc(),
            (_, Ok(_)) => metrics.lease_renewals.of(Renewal::Lost).inc(),
            (_, Err(_)) => metrics.lease_renewals.of(Renewal::Failed).inc(),
        }
    }
}

/// Writes a batch, repeating the first `lasting` of it for a while if the database is away.
async fn write(
    store: &Store,
    writes: &[RunWrite],
    lasting: usize,
) -> (Duration, Vec<Result<Written, String>>) {
    let begun = Instant::now();
    let asked = boot_time();
    let mut pause = FIRST_PAUSE;
    let (mut sent, mut unknown) = (writes, Vec::new());
    loop {
        let error = match store.write_runs(sent).await {
            Ok(outcomes) => {
                let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(|why| why.to_string()));
                return (asked, outcomes.chain(unknown).collect());
            }
            Err(error) => error,
        };
        if sent.len() > lasting {
            unknown = writes[lasting..].iter().map(|_| Err(error.to_string())).collect();
            sent = &writes[..lasting];
        }
        if !error.is_transient() || begun.elapsed() + pause > PATIENCE {
            tracing::error!(%error, writes = writes.len(), "cannot write for the runners: they do it by themselves");
            return (asked, writes.iter().map(|_| Err(error.to_string())).collect());
        }
        tracing::warn!(%error, retry_in_ms = pause.as_millis(), "cannot write for the runners, trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use disbatch_core::model::{NodeName, QueueId};
    use disbatch_core::task::{Interim, Run};

    use super::*;

    fn renewal(task: u8) -> Job {
        let run = Run {
            task: TaskId(ObjectId::from_bytes([task; 12])),
            queue: QueueId(ObjectId::from_bytes([0; 12])),
            node: NodeName::new("n"),
            attempt: 1,
            instance: None,
        };
        let write = RunWrite::Renew { run, lease: Duration::from_secs(task.into()) };
        Job { write, then: None, tell: Box::new(|_, _| {}) }
    }

    fn progress(task: u8) -> Job {
        let mut job = renewal(task);
        if let RunWrite::Renew { run, .. } = job.write {
            job.write = RunWrite::Interim { run, interim: Interim::Progress(bson::Document::new()) };
        }
        job
    }

    fn tasks(batch: &[Job]) -> Vec<u8> {
        batch.iter().map(|job| job.write.task().0.bytes()[0]).collect()
    }

    #[test]
    fn an_operation_beside_others_has_its_share() {
        let mut desk = Desk::default();
        for number in 0..3 {
            desk.waiting.push_back(renewal(number));
            assert_eq!(tasks(&desk.next(number.into()).unwrap()), [number]);
        }
        desk.waiting.push_back(renewal(9));
        assert!(desk.next(3).is_none(), "these are enough");
        let mut desk = Desk::default();
        desk.waiting.extend((0..21).map(renewal));
        assert_eq!(desk.next(0).unwrap().len(), 21);
        desk.waiting.extend((30..36).map(renewal));
        assert!(desk.next(1).is_none(), "it fills up meanwhile");
        desk.waiting.extend((36..41).map(renewal));
        assert_eq!(desk.next(1).unwrap().len(), 11);
    }

    #[test]
    fn one_write_does_not_wait_long_after_many() {
        let mut desk = Desk::default();
        desk.waiting.extend((0..200).map(renewal));
        let mut many = Vec::new();
        while let Some(batch) = desk.next(0) {
            assert!(batch.len() <= 67, "others may be made beside it");
            many.extend(tasks(&batch));
            desk.done(batch.iter().map(|job| job.write.task()).collect());
        }
        assert_eq!(many.len(), 200);
        for number in 0..50 {
            desk.waiting.push_back(renewal(number));
            desk.next(0).unwrap();
            desk.done(vec![TaskId(ObjectId::from_bytes([number; 12]))]);
        }
        desk.waiting.push_back(renewal(1));
        assert_eq!(tasks(&desk.next(1).unwrap()), [1], "whatever else is under way");
    }

    #[test]
    fn what_is_said_of_a_task_is_written_in_order() {
        let mut desk = Desk::default();
        desk.waiting.extend([1, 2, 1].map(renewal));
        let first = desk.next(0).unwrap();
        // The server goes through one operation in order.
        assert_eq!(tasks(&first), [1, 2, 1]);
        desk.waiting.extend([1, 3].map(renewal));
        assert_eq!(tasks(&desk.next(1).unwrap()), [3]);
        assert!(desk.next(2).is_none(), "one waits for the first operation");
        desk.done(first.iter().map(|job| job.write.task()).collect());
        assert_eq!(tasks(&desk.next(0).unwrap()), [1]);
        assert!(desk.waiting.is_empty());
    }

    #[test]
    fn renewals_go_by_themselves_and_in_order() {
        let mut desk = Desk::default();
        desk.waiting.extend([renewal(1), progress(2), renewal(2), progress(1), renewal(3)]);
        assert_eq!(tasks(&desk.next(0).unwrap()), [1, 3]);
        desk.busy.clear();
        assert_eq!(tasks(&desk.next(0).unwrap()), [2, 1]);
        desk.busy.clear();
        assert_eq!(tasks(&desk.next(0).unwrap()), [2]);
    }
}
