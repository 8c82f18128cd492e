//! Lines on standard output that do not tear a progress bar apart.

use std::io::{self, IsTerminal, Write};

use indicatif::MultiProgress;

#[derive(Debug, Clone, Copy)]
pub enum Colour {
    /// For failures.
    Red,
    /// For successes.
    Green,
    /// For what needs a look.
    Yellow,
    /// For one process.
    Blue,
    /// For another.
    Cyan,
}

impl Colour {
    const fn code(self) -> u8 {
        match self {
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
            Self::Cyan => 36,
        }
    }
}

/// Where a person reads. Clones share one terminal.
#[derive(Debug, Clone)]
pub struct Console {
    /// The progress bars below the lines.
    pub bars: MultiProgress,
    colour: bool,
}

impl Console {
    /// Standard output, in colour if it is a terminal and `NO_COLOR` is not set.
    pub fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { bars: MultiProgress::new(), colour: io::stdout().is_terminal() && !refused }
    }

    /// Prints a line.
    pub fn line(&self, text: &str) {
        // Whoever closed our output does not want to know.
        self.bars.suspend(|| {
            let _ = writeln!(io::stdout().lock(), "{text}");
        });
    }

    /// Prints a line on standard error.
    pub fn error(&self, text: &str) {
        self.bars.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{text}");
        });
    }

    /// Whether progress bars are seen.
    pub fn has_bars(&self) -> bool {
        !self.bars.is_hidden()
    }

    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", colour.code()) } else { text.to_owned() }
    }
}
