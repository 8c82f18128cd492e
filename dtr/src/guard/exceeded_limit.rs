//! Which limit has ended a plugin. Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use disbatch_core::config::Limits;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::confine::CPU_GRACE;

/// A shell ends with this and the number of the signal that has ended its command.
const SHELL_SIGNAL: i32 = 128;

/// The kernel and the final account differ by less than this.
const CPU_SLACK: Duration = Duration::from_secs(1);

/// A limit that a plugin has exceeded.
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

/// How a plugin has ended that nobody has told to.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub status: ExitStatus,
    /// The processor time of it and of those descendants that were waited for.
    pub cpu: Duration,
    /// Whether memory ran out in its own control group.
    pub out_of_memory: bool,
}

impl Exceeded {
    /// The limit that has ended the plugin, if one has.
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

    /// The limit's key in the configuration.
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
}
