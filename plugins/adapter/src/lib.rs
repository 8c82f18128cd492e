//! What the adapters share: programs that run plugins by the means of another system.
//!
//! A runner starts an adapter as it starts any plugin: the task is one line of JSON on standard input, SIGTERM means that it is to
//! end, and JSON lines on a descriptor are for the runner. The line has one key more, `worker`, which is for the adapter alone
//! ([`Line`]).

mod control;
pub mod hosts;
mod line;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use control::{Control, VARIABLE as CONTROL_VARIABLE, runner};
pub use line::{Filled, Line, Worker, fill, grace, seconds};

/// Hears of SIGTERM, and of SIGINT for who tries it on a terminal.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits until the task is to end.
    pub async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Says something on standard error, as a line that is not of what the plugin runs.
pub fn note(what: &dyn Display) {
    // Nobody is left to tell when standard error is closed.
    let _nobody_reads = writeln!(io::stderr(), "disbatch: {what}");
}

/// An error with its causes, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors say what their cause says.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn causes_that_an_error_has_said_are_not_said_again() {
        let odd = io::Error::other("odd");
        let text = |error: io::Error| with_causes(&io::Error::other(error));
        assert_eq!(text(odd), "odd");
        let number = "x".parse::<u8>().unwrap_err();
        assert_eq!(with_causes(&number), "invalid digit found in string");
    }
}
