//! How many bytes are done, on standard error.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// How often a line is printed where a bar cannot be shown.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// A bar on a terminal, else lines.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// What is done, as in `sent 3 MiB of 4 MiB`.
    word: &'static str,
    done: Cell<u64>,
    total: Cell<u64>,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Begins with so many bytes to be done.
    pub fn start(word: &'static str, total: u64) -> anyhow::Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| bar(total)).transpose()?;
        let now = Cell::new(Instant::now());
        Ok(Self { bar, word, done: Cell::new(0), total: Cell::new(total), last_line: now })
    }

    /// There is more to be done than was known.
    pub fn grow(&self, bytes: u64) {
        self.total.set(self.total.get().saturating_add(bytes));
        if let Some(bar) = &self.bar {
            bar.set_length(self.total.get());
        }
    }

    /// So many bytes more are done.
    pub fn advance(&self, bytes: u64) {
        self.done.set(self.done.get().saturating_add(bytes));
        if let Some(bar) = &self.bar {
            bar.set_position(self.done.get());
        } else if self.last_line.get().elapsed() >= NOW_AND_THEN {
            self.last_line.set(Instant::now());
            eprintln!("{} {} of {}", self.word, HumanBytes(self.done.get()), HumanBytes(self.total.get()));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::new(total);
    let template = "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}
