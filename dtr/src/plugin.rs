//! One plugin process from its start to its end: a single owner for its pipes, its exit and its signals.

mod ending;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::Duration;

use bson::Bson;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{PluginName, Queue, Task};
use disbatch_core::output::StreamName;
use disbatch_core::plugin::Plugin;
use disbatch_core::secrets::{FIELD, SecureParams};
use disbatch_core::task::Run;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::capture::Capture;
use crate::control::Control;
use crate::early::Early;
use crate::facts::{self, ExitFacts};
use crate::guard::protocol::{Exit, Order, Report, Spawn};
use crate::guard::{self, Guarded, Guards, Streams};
use crate::isolation::Isolation;
use crate::live::Live;
use crate::relay::Relay;
use crate::secrets::{self, Untold};
use crate::supervision::{End, Reason, Supervision, Wish};

pub use ending::Ending;

/// Longer parameters are only on standard input: the kernel limits a variable to 128 KiB.
const LONGEST_JOB_PARAMS: usize = 64 * 1024;

/// How long pipes may stay open after the plugin's end before they are left to whoever holds them.
pub const PIPES_GRACE: Duration = Duration::from_secs(2);

/// What is wished for when the runner is told to end.
pub const TOLD_TO_END: End = End { reason: Reason::Runner, grace: Duration::from_secs(10) };

/// What a plugin is started for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task.
    pub task: &'a Task,
    /// What only the plugin is told, and only with the task: never by arguments or variables, which others can see.
    pub secure_params: &'a Untold,
    /// Its queue.
    pub queue: &'a Queue,
    /// The plugin's name, as the queue gives it.
    pub name: &'a PluginName,
    /// This run of it.
    pub run: &'a Run,
    /// Its private folder.
    pub folder: &'a Path,
    /// Where its output is shown while it runs.
    pub live: Option<&'a Live>,
    /// What stores it while it runs, where it is long.
    pub early: Option<&'a Early>,
    /// Until when the plugin may live at first, by [`crate::boot_time`].
    pub until: Duration,
}

/// A plugin that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub exit: ExitStatus,
    /// The same and more, for the task.
    pub facts: ExitFacts,
    /// Its standard output.
    pub stdout: Capture,
    /// Its standard error, with the runner's notes at the end.
    pub stderr: Capture,
    /// What it said on the control channel.
    pub control: Control,
}

/// Why a plugin has done nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    /// It cannot be started.
    #[error("{0}")]
    Refused(#[from] io::Error),
    /// It was to end before it could be started.
    #[error("{why}")]
    ToEnd {
        /// What for.
        reason: Reason,
        /// Why it could not be started until then.
        why: String,
    },
}

impl NotBegun {
    /// In the words of its guard; `reason`: why it was to end, if it was.
    pub fn new(why: String, reason: Option<Reason>) -> Self {
        match reason {
            Some(reason) => Self::ToEnd { reason, why },
            None => Self::Refused(io::Error::other(why)),
        }
    }
}

/// Starts the plugin, under a guard.
///
/// # Errors
/// There is no guard, or it takes no orders.
pub async fn start(plugin: &Plugin, job: Job<'_>, guards: &mut Guards) -> io::Result<Guarded> {
    guards.be_ready(job.until).await?;
    let spawn = spawn(plugin, job, guards.isolation());
    guards.spawn(spawn)
}

/// Follows a plugin that was started to its end.
///
/// # Errors
/// The process cannot be started, or not before it is to end.
pub async fn follow(
    mut guard: Guarded,
    job: Job<'_>,
    relay: Relay,
    supervision: Supervision,
    lifecycle: &Lifecycle,
) -> Result<Ended, NotBegun> {
    let document = task_json(job.task, job.secure_params.take().as_ref())?;
    let Some(Streams { mut stdin, stdout: out_pipe, stderr: err_pipe, control: control_pipe, .. }) =
        guard.streams()
    else {
        return Err(io::Error::other("the plugin has no pipes").into());
    };
    let mut stdout = capture(job, StreamName::Stdout);
    let mut stderr = capture(job, StreamName::Stderr);
    let mut control = Control::default();
    let fate;
    let abandoned;
    {
        let feed = async move {
            // A plugin need not read its standard input.
            let _broken_pipe = stdin.write_all(&document).await;
            // Now, and not at the end of the plugin: it may have secure parameters in it.
            drop((stdin, document));
        };
        let streams = async {
            tokio::join!(
                feed,
                stdout.drain(out_pipe),
                stderr.drain(err_pipe),
                control.listen(control_pipe, &relay),
            );
        };
        tokio::pin!(streams);
        let watch = Watch { guard: &mut guard, ending: Ending::default() };
        let (ended, drained) = watch.until_exit(streams.as_mut(), supervision, lifecycle).await?;
        fate = ended;
        abandoned = !drained && timeout(PIPES_GRACE, streams).await.is_err();
    }
    if abandoned {
        stderr.note(&abandoned_note());
    }
    for note in control.notes().chain(facts::notes(&fate.exit, fate.guarded)) {
        stderr.note(&note);
    }
    let facts = ExitFacts::of(&fate.exit, fate.reason);
    Ok(Ended { exit: fate.exit.exit_status(), facts, stdout, stderr, control })
}

