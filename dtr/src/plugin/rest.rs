//! What a plugin that has ended has left in its pipes.

use std::pin::{Pin, pin};

use tokio::time::{Instant, sleep};

use super::{Exited, PIPES_GRACE, Say, Watch};
use crate::supervision::{Reason, Wish};

/// A pipe has 1 MiB at most, and a report 14 bytes at least, so no plugin leaves so many: whoever makes them has outlived it.
const MOST_LEFT: usize = 100_000;

impl Watch<'_> {
    /// Reads what is left to its end, or until whoever has outlived the plugin has held its pipes for [`PIPES_GRACE`]. That begins anew as
    /// long as the next report has to wait for the database, unless the task has to end.
    pub(super) async fn until_drained<D>(
        &mut self,
        mut streams: Pin<&mut impl Future<Output = Option<D>>>,
        exited: Exited,
        say: &mut Say<'_>,
    ) -> Exited {
        let mut to_end = self.ending.reason;
        let most = self.relay.reported().saturating_add(MOST_LEFT);
        let mut grace = pin!(sleep(PIPES_GRACE));
        loop {
            tokio::select! {
                biased;
                // Before the output, which may never cease to come.
                wish = say.supervision.next() => {
                    if let Wish::End(end) = wish {
                        to_end.get_or_insert(end.reason);
                    }
                }
                () = say.lifecycle.ending(), if to_end.is_none() => to_end = Some(Reason::Runner),
                _ = streams.as_mut() => return exited,
                // Also when output has used up what a task of the runtime may do at a time.
                () = tokio::task::unconstrained(grace.as_mut()) => {
                    let is_held_up = self.relay.is_held_up() && self.relay.reported() < most;
                    if !is_held_up || to_end.is_some() {
                        // What it has not been heard to say may have been that it has failed.
                        let reason = exited.reason.or(to_end.filter(|_| is_held_up));
                        return Exited { reason, abandoned: Some(note(is_held_up)), ..exited };
                    }
                    grace.as_mut().reset(Instant::now() + PIPES_GRACE);
                }
            }
        }
    }
}

fn note(is_held_up: bool) -> String {
    let why = if is_held_up {
        "the task had to end while reports waited for the database; what came after them is lost".to_owned()
    } else {
        let grace = PIPES_GRACE.as_secs();
        format!("a process that outlived the plugin holds its output open; stopped reading after {grace} s")
    };
    tracing::warn!("{why}");
    format!("disbatch: {why}\n")
}
