//! The guard itself: a process of its own, without any runtime. See [`crate::guard`].

mod start;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::process::close_inherited;
use disbatch_core::remove_tree::remove_tree;
use disbatch_core::telemetry::last_words;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::Resource;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, dup2_stdin, setsid};

use super::COMM;
use super::family::{Kin, Left, Process, Processes, is_foreign, marks};
use super::limits::{Group, OomKills};
use super::protocol::{FromGuard, Inbox, Order, Report, Settings, ToGuard};
use super::ward::{Low, Ward};
use crate::confine;
use crate::folder;
use start::Waiting;

/// Deadlines are looked at so often: a wait does not count the time that the machine is suspended.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Who may live for longer than this has no deadline.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The pause before looking again whether a killed plugin's descendants are gone.
const KILL_STEP: Duration = Duration::from_millis(10);

/// The same for those that were only asked to end.
const TERM_STEP: Duration = Duration::from_millis(50);

/// After so long, descendants that cannot be killed are left behind.
const KILL_LIMIT: Duration = Duration::from_secs(5);

pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // A runner closes them, too. Other programs that have a guard do not.
    match close_inherited(&[]).and_then(|()| guard(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            last_words("dtr guard", &format_args!("{error}; it is started by dtr only"));
            ExitCode::from(2)
        }
    }
}

fn guard(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let mark = arguments.next().and_then(|mark| mark.into_string().ok());
    let settings = arguments.next().and_then(|json| serde_json::from_slice(json.as_encoded_bytes()).ok());
    match (mark, settings, arguments.next(), arguments.next()) {
        (Some(mark), Some(settings), Some(parent), None) => {
            folder::make_in(parent.into());
            Guard::new(mark, settings)?.watch()
        }
        _ => Err(io::Error::other("wrong arguments")),
    }
}

struct Guard {
    /// For reports; orders come by the same.
    socket: UnixStream,
    inbox: Inbox,
    has_runner: bool,
    wards: Vec<Ward>,
    /// What is to be started when there are fewer processes.
    waiting: Vec<Waiting>,
    /// What plugins that ended by themselves have left running. It is nobody's any more.
    left: Left,
    low: Low,
    oom_kills: Option<OomKills>,
    /// The control groups of plugins that are over, in which something still ran.
    left_groups: Vec<Group>,
    /// What the names of all private folders of the runner end with.
    mark: String,
}

impl Guard {
    fn new(mark: String, settings: Settings) -> io::Result<Self> {
        // First, while the numbers are free.
        let low = Low::new()?;
        // What is sent to the runner's group is not meant for it, and nothing that it starts is to have the runner's
        // terminal: whoever has it can type there.
        setsid()?;
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.peer_addr()?;
        dup2_stdin(&low.nothing)?;
        let _only_for_the_eye = prctl::set_name(COMM);
        prctl::set_child_subreaper(true)?;
        if settings.no_new_privs {
            prctl::set_no_new_privs()?;
        }
        // It leaves none itself. What its plugins may leave is said on their way.
        confine::bound(Resource::RLIMIT_CORE, 0, settings.core)?;
        outlive_signals();
        Ok(Self {
            inbox: Inbox::new(socket.try_clone()?),
            socket,
            has_runner: true,
            wards: Vec::new(),
            waiting: Vec::new(),
            left: Left::default(),
            low,
            oom_kills: OomKills::now(),
            left_groups: Vec::new(),
            mark,
        })
    }

    fn watch(mut self) -> io::Result<()> {
        let watched = self.work();
        if watched.is_err() {
            // What cannot be watched must not go on.
            for ward in &self.wards {
                self.strike(ward);
            }
        }
        watched
    }

