//! A warm runner: one task after the other, as its DEN assigns them.
//!
//! The session ends with the link, or after the task during which the runner had to go on without it. See
//! [`disbatch_core::link`] for what is said.

use std::sync::LazyLock;
use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::link::{Assignment, Go, ToRunner};
use disbatch_core::model::{Queue, Rules, Status, Task};
use disbatch_core::plugin::Manifest;
use disbatch_core::schedules::ForRun;
use disbatch_core::task::{Start, Started};
use disbatch_core::workers::{Worker, manifests};
use tokio::time::timeout;

use crate::args::Args;
use crate::boot_time::Asked;
use crate::custody;
use crate::failure::{Ending, Failure};
use crate::folder::{Folders, Lodging};
use crate::inherited;
use crate::ledger::Ledger;
use crate::link::{Incoming, Link};
use crate::setup::Setup;
use crate::work::{Begun, Kit, Work, parts};

/// Runs what is assigned over the link that is the descriptor `number`.
///
/// # Errors
/// The session cannot begin; or the last task's failure, if the runner had to go on without its DEN. Failures of
/// earlier tasks have been the DEN's to handle.
pub async fn run(args: &Args, number: i32) -> Result<Ending, Failure> {
    let setup = Setup::new(args)?;
    let socket = inherited::adopt(number).map_err(Failure::Link)?;
    let (link, incoming, post) = Link::open(socket, setup.nudges.clone()).map_err(Failure::Link)?;
    std::env::set_current_dir("/").map_err(Failure::Setup)?;
    let mut kit = Kit::new(&setup.config)?;
    // Now, so that the first task need not wait for it.
    kit.guards.renew().map_err(Failure::Setup)?;
    let mut session = Session { setup, link, incoming, kit, folders: Folders::default() };
    post.beside(async {
        let ended = session.work().await;
        session.kit.warm.end().await;
        ended
    })
    .await
}

/// It stays the same, and the system need not be asked for each task.
static PID: LazyLock<u32> = LazyLock::new(std::process::id);

struct Session {
    setup: Setup,
    link: Link,
    incoming: Incoming,
    kit: Kit,
    folders: Folders,
}

impl Session {
    async fn work(&mut self) -> Result<Ending, Failure> {
        let mut last = Ok(Ending::Stored);
        loop {
            let message = tokio::select! {
                biased;
                message = self.incoming.next() => message,
                () = self.setup.lifecycle.draining(), if self.link.is_up() => {
                    // A task that was sent before the DEN could know is this runner's.
                    self.link.close();
                    continue;
                }
                () = self.kit.warm.idle(), if self.link.is_up() => continue,
            };
            let assignment = match message {
                Some(ToRunner::Assign(assignment)) => assignment,
                // What was meant for a task that is over.
                Some(
                    ToRunner::Go(_) | ToRunner::Gone { .. } | ToRunner::Answer { .. } | ToRunner::Look { .. },
                ) => {
                    continue;
                }
                None => return last,
            };
            last = Box::pin(self.serve(*assignment)).await;
            match &last {
                Ok(_) => {}
                Err(failure @ (Failure::NotClaimed { .. } | Failure::TakenAway { .. })) => {
                    tracing::warn!("{failure}");
                }
                Err(_) => return last,
            }
            if self.link.is_up() {
                // The DEN has handled it.
                last = Ok(Ending::Stored);
            }
        }
    }

    /// One task.
    async fn serve(&mut self, assignment: Assignment) -> Result<Ending, Failure> {
        let folder = Lodging::new(assignment.run.task, std::mem::take(&mut self.folders));
        if parts::needs_folder(&assignment, &self.kit.plugins) {
            folder.path()?;
        }
        let is_said = self.link.taken(assignment.number);
        let (config, lifecycle) = (self.setup.config.clone(), self.setup.lifecycle.clone());
        let ledger = Ledger::new(config, lifecycle, Some((self.link.clone(), assignment.number)));
        let begun = self.begin(assignment, is_said, &ledger).await?;
        tracing::debug!(
            task = %begun.run.task, queue = %begun.task.queue, attempt = begun.run.attempt, "task started"
        );
        let work = Work { setup: &self.setup, ledger: &ledger, begun: &begun, folder: &folder };
        let (outcome, delivered) = Box::pin(work.carry_out(&mut self.kit)).await?;
        tracing::debug!(task = %begun.run.task, status = %outcome.status, ?delivered, "task ended");
        ledger.flush().await;
        self.folders = folder.end(outcome.has_left);
        delivered.ending(&begun.run)
    }

    /// Waits until the task has been started, or starts it. One that was started for this runner is its own once it has said that it
    /// has taken it: otherwise the DEN gives it back when this process ends.
    async fn begin(
        &mut self,
        assignment: Assignment,
        is_said: bool,
        ledger: &Ledger,
    ) -> Result<Begun, Failure> {
        let lease = Duration::from_millis(u64::try_from(assignment.lease_ms).unwrap_or(0));
        match assignment.go {
            Some(go) if is_said => return started(assignment, go, lease),
            Some(_) => {
                self.link.close();
                return start(assignment, lease, ledger).await;
            }
            None => {}
        }
        match timeout(lease / 3, self.word_about(assignment.number)).await {
            Ok(Some(ToRunner::Go(go))) => started(assignment, go, lease),
            Ok(Some(_)) => Err(not_claimed(&assignment)),
            Ok(None) | Err(_) => {
                tracing::warn!(task = %assignment.run.task, "the DEN does not start the task, so its runner does");
                self.link.close();
                start(assignment, lease, ledger).await
            }
        }
    }

