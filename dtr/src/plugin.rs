//! One plugin process from its start to its end: a single owner for its pipes, its exit and its signals.

mod engine_input;
mod rest;
mod told;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::time::Duration;

use bson::Bson;
use disbatch_core::clock::boot_time;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{PluginName, Queue, Task, extended};
use disbatch_core::plugin::Plugin;
use disbatch_core::secrets::{FIELD, NamedSecrets, SecureParams};
use disbatch_core::task::Run;
use disbatch_shell::Params;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::io::InspectReader;

use crate::capture::Captures;
use crate::confine::Confinement;
use crate::control::Control;
use crate::facts::{self, ExitFacts};
use crate::folder;
use crate::guard::protocol::{Direct, Exit, Order, Report, Spawn};
use crate::guard::{self, Guarded, Guards, Streams};
use crate::isolation::Isolation;
use crate::local::Prepared;
use crate::relay::Relay;
use crate::secrets::{Wiped, append_within};
use crate::storage::Ear;
use crate::supervision::{End, Ending, Reason, Supervision, Wish};
use crate::warm::Leash;

pub use engine_input::clear_away;
pub use told::{About, Adapter, Callback, Worker, secret_variable, variables};

use engine_input::PERL_CONFIG;
use told::{SECURE_PARAMS, WORK_DIR};

/// How long pipes may stay open after the plugin's end before they are left to whoever holds them. The time in which what the plugin
/// has said waits for the database does not count.
pub const PIPES_GRACE: Duration = Duration::from_secs(2);

/// What is wished for when the runner is told to end.
pub const TOLD_TO_END: End = End { reason: Reason::Runner, grace: Duration::from_secs(10) };

/// Longer commands of a task's, in bytes, are for the plugin's program: the system starts no program with much more, and the
/// guard is to be told of none that makes it large.
const LONGEST_COMMAND: usize = 1024 * 1024;

/// What a plugin is started for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task, as the plugin is told of it.
    pub task: &'a Task,
    /// The same as JSON, without what is secret, where somebody else needs that, too. See [`json_of`].
    pub json: Option<&'a str>,
    /// What only the plugin is told, and only with the task: never by arguments, and by a variable only where that is
    /// asked for, since others may see these.
    pub secure_params: Option<&'a SecureParams>,
    pub queue: &'a Queue,
    /// The plugin's name, as the queue gives it.
    pub name: &'a PluginName,
    pub run: &'a Run,
    /// Its private folder; [`folder::HOME`] if it has none.
    pub folder: &'a Path,
    /// Whether an earlier plugin of the task has had that folder.
    pub folder_is_used: bool,
    /// Until when the plugin may live at first, by [`crate::boot_time`].
    pub until: Duration,
    pub about: &'a About,
}

impl Job<'_> {
    pub fn private_folder(&self) -> Option<&Path> {
        Some(self.folder).filter(|folder| *folder != Path::new(folder::HOME))
    }
}

#[derive(Debug)]
pub struct Ended {
    pub exit: ExitStatus,
    /// The same and more, for the task.
    pub facts: ExitFacts,
    pub control: Control,
}

/// Why a plugin has done nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    #[error("{0}")]
    Refused(#[from] io::Error),
    /// It was to end before it could be started.
    #[error("{why}")]
    ToEnd {
        reason: Reason,
        /// Why it could not be started until then.
        why: String,
    },
    /// It is a command of the task's that cannot be started as it is, so that the plugin's program is to have it.
    #[error("its command cannot be started as it is")]
    NotDirect,
}

impl NotBegun {
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused(_) | Self::NotDirect => None,
            Self::ToEnd { reason, .. } => Some(*reason),
        }
    }

    /// As a command of the task's; `reason`: why it was to end, if it was.
    fn not_direct(reason: Option<Reason>) -> Self {
        reason.map_or(Self::NotDirect, |reason| Self::ToEnd { reason, why: Self::NotDirect.to_string() })
    }

    /// In the words of its guard; `reason`: why it was to end, if it was.
    pub fn new(why: String, reason: Option<Reason>) -> Self {
        match reason {
            Some(reason) => Self::ToEnd { reason, why },
            None => Self::Refused(io::Error::other(why)),
        }
    }
}

