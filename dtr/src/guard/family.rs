//! Finds the descendants of a process, wherever they have put themselves, and tells whose they are.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use std::{fs, io};

use disbatch_core::process::is_out_of_sight;
use nix::unistd::Pid;
use rustix::param::clock_ticks_per_second;

/// What a process carries in its environment that tells which plugin it comes from. Who starts a process can give it
/// others or none, and a process can write over its own.
const MARKS: [&str; 4] =
    [super::TASK_VARIABLE, super::RUNNER_VARIABLE, "DISBATCH_ATTEMPT", "DISBATCH_PLUGIN"];

/// A process, and when it was started: a number that is used again is another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: Pid,
    started: u64,
}

impl Process {
    /// Whether it was started before this time of [`crate::boot_time`].
    fn is_older_than(&self, time: Duration) -> bool {
        let ticks = time.as_nanos().saturating_mul(u128::from(clock_ticks_per_second())) / 1_000_000_000;
        // The kernel leaves out what is less than a tick.
        u128::from(self.started) < ticks
    }
}

pub type Marks = Vec<Vec<u8>>;

#[derive(Debug)]
pub struct Processes(HashMap<i32, Vec<(Process, bool)>>);

impl Processes {
    /// The processes at this moment.
    ///
    /// # Errors
    /// The system does not tell, and may do so later.
    pub fn now() -> io::Result<Self> {
        let mut children: HashMap<i32, Vec<(Process, bool)>> = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let stat = match fs::read(entry.path().join("stat")) {
                Err(error) if is_out_of_sight(&error) => continue,
                stat => stat?,
            };
            let Some((state, parent, started)) = read_stat(&stat) else { continue };
            let alive = !matches!(state, b'Z' | b'X');
            children.entry(parent).or_default().push((Process { pid: Pid::from_raw(pid), started }, alive));
        }
        Ok(Self(children))
    }

    /// What the children of `parent` carry that were there before this time, and are none of `except`.
    pub fn marks_before(&self, time: Duration, parent: Pid, except: &[Pid]) -> HashSet<Marks> {
        let children = self.0.get(&parent.as_raw()).into_iter().flatten();
        let before = children
            .filter(|(child, alive)| *alive && child.is_older_than(time) && !except.contains(&child.pid));
        before.map(|(child, _)| marks(child.pid)).filter(|marks| !marks.is_empty()).collect()
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

/// A plugin, as far as that tells which processes come from it.
#[derive(Debug, Clone, Copy)]
pub struct Kin<'a> {
    pub pid: Pid,
    /// A time of [`crate::boot_time`] shortly before that was started.
    pub born: Duration,
    /// What its descendants carry, unless they have shed or changed it.
    pub marks: &'a [Vec<u8>],
    /// Whether it takes several tasks: while another plugin runs, it has none.
    pub is_warm: bool,
}

/// What plugins that ended by themselves have left running. It is nobody's any more.
#[derive(Debug, Default)]
pub struct Left {
    processes: HashSet<Process>,
    /// What they carry. So does what they start, and that is nobody's either.
    marks: HashSet<Marks>,
}

impl Left {
    pub fn contains(&self, process: &Process) -> bool {
        self.processes.contains(process)
    }

    pub fn add(&mut self, family: Vec<Process>, marks: &[Vec<u8>]) {
        if !family.is_empty() && !marks.is_empty() {
            self.marks.insert(marks.to_vec());
        }
        self.processes.extend(family);
    }

    /// Forgets what is gone. `marks`: finds those of a process.
    pub fn keep_only(&mut self, living: &[Process], marks: impl Fn(Pid) -> Marks) {
        self.processes.retain(|process| living.contains(process));
        if !self.marks.is_empty() {
            let carried: HashSet<Marks> = living.iter().map(|process| marks(process.pid)).collect();
            self.marks.retain(|marks| carried.contains(marks));
        }
    }
}

