//! Labels whose values are known when the program is compiled.

use std::fmt::Debug;

/// A label with all its values.
pub trait Label: Debug + Copy + Send + Sync + 'static {
    const NAME: &'static str;
    const VALUES: &'static [&'static str];

    /// Where its value is in [`Label::VALUES`].
    fn index(self) -> usize;
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident $label:literal { $($variant:ident = $value:literal),+ $(,)? })+) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($variant),+
        }

        impl Label for $name {
            const NAME: &'static str = $label;
            const VALUES: &'static [&'static str] = &[$($value),+];

            fn index(self) -> usize {
                self as usize
            }
        }
    )+ };
}

labels! {
    /// Who has submitted a task.
    Source "source" { Api = "api", Array = "array", Inbox = "inbox", Notification = "notification", Schedule = "schedule", Shadow = "shadow" }

    /// Why new tasks were refused.
    Refusal "reason" {
        Admission = "admission", Closed = "closed", Idempotency = "idempotency", Invalid = "invalid", Quota = "quota",
        Schema = "schema", Size = "size", Unique = "unique",
    }

    /// How a task has ended for good.
    Outcome "outcome" {
        Succeeded = "succeeded", Failed = "failed", Terminated = "terminated", Cancelled = "cancelled", Orphaned = "orphaned",
    }

    /// Why an attempt has failed.
    Cause "cause" {
        Deadline = "deadline", Exit = "exit", Lost = "lost", Oom = "oom", Signal = "signal", Start = "start", Timeout = "timeout",
    }

    /// Who has a task tried again: the rules of its queue, or somebody.
    RetriedBy "by" { Person = "person", Policy = "policy" }

    /// What came of a round of claims.
    Round "result" { Empty = "empty", Gated = "gated", Lost = "lost", Tasks = "tasks" }

    /// What a DEN writes for its runners.
    Write "op" { End = "end", Output = "output", Renew = "renew", Start = "start" }

    /// What came of the renewal of a lease.
    Renewal "outcome" { Failed = "failed", Held = "held", Lost = "lost" }

    /// What became of a task whose runner is gone.
    Burial "action" { Ended = "ended", Requeued = "requeued" }

    /// What became of a span.
    Export "outcome" { Dropped = "dropped", Failed = "failed", Sent = "sent" }

    /// How somebody is told.
    Channel "channel" { Mail = "mail", Slack = "slack", Teams = "teams", Webhook = "webhook" }

    /// What became of a message of a subscription.
    Notice "outcome" { Queued = "queued", Refused = "refused" }

    /// Chores of a DEN. A look is a pass of its loop; all others are done by one DEN or another.
    Worker "worker" {
        Archive = "archive", Arrays = "arrays", Audit = "audit", Balance = "balance", Gates = "gates", Inbox = "inbox", Look = "look",
        Notify = "notify", Schedules = "schedules", Shadows = "shadows", Sweep = "sweep",
    }

    /// What became of a time of a schedule.
    Fire "outcome" { Error = "error", Fired = "fired", Missed = "missed", Overlap = "overlap" }

    /// Whether a runner is kept for the next task.
    RunnerKind "kind" { Cold = "cold", Warm = "warm" }

    /// What a runner does.
    RunnerState "state" { Busy = "busy", Idle = "idle" }

    /// How a runner has ended that was not to.
    Death "cause" { Exit = "exit", Signal = "signal", Vanished = "vanished" }

    /// Why somebody was not let in.
    AuthFailure "reason" { Forbidden = "forbidden", Missing = "missing", Throttled = "throttled", Wrong = "wrong" }
}
