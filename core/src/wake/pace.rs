//! How a change stream is asked. A question that waits at the server tells of a change at once, but wakes for all that is written to the
//! database, which costs the server about a tenth of what the task costs that is written, for each DEN that waits. Where others wait, a DEN asks
//! only now and then, and only for what is not about tasks: it looks for these.

use std::time::Duration;

/// How long the server holds a question for changes when there are none: an idle stream costs one operation in
/// that time. A change is told at once.
pub(super) const AWAIT: Duration = Duration::from_secs(10);

/// How long a question waits of one that asks now and then.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How often it asks.
pub(super) const ASKED_EVERY: Duration = Duration::from_secs(2);

/// Who may need to hear of changes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The node, for its next tasks.
    Node,
    /// Whoever lets tasks go on that wait for others.
    Gates,
}

/// Who needs that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listeners {
    node: bool,
    gates: bool,
}

impl Default for Listeners {
    /// It is not known yet who else hears of changes.
    fn default() -> Self {
        Self { node: true, gates: false }
    }
}

impl Listeners {
    /// Returns whether anything is different now.
    pub(super) fn set(&mut self, listener: Listener, needs: bool) -> bool {
        let one = match listener {
            Listener::Node => &mut self.node,
            Listener::Gates => &mut self.gates,
        };
        std::mem::replace(one, needs) != needs
    }

    pub(super) fn pace(self) -> Pace {
        if self.node || self.gates { Pace::Waiting } else { Pace::Asking }
    }
}

/// How a stream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// It is waited for changes at the server.
    Waiting,
    /// It is asked whether there are some, every two seconds.
    Asking,
}

impl Pace {
    pub(super) fn await_time(self) -> Duration {
        match self {
            Self::Waiting => AWAIT,
            Self::Asking => AT_ONCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_as_long_as_anybody_needs_it() {
        let mut listeners = Listeners::default();
        assert_eq!(listeners.pace(), Pace::Waiting);
        assert!(listeners.set(Listener::Node, false) && !listeners.set(Listener::Node, false));
        assert_eq!(listeners.pace(), Pace::Asking);
        assert!(listeners.set(Listener::Gates, true));
        assert_eq!(listeners.pace(), Pace::Waiting);
    }
}
