//! What the runner wants: that the task ends.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears of SIGTERM, and of SIGINT for who tries it on a terminal.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    ///
    /// # Errors
    /// The system refuses.
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