/// Has a task done by its plugin, or by the command that takes the plugin's place. What that writes comes into `captures`, and
/// after it the runner's notes. `secure_params`: those that nobody else needs, which are not kept until the end.
pub async fn execute(
    plugin: &Plugin,
    (job, secure_params): (Job<'_>, Option<SecureParams>),
    guards: &mut Guards,
    captures: &mut Captures,
    relay: &Relay,
    say: &mut Say<'_>,
) -> Result<Ended, NotBegun> {
    let job = Job { secure_params: secure_params.as_ref().or(job.secure_params), ..job };
    let stops = job.about.interruptible;
    if let Some(params) = command_of(plugin, &job, guards.isolation()) {
        let started = start(plugin, job, Some(params), guards, relay).await?;
        match follow(started, (None, stops), captures, relay, say).await {
            Err(NotBegun::NotDirect) => captures.reopen(),
            ended => return ended,
        }
    }
    // What was said meanwhile holds for the program, too.
    let job = Job { until: say.supervision.so_far().until.unwrap_or(job.until), ..job };
    let started = start(plugin, job, None, guards, relay).await?;
    let ended = follow(started, (Some(job), stops), captures, relay, say);
    // They are in its environment and in what is being sent to it, which is overwritten then. It may run for days.
    drop(secure_params);
    ended.await
}

/// The command in the parameters of a task that takes the plugin's place, if the task is done by one: see `command_in_params` in
/// `docs/plugins.md`.
///
/// It is only begun like that where nothing is in the way. In all other cases the plugin's program is started, with the
/// task: for parameters that are wrong, a command that is not there, or a plugin that is to be another user. So what is said of
/// these is said in one place.
fn command_of(plugin: &Plugin, job: &Job<'_>, isolation: &Isolation) -> Option<Params> {
    if !plugin.manifest.command_in_params || isolation.confinement(&plugin.manifest).is_some() {
        return None;
    }
    let params = Params::check(&job.task.params().clone().into_relaxed_extjson()).ok()?;
    let words = params.command.iter().map(String::len).sum::<usize>();
    let variables = params.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    (words + variables <= LONGEST_COMMAND).then_some(params)
}

/// Has the command started in place of the plugin.
fn in_its_place(of_plugin: Spawn, params: Params) -> Spawn {
    let Params { command, env, cwd } = params;
    let mut words = command.into_iter();
    Spawn {
        program: words.next().unwrap_or_default().into(),
        arguments: words.map(Into::into).collect(),
        direct: Some(Direct { env, cwd }),
        ..of_plugin
    }
}

/// Starts the plugin, or the command that takes its place, under a guard.
async fn start(
    plugin: &Plugin,
    job: Job<'_>,
    command: Option<Params>,
    guards: &mut Guards,
    relay: &Relay,
) -> io::Result<(Guarded, Streams)> {
    guards.be_ready(job.until).await?;
    let spawn = spawn(plugin, job, guards.isolation())?;
    if let Some(recorder) = &relay.recorder {
        let folder = job.private_folder();
        recorder.starts(&spawn.environment, &job.about.secrets, folder, SECURE_PARAMS);
    }
    guards.spawn(match command {
        Some(params) => in_its_place(spawn, params),
        None => spawn,
    })
}

/// Follows a plugin that was started to its end. What it writes comes into `captures`, and after it the runner's notes.
///
/// What is sent to it is made of `job` at once: nobody has to keep secure parameters until its end. Without one, it is sent
/// nothing. `stops`: whether it can be told to stop.
fn follow<'a, 's>(
    (mut guard, streams): (Guarded, Streams),
    (job, stops): (Option<Job<'_>>, bool),
    captures: &'a mut Captures,
    relay: &'a Relay,
    say: &'a mut Say<'s>,
) -> impl Future<Output = Result<Ended, NotBegun>> + use<'a, 's> {
    let input = job.as_ref().map(input).transpose();
    let may_detach = job.as_ref().is_some_and(|job| job.about.callback.is_some());
    let mut control = Control::default().that_may_detach(may_detach);
    async move {
        let input = input?;
        let Streams { stdin, stdout: out_pipe, stderr: err_pipe, control: control_pipe } = streams;
        let mut ear = Ear::default();
        let feed = async move {
            if let (Some(stdin), Some(input)) = (stdin, input) {
                // A plugin need not read its standard input.
                let _broken_pipe = stdin.write_all(&input).await;
                // Now, and not at the end of the plugin: it may have secure parameters in it.
                drop(input);
            }
        };
        let streams = async {
            tokio::join!(
                feed,
                captures.stdout.drain(InspectReader::new(out_pipe, |bytes: &[u8]| ear.hear(bytes, relay))),
                captures.stderr.drain(err_pipe),
                control.listen(control_pipe, relay),
            );
            None::<Infallible>
        };
        let ending = Ending::default();
        let mut watch = Watch { guard: &mut guard, leash: None, relay, ending, stops, told_to_stop: false };
        let Ok(exited) = watch.until_exit(pin!(streams), &Notify::new(), say).await?;
        control.told_to_stop = watch.told_to_stop;
        ear.finish(relay);
        if let Some(note) = &exited.abandoned {
            captures.stderr.note(note);
        }
        for note in control.notes().chain(ear.notes()).chain(facts::notes(&exited.exit, exited.guarded)) {
            captures.stderr.note(&note);
        }
        let facts = ExitFacts::of(&exited.exit, exited.reason);
        Ok(Ended { exit: exited.exit.exit_status(), facts, control })
    }
}

/// Who has a say while a plugin works, or is started.
pub struct Say<'a> {
    pub supervision: &'a mut Supervision,
    /// The runner's own end.
    pub lifecycle: &'a Lifecycle,
}

#[derive(Debug)]
pub struct Exited {
    pub exit: Exit,
    /// What the runner wanted it to end for.
    pub reason: Option<Reason>,
    /// Whether the guard lived to tell.
    pub guarded: bool,
    /// Why its pipes were left before their end, if they were: a line for the task's standard error.
    pub abandoned: Option<String>,
}

/// A plugin that has a task, and what is under way to end it.
pub struct Watch<'a> {
    pub guard: &'a mut Guarded,
    /// If it takes several tasks: until when the guard lets it live.
    pub leash: Option<&'a mut Leash>,
    /// Where its reports wait for the database.
    pub relay: &'a Relay,
    pub ending: Ending,
    /// Whether it can be told to stop.
    pub stops: bool,
    pub told_to_stop: bool,
}