    fn work(&mut self) -> io::Result<()> {
        loop {
            self.settle()?;
            if !self.has_runner && self.wards.is_empty() {
                // The runner, which has died, made these and can no longer remove them. Nothing else is ever removed.
                for folder in folder::of_mark(&self.mark) {
                    // Nobody is left to be told of an error.
                    let _left_behind = remove_tree(&folder);
                }
                self.leave_groups(None);
                return Ok(());
            }
            for ward in self.wards.iter().filter(|ward| ward.killing_since.is_some()) {
                self.strike(ward);
            }
            let spoken = self.wait()?;
            // First this: what was said before a suspension must not count as said now.
            self.find_lapsed();
            if spoken {
                self.hear()?;
            }
            self.try_again()?;
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        if self.wards.iter().all(|ward| ward.ended.is_none()) {
            return Ok(());
        }
        let others = self.bury_adopted();
        let mut at = 0;
        while let Some(ward) = self.wards.get(at) {
            if !self.is_over(ward) {
                at += 1;
                continue;
            }
            let left = match others && !ward.was_to_end() {
                true => self.family(ward).and_then(|family| Ok(Some((family, Processes::now()?)))),
                false => Ok(None),
            };
            let Ok(left) = left else {
                // Otherwise it would be taken for the next plugin's.
                at += 1;
                continue;
            };
            let mut ward = self.wards.remove(at);
            if let Some((family, living)) = left {
                let living = living.descendants(Pid::this(), |_| false);
                self.left.keep_only(&living, marks);
                self.left.add(family, &ward.marks);
            }
            self.leave_folder()?;
            if let Some(exit) = ward.exit(&mut self.oom_kills, !others) {
                // A runner that has died meanwhile is noticed by the orders.
                let _died = self.say(ward.number, Report::Exited(exit));
            }
            self.leave_groups(ward.group.take());
        }
        Ok(())
    }

    fn say(&mut self, number: u64, report: Report) -> io::Result<()> {
        self.socket.write_all(&FromGuard(number, report).to_bytes()?)
    }

    fn is_over(&self, ward: &Ward) -> bool {
        let is_gone = || self.family(ward).is_ok_and(|family| family.is_empty());
        ward.ended.is_some()
            && match ward.killing_since {
                None if ward.ordered => is_gone(),
                None => !ward.is_stopping(),
                Some(since) => boot_time().saturating_sub(since) > KILL_LIMIT || is_gone(),
            }
    }

    /// The living processes that come from a plugin, itself among them.
    ///
    /// They are the plugin's descendants, and those that have lost their parents and so became this process's children:
    /// not other plugins, nor what earlier ones have left running, nor what comes from these. See [`is_foreign`].
    /// What tasks of a warm plugin have left is not known; what was adopted before this plugin began is of that kind.
    fn family(&self, of: &Ward) -> io::Result<Vec<Process>> {
        let others: Vec<Kin<'_>> =
            self.wards.iter().filter(|ward| ward.pid != of.pid).map(Ward::kin).collect();
        let processes = Processes::now()?;
        let wards: Vec<Pid> = self.wards.iter().map(|ward| ward.pid).collect();
        let kin = of.kin();
        let before = processes.marks_before(kin.born, Pid::this(), &wards);
        let foreign = |child: &Process| {
            let carried = marks(child.pid);
            child.pid != of.pid
                && (self.left.contains(child)
                    || others.iter().any(|other| other.pid == child.pid)
                    || (carried != kin.marks && before.contains(&carried))
                    || is_foreign((child, carried.as_slice()), kin, &others, &self.left))
        };
        Ok(processes.descendants(Pid::this(), foreign))
    }

    fn strike(&self, ward: &Ward) {
        // Its number is its own as long as it has not been waited for.
        if ward.ended.is_none() {
            let _gone = killpg(ward.pid, Signal::SIGKILL);
        }
        if let Some(group) = &ward.group {
            group.kill();
        }
        // Those that cannot be seen now are looked for again.
        for process in self.family(ward).unwrap_or_default() {
            let _gone = kill(process.pid, Signal::SIGKILL);
        }
    }

    /// Removes ended children that were adopted from the system's table. Tells whether there may be living ones.
    fn bury_adopted(&mut self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let ended = match waitid(Id::All, look) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
                Err(Errno::EINTR) => continue,
                Err(_) => {
                    self.left = Left::default();
                    return false;
                }
                Ok(_) => return true, // They all live.
            };
            if self.wards.iter().any(|ward| ward.pid == ended) {
                return true;
            }
            let _buried = waitpid(ended, None);
        }
    }

    fn wait(&mut self) -> io::Result<bool> {
        let again = self.waiting.iter().map(|waiting| waiting.left(boot_time()));
        let limit = self.wards.iter().filter_map(longest_wait).chain(again).min();
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let (spoken, ended) = {
            let living = self.wards.iter().filter(|ward| ward.ended.is_none());
            let mut sources: Vec<PollFd<'_>> =
                living.map(|ward| PollFd::new(ward.handle.as_fd(), PollFlags::POLLIN)).collect();
            if self.has_runner {
                sources.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut sources, limit) {
                Ok(0) | Err(Errno::EINTR) => (false, None),
                Ok(_) => {
                    let spoken = self.has_runner && sources.pop().is_some_and(|s| s.any() == Some(true));
                    (spoken, Some(sources.iter().map(|s| s.any() == Some(true)).collect::<Vec<_>>()))
                }
                Err(error) => return Err(error.into()),
            }
        };
        match ended {
            Some(ended) => {
                let living = self.wards.iter_mut().filter(|ward| ward.ended.is_none());
                for (ward, _) in living.zip(ended).filter(|(_, ended)| *ended) {
                    ward.collect()?;
                }
            }
            None => drop(self.bury_adopted()),
        }
        Ok(spoken)
    }

    fn find_lapsed(&mut self) {
        let now = boot_time();
        for ward in self.wards.iter_mut().filter(|ward| ward.killing_since.is_none() && ward.until <= now) {
            ward.lapsed = true;
            ward.killing_since = Some(now);
        }
    }

    /// Reads and obeys. The end of the orders is the end of the runner.
    fn hear(&mut self) -> io::Result<()> {
        if !self.inbox.receive()? {
            self.has_runner = false;
            self.waiting.clear();
            for ward in &mut self.wards {
                ward.killing_since.get_or_insert(boot_time());
            }
            return Ok(());
        }
        while let Some(order) = ToGuard::take(&mut self.inbox.arrived)? {
            match order {
                ToGuard::Spawn(number, spawn) => self.spawn(number, *spawn)?,
                ToGuard::Order(number, order) => self.obey(number, order)?,
            }
        }
        Ok(())
    }

    fn obey(&mut self, number: u64, order: Order) -> io::Result<()> {
        let Some(ward) = self.wards.iter_mut().find(|ward| ward.number == number) else {
            return self.obey_before_start(number, order);
        };
        // An order to end that comes after the end has no part in it.
        ward.look()?;
        match order {
            Order::Until(time) => ward.until = time,
            Order::Term if ward.ended.is_none() => {
                ward.ordered = true;
                let _gone = killpg(ward.pid, Signal::SIGTERM);
            }
            Order::Stop if ward.ended.is_none() => {
                ward.told_to_stop = true;
                let _gone = killpg(ward.pid, Signal::SIGTERM);
            }
            Order::Kill if ward.ended.is_none() || ward.ordered || ward.is_stopping() => {
                ward.ordered = true;
                ward.killing_since.get_or_insert(boot_time());
            }
            Order::Term | Order::Stop | Order::Kill => {}
        }
        Ok(())
    }
}

