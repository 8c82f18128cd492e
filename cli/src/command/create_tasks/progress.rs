//! How far `create-tasks --file` is, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where a bar cannot be shown.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// A bar on a terminal, else lines.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Begins; `bytes` is the size of the input if that is known.
    pub fn start(bytes: Option<u64>) -> anyhow::Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| bar(bytes)).transpose()?;
        Ok(Self { bar, started: Instant::now(), last_line: Instant::now() })
    }

    /// So many tasks have been created, from so many bytes.
    pub fn advance(&mut self, tasks: u64, bytes: u64) {
        let speed = per_second(tasks, self.started.elapsed());
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message(format!("{tasks} tasks, {speed:.0} tasks/s"));
        } else if self.last_line.elapsed() >= NOW_AND_THEN {
            self.last_line = Instant::now();
            eprintln!("created {tasks} tasks, {speed:.0} tasks/s");
        }
    }

    /// Removes the bar. Returns how long it all took.
    pub fn finish(self) -> Duration {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }

    /// Prints a line beside the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Runs something that prints on standard output, which may be the same terminal.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// How many tasks were created in a second.
pub fn per_second(tasks: u64, time: Duration) -> f64 {
    // No task count is so large that the conversion loses a digit that matters.
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    f64::from(tasks) / time.as_secs_f64().max(0.001)
}

fn bar(bytes: Option<u64>) -> anyhow::Result<ProgressBar> {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{wide_bar} {percent:>3}% {msg}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.set_message("0 tasks");
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_no_division_by_zero() {
        assert!(per_second(1, Duration::ZERO).is_finite());
        assert!((per_second(10, Duration::from_secs(4)) - 2.5).abs() < 1e-9);
    }
}
