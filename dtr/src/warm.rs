//! Warm plugins: one process that takes task after task. See the section "Warm plugins" of `docs/plugins.md`.
//!
//! A runner keeps as many as it has had tasks at a time, also while other plugins do other tasks, and one that takes batches ([`batch`]). What is the same for a plugin that is started for
//! one task is shared with it: guard, captures, control channel, custody, and what is made of the end.

mod batch;
mod meter;
mod pipes;
mod process;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::clock::boot_time;
use disbatch_core::model::{NodeName, PluginName};
use disbatch_core::plugin::{Plugin, Warm};
use disbatch_core::secrets::NamedSecrets;
use futures::FutureExt;

use crate::capture::Captures;
use crate::confine::Confinement;
use crate::control::Control;
use crate::facts::{self, ExitFacts};
use crate::guard::protocol::{Exit, Spawn};
use crate::guard::{self, Guards, LEASE_IS_OVER};
use crate::isolation::Isolation;
use crate::plugin::{Ended, Exited, Job, NotBegun, Say, append_task, secret_variable, variables};
use crate::relay::Relay;
use crate::secrets::Wiped;
use crate::storage::Ear;
use crate::supervision::Reason;
use crate::work::parts::Mark;
pub use batch::{Batcher, Batches};
use meter::Usage;
use pipes::Said;
pub use process::Leash;
use process::{Fate, Process};

/// So many processes are started for one task, if they end before they have begun with it.
const MOST_STARTS: u32 = 2;

/// The exit status of a task whose process ended with 0 without having said that the task is done.
const NOT_DONE: i32 = 1;

/// What was seen of a program is believed for so long: where tasks are short, to look would be much of what they cost.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Keeper {
    process: Option<Process>,
    seen: Seen,
}

/// What a plugin is started with, and what tells whether that, or what it is given of the plugin's folder, was changed.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    marks: Vec<Mark>,
}

#[derive(Debug, Default)]
struct Seen(Option<(Arc<Program>, Instant)>);

impl Seen {
    fn of(&mut self, plugin: &Plugin) -> Arc<Program> {
        if let Some((program, at)) = &self.0
            && (&program.path, &program.arguments) == (&plugin.program, &plugin.arguments)
            && at.elapsed() < BELIEVED_FOR
        {
            return Arc::clone(program);
        }
        let (path, arguments) = (plugin.program.clone(), plugin.arguments.clone());
        // What is elsewhere may be what the plugin works on, which changes with each task.
        let is_own = |path: &&Path| plugin.folder.as_ref().is_some_and(|own| path.starts_with(own));
        let files = arguments.iter().map(Path::new).filter(is_own);
        let marks = [path.as_path()].into_iter().chain(files).filter_map(Mark::of).collect();
        let program = Arc::new(Program { path, arguments, marks });
        self.0 = Some((Arc::clone(&program), Instant::now()));
        program
    }
}

/// What a process was started for and from. When that changes, there is a new one.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    name: PluginName,
    program: Arc<Program>,
    limits: Warm,
    confinement: Option<Confinement>,
    secrets: NamedSecrets,
}

