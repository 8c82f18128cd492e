//! Which runners this DEN has, and what each works on. A runner outlives the DEN: nothing here is needed for it to
//! finish.
//!
//! Our own runners are kept warm: one whose task has ended gets the next. One may have several tasks of a warm plugin at a time, all of
//! that plugin, in the same version. A configured `task_runner` is started for
//! each task.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bson::RawDocumentBuf;
use disbatch_core::config::Config;
use disbatch_core::fair::Stay;
use disbatch_core::metrics::labels::{Death, RunnerKind, RunnerState};
use disbatch_core::model::{NodeName, QueueId, TaskId};
use disbatch_core::plugin::Plugin;
use disbatch_core::service_manager;
use disbatch_core::store::Store;
use disbatch_core::task::Claim;
use disbatch_traces::Tracer;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::claims::OfSchedule;
use crate::handover::Handover;
use crate::holdings::Holdings;
use crate::runner::{self, Event, Exit, ProcessId, Runner, Services, Work};
use crate::runners::{Held, Hold, Lanes, Promised};
use crate::scribe::Scribe;
use crate::supervise::Cover;

#[derive(Debug)]
struct Process {
    pid: u32,
    warm: Option<Runner>,
    hold: Hold,
    /// Which tasks it may have at a time, if it has one of these.
    lanes: Option<Lanes>,
    idle_since: Instant,
    /// It has ended, and is not looked after yet.
    is_gone: bool,
}

impl Process {
    fn new(pid: u32, warm: Option<Runner>, hold: Hold) -> Self {
        Self { pid, warm, hold, lanes: None, idle_since: Instant::now(), is_gone: false }
    }

