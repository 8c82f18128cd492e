//! What is under way to end a plugin.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::guard::Guarded;
use crate::guard::protocol::Order;
use crate::supervision::{End, Reason};

/// Nothing at first.
#[derive(Debug, Default)]
pub struct Ending {
    /// Why it is to end, if it is.
    pub reason: Option<Reason>,
    kill_at: Option<Instant>,
    killed: bool,
}

impl Ending {
    /// TERM, and KILL after a while. Of several requests the first gives the reason.
    pub fn end(&mut self, guard: &Guarded, end: End) {
        let first = self.reason.is_none();
        self.reason.get_or_insert(end.reason);
        if end.reason == Reason::LeaseLost {
            return self.kill(guard);
        }
        if first {
            tracing::warn!(
                reason = end.reason.as_str(),
                grace_s = end.grace.as_secs_f64(),
                "ending the plugin"
            );
            guard.tell(Order::Term);
        }
        self.kill_in(end.grace);
    }

    /// KILL after this time at the latest.
    pub fn kill_in(&mut self, grace: Duration) {
        if !self.killed {
            let kill_at = Instant::now() + grace;
            self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        }
    }

    pub fn kill(&mut self, guard: &Guarded) {
        self.kill_at = None;
        if !std::mem::replace(&mut self.killed, true) {
            tracing::warn!(reason = self.reason.map(Reason::as_str), "killing the plugin");
            guard.tell(Order::Kill);
        }
    }

    /// Waits until it is time for that.
    pub async fn grace_is_over(&self) {
        match self.kill_at {
            Some(time) => sleep_until(time).await,
            None => std::future::pending().await,
        }
    }
}
