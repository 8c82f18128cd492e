//! Warm plugins: one process that takes task after task. See the section "Warm plugins" of `docs/plugins.md`.
//!
//! A runner keeps as many as it has had tasks at a time, also while other plugins do other tasks, and one that takes batches ([`batch`]). What is the same for a plugin that is started for
//! one task is shared with it: guard, captures, control channel, custody, and what is made of the end.

mod batch;
mod meter;
mod pipes;
mod process;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::clock::boot_time;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, PluginName};
use disbatch_core::plugin::{Plugin, Warm};
use disbatch_core::secrets::NamedSecrets;
use futures::FutureExt;
use zeroize::Zeroizing;

use crate::capture::Captures;
use crate::confine::Confinement;
use crate::control::Control;
use crate::facts::{self, ExitFacts};
use crate::guard::protocol::{Exit, Spawn};
use crate::guard::{self, Guards, LEASE_IS_OVER};
use crate::isolation::Isolation;
use crate::plugin::{Ended, Job, NotBegun, abandoned_note, secret_variable, task_json, variables};
use crate::relay::Relay;
use crate::secrets::Wiped;
use crate::storage::Ear;
use crate::supervision::{Reason, Supervision};
pub use batch::{Batcher, Batches};
use pipes::{Intake, Said};
use process::{Bounds, Fate, Process, Say};

/// So many processes are started for one task, if they end before they have begun with it.
const MOST_STARTS: u32 = 2;

/// The exit status of a task whose process ended with 0 without having said that the task is done.
const NOT_DONE: i32 = 1;

/// What was seen of a program is believed for so long: where tasks are short, to look would be much of what they cost.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// What the line begins with that brings a task, before that.
const LINE_START: &[u8] = b"{\"task\":";

/// Keeps the process of a warm plugin between tasks.
#[derive(Debug, Default)]
pub struct Keeper {
    kept: Option<Kept>,
    marks: Marks,
}

/// What tells whether a program was changed, as it was seen last.
#[derive(Debug, Default)]
struct Marks(Option<Seen>);

/// A program, and the files of the plugin's folder that it is given, as they were at some time.
#[derive(Debug)]
struct Seen {
    program: PathBuf,
    arguments: Vec<String>,
    marks: Arc<[Mark]>,
    at: Instant,
}

impl Marks {
    fn of(&mut self, plugin: &Plugin) -> Arc<[Mark]> {
        let is_same = |seen: &&Seen| seen.program == plugin.program && seen.arguments == plugin.arguments;
        match self.0.as_ref().filter(is_same).filter(|seen| seen.at.elapsed() < BELIEVED_FOR) {
            Some(seen) => Arc::clone(&seen.marks),
            None => {
                let (program, arguments) = (plugin.program.clone(), plugin.arguments.clone());
                // What is elsewhere may be what the plugin works on, which changes with each task.
                let is_own = |path: &&Path| plugin.folder.as_ref().is_some_and(|own| path.starts_with(own));
                let files = arguments.iter().map(Path::new).filter(is_own);
                let marks = [program.as_path()].into_iter().chain(files).filter_map(mark).collect();
                Arc::clone(&self.0.insert(Seen { program, arguments, marks, at: Instant::now() }).marks)
            }
        }
    }
}

#[derive(Debug)]
struct Kept {
    key: Key,
    process: Process,
}

/// What a process was started for and from. When that changes, there is a new one.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    name: PluginName,
    program: PathBuf,
    arguments: Vec<String>,
    limits: Warm,
    confinement: Option<Confinement>,
    secrets: NamedSecrets,
    marks: Arc<[Mark]>,
}

/// Tells a program that was changed or replaced: device, number, length, and the time of the last change in seconds and
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark(u64, u64, u64, i64, i64);

impl Keeper {
    /// Has the task done by the plugin's process, or by a new one. What it writes comes into `captures`, and after it the
    /// runner's notes.
    pub async fn execute(
        &mut self,
        (plugin, limits): (&Plugin, Warm),
        (job, guards): (Job<'_>, &mut Guards),
        captures: &mut Captures,
        relay: &Relay,
        (supervision, lifecycle): (&mut Supervision, &Lifecycle),
    ) -> Result<Ended, NotBegun> {
        if boot_time() >= job.until {
            return Err(io::Error::other(LEASE_IS_OVER).into());
        }
        // Where another plugin of the task has had the folder, it belongs to its user already.
        if let Some(folder) = job.private_folder().filter(|_| job.is_first()) {
            guards.isolation().hand_over(folder)?;
        }
        let line = task_line(&job)?;
        let (ear, control) = (Ear::default(), Control::of(job.task.id));
        let said = Said { captures, ear, control, relay };
        let mut intake = Intake { line: &line, sent: 0, said };
        let key = Key::of(plugin, limits, (&job, guards.isolation()), self.marks.of(plugin));
        let (mut starts, mut until) = (0, job.until);
        loop {
            let mut kept = match self.fit_for(&key).await {
                Some(kept) => kept,
                None => {
                    starts += 1;
                    let say = Say { supervision: &mut *supervision, lifecycle };
                    let process = Box::pin(start(&key, (&job.run.node, &mut until), guards, say)).await?;
                    Kept { process, key: key.clone() }
                }
            };
            let say = Say { supervision: &mut *supervision, lifecycle };
            match kept.process.work(&mut intake, until, say).await {
                Fate::Done { code, took, usage } => {
                    self.kept = Some(kept);
                    let exit = ExitStatus::from_raw(i32::from(code) << 8);
                    let facts = ExitFacts::of_task(exit, took, (usage.cpu, usage.memory));
                    return Ok(intake.said.ended(exit, facts));
                }
                Fate::NotBegun if starts < MOST_STARTS => {
                    tracing::debug!(task = %job.task.id, "the warm plugin had ended before the task began");
                    intake.sent = 0;
                    intake.said.control = Control::of(job.task.id);
                }
                Fate::NotBegun => return Err(io::Error::other("it ends before it takes a task").into()),
                Fate::Ended { exit, reason, guarded, abandoned } => {
                    if abandoned {
                        intake.said.captures.stderr.note(&abandoned_note());
                    }
                    return Ok(intake.said.ended_with_process(&exit, reason, guarded));
                }
            }
        }
    }

    /// The plugin whose process is there.
    pub fn plugin(&self) -> Option<&PluginName> {
        self.kept.as_ref().map(|kept| &kept.key.name)
    }

    /// Looks after the process while there is no task, until it has ended. Loses nothing when dropped.
    pub async fn idle(&mut self) {
        while let Some(kept) = &mut self.kept {
            if kept.process.idle().await {
                tracing::debug!("the warm plugin has ended");
                self.kept = None;
            }
        }
    }

    /// The same without waiting for anything. To be called often enough: at least once in the lease of a task.
    pub fn look_after(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.process.put_off();
        }
        self.idle().now_or_never();
    }

