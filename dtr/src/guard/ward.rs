//! A plugin process, as its guard sees it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, close};
use rustix::io::{DupFlags, dup2, dup3};
use rustix::process::{PidfdFlags, pidfd_open};
use wait4::{ResUse, Wait4};

use super::CONTROL_FD;
use super::family::{Marks, marks_of};
use super::oom::OomKills;
use super::protocol::{Exit, Spawn};

/// The descriptors of this process by which plugins get those of theirs that are not standard streams. Nothing is behind
/// them, and nobody inherits them, except while a plugin is started.
pub struct Low {
    nothing: File,
    numbers: [OwnedFd; 1],
}

impl Low {
    /// Takes them, before anything else has.
    ///
    /// # Errors
    /// There is no `/dev/null`, or the numbers are taken.
    pub fn new() -> io::Result<Self> {
        let take = |number| {
            // Someone may have left it open.
            let _closed = close(number);
            let taken = OwnedFd::from(open_nothing()?);
            if taken.as_raw_fd() == number {
                Ok(taken)
            } else {
                Err(io::Error::other("a descriptor is taken"))
            }
        };
        Ok(Self { numbers: [take(CONTROL_FD)?], nothing: open_nothing()? })
    }

    /// An open `/dev/null`.
    pub fn nothing(&self) -> &File {
        &self.nothing
    }
}

fn open_nothing() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// A plugin that is being watched.
pub struct Ward {
    /// What the runner calls it.
    pub number: u64,
    /// Its process, which leads a group of its own.
    pub pid: Pid,
    /// Becomes readable when that has ended.
    pub handle: OwnedFd,
    /// What its descendants carry, unless they have shed it.
    pub marks: Marks,
    /// Whether it takes several tasks, and has no folder.
    pub is_warm: bool,
    /// When it must be killed unless it is given more time.
    pub until: Duration,
    /// Whether it was told to end.
    pub ordered: bool,
    /// Whether its time was over.
    pub lapsed: bool,
    /// Since when it is being killed, by [`crate::boot_time`].
    pub killing_since: Option<Duration>,
    /// How it ended, and what it had used.
    pub ended: Option<ResUse>,
    child: Child,
    started: Instant,
    duration: Duration,
}

impl Ward {
    /// Starts it with these descriptors, in the order of their numbers.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(number: u64, spawn: &Spawn, descriptors: Vec<OwnedFd>, low: &mut Low) -> io::Result<Self> {
        let mut command = Command::new(&spawn.program);
        command.args(&spawn.arguments).process_group(0);
        for (name, value) in &spawn.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut descriptors = descriptors.into_iter();
        let missing = || io::Error::other("a plugin has three standard streams");
        command.stdin(descriptors.next().ok_or_else(missing)?);
        command.stdout(descriptors.next().ok_or_else(missing)?);
        command.stderr(descriptors.next().ok_or_else(missing)?);
        let further: Vec<OwnedFd> = descriptors.collect();
        for (descriptor, number) in further.iter().zip(&mut low.numbers) {
            dup2(descriptor, number)?;
        }
        let started = Instant::now();
        let child = command.spawn();
        for number in low.numbers.iter_mut().take(further.len()) {
            dup3(&low.nothing, number, DupFlags::CLOEXEC)?;
        }
        let child = child?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let handle = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self {
            number,
            pid,
            handle,
            marks: marks_of(&spawn.environment),
            is_warm: spawn.folder == Path::new("/"),
            until: spawn.until,
            ordered: false,
            lapsed: false,
            killing_since: None,
            ended: None,
            child,
            started,
            duration: Duration::ZERO,
        })
    }

    /// Notes its end if it has ended.
    ///
    /// # Errors
    /// It is no child of this process.
    pub fn look(&mut self) -> io::Result<()> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if self.ended.is_none() && waitid(Id::Pid(self.pid), look)? != WaitStatus::StillAlive {
            self.collect()?;
        }
        Ok(())
    }

    /// Notes its end, and waits for it if need be.
    ///
    /// # Errors
    /// It is no child of this process.
    pub fn collect(&mut self) -> io::Result<()> {
        self.ended = Some(self.child.wait4()?);
        self.duration = self.started.elapsed();
        Ok(())
    }

    /// Whether it did not end by itself.
    pub fn was_to_end(&self) -> bool {
        self.ordered || self.killing_since.is_some()
    }

    /// How it ended, if it has. `alone`: no other process is left.
    pub fn exit(&self, oom_kills: &mut Option<OomKills>, alone: bool) -> Option<Exit> {
        let ended = self.ended.as_ref()?;
        let killed = ended.status.signal() == Some(Signal::SIGKILL as i32) && self.killing_since.is_none();
        Some(Exit {
            status: ended.status.into_raw(),
            ordered: self.ordered,
            lapsed: self.lapsed,
            alone,
            oom: killed && oom_kills.as_mut().is_some_and(OomKills::more),
            duration: self.duration,
            cpu: ended.rusage.utime + ended.rusage.stime,
            peak_memory: ended.rusage.maxrss,
        })
    }
}
