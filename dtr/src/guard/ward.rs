//! A plugin process, as its guard sees it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use disbatch_core::clock::boot_time;
use disbatch_core::config::Limits;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{AccessFlags, Gid, Pid, Uid, access, close, fchown};
use rustix::io::{DupFlags, dup2, dup3};
use rustix::process::{PidfdFlags, pidfd_open};
use wait4::{ResUse, Wait4};

use super::family::{Kin, Marks, Processes, marks_of};
use super::limits::{End, Exceeded, Group, OomKills};
use super::protocol::{Direct, Exit, Spawn};
use super::{CONTROL_FD, LEASE_IS_OVER, refusal};
use crate::confine::{self, COMPLAINTS_FD};

const PATH: &str = "PATH";

/// What was told to stop together with a plugin is waited for as long as this after the plugin's end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The descriptors of this process by which plugins get those of theirs that are not standard streams. Nothing is behind
/// them, and nobody inherits them, except while a plugin is started.
pub struct Low {
    /// An open `/dev/null`.
    pub nothing: File,
    control: OwnedFd,
    complaints: OwnedFd,
}

impl Low {
    /// Takes them, before anything else has.
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
        Ok(Self { control: take(CONTROL_FD)?, complaints: take(COMPLAINTS_FD)?, nothing: open_nothing()? })
    }

    /// Starts a program whose control channel is this.
    fn start(&mut self, command: &mut Command, control: Option<&OwnedFd>) -> io::Result<Child> {
        if let Some(control) = control {
            dup2(control, &mut self.control)?;
        }
        let started = command.spawn();
        dup3(&self.nothing, &mut self.control, DupFlags::CLOEXEC)?;
        started.map_err(refusal::in_words)
    }

    /// The same for a plugin that is confined on its way: waits until it is the plugin, or has said why it is not, but
    /// no longer than it may live.
    fn start_confined(
        &mut self,
        command: &mut Command,
        control: Option<&OwnedFd>,
        until: Duration,
    ) -> io::Result<Child> {
        let (mut complaints, end) = io::pipe()?;
        dup2(end, &mut self.complaints)?;
        let started = self.start(command, control);
        dup3(&self.nothing, &mut self.complaints, DupFlags::CLOEXEC)?;
        let mut child = started?;
        let mut complaint = Vec::new();
        let heard = readable(&complaints, until).and_then(|()| complaints.read_to_end(&mut complaint));
        match heard {
            // The start of the plugin has closed the other end.
            Ok(0) => Ok(child),
            heard => {
                // Who complains ends by itself, which is not known of who is not heard.
                let _gone = child.kill();
                child.wait()?;
                let complaint = String::from_utf8_lossy(&complaint);
                Err(heard.err().unwrap_or_else(|| refusal::of_complaint(&complaint)))
            }
        }
    }
}