    /// Whether the task of an assignment has been started. `None`: nobody says.
    async fn word_about(&mut self, number: i64) -> Option<ToRunner> {
        loop {
            match self.incoming.next().await? {
                ToRunner::Go(go) if go.of == number => return Some(ToRunner::Go(go)),
                ToRunner::Gone { of } if of == number => return Some(ToRunner::Gone { of }),
                // There is no other assignment before the end of this one.
                _ => {}
            }
        }
    }
}

fn not_claimed(assignment: &Assignment) -> Failure {
    Failure::NotClaimed { task: assignment.run.task, node: assignment.run.node.clone() }
}

fn schedule_of(assignment: &Assignment) -> Result<Option<ForRun>, String> {
    match &assignment.schedule_problem {
        Some(problem) => Err(problem.clone()),
        None => Ok(assignment.schedule.clone()),
    }
}

fn queue_of(assignment: &Assignment) -> Result<Option<Queue>, String> {
    bson::deserialize_from_slice(assignment.queue.as_bytes()).map(Some).map_err(|error| error.to_string())
}

/// The plugins that the DEN knows from the database. One that cannot be read is not there.
fn workers_of(assignment: &Assignment) -> Vec<Manifest> {
    let read = |raw: &RawDocumentBuf| {
        Worker::of_raw(raw).inspect_err(|error| tracing::warn!(%error, "ignoring a worker")).ok()
    };
    let workers: Vec<Worker> = assignment.workers.iter().filter_map(read).collect();
    manifests(&workers)
}

/// The DEN has started it.
fn started(assignment: Assignment, go: Go, lease: Duration) -> Result<Begun, Failure> {
    let mut task: Task = bson::deserialize_from_slice(assignment.task.as_bytes())?;
    mark_started(&mut task, &assignment);
    let queue = queue_of(&assignment);
    let until = Duration::from_millis(u64::try_from(go.until_ms).unwrap_or(0));
    let until_deadline =
        go.deadline_in_ms.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0)));
    let asked = Asked::for_plugin_until(until, lease);
    let (schedule, workers) = (schedule_of(&assignment), workers_of(&assignment));
    Ok(Begun { task, queue, schedule, workers, run: assignment.run, asked, until_deadline, lease })
}

/// What the start changes in a task, for the plugin, which is told of a running task.
fn mark_started(task: &mut Task, assignment: &Assignment) {
    if task.status == Status::Running {
        return;
    }
    let at = assignment.at;
    task.status = Status::Running;
    task.mtime = Some(at.into());
    let lease_until = DateTime::from_millis(at.timestamp_millis().saturating_add(assignment.lease_ms));
    let pid = i64::from(*PID);
    task.rest.extend(doc! { "started": at, "pid": pid, "lease_until": lease_until });
    if let Ok(history) = task.rest.get_array_mut("history") {
        let run = &assignment.run;
        let entry = doc! { "at": at, "status": task.status, "attempt": run.attempt, "node": &run.node };
        history.push(entry.into());
    }
}

/// Without the DEN: it may have started the task, or may not have come to it. How long ago is not known, so the start
/// gives the plugin no time; the lease is renewed before it begins.
async fn start(assignment: Assignment, lease: Duration, ledger: &Ledger) -> Result<Begun, Failure> {
    let asked = Asked::now().without_time();
    let run = &assignment.run;
    let (from, at) = match assignment.go {
        None => (Status::Claimed, assignment.at),
        // Another time than that of the DEN's start: what was to be given back does not match any more.
        Some(_) => (Status::Running, after(assignment.at)),
    };
    let claim = Start {
        task: run.task,
        from,
        node: run.node.clone(),
        claim: run.instance.clone().map(|instance| (run.attempt, instance)),
        claimed: assignment.task.get_datetime("mtime").ok(),
        at,
        lease,
        pid: std::process::id(),
        waiting: None,
    };
    let (task, run) = match ledger.start(&claim).await? {
        Started::Running(task, run) => (*task, run),
        Started::NotClaimed => return Err(not_claimed(&assignment)),
    };
    let (queue, schedule) = (queue_of(&assignment), schedule_of(&assignment));
    let workers = workers_of(&assignment);
    let rules = Rules::of(&task, queue.as_ref().ok().and_then(Option::as_ref));
    let until_deadline = custody::until_deadline(&task, &rules, lease);
    Ok(Begun { task, queue, schedule, workers, run, asked, until_deadline, lease })
}

/// The time by this host's clock, and later than `at`.
fn after(at: DateTime) -> DateTime {
    SystemClock.now().max(DateTime::from_millis(at.timestamp_millis().saturating_add(1)))
}
