//! How every process ends: the first signal drains, the second ends.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What the process has been asked to do by SIGTERM or SIGINT.
///
/// Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    drain: CancellationToken,
    end: CancellationToken,
}

impl Lifecycle {
    pub fn listen() -> io::Result<Self> {
        let lifecycle = Self::default();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(lifecycle.clone().follow(terminate, interrupt));
        Ok(lifecycle)
    }

    async fn follow(self, mut terminate: Signal, mut interrupt: Signal) {
        for token in [&self.drain, &self.end] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    }

    /// Resolves at the first signal: take no new work, bring what runs to a clean end.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Resolves at the second signal: stop now, leaving nothing half-written.
    pub async fn ending(&self) {
        self.end.cancelled().await;
    }

    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    pub fn is_ending(&self) -> bool {
        self.end.is_cancelled()
    }
}
