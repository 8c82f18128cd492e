//! Where a guard begins a plugin, and what it makes and leaves for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};
use std::time::Duration;

use disbatch_core::cgroup;
use disbatch_core::clock::boot_time;
use disbatch_core::model::TaskId;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::fchdir;

use super::Guard;
use crate::guard::limits::Group;
use crate::guard::protocol::{Order, Report, Spawn};
use crate::guard::refusal::{self, Patience};
use crate::guard::ward::Ward;
use crate::guard::{LEASE_IS_OVER, TASK_VARIABLE};

pub(super) struct Wanted {
    number: u64,
    spawn: Spawn,
    descriptors: Vec<OwnedFd>,
}

/// One for which there are too many processes now.
pub(super) struct Waiting {
    wanted: Wanted,
    /// Its working directory, which may belong to its user by now: under its name, that user can have put another one.
    folder: File,
    patience: Patience,
    refusal: io::Error,
}

impl Waiting {
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.patience.left(now)
    }
}

impl Guard {
    pub(super) fn spawn(&mut self, number: u64, spawn: Spawn) -> io::Result<()> {
        let descriptors = self.inbox.descriptors(spawn.descriptors)?;
        let wanted = Wanted { number, spawn, descriptors };
        let started = std::env::set_current_dir(&wanted.spawn.folder).and_then(|()| self.start(&wanted));
        match started {
            Err(refusal) if refusal::is_for_now(&refusal) => match File::open(".") {
                Ok(folder) => {
                    let patience = Patience::new(boot_time());
                    self.waiting.push(Waiting { wanted, folder, patience, refusal });
                    Ok(())
                }
                Err(_) => self.report(number, Err(refusal)),
            },
            started => self.report(number, started),
        }
    }

    /// Starts those again for whom there were too many processes.
    pub(super) fn try_again(&mut self) -> io::Result<()> {
        let is_due = |waiting: &Waiting| waiting.left(boot_time()).is_zero();
        while let Some(at) = self.waiting.iter().position(is_due) {
            let mut waiting = self.waiting.swap_remove(at);
            // One that could not be removed would be in the way.
            self.leave_groups(None);
            let entered = fchdir(&waiting.folder).map_err(io::Error::from);
            let number = waiting.wanted.number;
            match entered.and_then(|()| self.start(&waiting.wanted)) {
                Err(refusal) if refusal::is_for_now(&refusal) => {
                    if waiting.patience.goes_on(boot_time()) {
                        self.waiting.push(Waiting { refusal, ..waiting });
                    } else {
                        self.report(number, Err(refusal::in_vain(&refusal)))?;
                    }
                }
                started => self.report(number, started)?,
            }
        }
        Ok(())
    }

    /// Obeys an order about a plugin that has not been started. One that has ended needs none.
    pub(super) fn obey_before_start(&mut self, number: u64, order: Order) -> io::Result<()> {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.wanted.number == number) else {
            return Ok(());
        };
        match order {
            Order::Until(time) => {
                self.waiting[at].wanted.spawn.until = time;
                Ok(())
            }
            Order::Term | Order::Stop | Order::Kill => {
                let waiting = self.waiting.swap_remove(at);
                self.report(number, Err(waiting.refusal))
            }
        }
    }

    fn report(&mut self, number: u64, started: io::Result<Ward>) -> io::Result<()> {
        let report = match started {
            Ok(ward) => {
                let pid = ward.pid.as_raw();
                self.wards.push(ward);
                Report::Pid(pid)
            }
            Err(error) => {
                self.leave_folder()?;
                if refusal::is_not_direct(&error) {
                    Report::NotDirect
                } else {
                    Report::Error(error.to_string())
                }
            }
        };
        let _died = self.say(number, report);
        Ok(())
    }

    /// Starts a plugin in the working directory, which is the plugin's own from now on.
    fn start(&mut self, wanted: &Wanted) -> io::Result<Ward> {
        let Wanted { number, spawn, descriptors } = wanted;
        // A runner that was stopped before it came to this has lost its task by now.
        if boot_time() >= spawn.until {
            return Err(io::Error::other(LEASE_IS_OVER));
        }
        // Only now: whoever buries the task of a dead runner looks for this mark, and must find it, or no plugin.
        if self.runner_is_gone()? {
            return Err(io::Error::other("the runner is gone"));
        }
        // What was killed while it waited is no concern of its.
        if let Some(oom_kills) = &mut self.oom_kills {
            oom_kills.note();
        }
        hand_over_folder(spawn)?;
        let group = self.make_group(*number, spawn)?;
        match Ward::start(*number, spawn, descriptors, &mut self.low, group.as_ref()) {
            Ok(mut ward) => {
                ward.group = group;
                Ok(ward)
            }
            Err(error) => {
                // Something may have begun that could not be watched.
                group.iter().for_each(Group::kill);
                self.leave_groups(group);
                Err(error)
            }
        }
    }

    fn make_group(&self, number: u64, spawn: &Spawn) -> io::Result<Option<Group>> {
        let Some(confinement) = &spawn.confinement else { return Ok(None) };
        let Some(parent) = &confinement.cgroup else { return Ok(None) };
        let name = cgroup::name(&self.mark, std::process::id(), number, task_of(spawn));
        Group::make(parent, &name, &confinement.limits).map(Some)
    }

    /// Whether the runner has closed its end, although there may still be orders of it to be read.
    fn runner_is_gone(&self) -> io::Result<bool> {
        let mut socket = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        while let Err(error) = poll(&mut socket, PollTimeout::ZERO) {
            if error != Errno::EINTR {
                return Err(error.into());
            }
        }
        Ok(socket[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }

    pub(super) fn leave_folder(&self) -> io::Result<()> {
        let has_none = self.wards.iter().all(|ward| ward.is_warm)
            && self.waiting.iter().all(|waiting| waiting.wanted.spawn.is_warm());
        if has_none { std::env::set_current_dir("/") } else { Ok(()) }
    }

    /// Removes the control group of a plugin that is over, and what could not be removed of earlier ones.
    pub(super) fn leave_groups(&mut self, of_plugin: Option<Group>) {
        self.left_groups.extend(of_plugin);
        self.left_groups.retain(|group| !group.remove());
    }
}

/// The task that a plugin is for; none if it takes several.
fn task_of(spawn: &Spawn) -> Option<TaskId> {
    let (_, task) = spawn.environment.iter().find(|(name, _)| name == TASK_VARIABLE)?;
    task.to_str()?.parse().ok()
}

/// Makes the working directory the property of the plugin's user. Until now nobody else can have put another folder in
/// its place; where that user has had it before, anything may be there, and nothing of anybody else's is given away.
fn hand_over_folder(spawn: &Spawn) -> io::Result<()> {
    let Some(confinement) = &spawn.confinement else { return Ok(()) };
    match &confinement.user {
        Some(user) if confinement.handed_over && !spawn.is_warm() => {
            let is_theirs = fs::metadata(".")?.uid() == user.uid;
            if is_theirs { Ok(()) } else { Err(io::Error::other("the private folder is another one by now")) }
        }
        Some(user) if !spawn.is_warm() => chown(".", Some(user.uid), Some(user.gid)),
        _ => Ok(()), // A plugin that takes several tasks is in no folder of a task.
    }
}
