//! What the plugins say of themselves.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use disbatch_core::model::TaskId;

use super::work::{BEAT, END, START};

/// One process of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub task: TaskId,
    /// Which claim of it.
    pub attempt: i64,
    pub pid: i32,
    /// When it started, since the machine did.
    pub started: Duration,
    /// When it started, by the time of day.
    pub started_wall: Duration,
    /// When it was certainly alive for the last time, since the machine was started.
    pub last: Duration,
    /// Whether it came to its end.
    pub ended: bool,
}

impl Run {
    /// For messages.
    pub fn describe(&self) -> String {
        let how = if self.ended { "ended" } else { "was last seen alive" };
        format!(
            "attempt {} as process {} from {:.3} s, {how} at {:.3} s",
            self.attempt,
            self.pid,
            self.started.as_secs_f64(),
            self.last.as_secs_f64()
        )
    }
}

/// Reads all records, in order of the start.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).context("cannot read the records")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path())?;
        // A process that was killed before it wrote anything has done nothing either.
        runs.extend(parse(&name, &text));
    }
    runs.sort_by_key(|run| run.started);
    Ok(runs)
}

/// The runs of each task, in order of their start.
pub fn by_task(runs: &[Run]) -> HashMap<TaskId, Vec<&Run>> {
    let mut tasks: HashMap<TaskId, Vec<&Run>> = HashMap::new();
    for run in runs {
        tasks.entry(run.task).or_default().push(run);
    }
    tasks
}

fn parse(name: &str, text: &str) -> Option<Run> {
    let mut parts = name.split('.');
    let (task, attempt, pid) = (parts.next()?, parts.next()?, parts.next()?);
    let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let (started, started_wall) = match lines.next()?[..] {
        [START, at, wall] => (nanos(at)?, Duration::from_millis(wall.parse().ok()?)),
        _ => return None, // It was killed while it wrote its first line.
    };
    let mut run = Run {
        task: task.parse().ok()?,
        attempt: attempt.parse().ok()?,
        pid: pid.parse().ok()?,
        started,
        started_wall,
        last: started,
        ended: false,
    };
    for line in lines {
        if let [word @ (BEAT | END), at] = line[..]
            && let Some(at) = nanos(at)
        {
            run.last = at;
            run.ended = word == END;
        }
    }
    Some(run)
}

fn nanos(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_far_as_they_go() {
        let name = "6b0003bb686c8275d70dc2f1.3.77";
        let run = parse(name, "start 1000 5\nbeat 2000\nend 3000\n").unwrap();
        assert_eq!((run.attempt, run.pid, run.ended), (3, 77, true));
        assert_eq!((run.started, run.last), (Duration::from_nanos(1000), Duration::from_nanos(3000)));
        let run = parse(name, "start 1000 5\nbeat 2000\n").unwrap();
        assert_eq!((run.last, run.ended), (Duration::from_nanos(2000), false));
        assert_eq!(parse(name, ""), None);
    }
}
