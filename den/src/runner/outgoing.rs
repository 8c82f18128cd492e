//! What a runner is told: it goes out in one piece when a few letters have been dealt with, and counts as said when it has gone.

use std::time::Duration;

use disbatch_core::link::{self, ToRunner};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::timeout;

/// A runner that does not take what it is sent for so long is stopped, or hangs.
pub(super) const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// The runner is told sooner when that is more than so many bytes.
const MOST_BYTES: usize = 1024 * 1024;

/// What becomes of the assignment with this number when a message has been sent, or has not.
pub(super) enum Then {
    /// The runner has it if this was sent.
    Assigned(i64),
    /// It is over, and the runner free for another one, if this was sent.
    Free(i64),
    /// It is over if this was sent. Its place is taken already.
    Over(i64),
}

pub(super) struct Outgoing {
    pid: u32,
    /// `None` once the link is closed.
    target: Option<OwnedWriteHalf>,
    /// The link is closed when what is to be sent has gone.
    pub(super) is_given_up: bool,
    bytes: Vec<u8>,
    /// Where in the bytes a message ends that something follows from.
    then: Vec<(usize, Then)>,
}

/// What has come of sending.
pub(super) struct Sent {
    /// What follows from messages, and whether all of each was sent: if not, the runner has not got it.
    pub(super) then: Vec<(Then, bool)>,
    /// The runner has not taken it in time.
    pub(super) is_stuck: bool,
}

impl Outgoing {
    pub(super) fn new(target: OwnedWriteHalf, pid: u32) -> Self {
        Self { pid, target: Some(target), is_given_up: false, bytes: Vec::new(), then: Vec::new() }
    }

    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > MOST_BYTES
    }

    pub(super) fn add(&mut self, message: &[u8], then: Option<Then>) {
        self.bytes.extend_from_slice(message);
        self.then.extend(then.map(|then| (self.bytes.len(), then)));
    }

    /// Has a message sent, unless the link is given up.
    pub(super) fn tell(&mut self, message: &ToRunner, then: Option<Then>) {
        if self.is_given_up {
            return;
        }
        match link::encode(message) {
            Ok(message) => self.add(&message, then),
            Err(error) => {
                tracing::error!(%error, pid = self.pid, "a runner cannot be told something");
                self.is_given_up = true;
            }
        }
    }

    /// Sends what is to be sent. If that cannot be done, the link is to be given up.
    pub(super) async fn send(&mut self) -> Sent {
        let (bytes, then) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.then));
        let (mut left, mut is_stuck) = (bytes.as_slice(), false);
        if let Some(target) = self.target.as_mut().filter(|_| !bytes.is_empty()) {
            match timeout(LISTENS_WITHIN, target.write_all_buf(&mut left)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, pid = self.pid, "a runner does not listen");
                    self.is_given_up = true;
                }
                Err(_) => is_stuck = true,
            }
        }
        let sent = bytes.len() - left.len();
        Sent { then: then.into_iter().map(|(end, then)| (then, end <= sent)).collect(), is_stuck }
    }

    /// Closes the link, if it is given up.
    pub(super) fn end(&mut self) {
        if self.is_given_up {
            self.target = None;
        }
    }
}
