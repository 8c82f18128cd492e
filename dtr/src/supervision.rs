//! How the rest of the runner has a say in the life of its plugin.

use std::time::Duration;

use tokio::sync::mpsc;

/// Why a plugin was made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Somebody has cancelled the task.
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
    /// Why.
    pub reason: Reason,
    /// How long it may take. Of several requests the shortest counts.
    pub grace: Duration,
}

/// A wish concerning the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It may live until this time, by [`crate::boot_time`], unless it is given more.
    Until(Duration),
    /// It must end.
    End(End),
}

/// The side that decides. Clones speak to the same plugin.
#[derive(Debug, Clone)]
pub struct Supervisor(mpsc::UnboundedSender<Wish>);

/// The plugin's side.
#[derive(Debug)]
pub struct Supervision(mpsc::UnboundedReceiver<Wish>);

/// Both sides. What is said before the plugin starts is heard when it does.
pub fn channel() -> (Supervisor, Supervision) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Supervisor(sender), Supervision(receiver))
}

impl Supervisor {
    /// The plugin may live until `time`, by [`crate::boot_time`], unless this is called again. After that its
    /// guard kills it, whatever the runner does.
    pub fn live_until(&self, time: Duration) {
        self.wish(Wish::Until(time));
    }

    /// Ends the plugin.
    pub fn end(&self, end: End) {
        self.wish(Wish::End(end));
    }

    fn wish(&self, wish: Wish) {
        // A plugin that has ended needs neither.
        let _ended = self.0.send(wish);
    }
}

impl Supervision {
    /// The next wish. Never resolves when nobody is left to have one.
    pub async fn next(&mut self) -> Wish {
        match self.0.recv().await {
            Some(wish) => wish,
            None => std::future::pending().await,
        }
    }
}
