//! The limits of a plugin: the control group that holds it and all that it starts, whether the kernel has killed something for
//! want of memory, and which limit has ended it.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use disbatch_core::config::Limits;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::confine::CPU_GRACE;

/// A shell ends with this and the number of the signal that has ended its command.
const SHELL_SIGNAL: i32 = 128;

/// The kernel and the final account differ by less than this.
const CPU_SLACK: Duration = Duration::from_secs(1);

/// A look at the counter of kills costs as much as some plugins do, so what was seen so recently counts as seen now.
const RECENT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exceeded {
    /// So many bytes of memory.
    Memory(u64),
    /// So many seconds of processor time.
    CpuSeconds(u64),
    /// So many bytes of a file.
    FileSize(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct End {
    pub status: ExitStatus,
    /// The processor time of it and of those descendants that were waited for.
    pub cpu: Duration,
    /// Whether memory ran out in its own control group.
    pub out_of_memory: bool,
}

impl Exceeded {
    /// The limit that has ended the plugin, if one has. Pure.
    pub fn of(limits: &Limits, end: End) -> Option<Self> {
        let was = |signal: Signal| end.status.signal() == Some(signal as i32);
        if was(Signal::SIGKILL) && end.out_of_memory {
            return limits.memory.map(Self::Memory);
        }
        if let Some(seconds) = limits.cpu_seconds {
            let has_used = |seconds| end.cpu.saturating_add(CPU_SLACK) >= Duration::from_secs(seconds);
            // Who does not end when told to is killed.
            let killed = was(Signal::SIGKILL) && has_used(seconds.saturating_add(CPU_GRACE));
            let in_shell = end.status.code() == Some(SHELL_SIGNAL + Signal::SIGXCPU as i32);
            if was(Signal::SIGXCPU) || killed || (in_shell && has_used(seconds)) {
                return Some(Self::CpuSeconds(seconds));
            }
        }
        limits.file_size.filter(|_| was(Signal::SIGXFSZ)).map(Self::FileSize)
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::CpuSeconds(_) => "cpu_seconds",
            Self::FileSize(_) => "file_size",
        }
    }

    /// A line for the task's standard error.
    pub fn note(self) -> String {
        let key = self.key();
        let what = match self {
            Self::Memory(bytes) => format!("it used more than {bytes} bytes of memory"),
            Self::CpuSeconds(seconds) => format!("it used more than {seconds} s of processor time"),
            Self::FileSize(bytes) => format!("it wrote more than {bytes} bytes into a file"),
        };
        format!("disbatch: the plugin was ended by its limit '{key}': {what}\n")
    }
}

/// The control group of one plugin and of all that it starts, which is there until it is removed.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    pub fn make(parent: &Path, name: &str, limits: &Limits) -> io::Result<Self> {
        let group = Self(parent.join(name));
        let made = fs::create_dir(&group.0).and_then(|()| group.set(limits));
        made.map_err(|error| {
            group.remove();
            let shown = group.0.display();
            io::Error::new(error.kind(), format!("cannot make the control group {shown}: {error}"))
        })?;
        Ok(group)
    }

    fn set(&self, limits: &Limits) -> io::Result<()> {
        let write = |file: &str, value: String| {
            let explain = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
            fs::write(self.0.join(file), value).map_err(explain)
        };
        if let Some(bytes) = limits.memory {
            write("memory.max", bytes.to_string())?;
            // The limit is to end the task, not to make it slow. Without swap there is no such file.
            if self.0.join("memory.swap.max").exists() {
                write("memory.swap.max", "0".to_owned())?;
            }
        }
        if let Some(processes) = limits.processes {
            write("pids.max", processes.to_string())?;
        }
        // A task that has lost some of its processes would not do what it is to do.
        write("memory.oom.group", "1".to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn has_run_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        count(&events).is_some_and(|kills| kills > 0)
    }

    /// Kills all that is in it. Old kernels cannot; then the guard finds the processes by itself.
    pub fn kill(&self) {
        let _not_everywhere = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Removes it. Returns whether it is gone: not as long as something runs in it.
    pub fn remove(&self) -> bool {
        match fs::remove_dir(&self.0) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// The kernel's counter of kills for want of memory: that of our control group, or that of the whole machine where the
/// group has none.
#[derive(Debug)]
pub struct OomKills {
    file: PathBuf,
    seen: u64,
    at: Instant,
}

impl OomKills {
    /// Notes where the counter stands now. `None` where there is no such counter.
    pub fn now() -> Option<Self> {
        let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| events_file(&text));
        let files = group.into_iter().chain([PathBuf::from("/proc/vmstat")]);
        files.into_iter().find_map(|file| {
            let seen = count(&fs::read_to_string(&file).ok()?)?;
            Some(Self { file, seen, at: Instant::now() })
        })
    }

    /// Notes again where it stands, unless that is known.
    pub fn note(&mut self) {
        if self.at.elapsed() > RECENT {
            self.more();
        }
    }

    /// Whether it has gone up since it was noted. That is noted, too.
    pub fn more(&mut self) -> bool {
        let now = fs::read_to_string(&self.file).ok().and_then(|text| count(&text));
        let more = now.is_some_and(|now| now > self.seen);
        self.seen = now.unwrap_or(self.seen);
        self.at = Instant::now();
        more
    }
}

/// Where control groups of version 2 count, by the text of `/proc/self/cgroup`.
fn events_file(groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(group).join("memory.events"))
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits {
        memory: Some(1 << 20),
        cpu_seconds: Some(10),
        open_files: None,
        processes: None,
        file_size: Some(7),
        core: None,
    };

    const NONE: Limits = Limits {
        memory: None,
        cpu_seconds: None,
        open_files: None,
        processes: None,
        file_size: None,
        core: None,
    };

    fn end(status: i32, cpu: u64) -> End {
        let cpu = Duration::from_secs(cpu);
        End { status: ExitStatus::from_raw(status), cpu, out_of_memory: false }
    }

    #[test]
    fn a_limit_is_told_by_the_end() {
        let (memory, cpu, file) =
            (Exceeded::Memory(1 << 20), Exceeded::CpuSeconds(10), Exceeded::FileSize(7));
        let cases = [
            (End { out_of_memory: true, ..end(9, 0) }, Some(memory)),
            (End { out_of_memory: true, ..end(0, 0) }, None),
            (end(Signal::SIGXCPU as i32, 10), Some(cpu)),
            (end(9, 15), Some(cpu)),
            (end(9, 10), None),
            (end(152 << 8, 10), Some(cpu)),
            (end(152 << 8, 1), None),
            (end(Signal::SIGXFSZ as i32, 0), Some(file)),
            (end(11, 20), None),
            (end(0, 20), None),
        ];
        for (end, expected) in cases {
            assert_eq!(Exceeded::of(&ALL, end), expected, "{end:?}");
            assert_eq!(Exceeded::of(&NONE, end), None, "{end:?}");
        }
    }

    #[test]
    fn the_note_names_the_limit() {
        let note = Exceeded::CpuSeconds(10).note();
        let expected = "disbatch: the plugin was ended by its limit 'cpu_seconds': it used more than 10 s of \
            processor time\n";
        assert_eq!(note, expected);
        assert!(Exceeded::Memory(5).note().contains("'memory': it used more than 5 bytes"));
        assert!(Exceeded::FileSize(5).note().contains("'file_size': it wrote more than 5 bytes"));
    }

    #[test]
    fn a_group_that_cannot_be_made_is_named() {
        let error = Group::make(Path::new("/nonexistent"), "disbatch-a-1-1", &Limits::default()).unwrap_err();
        let expected = "cannot make the control group /nonexistent/disbatch-a-1-1: No such file or directory";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn what_is_set_and_read_is_in_the_files_of_the_kernel() {
        // A folder that takes all files looks like a control group in which nothing is bounded.
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { memory: Some(2 << 20), processes: Some(7), ..Limits::default() };
        let group = Group::make(folder.path(), "disbatch-a-1-1", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(group.path().join(file)).unwrap();
        assert_eq!((read("memory.max").as_str(), read("pids.max").as_str()), ("2097152", "7"));
        assert_eq!(read("memory.oom.group"), "1");
        assert!(!group.path().join("memory.swap.max").exists());
        assert!(!group.has_run_out_of_memory());
        for (events, expected) in [("oom 1\noom_kill 0\n", false), ("oom_kill 1\noom_group_kill 1\n", true)] {
            fs::write(group.path().join("memory.events"), events).unwrap();
            assert_eq!(group.has_run_out_of_memory(), expected);
        }
        group.kill();
        assert_eq!(read("cgroup.kill"), "1");
        assert!(!group.remove(), "it is not empty");
        for file in fs::read_dir(group.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        assert!(group.remove() && group.remove());
    }

    #[test]
    fn the_counter_is_found() {
        assert_eq!(
            events_file("4:memory:/x\n0::/system.slice/den.service\n").as_deref(),
            Some(Path::new("/sys/fs/cgroup/system.slice/den.service/memory.events"))
        );
        assert_eq!(events_file("4:memory:/x\n"), None);
        assert_eq!(count("low 0\nhigh 0\noom 4\noom_kill 3\noom_group_kill 1\n"), Some(3));
        assert_eq!(count("nr_free_pages 5\n"), None);
    }

    #[test]
    fn only_a_rise_counts_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        fs::write(&file, "oom_kill 3\n").unwrap();
        let mut kills = OomKills { file: file.clone(), seen: 3, at: Instant::now() };
        assert!(!kills.more());
        fs::write(&file, "oom_kill 4\n").unwrap();
        assert!(kills.more());
        assert!(!kills.more());
    }
}
