//! One plugin process from its start to its end: a single owner for its pipes, its exit and its signals.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bson::Bson;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{PluginName, Queue, Task};
use disbatch_core::output::StreamName;
use disbatch_core::plugin::Plugin;
use disbatch_core::task::Run;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until, timeout};

use crate::capture::Capture;
use crate::control::Control;
use crate::facts::{self, ExitFacts};
use crate::guard::protocol::{Exit, Order, Report};
use crate::guard::{self, Guard};
use crate::live::Live;
use crate::relay::Relay;
use crate::supervision::{End, Reason, Supervision, Wish};

/// Longer parameters are only on standard input: the kernel limits a variable to 128 KiB.
const LONGEST_JOB_PARAMS: usize = 64 * 1024;

/// How long pipes may stay open after the plugin's end before they are left to whoever holds them.
const PIPES_GRACE: Duration = Duration::from_secs(2);

/// How long a plugin has between SIGTERM and SIGKILL when the runner is told to end.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// What a plugin is started for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task.
    pub task: &'a Task,
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

/// Runs the plugin to its end, under a guard.
///
/// # Errors
/// The process cannot be started or waited for.
pub async fn execute(
    plugin: &Plugin,
    job: Job<'_>,
    relay: Relay,
    supervision: Supervision,
    lifecycle: &Lifecycle,
) -> io::Result<Ended> {
    let document = task_json(job.task)?;
    let (mut guard, control_pipe) = spawn(plugin, job)?;
    let Some((mut stdin, out_pipe, err_pipe)) = guard.streams() else {
        return Err(io::Error::other("the plugin has no pipes"));
    };
    let mut stdout = capture(job, StreamName::Stdout);
    let mut stderr = capture(job, StreamName::Stderr);
    let mut control = Control::default();
    let fate;
    let abandoned;
    {
        let feed = async {
            // A plugin need not read its standard input.
            let _broken_pipe = stdin.write_all(document.as_bytes()).await;
            drop(stdin);
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
        tracing::warn!("a process that outlived the plugin holds its pipes; not waiting for it");
        stderr.note(&format!(
            "disbatch: a process that outlived the plugin holds its output open; stopped reading {} s after \
             the plugin's end\n",
            PIPES_GRACE.as_secs()
        ));
    }
    for note in control.notes().chain(facts::notes(&fate.exit, fate.guarded)) {
        stderr.note(&note);
    }
    let facts = ExitFacts::of(&fate.exit, fate.reason);
    Ok(Ended { exit: fate.exit.exit_status(), facts, stdout, stderr, control })
}

fn capture(job: Job<'_>, stream: StreamName) -> Capture {
    let capture = Capture::new(std::env::temp_dir());
    match job.live {
        Some(live) => capture.tapped(live.tap(stream)),
        None => capture,
    }
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
    guard: &'a mut Guard,
    ending: Ending,
}

#[derive(Default)]
struct Ending {
    reason: Option<Reason>,
    kill_at: Option<Instant>,
    killed: bool,
}

impl Watch<'_> {
    /// Waits for the exit, reading all the while, and ends the plugin when it is to end. Tells whether all
    /// streams had come to their end by then.
    async fn until_exit(
        mut self,
        mut streams: Pin<&mut impl Future<Output = ()>>,
        mut supervision: Supervision,
        lifecycle: &Lifecycle,
    ) -> io::Result<(Fate, bool)> {
        let started = Instant::now();
        let mut drained = false;
        let mut told_to_end = false;
        loop {
            let kill_at = self.ending.kill_at;
            tokio::select! {
                report = self.guard.report() => match report? {
                    Some(Report::Pid(_)) => {}
                    Some(Report::Error(error)) => return Err(io::Error::other(error)),
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
                    Wish::End(end) => self.end(end),
                },
                () = lifecycle.ending(), if !told_to_end => {
                    told_to_end = true;
                    self.end(End { reason: Reason::Runner, grace: KILL_GRACE });
                }
                () = sleep_until(kill_at.unwrap_or(started)), if kill_at.is_some() => self.kill(),
            }
        }
    }

    /// TERM, and KILL after a while. Of several requests the first gives the reason.
    fn end(&mut self, end: End) {
        let first = self.ending.reason.is_none();
        self.ending.reason.get_or_insert(end.reason);
        if end.reason == Reason::LeaseLost {
            return self.kill();
        }
        if first {
            tracing::warn!(
                reason = end.reason.as_str(),
                grace_s = end.grace.as_secs_f64(),
                "ending the plugin"
            );
            self.guard.tell(Order::Term);
        }
        if !self.ending.killed {
            let kill_at = Instant::now() + end.grace;
            self.ending.kill_at = Some(self.ending.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        }
    }

    fn kill(&mut self) {
        self.ending.kill_at = None;
        if !std::mem::replace(&mut self.ending.killed, true) {
            tracing::warn!(reason = self.ending.reason.map(Reason::as_str), "killing the plugin");
            self.guard.tell(Order::Kill);
        }
    }
}

fn spawn(plugin: &Plugin, job: Job<'_>) -> io::Result<(Guard, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let mut command = guard::command(plugin, job.task.id, job.until);
    command
        .current_dir(job.folder)
        .env("DISBATCH_QUEUE_ID", job.queue.id.to_string())
        .env("DISBATCH_QUEUE", job.queue.display_name().replace('\0', ""))
        .env("DISBATCH_PLUGIN", job.name.as_str())
        .env("DISBATCH_NODE", job.run.node.as_str())
        .env("DISBATCH_ATTEMPT", job.run.attempt.to_string())
        .env("DISBATCH_WORK_DIR", job.folder)
        .env("DISBATCH_CONTROL_FD", guard::CONTROL_FD.to_string())
        .env("JOB_ID", job.task.id.to_string())
        .env_remove("JOB_PARAMS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let params = job.task.params().clone().into_relaxed_extjson().to_string();
    if params.len() <= LONGEST_JOB_PARAMS {
        command.env("JOB_PARAMS", params);
    }
    let guard = Guard::start(command, job.task.id, writer.into())?;
    Ok((guard, pipe::Receiver::from_owned_fd(reader.into())?))
}

/// The task as one line of relaxed extended JSON.
fn task_json(task: &Task) -> io::Result<String> {
    let document = bson::serialize_to_document(task).map_err(io::Error::other)?;
    Ok(format!("{}\n", Bson::Document(document).into_relaxed_extjson()))
}

#[cfg(test)]
mod tests;