impl Watch<'_> {
    /// Waits for the exit, reading all the while, and ends the plugin when it is to end, of which `hang_up` is told. `Err`: the
    /// task was done before, as `streams` say; or else they come to their end.
    pub async fn until_exit<D>(
        &mut self,
        mut streams: Pin<&mut impl Future<Output = Option<D>>>,
        hang_up: &Notify,
        say: &mut Say<'_>,
    ) -> Result<Result<Exited, D>, NotBegun> {
        let started = Instant::now();
        let mut drained = false;
        let mut told_to_end = false;
        let tell_in = self.leash.as_ref().and_then(|leash| leash.must_tell_in(boot_time()));
        let mut tell_kept_back = pin!(sleep(tell_in.unwrap_or_default()));
        if say.supervision.is_interrupted() {
            self.stop();
        }
        let (exit, guarded) = loop {
            tokio::select! {
                biased;
                // Before the output, which may never cease to come.
                wish = say.supervision.next() => match wish {
                    Wish::Until(time) => {
                        if let Some(leash) = &mut self.leash {
                            leash.tell(time);
                        }
                        self.guard.tell(Order::Until(time));
                    }
                    Wish::Interrupt => self.stop(),
                    Wish::End(end) => {
                        self.ending.end(self.guard, end);
                        hang_up.notify_one();
                    }
                },
                () = say.lifecycle.ending(), if !told_to_end => {
                    told_to_end = true;
                    self.told_to_stop |= self.stops;
                    self.ending.end(self.guard, TOLD_TO_END);
                    hang_up.notify_one();
                }
                () = tell_kept_back.as_mut(), if tell_in.is_some() && !tell_kept_back.is_elapsed() => {
                    if let Some(until) = self.leash.as_mut().and_then(|leash| leash.tell_kept_back()) {
                        self.guard.tell(Order::Until(until));
                    }
                }
                () = self.ending.grace_is_over() => self.ending.kill(self.guard),
                done = streams.as_mut(), if !drained => match done {
                    Some(done) => return Ok(Err(done)),
                    None => drained = true,
                },
                // Also when output has used up what a task of the runtime may do at a time.
                report = tokio::task::unconstrained(self.guard.report()) => match report {
                    Some(Report::Pid(_)) => {}
                    Some(Report::Error(error)) => return Err(NotBegun::new(error, self.ending.reason)),
                    Some(Report::NotDirect) => return Err(NotBegun::not_direct(self.ending.reason)),
                    Some(Report::Exited(exit)) => break (exit, true),
                    None => {
                        Box::pin(self.guard.clear_up()).await;
                        break (Exit { duration: started.elapsed(), ..Exit::unknown() }, false);
                    }
                },
            }
        };
        let reason = self.ending.reason.filter(|_| exit.ordered || !guarded);
        let exited = Exited { exit, reason, guarded, abandoned: None };
        Ok(Ok(if drained { exited } else { self.until_drained(streams, exited, say).await }))
    }

    /// Tells a plugin that can stop to do so, once, and lets it take its time.
    fn stop(&mut self) {
        if self.stops && !std::mem::replace(&mut self.told_to_stop, true) {
            tracing::info!("its node is to be empty: telling the plugin to stop");
            self.guard.tell(Order::Stop);
        }
    }
}