/// Says that a process that outlived the plugin holds its pipes.
pub fn abandoned_note() -> String {
    tracing::warn!("a process that outlived the plugin holds its pipes; not waiting for it");
    let grace = PIPES_GRACE.as_secs();
    format!(
        "disbatch: a process that outlived the plugin holds its output open; stopped reading {grace} s after the \
         plugin's end\n"
    )
}

/// A capture of one of the task's streams, which also shows what it gets, and has it stored once it is long.
pub fn capture(job: Job<'_>, stream: StreamName) -> Capture {
    let mut capture = Capture::new(std::env::temp_dir());
    if let Some(live) = job.live {
        capture = capture.tapped(live.tap(stream));
    }
    if let Some(early) = job.early {
        capture = capture.stored_early(early.tap(stream));
    }
    capture
}

/// How it ended.
struct Fate {
    exit: Exit,
    /// What the runner wanted it to end for.
    reason: Option<Reason>,
    /// Whether the guard lived to tell.
    guarded: bool,
}

/// A plugin and what is under way to end it.
struct Watch<'a> {
    guard: &'a mut Guarded,
    ending: Ending,
}

impl Watch<'_> {
    /// Waits for the exit, reading all the while, and ends the plugin when it is to end. Tells whether all
    /// streams had come to their end by then.
    async fn until_exit(
        mut self,
        mut streams: Pin<&mut impl Future<Output = ()>>,
        mut supervision: Supervision,
        lifecycle: &Lifecycle,
    ) -> Result<(Fate, bool), NotBegun> {
        let started = Instant::now();
        let mut drained = false;
        let mut told_to_end = false;
        loop {
            tokio::select! {
                report = self.guard.report() => match report {
                    Some(Report::Pid(_)) => {}
                    Some(Report::Error(error)) => return Err(NotBegun::new(error, self.ending.reason)),
                    Some(Report::Exited(exit)) => {
                        let reason = self.ending.reason.filter(|_| exit.ordered);
                        return Ok((Fate { exit, reason, guarded: true }, drained));
                    }
                    None => {
                        self.guard.clear_up().await;
                        let exit = Exit { duration: started.elapsed(), ..Exit::unknown() };
                        return Ok((Fate { exit, reason: self.ending.reason, guarded: false }, drained));
                    }
                },
                () = streams.as_mut(), if !drained => drained = true,
                wish = supervision.next() => match wish {
                    Wish::Until(time) => self.guard.tell(Order::Until(time)),
                    Wish::End(end) => self.ending.end(self.guard, end),
                },
                () = lifecycle.ending(), if !told_to_end => {
                    told_to_end = true;
                    self.ending.end(self.guard, TOLD_TO_END);
                }
                () = self.ending.grace_is_over() => self.ending.kill(self.guard),
            }
        }
    }
}

fn spawn(plugin: &Plugin, job: Job<'_>, isolation: &Isolation) -> Spawn {
    let given = |(name, value): (&str, String)| -> (OsString, OsString) { (name.into(), value.into()) };
    let mut environment = isolation.environment();
    environment.extend(variables(&job).into_iter().map(given));
    environment.push(given(("DISBATCH_CONTROL_FD", guard::CONTROL_FD.to_string())));
    environment.push(("DISBATCH_WORK_DIR".into(), job.folder.into()));
    Spawn {
        until: job.until,
        program: plugin.program.clone(),
        arguments: plugin.arguments.iter().map(OsString::from).collect(),
        environment,
        folder: job.folder.to_owned(),
        descriptors: 0,
        confinement: isolation.confinement(&plugin.manifest),
    }
}

/// The variables that tell about the task.
pub fn variables(job: &Job<'_>) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        (guard::TASK_VARIABLE, job.task.id.to_string()),
        ("DISBATCH_QUEUE_ID", job.queue.id.to_string()),
        ("DISBATCH_QUEUE", job.queue.display_name().replace('\0', "")),
        ("DISBATCH_PLUGIN", job.name.as_str().to_owned()),
        ("DISBATCH_NODE", job.run.node.as_str().to_owned()),
        ("DISBATCH_ATTEMPT", job.run.attempt.to_string()),
        ("DISBATCH_WORK_DIR", job.folder.to_string_lossy().into_owned()),
        ("JOB_ID", job.task.id.to_string()),
    ];
    let params = job.task.params().clone().into_relaxed_extjson().to_string();
    if params.len() <= LONGEST_JOB_PARAMS {
        variables.push(("JOB_PARAMS", params));
    }
    variables
}

/// The task as one line of relaxed extended JSON. Secure parameters are in it as they were given.
///
/// # Errors
/// The task cannot be written as JSON.
pub fn task_json(task: &Task, secure_params: Option<&SecureParams>) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut document = bson::serialize_to_document(task).map_err(io::Error::other)?;
    document.remove(FIELD);
    let json = Bson::Document(document).into_relaxed_extjson();
    secrets::within(&json.to_string(), secure_params)
}

#[cfg(test)]
mod tests;