    /// For how many more tasks of those there is room beside what it has of them.
    fn room(&self, lanes: &Lanes) -> usize {
        match &self.lanes {
            Some(own) if own == lanes && self.warm.is_some() => lanes.most.saturating_sub(self.hold.count()),
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub struct TaskContext {
    pub queue: RawDocumentBuf,
    pub schedule: OfSchedule,
    /// The definitions of plugins in the database that it may need.
    pub workers: Vec<RawDocumentBuf>,
    /// Which tasks a runner may have beside it, if any.
    pub lanes: Option<Lanes>,
}

/// The program that runs tasks: as configured, else the `dtr` beside this one.
pub fn runner_of(config: &Config) -> io::Result<PathBuf> {
    config.task_runner.clone().map_or_else(|| Ok(std::env::current_exe()?.with_file_name("dtr")), Ok)
}

#[derive(Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Those of plugins that are runners themselves, after the task.
    handing_off: Vec<OsString>,
    foreign: bool,
    lease: Duration,
    idle_limit: Duration,
    /// By their serial numbers.
    processes: HashMap<u64, Process>,
    /// Warm runners without a task, the one that was used last at the end.
    idle: Vec<u64>,
    started: u64,
    /// Tasks of fair queues that runners have.
    stays: HashMap<TaskId, Stay>,
    services: Services,
}

impl Launcher {
    pub fn measure(&self) {
        let mut census = [[0_u64; 2]; 2];
        for process in self.processes.values() {
            census[usize::from(process.warm.is_some())][usize::from(process.hold.count() > 0)] += 1;
        }
        let kinds = [RunnerKind::Cold, RunnerKind::Warm].into_iter().zip(census);
        for (kind, [idle, busy]) in kinds {
            let runners = self.services.store.metrics().runners.of(kind);
            runners.of(RunnerState::Idle).set(idle);
            runners.of(RunnerState::Busy).set(busy);
        }
    }

    /// Counts the end of a runner, unless it had come to its own.
    fn measure_death(&self, exit: &Exit) {
        let cause = match &exit.status {
            Ok(status) if status.success() => return,
            Ok(status) if status.signal().is_some() => Death::Signal,
            Ok(_) => Death::Exit,
            Err(_) => Death::Vanished,
        };
        self.services.store.metrics().runner_deaths.of(cause).inc();
    }

    pub fn cover(&self) -> &Cover {
        &self.services.cover
    }

    pub fn tracer(&self) -> Option<&Tracer> {
        self.services.tracer.as_ref()
    }

    /// Prepares to start `dtr` from beside this binary, or the configured `task_runner`. What becomes of runners
    /// arrives at the receiver.
    pub fn new(
        config: &Config,
        node: &NodeName,
        store: &Store,
        tracer: Option<Tracer>,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let (events, inbox) = mpsc::unbounded_channel();
        let handover = Handover::new(events.clone(), Holdings::default());
        let scribe = Scribe::start(store.clone());
        let services =
            Services { store: store.clone(), scribe, cover: Cover::default(), handover, events, tracer };
        let launcher = Self {
            program: runner_of(config)?,
            arguments: arguments(config, node),
            handing_off: handing_off(config),
            foreign: config.task_runner.is_some(),
            lease: config.lease(),
            idle_limit: config.runner_idle(),
            processes: HashMap::new(),
            idle: Vec::new(),
            started: 0,
            stays: HashMap::new(),
            services,
        };
        Ok((launcher, inbox))
    }

    /// Has a runner execute the task of `claim`, which was asked for at `asked` (by [`boot_time`](disbatch_core::clock::boot_time)), with
    /// what it has to know: the runner that it was started for, if it was. A configured `task_runner` reads that by itself.
    pub fn launch(
        &mut self,
        claim: Claim,
        known: TaskContext,
        asked: Duration,
    ) -> Result<(), Box<(Claim, io::Error)>> {
        if self.foreign {
            let mut command = program(&self.program);
            command.args(&self.arguments).arg("--task").arg(claim.task.to_string());
            return self.launch_foreign(command, claim);
        }
        let mut work = Box::new(Work { claim, known, lease: self.lease, asked });
        if let Some(pid) = work.claim.runner() {
            return self.assign_to(pid, work);
        }
        loop {
            let open = work.known.lanes.as_ref().and_then(|lanes| self.with_room(lanes));
            let serial = match open.or_else(|| self.idle.pop()).map_or_else(|| self.start_warm(), Ok) {
                Ok(serial) => serial,
                Err(error) => return Err(Box::new((work.claim, error))),
            };
            match self.give(serial, work) {
                Ok(()) => return Ok(()),
                // It has just ended, which the node has not been told yet.
                Err(back) => work = back,
            }
        }
    }

    fn assign_to(&mut self, pid: u32, work: Box<Work>) -> Result<(), Box<(Claim, io::Error)>> {
        let of_pid = |serial: &u64| self.processes.get(serial).is_some_and(|process| process.pid == pid);
        let idle = self.idle.iter().position(of_pid).map(|at| self.idle.remove(at));
        let open = || {
            let lanes = work.known.lanes.as_ref()?;
            // One that has ended and was not noticed may have had the same number.
            let of_pid = self.processes.iter().filter(|(_, process)| process.pid == pid);
            of_pid.filter(|(_, process)| process.room(lanes) > 0).map(|(serial, _)| *serial).max()
        };
        let gone = |work: Box<Work>| Box::new((work.claim, io::Error::other("its runner has gone")));
        match idle.or_else(open) {
            Some(serial) => self.give(serial, work).map_err(gone),
            None => Err(gone(work)),
        }
    }

    /// Gives a runner that has room for it a task. One that turns out to have ended is asked for no more.
    fn give(&mut self, serial: u64, work: Box<Work>) -> Result<(), Box<Work>> {
        let Some(process) = self.processes.get_mut(&serial) else { return Err(work) };
        let Some(runner) = &process.warm else { return Err(work) };
        let task = work.claim.task;
        process.hold.add(&work.claim);
        process.lanes.clone_from(&work.known.lanes);
        runner.assign(work).inspect_err(|_| {
            process.hold.take(task);
            process.lanes = None;
        })
    }

    fn with_room(&self, lanes: &Lanes) -> Option<u64> {
        self.processes.iter().find(|(_, process)| process.room(lanes) > 0).map(|(serial, _)| *serial)
    }

    /// The processes of warm runners that have room for a task of those, the one to be used next at the end: each as often as it has room
    /// beside what it has, and beside `promised`, of which it has not been told.
    pub fn ready(&self, lanes: Option<&Lanes>, promised: &Promised) -> Vec<u32> {
        let most = lanes.map_or(1, |lanes| lanes.most);
        let idle = self.idle.iter().filter_map(|serial| Some((self.processes.get(serial)?.pid, most)));
        let room = |process: &Process| lanes.map_or(0, |lanes| process.room(lanes));
        let open = self.processes.values().map(|process| (process.pid, room(process)));
        let often = |(pid, room)| std::iter::repeat_n(pid, promised.room_left(pid, room, lanes));
        idle.chain(open.filter(|(_, room)| *room > 0)).flat_map(often).collect()
    }

    /// The processes of warm runners that a task may have been started for of which they were not told, each with the tasks that it has:
    /// those that have none, and `with_lanes` those that have some and may have more.
    pub fn unburdened(&self, with_lanes: bool) -> Vec<(u32, Vec<TaskId>)> {
        let open = self.processes.values().filter(|process| with_lanes && process.lanes.is_some());
        let tasks = |process: &Process| process.hold.all().iter().map(|held| held.task).collect();
        let open = open.map(|process| (process.pid, tasks(process)));
        let idle = self.ready(None, &Promised::default());
        idle.into_iter().map(|pid| (pid, Vec::new())).chain(open).collect()
    }

    pub fn has_lanes(&self) -> bool {
        self.processes.values().any(|process| process.lanes.is_some())
    }

    pub fn keep_one_ready(&mut self) -> io::Result<()> {
        if !self.foreign && self.idle.is_empty() && self.processes.is_empty() {
            let serial = self.start_warm()?;
            self.idle.push(serial);
        }
        Ok(())
    }

    fn start_warm(&mut self) -> io::Result<u64> {
        let mut command = program(&self.program);
        command.args(&self.arguments).args(["--link", "0"]);
        let serial = self.next_serial();
        let hold = Hold::default();
        let (pid, runner) = runner::start(command, (serial, hold.clone()), self.services.clone())?;
        self.processes.insert(serial, Process::new(pid, Some(runner), hold));
        Ok(serial)
    }

    fn next_serial(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Has a plugin that is a runner itself execute the task of `claim`, and see to everything.
    pub fn hand_off(&mut self, claim: Claim, plugin: &Plugin) -> Result<(), Box<(Claim, io::Error)>> {
        let mut command = program(&plugin.program);
        command.args(&plugin.arguments).arg("--task").arg(claim.task.to_string()).args(&self.handing_off);
        self.launch_foreign(command, claim)
    }

    fn launch_foreign(&mut self, mut command: Command, claim: Claim) -> Result<(), Box<(Claim, io::Error)>> {
        let hold = Hold::default();
        hold.add(&claim);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Our own runner makes itself the leader of a session; for others this is the next best thing.
            .process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Err(Box::new((claim, error))),
        };
        let pid = child.id().unwrap_or_default();
        let serial = self.next_serial();
        self.processes.insert(serial, Process::new(pid, None, hold));
        let events = self.services.events.clone();
        tokio::spawn(async move {
            let status = child.wait().await;
            // Nobody listens any more when the DEN is ending; the runner's task is stored all the same.
            let exit = Exit {
                claim: Some(claim),
                begun: true,
                result: None,
                traced: None,
                process: ProcessId { pid, serial },
                status: status.map_err(|error| error.to_string()),
                proven: true,
            };
            let _ending = events.send(Event::Exit(Box::new(exit)));
        });
        Ok(())
    }

    pub fn freed(&mut self, serial: u64, task: TaskId) -> Option<Held> {
        let process = self.processes.get_mut(&serial)?;
        let held = process.hold.take(task);
        if process.hold.count() == 0 {
            process.lanes = None;
            process.idle_since = Instant::now();
            self.idle.push(serial);
        }
        self.stayed(held);
        held
    }

    /// Notes whose turn a task is that a runner was given, if that matters.
    pub fn stays(&mut self, task: TaskId, stay: Option<Stay>) {
        if let Some(stay) = stay {
            self.services.store.note_stay(&stay);
            self.stays.insert(task, stay);
        }
    }

    fn stayed(&mut self, held: Option<Held>) {
        if let Some(stay) = held.and_then(|held| self.stays.remove(&held.task)) {
            self.services.store.note_stayed(&stay);
        }
    }

    /// Notes that a runner is on its way out, without the task that it was to have.
    pub fn refused(&mut self, serial: u64, task: TaskId) {
        if let Some(process) = self.processes.get_mut(&serial)
            && let Some(held) = process.hold.take(task)
        {
            self.stays.remove(&held.task);
        }
        self.leaves(serial);
    }

    fn leaves(&mut self, serial: u64) {
        self.idle.retain(|idle| *idle != serial);
        if let Some(process) = self.processes.get_mut(&serial) {
            process.lanes = None;
        }
    }

    /// Notes that a runner has ended: it gets no more tasks.
    pub fn gone(&mut self, exit: &Exit) {
        let serial = exit.process.serial;
        self.leaves(serial);
        let process = self.processes.get_mut(&serial);
        // This comes for each task that it had.
        if process.is_some_and(|process| !std::mem::replace(&mut process.is_gone, true)) {
            self.measure_death(exit);
        }
    }

    /// Notes that a runner has ended and been looked after, as far as it is about this task.
    pub fn ended(&mut self, exit: &Exit) -> Option<Held> {
        let serial = exit.process.serial;
        let process = self.processes.get(&serial)?;
        let held = exit.claim.as_ref().and_then(|claim| process.hold.take(claim.task));
        if process.hold.count() == 0 {
            self.processes.remove(&serial);
        }
        self.stayed(held);
        held
    }

    /// The processes of warm runners that work on another task than this, or on none.
    pub fn at_other_work(&self, task: TaskId) -> Vec<u32> {
        let is_other = |process: &&Process| process.warm.is_some() && !process.hold.has(task);
        self.processes.values().filter(is_other).map(|process| process.pid).collect()
    }

    /// Lets runners go that have had no task for long; one is always kept, for what comes next.
    pub fn retire_idle(&mut self) {
        let limit = self.idle_limit;
        let long_idle = |serial: &u64| {
            self.processes.get(serial).is_none_or(|process| process.idle_since.elapsed() >= limit)
        };
        let most = self.idle.len().saturating_sub(1);
        // The one that was used last is at the end.
        let retired = self.idle.iter().take(most).take_while(|serial| long_idle(serial)).count();
        for serial in self.idle.drain(..retired) {
            if let Some(process) = self.processes.get_mut(&serial) {
                process.warm = None;
            }
        }
    }

    pub fn has_another(&self, task: TaskId, serial: u64) -> bool {
        self.processes.iter().any(|(other, process)| *other != serial && process.hold.has(task))
    }

    /// Tells the runners of `task` that somebody has asked for its end. Returns whether there are any.
    pub fn look_at(&self, task: TaskId) -> bool {
        let mut are_any = false;
        for process in self.processes.values().filter(|process| process.hold.has(task)) {
            process.warm.iter().for_each(|runner| runner.look(task));
            are_any = true;
        }
        are_any
    }

    /// Whether runners know of leases: our own do.
    pub fn knows_leases(&self) -> bool {
        !self.foreign
    }

    /// The tasks that have a living runner of this DEN.
    pub fn tasks(&self) -> Vec<TaskId> {
        self.held().map(|held| held.task).collect()
    }

    pub fn running(&self) -> usize {
        self.held().count()
    }

    /// How many tasks of `queue` these are, and the places that they have.
    pub fn places(&self, queue: QueueId) -> (u64, Vec<u64>) {
        let of_queue: Vec<Held> = self.held().filter(|held| held.queue == queue).collect();
        (of_queue.len() as u64, of_queue.iter().filter_map(|held| held.slot).collect())
    }

    pub fn slots(&self) -> impl Iterator<Item = (QueueId, u64)> {
        self.held().filter_map(|held| Some((held.queue, held.slot?)))
    }

    pub fn running_by_queue(&self) -> HashMap<QueueId, usize> {
        let mut running = HashMap::new();
        self.held().for_each(|held| *running.entry(held.queue).or_default() += 1);
        running
    }

    pub fn handover(&self) -> &Handover {
        &self.services.handover
    }

    fn held(&self) -> impl Iterator<Item = Held> {
        self.processes.values().flat_map(|process| process.hold.all())
    }

    pub fn program(&self) -> std::path::Display<'_> {
        self.program.display()
    }
}

fn handing_off(config: &Config) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--config".into(), config.path.clone().into()];
    if config.quiet.0 {
        arguments.push("--quiet".into());
    }
    arguments
}

