//! Finds the descendants of a process, wherever they have put themselves, and tells whose they are.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use nix::unistd::Pid;

/// What a process carries in its environment that tells which plugin it comes from. It is what the process was
/// started with, whatever it has done to it.
const MARKS: [&str; 4] =
    [super::TASK_VARIABLE, super::RUNNER_VARIABLE, "DISBATCH_ATTEMPT", "DISBATCH_PLUGIN"];

/// A process, and when it was started: a number that is used again is another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    started: u64,
}

/// The values of [`MARKS`] that a process has.
pub type Marks = Vec<Vec<u8>>;

/// All processes at one moment, by their parents.
#[derive(Debug)]
pub struct Processes(HashMap<i32, Vec<(Process, bool)>>);

impl Processes {
    /// The processes at this moment. None if `/proc` cannot be read.
    pub fn now() -> Self {
        let mut children: HashMap<i32, Vec<(Process, bool)>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may be gone by now.
            let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
            let Some((state, parent, started)) = read_stat(&stat) else { continue };
            let alive = !matches!(state, b'Z' | b'X');
            children.entry(parent).or_default().push((Process { pid: Pid::from_raw(pid), started }, alive));
        }
        Self(children)
    }

    /// The living descendants of `ancestor`, in no order, without those that come from a child of its that is
    /// `foreign`.
    ///
    /// Whoever loses its parent stays a descendant only if `ancestor` is a child subreaper.
    pub fn descendants(mut self, ancestor: Pid, foreign: impl Fn(&Process) -> bool) -> Vec<Process> {
        let mut pending = self.0.remove(&ancestor.as_raw()).unwrap_or_default();
        pending.retain(|(child, _)| !foreign(child));
        let mut found = Vec::new();
        while let Some((process, alive)) = pending.pop() {
            pending.extend(self.0.remove(&process.pid.as_raw()).into_iter().flatten());
            if alive {
                found.push(process);
            }
        }
        found
    }
}

/// The marks of a process; none if it was started without, or cannot be looked at.
pub fn marks(pid: Pid) -> Marks {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_mark = |entry: &&[u8]| MARKS.iter().any(|mark| value(entry, mark).is_some());
    let mut marks: Marks = environment.split(|byte| *byte == 0).filter(is_mark).map(<[u8]>::to_vec).collect();
    marks.sort_unstable();
    marks
}

/// The marks of a plugin that is given this environment.
pub fn marks_of(environment: &[(OsString, OsString)]) -> Marks {
    let is_mark = |(name, _): &&(OsString, OsString)| MARKS.iter().any(|mark| name == mark);
    let entry = |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let mut marks: Marks = environment.iter().filter(is_mark).map(entry).collect();
    marks.sort_unstable();
    marks
}

fn value<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// State, parent and time of the start of a process, from `/proc/PID/stat`. The second field is the program's name
/// in parentheses, and may hold anything.
fn read_stat(stat: &[u8]) -> Option<(u8, i32, u64)> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // The start is field 22.
    Some((state, parent, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_cannot_confuse_it() {
        let stat = b"12 (a) R 1 (b\xff) S 7 12 12 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        assert_eq!(read_stat(stat), Some((b'S', 7, 4711)));
        assert_eq!(read_stat(b"12 (a)"), None);
        assert_eq!(read_stat(b""), None);
    }

    #[test]
    fn children_are_found_while_they_live_unless_they_are_foreign() {
        let mut child = Command::new("sleep").arg("1000").env("DISBATCH_ATTEMPT", "3").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        let found = |foreign: &dyn Fn(&Process) -> bool| {
            let all = Processes::now().descendants(Pid::this(), foreign);
            all.iter().any(|process| process.pid == pid)
        };
        assert!(found(&|_| false));
        assert!(!found(&|process| process.pid == pid));
        assert!(!found(&|_| true));
        assert!(marks(pid).contains(&b"DISBATCH_ATTEMPT=3".to_vec()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found(&|_| false));
        assert!(marks(pid).is_empty());
    }
}
