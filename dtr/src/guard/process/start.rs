//! Where a guard begins a plugin, and what it makes and leaves for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;

use disbatch_core::cgroup;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Guard;
use crate::boot_time::boot_time;
use crate::confine::Confinement;
use crate::guard::LEASE_IS_OVER;
use crate::guard::group::Group;
use crate::guard::protocol::{Report, Spawn};
use crate::guard::ward::Ward;

impl Guard {
    pub(super) fn spawn(&mut self, number: u64, spawn: Spawn) -> io::Result<()> {
        let descriptors = self.inbox.descriptors(spawn.descriptors)?;
        if let Some(oom_kills) = &mut self.oom_kills {
            oom_kills.note();
        }
        let started = std::env::set_current_dir(&spawn.folder).and_then(|()| {
            // A runner that was stopped before it came to this has lost its task by now.
            if boot_time() >= spawn.until {
                return Err(io::Error::other(LEASE_IS_OVER));
            }
            // Only now: whoever buries the task of a dead runner looks for this mark, and must find it, or no plugin.
            if self.runner_is_gone()? {
                return Err(io::Error::other("the runner is gone"));
            }
            self.start(number, &spawn, descriptors)
        });
        let report = match started {
            Ok(ward) => {
                let pid = ward.pid.as_raw();
                self.wards.push(ward);
                Report::Pid(pid)
            }
            Err(error) => {
                self.leave_folder()?;
                Report::Error(error.to_string())
            }
        };
        let _died = self.say(number, report);
        Ok(())
    }

    /// Starts a plugin in the working directory, which is the plugin's own from now on.
    fn start(&mut self, number: u64, spawn: &Spawn, descriptors: Vec<OwnedFd>) -> io::Result<Ward> {
        let group = match &spawn.confinement {
            Some(confinement) => {
                hand_over_folder(spawn, confinement)?;
                self.make_group(number, confinement)?
            }
            None => None,
        };
        match Ward::start(number, spawn, descriptors, &mut self.low, group.as_ref()) {
            Ok(mut ward) => {
                ward.group = group;
                Ok(ward)
            }
            Err(error) => {
                self.leave_groups(group);
                Err(error)
            }
        }
    }

    fn make_group(&self, number: u64, confinement: &Confinement) -> io::Result<Option<Group>> {
        let Some(parent) = &confinement.cgroup else { return Ok(None) };
        let name = cgroup::name(&self.mark, std::process::id(), number);
        Group::make(parent, &name, &confinement.limits).map(Some)
    }

    /// Whether the runner has closed its end, although there may still be orders of it to be read.
    fn runner_is_gone(&self) -> io::Result<bool> {
        let mut socket = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut socket, PollTimeout::ZERO)?;
        Ok(socket[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }

    /// Leaves the folder of a plugin that is gone.
    pub(super) fn leave_folder(&self) -> io::Result<()> {
        if self.wards.iter().all(|ward| ward.is_warm) { std::env::set_current_dir("/") } else { Ok(()) }
    }

    /// Removes the control group of a plugin that is over, and what could not be removed of earlier ones.
    pub(super) fn leave_groups(&mut self, of_plugin: Option<Group>) {
        self.left_groups.extend(of_plugin);
        self.left_groups.retain(|group| !group.remove());
    }
}

/// Makes the working directory the property of the plugin's user. Until now nobody else can have put another folder in
/// its place.
fn hand_over_folder(spawn: &Spawn, confinement: &Confinement) -> io::Result<()> {
    match &confinement.user {
        Some(user) if !spawn.is_warm() => chown(".", Some(user.uid), Some(user.gid)),
        _ => Ok(()), // A plugin that takes several tasks is in no folder of a task.
    }
}