fn readable(pipe: &PipeReader, until: Duration) -> io::Result<()> {
    loop {
        let left = until.saturating_sub(boot_time());
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(0) if left.is_zero() => return Err(io::Error::other(LEASE_IS_OVER)),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn open_nothing() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// The number of a process that has just been started, and the handle that `open` gets for it. A plugin that cannot be
/// watched is ended.
fn watched(
    child: &mut Child,
    open: impl FnOnce(&Child) -> io::Result<OwnedFd>,
) -> io::Result<(Pid, OwnedFd)> {
    let pid = Pid::from_raw(rustix::process::Pid::from_child(child).as_raw_pid());
    match open(child) {
        Ok(handle) => Ok((pid, handle)),
        Err(error) => {
            end(child, pid)?;
            let what = format!("the plugin was started and cannot be watched: {error}");
            Err(io::Error::new(error.kind(), what))
        }
    }
}

/// Ends a plugin, and what it has started by now.
fn end(child: &mut Child, pid: Pid) -> io::Result<()> {
    // It starts no more, and what it has started is below it as long as it is there.
    let _gone = kill(pid, Signal::SIGSTOP);
    let family = Processes::now().map(|all| all.descendants(pid, |_| false)).unwrap_or_default();
    let _gone = killpg(pid, Signal::SIGKILL);
    for process in family {
        let _gone = kill(process.pid, Signal::SIGKILL);
    }
    let _gone = child.kill();
    child.wait()?;
    Ok(())
}

pub struct Ward {
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
    pub ordered: bool,
    /// Whether it was told to stop, in its own time.
    pub told_to_stop: bool,
    pub lapsed: bool,
    /// Since when it is being killed, by [`boot_time`](disbatch_core::clock::boot_time).
    pub killing_since: Option<Duration>,
    pub ended: Option<ResUse>,
    pub group: Option<Group>,
    limits: Limits,
    child: Child,
    /// When it was about to be started, by [`boot_time`](disbatch_core::clock::boot_time).
    born: Duration,
    started: Instant,
    duration: Duration,
}

impl Ward {
    /// Starts it with these descriptors, in the order of their numbers, in the control group `group` if there is one:
    /// that is to be its [`Ward::group`] then.
    pub fn start(
        number: u64,
        spawn: &Spawn,
        descriptors: &[OwnedFd],
        low: &mut Low,
        group: Option<&Group>,
    ) -> io::Result<Self> {
        let confinement = spawn.confinement.as_ref();
        let mut command = command(spawn, group)?;
        if let Some(user) = confinement.and_then(|confinement| confinement.user.as_ref()) {
            // So that it can open them again by their names in `/dev/fd`.
            for descriptor in descriptors {
                fchown(descriptor, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
            }
        }
        let (stdin, [stdout, stderr, others @ ..]) = (match (&spawn.direct, descriptors) {
            (Some(_), outputs) => (low.nothing.as_fd(), outputs),
            (None, [stdin, outputs @ ..]) => (stdin.as_fd(), outputs),
            (None, []) => return Err(lacks_streams()),
        }) else {
            return Err(lacks_streams());
        };
        command.stdin(stdin.try_clone_to_owned()?).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let (born, started) = (boot_time(), Instant::now());
        let mut child = match (confinement, &spawn.direct) {
            (None, None) => low.start(&mut command, others.first())?,
            (None, Some(_)) => low.start(&mut command, others.first()).map_err(refusal::not_direct)?,
            (Some(_), _) => low.start_confined(&mut command, others.first(), spawn.until)?,
        };
        let (pid, handle) = watched(&mut child, |child| {
            Ok(pidfd_open(rustix::process::Pid::from_child(child), PidfdFlags::empty())?)
        })?;
        Ok(Self {
            number,
            pid,
            handle,
            marks: marks_of(&spawn.environment),
            is_warm: spawn.is_warm(),
            until: spawn.until,
            ordered: false,
            told_to_stop: false,
            lapsed: false,
            killing_since: None,
            ended: None,
            group: None,
            limits: confinement.map(|confinement| confinement.limits).unwrap_or_default(),
            child,
            born,
            started,
            duration: Duration::ZERO,
        })
    }

    pub fn kin(&self) -> Kin<'_> {
        Kin { pid: self.pid, born: self.born, marks: &self.marks, is_warm: self.is_warm }
    }

    pub fn look(&mut self) -> io::Result<()> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if self.ended.is_none() && waitid(Id::Pid(self.pid), look)? != WaitStatus::StillAlive {
            self.collect()?;
        }
        Ok(())
    }

    /// Notes its end, and waits for it if need be.
    pub fn collect(&mut self) -> io::Result<()> {
        self.ended = Some(self.child.wait4()?);
        self.duration = self.started.elapsed();
        Ok(())
    }

    /// Whether it has ended, and others of its group that were told to stop have not: they may still save what there is to
    /// save. What is in another group was told nothing.
    pub fn is_stopping(&self) -> bool {
        self.told_to_stop
            && self.ended.is_some()
            && self.started.elapsed() < self.duration + STOP_LIMIT
            && killpg(self.pid, None).is_ok()
    }

    pub fn was_to_end(&self) -> bool {
        self.ordered || self.killing_since.is_some()
    }

    /// How it ended, if it has. `alone`: no other process is left.
    pub fn exit(&self, oom_kills: &mut Option<OomKills>, alone: bool) -> Option<Exit> {
        let ended = self.ended.as_ref()?;
        let killed = ended.status.signal() == Some(Signal::SIGKILL as i32) && self.killing_since.is_none();
        let cpu = ended.rusage.utime + ended.rusage.stime;
        let out_of_memory = killed && self.group.as_ref().is_some_and(Group::has_run_out_of_memory);
        let machine_is_out_of_memory = killed && oom_kills.as_mut().is_some_and(OomKills::more);
        let end = End { status: ended.status, cpu, out_of_memory };
        Some(Exit {
            status: ended.status.into_raw(),
            ordered: self.ordered,
            lapsed: self.lapsed,
            alone,
            oom: out_of_memory || machine_is_out_of_memory,
            limit: Exceeded::of(&self.limits, end).filter(|_| !self.was_to_end()),
            duration: self.duration,
            cpu,
            peak_memory: ended.rusage.maxrss,
        })
    }
}

fn lacks_streams() -> io::Error {
    io::Error::other("a plugin has three standard streams")
}

fn command(spawn: &Spawn, group: Option<&Group>) -> io::Result<Command> {
    let mut command = match (&spawn.confinement, &spawn.direct) {
        (None, None) => {
            let mut command = Command::new(&spawn.program);
            command.args(&spawn.arguments);
            command
        }
        (None, Some(direct)) => direct_command(spawn, direct).map_err(refusal::not_direct)?,
        (Some(confinement), _) => confine::command(confinement, group.map(Group::path), spawn)?,
    };
    command.process_group(0).env_clear();
    // This copy of them is the standard library's, and nobody can overwrite it.
    command.envs(spawn.environment.iter().map(|(name, value)| (name, value)));
    let of_task = spawn.direct.iter().flat_map(|direct| &direct.env);
    command.envs(of_task.map(|(name, value)| (name, value)));
    Ok(command)
}

/// The command of a task, found as a shell finds it.
fn direct_command(spawn: &Spawn, direct: &Direct) -> io::Result<Command> {
    let of_task = direct.env.iter().rfind(|(name, _)| name == PATH).map(|(_, path)| OsStr::new(path));
    let of_plugin =
        || spawn.environment.iter().rfind(|(name, _)| name == PATH).map(|(_, path)| path.as_ref());
    let program = find(&spawn.program, of_task.or_else(of_plugin))?;
    let mut command = Command::new(&*program);
    command.arg0(&spawn.program).args(&spawn.arguments);
    if let Some(cwd) = &direct.cwd {
        command.current_dir(cwd);
    }
    Ok(command)
}

/// Where a program is. One without a slash is looked for in `path`, unless what that says depends on where one is.
fn find<'a>(program: &'a Path, path: Option<&OsStr>) -> io::Result<Cow<'a, Path>> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Ok(Cow::Borrowed(program));
    }
    for folder in std::env::split_paths(path.unwrap_or_default()).take_while(|folder| folder.is_absolute()) {
        let found = folder.join(program);
        if access(&found, AccessFlags::X_OK).is_ok() {
            return Ok(Cow::Owned(found));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
    }

    #[test]
    fn a_plugin_that_cannot_be_watched_is_ended_with_what_it_has_started() {
        let script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut started: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
        started.push(child.id().to_string());
        let error = watched(&mut child, |_| Err(io::Error::from(Errno::EMFILE))).unwrap_err();
        let expected = "the plugin was started and cannot be watched: Too many open files (os error 24)";
        assert_eq!(error.to_string(), expected);
        // With the last of them the pipe is closed, a moment before it is gone.
        assert!(lines.next().is_none());
        let until = Instant::now() + Duration::from_secs(30);
        while started.iter().any(|pid| runs(pid)) {
            assert!(Instant::now() < until, "{started:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_is_found_as_shells_find_it_or_left_to_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sh"), "").unwrap();
        let path = format!("{}:/bin:/usr/bin", folder.path().display());
        let found =
            |program, path: &str| find(Path::new(program), Some(OsStr::new(path))).ok().map(Cow::into_owned);
        assert_eq!(found("sh", &path), Some("/bin/sh".into()), "what cannot be executed is passed over");
        for (program, path) in [("sh", ".:/bin"), ("sh", ":/bin"), ("sh", "/nowhere"), ("sh", ""), ("", "")] {
            assert_eq!(found(program, path), None, "{program} {path}");
        }
        assert_eq!(found("./x/y", ""), Some("./x/y".into()));
        assert!(find(Path::new("sh"), None).is_err());
    }

    #[test]
    fn a_plugin_that_is_watched_goes_on() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let (pid, _handle) = watched(&mut child, |_| Ok(open_nothing()?.into())).unwrap();
        assert_eq!(pid.as_raw().to_string(), child.id().to_string());
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