fn arguments(config: &Config, node: &NodeName) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--config".into(), config.path.clone().into()];
    // Perl's runner has no --node; it goes by the host name, and so does ours when not told otherwise.
    if NodeName::of_this_host().ok().as_ref() != Some(node) {
        arguments.extend(["--node".into(), node.as_str().into()]);
    }
    arguments.extend(["--gfs".into(), config.den_gfs().as_argument().into()]);
    if config.task_runner.is_none() {
        // Perl's runner does not know it either.
        arguments.push("--no-echo".into());
    }
    if config.quiet.0 {
        arguments.push("--quiet".into());
    }
    if config.testing.0 {
        arguments.push("--testing".into());
    }
    arguments
}
/// A command that is not taken for this process by the system's manager of services.
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    for variable in service_manager::VARIABLES {
        command.env_remove(variable);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_get_the_arguments_of_disbatch() {
        let config = |extra: &str| {
            let text = format!(r#"{{"mongohost":"h","database":"d"{extra}}}"#);
            Config::parse(&text, std::path::Path::new("/etc/d.json")).unwrap()
        };
        let here = NodeName::of_this_host().unwrap();
        assert_eq!(arguments(&config(""), &here), ["--config", "/etc/d.json", "--gfs", "auto", "--no-echo"]);
        assert_eq!(
            arguments(
                &config(r#","gfs":false,"quiet":1,"testing":true,"task_runner":"/usr/bin/task_runner""#),
                &NodeName::new("other")
            ),
            ["--config", "/etc/d.json", "--node", "other", "--gfs", "0", "--quiet", "--testing"]
        );
    }
}