fn spawn(plugin: &Plugin, job: Job<'_>, isolation: &Isolation) -> io::Result<Spawn> {
    let (arguments, perl_config) = engine_input::prepare(plugin, &job, isolation)?;
    let no_secrets = NamedSecrets::default();
    let is_adapter = plugin.adapter.is_some();
    let mut environment =
        isolation.environment_with(if is_adapter { &no_secrets } else { &job.about.secrets });
    for (name, value) in variables(&job) {
        environment.add(name, value);
    }
    // What is secret comes to an adapter with its input alone.
    if let Some((name, mut value)) = secret_variable(&job).filter(|_| !is_adapter) {
        // As it is: a copy would not be overwritten.
        environment.add(name, OsString::from_vec(std::mem::take(&mut *value)));
    }
    environment.add("DISBATCH_CONTROL_FD", guard::CONTROL_FD.to_string());
    environment.add(WORK_DIR, job.folder);
    if let Some(config) = perl_config {
        environment.add(PERL_CONFIG, config);
    }
    Ok(Spawn {
        until: job.until,
        program: plugin.program.clone(),
        arguments,
        environment,
        folder: job.folder.to_owned(),
        descriptors: 0,
        confinement: isolation
            .confinement(&plugin.manifest)
            .map(|confinement| Confinement { handed_over: job.folder_is_used, ..confinement }),
        direct: None,
    })
}

/// What a plugin is started with, for whoever does that by hand.
pub fn prepare(plugin: &Plugin, job: Job<'_>, isolation: &Isolation) -> io::Result<Prepared> {
    let Spawn { program, arguments, environment, .. } = spawn(plugin, job, isolation)?;
    Ok(Prepared { program, arguments, environment: environment.to_vec(), input: input(&job)?.to_vec() })
}

/// What the plugin is sent: the task, and what its adapter is told.
fn input(job: &Job<'_>) -> io::Result<Wiped> {
    task_line(job, job.secure_params, Worker::of(job).as_ref())
}

/// The task in a line of its own.
fn task_line(
    job: &Job<'_>,
    secure_params: Option<&SecureParams>,
    worker: Option<&Worker<'_>>,
) -> io::Result<Wiped> {
    let mut line = Wiped::default();
    append_task(&mut line, job, secure_params, worker)?;
    line.extend(b"\n");
    Ok(line)
}

/// Appends the task as relaxed extended JSON without line breaks. Secure parameters are in it as they were given.
pub fn append_task(
    line: &mut Wiped,
    job: &Job<'_>,
    secure_params: Option<&SecureParams>,
    worker: Option<&Worker<'_>>,
) -> io::Result<()> {
    match job.json {
        Some(json) => append_within(line, json, secure_params, worker),
        None => append_within(line, &json_of(job.task)?, secure_params, worker),
    }
}

/// The task as a plugin is given it, without what is secret.
pub fn json_of(task: &Task) -> io::Result<String> {
    let mut document = bson::serialize_to_document(task).map_err(io::Error::other)?;
    document.remove(FIELD);
    Ok(extended(&Bson::Document(document)))
}

#[cfg(test)]
mod tests;
