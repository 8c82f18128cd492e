//! The guard itself: a process of its own, without any runtime. See [`crate::guard`].

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use disbatch_core::telemetry::last_words;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeVal;
use nix::unistd::{Pid, close, dup2_stderr, dup2_stdin, dup2_stdout};

use super::family::{bury_adopted, descendants};
use super::oom::OomKills;
use super::protocol::{Exit, Order, Report};
use super::{COMM, CONTROL_FD, ORDERS_FD, REPORTS_FD, folder_prefix};
use crate::boot_time::boot_time;

/// Deadlines are looked at so often: a wait does not count the time that the machine is suspended.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The pause before looking again whether a killed plugin's descendants are gone.
const KILL_STEP: Duration = Duration::from_millis(10);

/// The same for those that were only asked to end.
const TERM_STEP: Duration = Duration::from_millis(50);

/// After so long, descendants that cannot be killed are left behind.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// What the command line says.
struct Assignment {
    task: String,
    until: Duration,
    program: OsString,
    arguments: Vec<OsString>,
}

/// Runs as a guard. The arguments are those after the first one.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = match Assignment::read(arguments) {
        Some(assignment) => guard(&assignment),
        None => Err(io::Error::other("wrong arguments")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            last_words("dtr guard", &format_args!("{error}; it is started by dtr only"));
            ExitCode::from(2)
        }
    }
}

impl Assignment {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let task = arguments.next()?.into_string().ok()?;
        let until = Duration::from_millis(arguments.next()?.to_str()?.parse().ok()?);
        let program = (arguments.next()? == "--").then(|| arguments.next())??;
        Some(Self { task, until, program, arguments: arguments.collect() })
    }
}

fn guard(assignment: &Assignment) -> io::Result<()> {
    let orders = adopt(ORDERS_FD, OpenOptions::new().read(true))?;
    let mut reports = adopt(REPORTS_FD, OpenOptions::new().write(true))?;
    let oom_kills = OomKills::now();
    let started = Instant::now();
    let mut watch = match Watch::start(assignment, orders) {
        Ok(watch) => watch,
        Err(error) => return say(&mut reports, &Report::Error(error.to_string())),
    };
    // A runner that has died meanwhile is noticed by the orders.
    let _died = say(&mut reports, &Report::Pid(watch.plugin.as_raw()));
    let watched = watch.until_the_end();
    let Ok(status) = watched else {
        watch.strike();
        return watched.map(drop);
    };
    let killed = status.signal() == Some(Signal::SIGKILL as i32) && watch.killing_since.is_none();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let exit = Exit {
        status: status.into_raw(),
        ordered: watch.ordered,
        lapsed: watch.lapsed,
        oom: killed && oom_kills.is_some_and(|kills| kills.more()),
        duration: started.elapsed(),
        cpu: length(usage.user_time()) + length(usage.system_time()),
        peak_memory: peak_memory(&usage),
    };
    if say(&mut reports, &Report::Exited(exit)).is_err() || watch.orders.is_none() {
        remove_folder(&assignment.task);
    }
    Ok(())
}

/// Takes over a descriptor that was passed to this process, so that no other process inherits it.
fn adopt(number: i32, options: &OpenOptions) -> io::Result<File> {
    let pipe = options.open(format!("/proc/self/fd/{number}"))?;
    close(number)?;
    Ok(pipe)
}

fn say(reports: &mut File, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    reports.write_all(&line)
}

fn length(time: TimeVal) -> Duration {
    Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
}

fn peak_memory(usage: &Usage) -> u64 {
    u64::try_from(usage.max_rss()).unwrap_or(0).saturating_mul(1024)
}

/// The runner, which has died, made the folder and can no longer remove it. Nothing else is ever removed.
fn remove_folder(task: &str) {
    let Ok(folder) = std::env::current_dir() else { return };
    let name = folder.file_name().and_then(|name| name.to_str());
    if name.is_some_and(|name| name.starts_with(&folder_prefix(task))) {
        // Nobody is left to be told of an error.
        let _left_behind = fs::remove_dir_all(folder);
    }
}

/// A plugin that is being watched.
struct Watch {
    child: Child,
    plugin: Pid,
    exit: Option<ExitStatus>,
    /// `None` once the runner is dead.
    orders: Option<Orders>,
    children: SignalFd,
    /// When the plugin must be killed unless it is given more time.
    until: Duration,
    ordered: bool,
    lapsed: bool,
    killing_since: Option<Duration>,
}

/// The pipe from the runner, and the beginning of a line that is not complete yet.
struct Orders {
    pipe: File,
    line: Vec<u8>,
}