/// Whether a process that has lost its parents and carries `marks` comes from something else than the plugin `of`:
/// from one of the `others`, or from what was left. Pure.
///
/// A process can carry what it likes, and is not to get away by that. So what is known nowhere else is taken for this
/// plugin's, whatever it carries. It may pass for what another plugin has left running, or for another plugin that works
/// at the same time: a runner never has two of these, as a warm plugin has no task then.
pub fn is_foreign(
    (process, marks): (&Process, &[Vec<u8>]),
    of: Kin<'_>,
    others: &[Kin<'_>],
    left: &Left,
) -> bool {
    // Nobody is older than their ancestors.
    if process.is_older_than(of.born) {
        return true;
    }
    if marks == of.marks {
        return false;
    }
    let mut at_work = others
        .iter()
        .filter(|other| !process.is_older_than(other.born))
        .filter(|other| !other.is_warm || of.is_warm);
    if !marks.is_empty() && (left.marks.contains(marks) || at_work.clone().any(|other| other.marks == marks))
    {
        return true;
    }
    // What carries nothing that is known is not a warm plugin's which has no task.
    of.is_warm && at_work.any(|other| !other.is_warm)
}

/// The marks of a process; none if it was started without, or cannot be looked at.
pub fn marks(pid: Pid) -> Marks {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_mark = |entry: &&[u8]| MARKS.iter().any(|mark| value(entry, mark).is_some());
    let mut marks: Marks = environment.split(|byte| *byte == 0).filter(is_mark).map(<[u8]>::to_vec).collect();
    marks.sort_unstable();
    marks
}

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

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn names_cannot_confuse_it() {
        let stat = b"12 (a) R 1 (b\xff) S 7 12 12 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        assert_eq!(read_stat(stat), Some((b'S', 7, 4711)));
        assert_eq!(read_stat(b"12 (a)"), None);
        assert_eq!(read_stat(b""), None);
    }

    fn process(started: u64) -> Process {
        Process { pid: Pid::from_raw(7), started }
    }

    fn carrying(mark: &str) -> Marks {
        vec![mark.as_bytes().to_vec()]
    }

    /// A time so many ticks after the start of the machine.
    fn ticks(ticks: u32) -> Duration {
        Duration::from_secs(u64::from(ticks)) / u32::try_from(clock_ticks_per_second()).unwrap()
    }

    #[test]
    fn nobody_is_older_than_their_ancestors() {
        for ticks_since_start in [1, 99, 100, 12_345] {
            let born = ticks(ticks_since_start);
            assert!(process(u64::from(ticks_since_start) - 1).is_older_than(born));
            assert!(!process(u64::from(ticks_since_start)).is_older_than(born));
        }
    }

    #[test]
    fn a_process_does_not_get_away_by_what_it_carries() {
        let (own, second, warm, old) = (carrying("A"), carrying("B"), carrying("W"), carrying("old"));
        let kin = |marks, born, is_warm| Kin { pid: Pid::from_raw(1), born: ticks(born), marks, is_warm };
        let of = kin(own.as_slice(), 100, false);
        let others = [kin(second.as_slice(), 120, false), kin(warm.as_slice(), 50, true)];
        let mut left = Left::default();
        left.add(vec![process(60)], &old);
        let foreign =
            |marks: &Marks, started| is_foreign((&process(started), marks.as_slice()), of, &others, &left);
        // Its own, whatever it carries: also what a warm plugin carries, which has no task meanwhile.
        for marks in [&own, &Marks::new(), &carrying("forged"), &warm] {
            assert!(!foreign(marks, 100) && !foreign(marks, 200), "{marks:?}");
            assert!(foreign(marks, 99), "{marks:?}: it was there before");
        }
        assert!(foreign(&second, 130), "another one's that works at the same time");
        assert!(!foreign(&second, 110), "which had not begun");
        assert!(foreign(&old, 130), "of what was left");
    }

    #[test]
    fn what_appears_while_a_warm_plugin_has_no_task_is_not_its_own() {
        let (warm, task) = (carrying("W"), carrying("A"));
        let kin = |marks, born, is_warm| Kin { pid: Pid::from_raw(1), born: ticks(born), marks, is_warm };
        let of = kin(warm.as_slice(), 50, true);
        let others = [kin(task.as_slice(), 100, false)];
        let left = Left::default();
        let foreign = |marks: &Marks, started, others: &[Kin<'_>]| {
            is_foreign((&process(started), marks.as_slice()), of, others, &left)
        };
        for marks in [&Marks::new(), &carrying("forged"), &task] {
            assert!(foreign(marks, 110, &others), "{marks:?}");
            assert!(!foreign(marks, 90, &others) && !foreign(marks, 110, &[]), "{marks:?}");
        }
        assert!(!foreign(&warm, 110, &others));
    }

    #[test]
    fn what_was_left_is_forgotten_when_it_is_gone() {
        let mut left = Left::default();
        left.add(vec![process(1)], &carrying("A"));
        left.add(Vec::new(), &carrying("B"));
        assert!(left.contains(&process(1)) && !left.contains(&process(2)));
        assert_eq!(left.marks.len(), 1, "nothing of the other one is left");
        // What it has started carries its marks.
        left.keep_only(&[process(2)], |_| carrying("A"));
        assert!(!left.contains(&process(1)) && left.marks.contains(&carrying("A")));
        left.keep_only(&[process(2)], |_| carrying("C"));
        assert!(left.marks.is_empty());
    }

    #[test]
    fn what_cannot_be_seen_is_not_taken_for_gone() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let seen = Processes::now();
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert!(seen.is_err(), "{seen:?}");
    }

    #[test]
    fn children_are_found_while_they_live_unless_they_are_foreign() {
        let mut child = Command::new("sleep").arg("1000").env("DISBATCH_ATTEMPT", "3").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        let found = |foreign: &dyn Fn(&Process) -> bool| {
            let all = Processes::now().unwrap().descendants(Pid::this(), foreign);
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