fn longest_wait(ward: &Ward) -> Option<Duration> {
    match (ward.killing_since, &ward.ended) {
        (Some(since), _) if boot_time().saturating_sub(since) > KILL_LIMIT => Some(LONGEST_WAIT),
        (Some(_), _) => Some(KILL_STEP),
        (None, Some(_)) => Some(TERM_STEP),
        (None, None) if ward.until > FOR_EVER => None,
        (None, None) => Some(LONGEST_WAIT.min(ward.until.saturating_sub(boot_time()))),
    }
}

/// Nothing but KILL ends a guard, whoever else the signal was meant for. Unlike a signal that is blocked or ignored,
/// one that is handled is nothing that plugins inherit.
fn outlive_signals() {
    use signal_hook::consts::FORBIDDEN;
    let nothing = std::sync::Arc::default();
    // The standard library watches for the former, and the latter does no harm unless it is ignored.
    let left_alone = |signal: i32| {
        signal == Signal::SIGBUS as i32 || (signal == Signal::SIGCHLD as i32 && !ignores_children())
    };
    for signal in (1..=64).filter(|signal| !FORBIDDEN.contains(signal) && !left_alone(*signal)) {
        // There are a few that the C library keeps to itself.
        let _not_ours = signal_hook::flag::register(signal, std::sync::Arc::clone(&nothing));
    }
}

/// Whether the ends of children are ignored here, as they are by a DEN in Perl, from which runners inherit that. Nobody is
/// told then how a child has ended.
fn ignores_children() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    ignored.is_some_and(|signals| (signals >> (Signal::SIGCHLD as i32 - 1)) & 1 == 1)
}