impl Watch {
    fn start(assignment: &Assignment, orders: File) -> io::Result<Self> {
        let _only_for_the_eye = prctl::set_name(COMM);
        prctl::set_child_subreaper(true)?;
        // A runner that was stopped before it came to this has lost its task by now.
        if boot_time() >= assignment.until {
            return Err(io::Error::other("the task's lease had run out before the plugin was started"));
        }
        // Nothing but KILL ends a guard, whoever else the signal was meant for. The plugin must not inherit that.
        let unblocked = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        let child_ended = SigSet::from(Signal::SIGCHLD);
        let children = SignalFd::with_flags(&child_ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        let mut command = Command::new(&assignment.program);
        command.args(&assignment.arguments).process_group(0);
        unblocked.thread_set_mask()?;
        let child = command.spawn();
        SigSet::all().thread_block()?;
        let child = child?;
        let plugin = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let watch = Self {
            child,
            plugin,
            exit: None,
            orders: Some(Orders { pipe: orders, line: Vec::new() }),
            children,
            until: assignment.until,
            ordered: false,
            lapsed: false,
            killing_since: None,
        };
        watch.let_go(&nothing)?;
        Ok(watch)
    }

    /// Leaves the plugin's descriptors to the plugin: their other ends must notice when it closes them.
    fn let_go(&self, nothing: &File) -> io::Result<()> {
        let let_go = || -> nix::Result<()> {
            dup2_stdin(nothing)?;
            dup2_stdout(nothing)?;
            dup2_stderr(nothing)?;
            close(CONTROL_FD)
        };
        let_go().map_err(|error| {
            self.strike();
            error.into()
        })
    }

    /// Watches until the plugin has ended, and its descendants too if it was to end.
    fn until_the_end(&mut self) -> io::Result<ExitStatus> {
        loop {
            bury_adopted(self.plugin);
            self.look()?;
            if let Some(exit) = self.exit
                && self.is_over()?
            {
                return Ok(exit);
            }
            if self.killing_since.is_some() {
                self.strike();
            }
            let spoken = self.wait()?;
            // First this: what was said before a suspension must not count as said now.
            if self.killing_since.is_none() && self.until <= boot_time() {
                self.lapsed = true;
                self.killing_since = Some(boot_time());
            }
            if spoken {
                self.hear()?;
            }
        }
    }

    fn look(&mut self) -> io::Result<()> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait()?;
        }
        Ok(())
    }

    fn is_over(&self) -> io::Result<bool> {
        Ok(match self.killing_since {
            None if !self.ordered => true,
            None => descendants(Pid::this()).is_empty(),
            Some(since) => {
                boot_time().saturating_sub(since) > KILL_LIMIT || descendants(Pid::this()).is_empty()
            }
        })
    }

    /// Kills whatever there is at this moment.
    fn strike(&self) {
        // Its number is its own as long as it has not been waited for.
        if self.exit.is_none() {
            let _gone = killpg(self.plugin, Signal::SIGKILL);
        }
        for pid in descendants(Pid::this()) {
            let _gone = kill(pid, Signal::SIGKILL);
        }
    }

    /// Waits for an order, an end or a deadline. Tells whether there is something to hear.
    fn wait(&self) -> io::Result<bool> {
        let step = match (self.killing_since, self.exit) {
            (Some(since), _) if boot_time().saturating_sub(since) > KILL_LIMIT => LONGEST_WAIT,
            (Some(_), _) => KILL_STEP,
            (None, Some(_)) => TERM_STEP,
            (None, None) => {
                LONGEST_WAIT.min(self.until.saturating_sub(boot_time())) + Duration::from_millis(1)
            }
        };
        let mut sources = vec![PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
        sources.extend(self.orders.iter().map(|orders| PollFd::new(orders.pipe.as_fd(), PollFlags::POLLIN)));
        match poll(&mut sources, PollTimeout::try_from(step).unwrap_or(PollTimeout::MAX)) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let spoken = sources.get(1).and_then(PollFd::any).unwrap_or(false);
        while self.children.read_signal()?.is_some() {}
        Ok(spoken)
    }

    /// Reads and obeys. The end of the pipe is the end of the runner.
    fn hear(&mut self) -> io::Result<()> {
        let Some(mut orders) = self.orders.take() else { return Ok(()) };
        let mut buffer = [0; 512];
        let read = orders.pipe.read(&mut buffer)?;
        if read == 0 {
            self.killing_since.get_or_insert(boot_time());
            return Ok(());
        }
        for byte in &buffer[..read] {
            if *byte == b'\n' {
                self.obey(&String::from_utf8_lossy(&std::mem::take(&mut orders.line)))?;
            } else {
                orders.line.push(*byte);
            }
        }
        self.orders = Some(orders);
        Ok(())
    }

    fn obey(&mut self, line: &str) -> io::Result<()> {
        // An order to end that comes after the end has no part in it.
        self.look()?;
        match Order::parse(line) {
            None => {}
            Some(Order::Until(time)) => self.until = time,
            Some(Order::Term) if self.exit.is_none() => {
                self.ordered = true;
                let _gone = killpg(self.plugin, Signal::SIGTERM);
            }
            Some(Order::Kill) if self.exit.is_none() || self.ordered => {
                self.ordered = true;
                self.killing_since.get_or_insert(boot_time());
            }
            Some(Order::Term | Order::Kill) => {}
        }
        Ok(())
    }
}
