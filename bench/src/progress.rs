//! What a person sees while it runs: a bar on a terminal, a line at the end of each measurement anywhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::results::Sample;
use crate::statistics::Summary;

#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Default for Progress {
    fn default() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }
}

impl Progress {
    pub fn begin(&self, title: &str) {
        self.0.set_message(title.to_owned());
        self.0.set_position(0);
    }

    pub fn at(&self, done: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(done);
    }

    /// It has ended, and this came out: the first series stands for all.
    pub fn end(&self, title: &str, samples: &[Sample]) {
        let Some(first) = samples.first() else { return };
        let values: Vec<f64> = samples
            .iter()
            .filter(|sample| sample.series == first.series)
            .map(|sample| sample.value)
            .collect();
        if let Some(summary) = Summary::of(&values) {
            self.note(&format!(
                "{title} {}: {}: {:.1}",
                first.series.figure, first.series.label, summary.median
            ));
        }
    }

    /// A line above the bar.
    pub fn note(&self, line: &str) {
        self.0.suspend(|| say(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line for the person who waits.
#[expect(clippy::print_stderr, reason = "standard output has the report alone")]
pub fn say(line: &str) {
    eprintln!("{line}");
}
