//! ^C and SIGTERM: the first stops, the second hurries.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that have come so far.
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

    /// Resolves at the first signal.
    pub async fn first(&self) {
        self.first.cancelled().await;
    }

    pub fn first_has_come(&self) -> bool {
        self.first.is_cancelled()
    }

    /// Resolves at the second signal.
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