    /// Ends the process, if there is one.
    pub async fn end(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.process.end().await;
        }
    }

    /// The process that is there, if it is the right one and can be used. Any other one is ended.
    async fn fit_for(&mut self, key: &Key) -> Option<Kept> {
        let kept = self.kept.take()?;
        if kept.key == *key && kept.process.is_fit() {
            return Some(kept);
        }
        Box::pin(kept.process.end()).await;
        None
    }
}

/// Starts the process for a task of a node, which may last `until`: renewals that come meanwhile put that off.
async fn start(
    key: &Key,
    (node, until): (&NodeName, &mut Duration),
    guards: &mut Guards,
    say: Say<'_>,
) -> Result<Process, NotBegun> {
    guards.be_ready(*until).await?;
    let mut environment = guards.isolation().environment_with(&key.secrets);
    environment.add("DISBATCH_WARM", "1");
    environment.add("DISBATCH_PLUGIN", key.name.base());
    environment.add("DISBATCH_NODE", node.as_str());
    environment.add("DISBATCH_CONTROL_FD", guard::CONTROL_FD.to_string());
    environment.add(guard::RUNNER_VARIABLE, std::process::id().to_string());
    let cpu_seconds = key.confinement.as_ref().and_then(|confinement| confinement.limits.cpu_seconds);
    let guarded = guards.spawn(Spawn {
        until: *until,
        program: key.program.clone(),
        arguments: key.arguments.iter().map(OsString::from).collect(),
        environment,
        folder: "/".into(),
        descriptors: 0,
        confinement: key.confinement.clone(),
        direct: None,
    })?;
    let bounds = Bounds { limits: key.limits, cpu: cpu_seconds.map(Duration::from_secs) };
    Process::begin(guarded, bounds, until, say).await
}

impl Said<'_> {
    /// It has ended with its process, as the runner wanted it for this `reason`, if it did.
    fn ended_with_process(mut self, exit: &Exit, reason: Option<Reason>, guarded: bool) -> Ended {
        let facts = ExitFacts::of(exit, reason);
        let mut notes: Vec<String> = facts::notes(exit, guarded).collect();
        let mut exit = exit.exit_status();
        if exit.code().is_some() && facts.reason.is_none() && self.control.done.is_none() {
            notes.push("disbatch: the plugin ended without saying that the task is done\n".to_owned());
            exit = if exit.success() { ExitStatus::from_raw(NOT_DONE << 8) } else { exit };
        }
        self.note_complaints();
        notes.iter().for_each(|note| self.captures.stderr.note(note));
        Ended { exit, facts, control: self.control }
    }

    fn ended(mut self, exit: ExitStatus, facts: ExitFacts) -> Ended {
        self.note_complaints();
        Ended { exit, facts, control: self.control }
    }

    /// Nothing more comes.
    fn note_complaints(&mut self) {
        self.ear.finish(self.relay);
        for note in self.control.notes().chain(self.ear.notes()) {
            self.captures.stderr.note(&note);
        }
    }
}

impl Key {
    fn of(
        plugin: &Plugin,
        limits: Warm,
        (job, isolation): (&Job<'_>, &Isolation),
        marks: Arc<[Mark]>,
    ) -> Self {
        Self {
            name: job.name.clone(),
            program: plugin.program.clone(),
            arguments: plugin.arguments.clone(),
            limits,
            confinement: isolation.confinement(&plugin.manifest),
            secrets: job.about.secrets.clone(),
            marks,
        }
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let found = fs::metadata(path).ok()?;
    Some(Mark(found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// The line that brings a task to the plugin, with its line break. It has no other one. It is overwritten when it is dropped, and
/// its buffer never grows. So is all that it is made of.
fn task_line(job: &Job<'_>) -> io::Result<Zeroizing<Vec<u8>>> {
    let task = task_json(job, job.secure_params)?;
    let rest = rest_of_line(job)?;
    let mut line = Zeroizing::new(Vec::<u8>::with_capacity(LINE_START.len() + task.len() + rest.len()));
    line.extend_from_slice(LINE_START);
    line.extend_from_slice(task.trim_ascii_end());
    line.extend_from_slice(&rest);
    Ok(line)
}

/// What follows the task.
fn rest_of_line(job: &Job<'_>) -> io::Result<Wiped> {
    let mut line = Wiped::default();
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
