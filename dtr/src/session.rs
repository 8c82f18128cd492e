//! A warm runner: one task after the other, as its DEN assigns them, or several at a time of a warm plugin.
//!
//! The session ends with the link, or after the task during which the runner had to go on without it. See
//! [`disbatch_core::link`] for what is said.

use std::pin::pin;
use std::sync::LazyLock;

use bson::{DateTime, RawDocumentBuf, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::definitions::{Definition, manifests};
use disbatch_core::link::{Assignment, Go};
use disbatch_core::model::{Status, Task};
use disbatch_core::store::of_millis;
use disbatch_core::task::{Run, Start};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::custody::{self, Asked, Nudged};
use crate::descriptors;
use crate::folder::{Folders, Lodging};
use crate::ledger::{Connection, Ledger};
use crate::link::{Incoming, Link, Word};
use crate::setup::{Args, Ending, Failure, Setup};
use crate::warm::Batcher;
use crate::work::{Begun, Kit, Work, parts};

/// Runs what is assigned over the link that is the descriptor `number`.
pub async fn run(args: &Args, number: i32) -> Result<Ending, Failure> {
    let setup = Setup::new(args)?;
    let socket = descriptors::adopt(number).map_err(Failure::Link)?;
    let (link, incoming, post) = Link::open(socket, setup.nudges.clone()).map_err(Failure::Link)?;
    std::env::set_current_dir("/").map_err(Failure::Setup)?;
    let (kit, batcher) = Kit::new(&setup.config)?;
    // Now, so that the first task need not wait for it.
    kit.tools.be_ready().map_err(Failure::Setup)?;
    let mut session = Session { setup, link, incoming, kit, batcher, folders: Folders::default() };
    post.beside(async {
        let ended = session.work().await;
        session.kit.tools.end().await;
        session.batcher.end().await;
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
    batcher: Batcher,
    folders: Folders,
}

/// What tasks are carried out with.
#[derive(Clone, Copy)]
struct Place<'a> {
    setup: &'a Setup,
    link: &'a Link,
    kit: &'a Kit,
    connection: &'a Connection,
}

/// A task that was assigned, and what is heard of it.
struct Taken {
    assignment: Assignment,
    /// That its DEN knows.
    is_said: bool,
    word: Word,
    nudged: Nudged,
}

impl Session {
    async fn work(&mut self) -> Result<Ending, Failure> {
        let mut last = Ok(Ending::Stored);
        loop {
            let assignment = tokio::select! {
                biased;
                assignment = self.incoming.next() => assignment,
                () = self.setup.lifecycle.draining(), if self.link.is_up() => {
                    // A task that was sent before the DEN could know is this runner's.
                    self.link.close();
                    continue;
                }
                () = self.kit.tools.idle(), if self.link.is_up() => continue,
                never = self.batcher.drive(&self.setup.lifecycle), if self.link.is_up() => match never {},
            };
            let Some(assignment) = assignment else { return last };
            last = match assignment.lane {
                true => self.serve_lanes(assignment).await,
                false => Box::pin(self.serve(assignment)).await,
            };
            match &last {
                Ok(_) => {}
                Err(failure) if is_its_own(failure) => tracing::warn!("{failure}"),
                Err(_) => return last,
            }
            if self.link.is_up() {
                // The DEN has handled it.
                last = Ok(Ending::Stored);
            }
        }
    }

    async fn serve(&mut self, assignment: Assignment) -> Result<Ending, Failure> {
        let Self { setup, link, kit, batcher, folders, .. } = self;
        let place = Place { setup, link, kit, connection: &Connection::default() };
        let folder = Lodging::new(assignment.run.task, std::mem::take(folders));
        if parts::needs_folder(&assignment, &kit.plugins()) {
            folder.path()?;
        }
        let Some(taken) = place.take(vec![assignment]).pop() else { return Ok(Ending::Stored) };
        let (ending, has_left) = tokio::select! {
            biased;
            done = Box::pin(place.carry_out(taken, &folder)) => done?,
            never = batcher.drive(&setup.lifecycle) => match never {},
            never = kit.tools.look_after(), if kit.tools.has_several() => match never {},
        };
        *folders = folder.end(has_left);
        ending
    }

    /// Tasks in lanes of their own: the first, and what comes until none is left. The last failure of one that its DEN cannot handle is
    /// that of all: then nothing more comes, and the others are carried out.
    async fn serve_lanes(&mut self, first: Assignment) -> Result<Ending, Failure> {
        let Self { setup, link, incoming, kit, batcher, .. } = self;
        let place = Place { setup, link, kit, connection: &Connection::default() };
        let mut lanes = FuturesUnordered::new();
        let mut last = Ok(Ending::Stored);
        let mut arrived = vec![first];
        let mut drive = pin!(batcher.drive(&setup.lifecycle));
        let mut look_after = pin!(kit.tools.look_after());
        loop {
            arrived.extend(std::iter::from_fn(|| incoming.try_next()));
            let taken = place.take(std::mem::take(&mut arrived));
            lanes.extend(taken.into_iter().map(|taken| Box::pin(place.lane(taken))));
            tokio::select! {
                biased;
                ended = lanes.next() => match ended {
                    None => return last,
                    Some(Err(failure)) if !is_its_own(&failure) => {
                        link.close();
                        last = Err(failure);
                    }
                    Some(Err(failure)) => tracing::warn!("{failure}"),
                    Some(Ok(_)) => {}
                },
                // If there are no more, the lanes come to their ends.
                Some(assignment) = incoming.next() => arrived.push(assignment),
                () = setup.lifecycle.draining(), if link.is_up() => link.close(),
                never = drive.as_mut() => match never {},
                never = look_after.as_mut() => match never {},
            }
        }
    }
}

impl Place<'_> {
    /// Says that these tasks have been taken.
    fn take(self, these: Vec<Assignment>) -> Vec<Taken> {
        if these.is_empty() {
            return Vec::new();
        }
        // Before that is said, since the answer comes at any time then.
        let words: Vec<Word> =
            these.iter().map(|assignment| self.link.word_about(assignment.number)).collect();
        let is_said = self.link.taken(these.iter().map(|assignment| assignment.number));
        let nudged = self.setup.nudges.heard();
        let taken = |(assignment, word)| Taken { assignment, is_said, word, nudged: nudged.clone() };
        these.into_iter().zip(words).map(taken).collect()
    }

    /// A task among others. It has no folder unless it turns out to need one.
    async fn lane(self, taken: Taken) -> Result<Ending, Failure> {
        let folder = Lodging::new(taken.assignment.run.task, Folders::default());
        let carried_out = self.carry_out(taken, &folder).await;
        drop(folder.end(false));
        carried_out?.0
    }

    /// Carries out a task. Returns besides whether everybody has left its folder.
    async fn carry_out(
        self,
        taken: Taken,
        folder: &Lodging,
    ) -> Result<(Result<Ending, Failure>, bool), Failure> {
        let Taken { assignment, is_said, word, nudged } = taken;
        let Self { setup, link, kit, connection } = self;
        let is_alone = !assignment.lane;
        let (config, lifecycle) = (setup.config.clone(), setup.lifecycle.clone());
        let ledger =
            Ledger::new(config, lifecycle, Some((link.clone(), assignment.number)), connection.clone());
        let begun = self.begin(assignment, (is_said, word), &ledger).await?;
        tracing::debug!(
            task = %begun.run.task, queue = %begun.task.queue, attempt = begun.run.attempt, "task started"
        );
        let work = Work { setup, ledger: &ledger, begun: &begun, folder, is_alone };
        let (outcome, delivered) = Box::pin(work.carry_out(kit, nudged)).await?;
        tracing::debug!(task = %begun.run.task, status = %outcome.verdict.status, ?delivered, "task ended");
        ledger.flush().await;
        Ok((delivered.ending(&begun.run), outcome.verdict.has_left))
    }

    /// Waits until the task has been started, or starts it. One that was started for this runner is its own once it has said that it
    /// has taken it: otherwise the DEN gives it back when this process ends.
    async fn begin(
        self,
        assignment: Assignment,
        (is_said, word): (bool, Word),
        ledger: &Ledger,
    ) -> Result<Begun, Failure> {
        match assignment.go {
            Some(go) if is_said => return started(self.kit, assignment, go),
            Some(_) => {
                self.link.close();
                return start(self.kit, assignment, ledger).await;
            }
            None => {}
        }
        match timeout(of_millis(assignment.lease_ms) / 3, word.come()).await {
            Ok(Some(Some(go))) => started(self.kit, assignment, go),
            Ok(Some(None)) => {
                let Run { task, node, .. } = assignment.run;
                Err(Failure::NotClaimed { task, node })
            }
            Ok(None) | Err(_) => {
                tracing::warn!(task = %assignment.run.task, "the DEN does not start the task, so its runner does");
                self.link.close();
                start(self.kit, assignment, ledger).await
            }
        }
    }
}

/// Whether that is about the task alone, and the runner goes on.
fn is_its_own(failure: &Failure) -> bool {
    matches!(failure, Failure::NotClaimed { .. } | Failure::TakenAway { .. })
}

/// A task that has been started, with what its DEN says of it besides. Until when it has to be done is still to be said.
fn begun(kit: &Kit, task: Task, assignment: Assignment, asked: Asked) -> Begun {
    let read = |raw: &RawDocumentBuf| {
        Definition::of_raw(raw).inspect_err(|error| tracing::warn!(%error, "ignoring a worker")).ok()
    };
    // One that cannot be read is not there.
    let workers: Vec<Definition> = assignment.workers.iter().filter_map(read).collect();
    Begun {
        task,
        queue: kit.queue(assignment.queue).map(Some).map_err(|error| error.to_string()),
        schedule: assignment.schedule_problem.map_or(Ok(assignment.schedule), Err),
        workers: manifests(&workers),
        run: assignment.run,
        asked,
        until_deadline: None,
        lease: of_millis(assignment.lease_ms),
    }
}

/// The DEN has started it.
fn started(kit: &Kit, assignment: Assignment, go: Go) -> Result<Begun, Failure> {
    let mut task: Task = bson::deserialize_from_slice(assignment.task.as_bytes())?;
    mark_started(&mut task, &assignment);
    let asked = Asked::for_plugin_until(of_millis(go.until_ms), of_millis(assignment.lease_ms));
    let until_deadline = go.deadline_in_ms.map(of_millis);
    Ok(Begun { until_deadline, ..begun(kit, task, assignment, asked) })
}

/// What the start changes in a task, for the plugin, which is told of a running task.
fn mark_started(task: &mut Task, assignment: &Assignment) {
    if task.status == Status::Running {
        return;
    }
    let at = assignment.at;
    task.status = Status::Running;
    task.mtime = Some(at.into());
    let lease_until = at.saturating_add_millis(assignment.lease_ms);
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
async fn start(kit: &Kit, assignment: Assignment, ledger: &Ledger) -> Result<Begun, Failure> {
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
        lease: of_millis(assignment.lease_ms),
        pid: std::process::id(),
        waiting: None,
    };
    let (task, run) = ledger.start(&claim).await?;
    let begun = Begun { run, ..begun(kit, task, assignment, asked) };
    let until_deadline = custody::until_deadline(&begun.task, begun.known_queue(), begun.lease);
    Ok(Begun { until_deadline, ..begun })
}

/// The time by this host's clock, and later than `at`.
fn after(at: DateTime) -> DateTime {
    SystemClock.now().max(at.saturating_add_millis(1))
}
