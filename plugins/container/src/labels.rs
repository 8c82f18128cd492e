//! What containers of tasks are known by; and processes as labels name them, so that no other process is taken for one that has ended.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::input::ContainerInput;

pub const TASK: &str = "disbatch.task";
pub const ATTEMPT: &str = "disbatch.attempt";
pub const NODE: &str = "disbatch.node";
/// The database of the task, if that is known.
pub const DATABASE: &str = "disbatch.database";
pub const ADAPTER: &str = "disbatch.adapter";
/// Among which processes that is.
pub const NAMESPACE: &str = "disbatch.namespace";

pub fn of(told: &ContainerInput, adapter: &Process) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::from([
        (TASK, told.worker.task_id().to_owned()),
        (ATTEMPT, told.worker.attempt().to_string()),
        (NODE, told.node().to_owned()),
        (ADAPTER, adapter.to_string()),
        (NAMESPACE, namespace()),
    ]);
    if let Some(database) = &told.worker.database {
        labels.insert(DATABASE, database.clone());
    }
    labels
}

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A process of this or another start of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub boot: String,
    pub pid: i32,
    /// When it was started, as the kernel counts.
    pub started: u64,
}

impl Process {
    pub fn this() -> io::Result<Self> {
        let pid = Pid::this().as_raw();
        let state = State::of(pid).ok_or_else(|| io::Error::other("this process is not in /proc"))?;
        Ok(Self { boot: fs::read_to_string(BOOT)?.trim().to_owned(), pid, started: state.started })
    }

    /// Whether it still runs. Only to be asked of processes of this start of the machine.
    pub fn lives(&self) -> bool {
        match State::of(self.pid) {
            Some(state) => state.started == self.started && !state.is_dead,
            // Some systems show nobody else's processes; that they are there they do tell.
            None => kill(Pid::from_raw(self.pid), None::<Signal>) != Err(Errno::ESRCH),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.started)
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('/').collect();
        let [boot, pid, started] = parts[..] else { return Err(()) };
        let pid = pid.parse().map_err(drop)?;
        // Others mean groups of processes.
        if boot.is_empty() || pid <= 0 {
            return Err(());
        }
        Ok(Self { boot: boot.to_owned(), pid, started: started.parse().map_err(drop)? })
    }
}

/// Which processes this one can see: those with the same name for it are the same.
pub fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[derive(Debug, PartialEq, Eq)]
struct State {
    started: u64,
    is_dead: bool,
}

impl State {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// `PID (COMMAND) STATE ...`, and the command may hold anything. The start is the 22nd of all fields.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let started = rest.split(' ').nth(19)?.trim().parse().ok()?;
        Some(Self { started, is_dead: rest.starts_with(['Z', 'X']) })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_read_as_it_is_written() {
        let this = Process::this().unwrap();
        assert_eq!(this.to_string().parse(), Ok(this.clone()));
        assert!(this.lives());
        for text in ["", "b", "b/1", "b/1/2/3", "/1/2", "b/x/2", "b/1/x", "b/0/2", "b/-1/2"] {
            assert_eq!(text.parse::<Process>(), Err(()), "{text}");
        }
    }

    #[test]
    fn who_has_ended_and_who_has_another_number_does_not_live() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let started = State::of(pid).unwrap().started;
        let process = Process { boot: "b".to_owned(), pid, started };
        assert!(process.lives());
        assert!(!Process { started: started + 1, ..process.clone() }.lives(), "another came after it");
        child.kill().unwrap();
        // It is there until somebody asks how it ended.
        while State::of(pid).is_some_and(|state| !state.is_dead) {
            std::thread::yield_now();
        }
        assert!(!process.lives());
        child.wait().unwrap();
        assert!(!process.lives());
    }

    #[test]
    fn a_name_cannot_hide_a_state() {
        let rest = (4..=30).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let parse = |stat: String| State::parse(&stat);
        assert_eq!(parse(format!("7 (a) Z) R {rest}")), Some(State { started: 22, is_dead: false }));
        assert_eq!(parse(format!("7 (a) Z {rest}\n")), Some(State { started: 22, is_dead: true }));
        assert_eq!(parse("7 (a) R 1".to_owned()), None);
    }

    #[test]
    fn this_process_sees_the_processes_of_its_own_namespace() {
        assert!(namespace().starts_with("pid:["));
    }
}
