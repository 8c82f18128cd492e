//! The step between guard and plugin where a plugin is to have less than its guard: another user, limits, or a control
//! group of its own.
//!
//! The guard then does not start the plugin but this program again, with the argument `confine`. It gives up what the
//! plugin is not to have, and becomes the plugin, which so has the process that the guard knows. What goes wrong it
//! says to the guard on the descriptor [`COMPLAINTS_FD`]; nobody says anything where that is closed by the start of the
//! plugin. What all plugins of a runner have in common, the guard itself has: see [`crate::guard::protocol::Settings`].

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::config::Limits;
use disbatch_core::identity::Identity;
use disbatch_core::telemetry::last_words;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Gid, Uid, execv, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

use crate::descriptors;
use crate::guard::protocol::Spawn;
use crate::guard::{LEASE_IS_OVER, refusal};

pub const WORD: &str = "confine";

/// Where complaints go: the number after that of the control channel.
pub const COMPLAINTS_FD: i32 = 4;

/// The name in lists of processes, for a moment.
pub const ARG0: &str = "disbatch-confine";

/// The exit status when there is no plugin. The guard goes by the complaint.
const NO_PLUGIN: u8 = 126;

/// A process is told that its processor time is over, and killed so many seconds later.
pub const CPU_GRACE: u64 = 5;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The user whom it runs as, unless that is the guard's.
    pub user: Option<Identity>,
    pub limits: Limits,
    /// Where the guard makes a control group for it, if it does; on the way from there, that group.
    pub cgroup: Option<PathBuf>,
    /// Whether the private folder belongs to that user already, since an earlier plugin of the task has had it. It may have
    /// put anything in its place, so it is looked at and not handed over again.
    #[serde(default)]
    pub handed_over: bool,
}

/// The command that becomes the plugin, confined, and in the control group `group` if there is one.
pub fn command(confinement: &Confinement, group: Option<&Path>, spawn: &Spawn) -> io::Result<Command> {
    let confinement = Confinement { cgroup: group.map(Path::to_owned), ..confinement.clone() };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ARG0).arg(WORD).arg(serde_json::to_string(&confinement)?);
    command.arg(spawn.until.as_millis().to_string()).arg(&spawn.program).args(&spawn.arguments);
    Ok(command)
}

/// Becomes a plugin. The arguments are those after the first one. Returns only if that failed.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut complaints = match descriptors::adopt(COMPLAINTS_FD) {
        Ok(descriptor) => File::from(descriptor),
        Err(error) => {
            last_words("dtr confine", &format_args!("{error}; it is started by dtr only"));
            return ExitCode::from(2);
        }
    };
    let error = match prepare(arguments) {
        Ok((confinement, words)) => confinement.explain(become_plugin(&words)),
        Err(error) => error,
    };
    if complaints.write_all(refusal::complaint(&error).as_bytes()).is_err() {
        last_words("dtr confine", &error);
    }
    ExitCode::from(NO_PLUGIN)
}

/// Gives up everything, and returns that, and the words of the plugin's command line.
fn prepare(mut arguments: impl Iterator<Item = OsString>) -> io::Result<(Confinement, Vec<CString>)> {
    let mut next = || arguments.next().ok_or_else(wrong_arguments);
    let confinement: Confinement = serde_json::from_slice(next()?.as_encoded_bytes())?;
    let until: u64 = next()?.to_string_lossy().parse().map_err(io::Error::other)?;
    let words = arguments.map(|word| CString::new(word.into_vec()).map_err(io::Error::other));
    let words: Vec<CString> = words.collect::<io::Result<_>>()?;
    inherit_no_signals()?;
    // There may be little memory to be had afterwards. What the start of the plugin needs is taken and given back now.
    drop(black_box(Vec::<usize>::with_capacity(words.len() + 1)));
    confinement.enter()?;
    // It may have been stopped on the way from the guard, which has looked at the clock, too.
    if boot_time() >= Duration::from_millis(until) {
        return Err(io::Error::other(LEASE_IS_OVER));
    }
    Ok((confinement, words))
}

fn wrong_arguments() -> io::Error {
    io::Error::other("wrong arguments")
}

/// Has the plugin find all signals as a program that is started by the standard library does: that one ignores SIGPIPE in
/// this process. A signal that is handled is nothing that a program inherits.
fn inherit_no_signals() -> io::Result<()> {
    signal_hook::flag::register(Signal::SIGPIPE as i32, Arc::new(AtomicBool::new(false)))?;
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Becomes the plugin. Returns only if that failed.
///
/// The standard library would give a file that the kernel does not know how to run to a shell, here and not where it
/// starts another process. So this asks the kernel, and nobody else.
fn become_plugin(words: &[CString]) -> io::Error {
    let Some(program) = words.first() else { return wrong_arguments() };
    let Err(errno) = execv(program, words);
    refusal::in_words(errno.into())
}

impl Confinement {
    /// Gives up what the plugin is not to have. In this order: each step may need what the next one takes.
    fn enter(&self) -> io::Result<()> {
        let groups: Vec<Gid> =
            self.user.iter().flat_map(|user| &user.groups).copied().map(Gid::from_raw).collect();
        if let Some(group) = &self.cgroup {
            fs::write(group.join("cgroup.procs"), "0")
                .map_err(|error| failed(&format!("join the control group {}", group.display()), error))?;
        }
        self.set_limits()?;
        self.user.as_ref().map_or(Ok(()), |user| become_user(user, &groups))
    }

    /// The error with which the plugin was not started, and which limit that is.
    fn explain(&self, error: io::Error) -> io::Error {
        let Some(user) = self.user.as_ref().filter(|_| refusal::is_for_now(&error)) else { return error };
        let allows = match self.limits.processes.filter(|_| self.cgroup.is_none()) {
            Some(processes) => format!("limits.processes allows ({processes})"),
            None => "this host allows".to_owned(),
        };
        io::Error::new(error.kind(), format!("the user {} has as many processes as {allows}", user.name))
    }

    fn set_limits(&self) -> io::Result<()> {
        let Limits { memory, cpu_seconds, open_files, processes, file_size, core } = self.limits;
        // Control groups bound these two for the whole task.
        let alone = self.cgroup.is_none();
        let limits = [
            ("cpu_seconds", Resource::RLIMIT_CPU, cpu_seconds, CPU_GRACE),
            ("memory", Resource::RLIMIT_AS, memory.filter(|_| alone), 0),
            ("processes", Resource::RLIMIT_NPROC, processes.filter(|_| alone), 0),
            ("open_files", Resource::RLIMIT_NOFILE, open_files, 0),
            ("file_size", Resource::RLIMIT_FSIZE, file_size, 0),
            ("core", Resource::RLIMIT_CORE, core, 0),
        ];
        for (name, resource, limit, grace) in limits {
            if let Some(limit) = limit {
                bound(resource, limit, limit.saturating_add(grace))
                    .map_err(|error| failed(&format!("set the limit {name}"), error))?;
            }
        }
        Ok(())
    }
}

/// Bounds what this process may use, and what it starts. No limit is raised above the one that cannot be exceeded now.
pub fn bound(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let (_, highest) = getrlimit(resource)?;
    Ok(setrlimit(resource, soft.min(highest), hard.min(highest))?)
}

fn become_user(user: &Identity, groups: &[Gid]) -> io::Result<()> {
    setgroups(groups)
        .and_then(|()| setgid(Gid::from_raw(user.gid)))
        .and_then(|()| setuid(Uid::from_raw(user.uid)))
        .map_err(|error| failed(&format!("become user {}", user.name), error.into()))
}

fn failed(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

#[cfg(test)]
mod tests;
