//! What a warm plugin uses for each task.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rustix::param::{clock_ticks_per_second, page_size};

/// The system counts the processor time of descendants in units of this length. In a shorter task it is not looked at.
const TICK: Duration = Duration::from_millis(10);

/// Fields of `/proc/PID/stat` after the program's name: processor time of descendants that were waited for, in user
/// and in system mode, and resident pages.
const CHILDREN_USER: usize = 13;
const CHILDREN_SYSTEM: usize = 14;
const RESIDENT: usize = 21;

const RESIDENT_OF_STATM: usize = 1;

#[derive(Debug)]
pub struct Meter {
    clock: Option<ClockId>,
    stat: Option<File>,
    statm: Option<File>,
    cpu: Duration,
    children: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of the process and, as far as it is known, of the descendants that it waited for.
    pub cpu: Duration,
    /// Its resident memory at the end, in bytes; 0 if that is not known.
    pub memory: u64,
}

impl Meter {
    /// For a process that has just been started. The first task pays for that.
    pub fn of(process: Pid) -> Self {
        let open = |file| File::open(format!("/proc/{process}/{file}")).ok();
        Self {
            clock: clock_getcpuclockid(process).ok(),
            stat: open("stat"),
            statm: open("statm"),
            cpu: Duration::ZERO,
            children: Duration::ZERO,
        }
    }

    /// What was used since the last time by a task that took so long.
    pub fn lap(&mut self, took: Duration) -> Usage {
        let own = self.clock.and_then(|clock| clock_gettime(clock).ok()).map_or(self.cpu, Duration::from);
        let cpu = own.saturating_sub(self.cpu);
        self.cpu = own;
        if took < TICK {
            return Usage { cpu, memory: self.memory() };
        }
        let Some((children, memory)) = self.children_and_memory() else { return Usage { cpu, memory: 0 } };
        let of_children = children.saturating_sub(self.children);
        self.children = children;
        Usage { cpu: cpu + of_children, memory }
    }

    /// The processor time of the process itself until the last lap.
    pub fn total(&self) -> Duration {
        self.cpu
    }

    /// How much of the processor time of a process that has ended belongs to its last task.
    pub fn rest(&self, total: Duration) -> Duration {
        total.saturating_sub(self.cpu + self.children)
    }

    fn memory(&self) -> u64 {
        let pages = || {
            let mut buffer = [0; 128];
            let text = text(self.statm.as_ref()?, &mut buffer)?;
            number(text.split_ascii_whitespace().nth(RESIDENT_OF_STATM)?)
        };
        bytes(pages().unwrap_or(0))
    }

    fn children_and_memory(&self) -> Option<(Duration, u64)> {
        let mut buffer = [0; 1024];
        let text = text(self.stat.as_ref()?, &mut buffer)?;
        // The second field is the program's name in parentheses, and may hold anything.
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let user = number(fields.nth(CHILDREN_USER)?)?;
        let system = number(fields.nth(CHILDREN_SYSTEM - CHILDREN_USER - 1)?)?;
        let pages = number(fields.nth(RESIDENT - CHILDREN_SYSTEM - 1)?)?;
        let ticks = clock_ticks_per_second().max(1);
        let children = Duration::from_millis((user + system).saturating_mul(1000) / ticks);
        Some((children, bytes(pages)))
    }
}

fn text<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    let read = file.read_at(buffer, 0).ok()?;
    // The name of a program need not be text.
    let start = buffer[..read].iter().rposition(|byte| *byte == b')').unwrap_or(0);
    std::str::from_utf8(&buffer[start..read]).ok()
}

fn number(field: &str) -> Option<u64> {
    field.parse().ok()
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn each_lap_counts_for_itself() {
        let script = "while read n; do
            i=0; while [ $i -lt $n ]; do i=$((i+1)); done
            [ $n = 1 ] && sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'
            echo done; done";
        let command =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = command.unwrap();
        let (mut stdin, mut stdout) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut meter = Meter::of(Pid::from_raw(child.id().try_into().unwrap()));
        let mut lap = |loops: &str, took| {
            stdin.write_all(loops.as_bytes()).unwrap();
            stdout.read_line(&mut String::new()).unwrap();
            meter.lap(took)
        };
        let nothing = lap("0\n", Duration::ZERO);
        let busy = lap("100000\n", Duration::ZERO);
        let again = lap("0\n", Duration::ZERO);
        let with_child = lap("1\n", Duration::from_secs(1));
        let last = lap("0\n", Duration::from_secs(1));
        assert!(nothing.memory > 100_000 && last.memory > 100_000, "{nothing:?} {last:?}");
        assert!(busy.cpu > again.cpu, "{busy:?} {again:?}");
        assert!(with_child.cpu >= TICK, "{with_child:?}");
        assert!(last.cpu < with_child.cpu, "{last:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = meter.lap(Duration::ZERO);
        assert_eq!(gone, Usage { cpu: Duration::ZERO, memory: 0 });
    }
}