impl Keeper {
    /// Has the task done by the plugin's process, or by a new one. What it writes comes into `captures`, and after it the
    /// runner's notes.
    pub async fn execute(
        &mut self,
        (plugin, limits): (&Plugin, Warm),
        (job, guards): (Job<'_>, &mut Guards),
        captures: &mut Captures,
        relay: &Relay,
        say: &mut Say<'_>,
    ) -> Result<Ended, NotBegun> {
        admit(&job, guards.isolation())?;
        let mut line = task_line(&job)?;
        let mut said = Said { captures, ear: Ear::default(), control: Control::of(job.task.id), relay };
        let key = Key::of((plugin, limits), (&job, guards.isolation()), &mut self.seen);
        let (mut starts, mut until) = (0, job.until);
        loop {
            let mut process = match self.fit_for(&key).await {
                Some(process) => process,
                None => {
                    starts += 1;
                    Box::pin(start(&key, (&job.run.node, &mut until), guards, say)).await?
                }
            };
            match process.work(line, &mut said, until, say).await? {
                Fate::Done { took, usage } => {
                    self.process = Some(process);
                    return Ok(said.answered(took, usage, None));
                }
                Fate::NotBegun if starts < MOST_STARTS => {
                    tracing::debug!(task = %job.task.id, "the warm plugin had ended before the task began");
                    line = task_line(&job)?;
                    said.control = Control::of(job.task.id);
                }
                Fate::NotBegun => return Err(io::Error::other("it ends before it takes a task").into()),
                Fate::Ended(exited) => return Ok(said.ended_with_process(&exited)),
            }
        }
    }

    pub fn plugin(&self) -> Option<&PluginName> {
        self.process.as_ref().map(|process| &process.key.name)
    }

    /// Looks after the process while there is no task, until it has ended. Loses nothing when dropped.
    pub async fn idle(&mut self) {
        while let Some(process) = &mut self.process {
            if process.idle().await {
                tracing::debug!("the warm plugin has ended");
                self.process = None;
            }
        }
    }

    /// The same without waiting for anything. To be called often enough: at least once in the lease of a task.
    pub fn look_after(&mut self) {
        if let Some(process) = &mut self.process {
            process.put_off();
        }
        self.idle().now_or_never();
    }

    pub async fn end(&mut self) {
        if let Some(process) = self.process.take() {
            process.end().await;
        }
    }

    /// The process that is there, if it is the right one and can be used. Any other one is ended.
    async fn fit_for(&mut self, key: &Key) -> Option<Process> {
        let process = self.process.take()?;
        if process.key == *key && process.is_fit() {
            return Some(process);
        }
        Box::pin(process.end()).await;
        None
    }
}

/// Sees to what has to be so before a process is given a task.
fn admit(job: &Job<'_>, isolation: &Isolation) -> io::Result<()> {
    if boot_time() >= job.until {
        return Err(io::Error::other(LEASE_IS_OVER));
    }
    // Where another plugin of the task has had the folder, it belongs to its user already.
    match job.private_folder().filter(|_| !job.folder_is_used) {
        Some(folder) => isolation.hand_over(folder),
        None => Ok(()),
    }
}

/// Starts the process for a task of a node, which may last `until`: renewals that come meanwhile put that off.
async fn start(
    key: &Key,
    (node, until): (&NodeName, &mut Duration),
    guards: &mut Guards,
    say: &mut Say<'_>,
) -> Result<Process, NotBegun> {
    guards.be_ready(*until).await?;
    let mut environment = guards.isolation().environment_with(&key.secrets);
    environment.add("DISBATCH_WARM", "1");
    environment.add("DISBATCH_PLUGIN", key.name.base());
    environment.add("DISBATCH_NODE", node.as_str());
    environment.add("DISBATCH_CONTROL_FD", guard::CONTROL_FD.to_string());
    environment.add(guard::RUNNER_VARIABLE, std::process::id().to_string());
    let started = guards.spawn(Spawn {
        until: *until,
        program: key.program.path.clone(),
        arguments: key.program.arguments.iter().map(OsString::from).collect(),
        environment,
        folder: "/".into(),
        descriptors: 0,
        confinement: key.confinement.clone(),
        direct: None,
    })?;
    Process::begin(started, key.clone(), until, say).await
}

impl Said<'_> {
    fn ended_with_process(mut self, exited: &Exited) -> Ended {
        let facts = ExitFacts::of(&exited.exit, exited.reason);
        if self.control.done.is_some() && facts.reason.is_none() {
            // It was done before, and was heard to be so after its process had ended.
            let Exit { duration, cpu, peak_memory: memory, .. } = exited.exit;
            return self.answered(duration, Usage { cpu, memory }, None);
        }
        let mut notes: Vec<String> = facts::notes(&exited.exit, exited.guarded).collect();
        let mut exit = exited.exit.exit_status();
        if let Some(note) = &exited.abandoned {
            self.captures.stderr.note(note);
        }
        if exit.code().is_some() && facts.reason.is_none() && self.control.done.is_none() {
            notes.push("disbatch: the plugin ended without saying that the task is done\n".to_owned());
            exit = if exit.success() { ExitStatus::from_raw(NOT_DONE << 8) } else { exit };
        }
        self.note_complaints();
        notes.iter().for_each(|note| self.captures.stderr.note(note));
        Ended { exit, facts, control: self.control }
    }

    /// The plugin has said that the task is done; `reason`: what it was to end for, if it was.
    fn answered(mut self, took: Duration, usage: Usage, reason: Option<Reason>) -> Ended {
        let exit = ExitStatus::from_raw(i32::from(self.control.done.unwrap_or(1)) << 8);
        let facts = ExitFacts { reason, ..ExitFacts::of_task(exit, took, (usage.cpu, usage.memory)) };
        self.note_complaints();
        Ended { exit, facts, control: self.control }
    }

    fn note_complaints(&mut self) {
        self.ear.finish(self.relay);
        for note in self.control.notes().chain(self.ear.notes()) {
            self.captures.stderr.note(&note);
        }
    }
}

impl Key {
    fn of(
        (plugin, limits): (&Plugin, Warm),
        (job, isolation): (&Job<'_>, &Isolation),
        seen: &mut Seen,
    ) -> Self {
        Self {
            name: job.name.clone(),
            program: seen.of(plugin),
            limits,
            confinement: isolation.confinement(&plugin.manifest),
            secrets: job.about.secrets.clone(),
        }
    }

    /// After so much processor time the system kills the process, if there is such a limit.
    fn most_cpu(&self) -> Option<Duration> {
        self.confinement.as_ref()?.limits.cpu_seconds.map(Duration::from_secs)
    }
}

/// The line that brings a task to the plugin, with its line break. It has no other one.
fn task_line(job: &Job<'_>) -> io::Result<Wiped> {
    let mut line = Wiped::default();
    line.extend(b"{\"task\":");
    append_task(&mut line, job, job.secure_params, None)?;
    for (index, (name, value)) in variables(job).into_iter().enumerate() {
        line.extend(if index == 0 { b",\"env\":{" } else { b"," });
        append_entry(&mut line, name, &value)?;
    }
    if let Some((name, value)) = secret_variable(job) {
        line.extend(b",");
        append_entry(&mut line, name, std::str::from_utf8(&value).map_err(io::Error::other)?)?;
    }
    line.extend(b"}");
    if let Some(folder) = job.private_folder() {
        line.extend(b",\"work_dir\":");
        append(&mut line, &folder.to_string_lossy())?;
    }
    line.extend(b"}\n");
    Ok(line)
}

fn append_entry(line: &mut Wiped, name: &str, value: &str) -> io::Result<()> {
    append(line, name)?;
    line.extend(b":");
    append(line, value)
}

fn append(line: &mut Wiped, value: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(line, value)?)
}

#[cfg(test)]
mod tests;
