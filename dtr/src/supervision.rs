//! How the rest of the runner has a say in the life of its plugin.

use std::future::pending;
use std::time::Duration;

use futures::future::Either;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::guard::Guarded;
use crate::guard::protocol::Order;

/// Why a plugin was made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Cancel,
    /// The attempt took longer than it may.
    Timeout,
    /// The task had to be done by now.
    Deadline,
    /// The task may have been given to another runner. There is no grace then.
    LeaseLost,
    /// The runner was told to end.
    Runner,
}

impl Reason {
    /// As tasks have it in `exit.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Deadline => "deadline",
            Self::LeaseLost => "lease",
            Self::Runner => "runner",
        }
    }
}

/// A request to end the plugin: TERM to its process group, KILL to all of its descendants after the grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub reason: Reason,
    /// How long it may take. Of several requests the shortest counts.
    pub grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It may live until this time, by [`crate::boot_time`], unless it is given more.
    Until(Duration),
    End(End),
    /// It stops if it can, to go on elsewhere.
    Interrupt,
}

/// The side that decides. Clones speak to the same plugin.
#[derive(Debug, Clone)]
pub struct Supervisor(mpsc::UnboundedSender<Wish>);

/// The plugin's side, or that of several plugins, one after the other.
#[derive(Debug)]
pub struct Supervision {
    wishes: mpsc::UnboundedReceiver<Wish>,
    so_far: SoFar,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoFar {
    /// The newest time until which a plugin may live.
    pub until: Option<Duration>,
    /// The first request to end.
    pub end: Option<End>,
    pub interrupt: bool,
}

/// Both sides. What is said before the plugin starts is heard when it does.
pub fn channel() -> (Supervisor, Supervision) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Supervisor(sender), Supervision { wishes: receiver, so_far: SoFar::default() })
}

impl Supervisor {
    /// The plugin may live until `time`, by [`crate::boot_time`], unless this is called again. After that its
    /// guard kills it, whatever the runner does.
    pub fn live_until(&self, time: Duration) {
        self.wish(Wish::Until(time));
    }

    pub fn end(&self, end: End) {
        self.wish(Wish::End(end));
    }

    pub fn interrupt(&self) {
        self.wish(Wish::Interrupt);
    }

    fn wish(&self, wish: Wish) {
        // A plugin that has ended needs neither.
        let _ended = self.0.send(wish);
    }
}

impl Supervision {
    /// The next wish. Never resolves when nobody is left to have one.
    pub async fn next(&mut self) -> Wish {
        let Some(wish) = self.wishes.recv().await else { return pending().await };
        self.note(wish);
        wish
    }

    /// All that has been wished for so far. Between two plugins, this tells what holds for the second.
    pub fn so_far(&mut self) -> SoFar {
        while let Ok(wish) = self.wishes.try_recv() {
            self.note(wish);
        }
        self.so_far
    }

    /// Whether a plugin was to stop before this one was started. What comes after that is the next wish.
    pub fn is_interrupted(&self) -> bool {
        self.so_far.interrupt
    }

    fn note(&mut self, wish: Wish) {
        match wish {
            Wish::Until(time) => self.so_far.until = Some(time),
            Wish::End(end) => {
                self.so_far.end.get_or_insert(end);
            }
            Wish::Interrupt => self.so_far.interrupt = true,
        }
    }
}

/// What is under way to end a plugin: nothing at first.
#[derive(Debug, Default)]
pub struct Ending {
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
        until(self.kill_at).await;
    }
}

/// Waits until that time, if there is one, or else for ever.
pub fn until(time: Option<Instant>) -> impl Future<Output = ()> {
    or_never(time.map(sleep_until))
}

/// Waits for this, if it is there, or else for ever.
pub fn or_never<T>(this: Option<impl Future<Output = T>>) -> impl Future<Output = T> {
    // No `async fn`, which has room for what it is given twice.
    this.map_or_else(|| Either::Right(pending()), Either::Left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_one_plugin_was_told_and_what_came_since_holds_for_the_next() {
        let (supervisor, mut supervision) = channel();
        assert_eq!(supervision.so_far(), SoFar::default());
        let time = Duration::from_secs;
        let end = |reason| End { reason, grace: time(1) };
        supervisor.live_until(time(5));
        assert_eq!(supervision.next().await, Wish::Until(time(5)));
        supervisor.live_until(time(9));
        supervisor.end(end(Reason::Cancel));
        supervisor.end(end(Reason::Timeout));
        supervisor.interrupt();
        let expected = SoFar { until: Some(time(9)), end: Some(end(Reason::Cancel)), interrupt: true };
        assert_eq!(supervision.so_far(), expected);
        drop(supervisor);
        assert_eq!(supervision.so_far(), expected);
    }
}
