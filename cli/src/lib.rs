//! What `disbatch` and `disbatch-local` share: the definition of the command line, what is read and printed and how, the way
//! to a DCI, and how ^C is heard.
//!
//! `disbatch` needs nothing of the database and of runners, and is not linked with them. It hands commands that do to
//! `disbatch-local`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command line is for")]

pub mod api;
pub mod args;
pub mod input;
pub mod output;
pub mod status;

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// ^C and SIGTERM, as far as they have come: the first stops, the second hurries.
#[derive(Debug)]
pub struct Signals {
    first: CancellationToken,
    second: CancellationToken,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let signals = Self { first: CancellationToken::new(), second: CancellationToken::new() };
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::spawn(follow([signals.first.clone(), signals.second.clone()], terminate, interrupt));
        Ok(signals)
    }

    pub async fn first(&self) {
        self.first.cancelled().await;
    }

    pub fn first_has_come(&self) -> bool {
        self.first.is_cancelled()
    }

    pub async fn second(&self) {
        self.second.cancelled().await;
    }
}

async fn follow(tokens: [CancellationToken; 2], mut terminate: Signal, mut interrupt: Signal) {
    for token in tokens {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    }
}
