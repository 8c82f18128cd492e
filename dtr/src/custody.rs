//! Keeps the task in this runner's hands, from its start until its result is stored: renews its lease, and
//! says when the plugin has to end.
//!
//! The guard is given less than the whole lease, counted from before the renewal was sent. So the plugin is
//! dead before anyone else may take the task.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::link::plugin_share;
use disbatch_core::model::{OnLostLease, Queue, Rules, Task};
use disbatch_core::store::{StoreError, millis, of_millis};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ledger::{Hold, Ledger};
use crate::supervision::{End, Reason, Supervisor};
use crate::work::Begun;

/// The first pause after a renewal that failed; a tenth of a lease if that is shorter.
const RETRY: Duration = Duration::from_secs(1);

/// A moment by the clock of the runtime, and by the one that goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub at: Instant,
    boot: Duration,
}

impl Asked {
    /// This moment: just before a lease is asked for.
    pub fn now() -> Self {
        Self { boot: boot_time(), at: Instant::now() }
    }

    /// The moment in which a lease was asked for that lets a plugin live until `until`.
    pub fn for_plugin_until(until: Duration, lease: Duration) -> Self {
        let boot = until.saturating_sub(plugin_share(lease));
        let now = Self::now();
        Self { at: now.at.checked_sub(now.boot.saturating_sub(boot)).unwrap_or(now.at), boot }
    }

    /// The same moment for a lease that may have been asked for long before: it gives a plugin no time.
    pub fn without_time(self) -> Self {
        Self { boot: Duration::ZERO, ..self }
    }

    /// When a lease that was asked for then is renewed: after a third of it, or up to a sixth of it sooner, at a moment that all
    /// runners of this host have in common. Renewals of many tasks meet at their DEN so, which reads these together.
    fn renewed_at(&self, lease: Duration) -> Instant {
        let third = lease / 3;
        let beyond = millis(self.boot + third).checked_rem(millis(lease / 6)).unwrap_or_default();
        self.at + third.saturating_sub(of_millis(beyond))
    }

    /// Until when a plugin may live whose lease was asked for then.
    pub fn plugin_until(&self, lease: Duration) -> Duration {
        self.boot.saturating_add(plugin_share(lease))
    }
}

/// Requests to look at the task at once: a word over the link, or SIGUSR1 where there is none any more, which the DEN sends when somebody
/// has asked for its end. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Nudges(watch::Sender<()>);

/// What is heard of these requests, from some moment on.
pub type Nudged = watch::Receiver<()>;

impl Nudges {
    /// Starts to listen for the signal. To be called before a task is started: nobody sends the signal before
    /// that, and it would end a process that does not expect it.
    pub fn listen() -> io::Result<Self> {
        let mut signals = signal(SignalKind::user_defined1())?;
        let nudges = Self::default();
        let listener = nudges.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                listener.nudge();
            }
        });
        Ok(nudges)
    }

    pub fn nudge(&self) {
        self.0.send_replace(());
    }

    /// Those from now on.
    pub fn heard(&self) -> Nudged {
        self.0.subscribe()
    }
}

/// How long there is until the task's deadline. The server's time of its start is known from its first lease.
pub fn until_deadline(task: &Task, queue: Option<&Queue>, lease: Duration) -> Option<Duration> {
    let deadline = Rules::of(task, queue).deadline?.timestamp_millis();
    let until = task.rest.get_datetime("lease_until").ok()?;
    let started = until.timestamp_millis().saturating_sub(millis(lease));
    Some(of_millis(deadline.saturating_sub(started)))
}

/// A task that is this runner's, as far as is known.
#[derive(Debug)]
pub struct Custody<'a> {
    ledger: &'a Ledger,
    begun: &'a Begun,
    rules: Rules,
    supervisor: Supervisor,
    is_lost: Cell<bool>,
    is_over: Cell<bool>,
    is_failing: Cell<bool>,
    /// Its DEN did not answer last.
    is_alone: Cell<bool>,
}

impl<'a> Custody<'a> {
    pub fn new(ledger: &'a Ledger, (begun, rules): (&'a Begun, Rules), supervisor: Supervisor) -> Self {
        let (is_lost, is_over, is_failing, is_alone) = Default::default();
        Self { ledger, begun, rules, supervisor, is_lost, is_over, is_failing, is_alone }
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    /// The lease is not this runner's to renew any more.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// Renews the lease, until that is over. Never returns.
    pub async fn keep(&self, mut nudged: Nudged) -> Infallible {
        let begun = self.begun.asked.at;
        let mut ends = [
            (ends_at(begun, self.rules.timeout), Reason::Timeout),
            (ends_at(begun, self.begun.until_deadline), Reason::Deadline),
        ];
        let mut renew_at = self.begun.asked.renewed_at(self.begun.lease);
        while !self.is_lost() {
            let next = ends.iter().filter_map(|(at, _)| *at).fold(renew_at, Instant::min);
            let is_nudged = tokio::select! {
                () = sleep_until(next) => false,
                // If nobody is left to ask, nobody does.
                Ok(()) = nudged.changed() => true,
            };
            if self.is_over.get() {
                break;
            }
            let now = Instant::now();
            for (at, reason) in &mut ends {
                if at.take_if(|at| *at <= now).is_some() {
                    self.stop(*reason);
                }
            }
            if is_nudged || renew_at <= now {
                renew_at = Box::pin(self.renew(is_nudged)).await;
            }
        }
        std::future::pending().await
    }

    /// Renews the lease, at once if it `is_nudged`. Returns when to do so again.
    async fn renew(&self, is_nudged: bool) -> Instant {
        let (asked, lease) = (Asked::now(), self.begun.lease);
        let answer = match self.ledger.ask_to_renew(lease).await {
            Some(hold) => {
                self.is_alone.set(false);
                Ok(Ok(hold))
            }
            // All runners of a DEN miss it at the same moment: each connects to the database at one of its own.
            None if !self.is_alone.replace(true) && !is_nudged && asked.at.elapsed() < lease / 30 => {
                return asked.at + apart(lease, std::process::id());
            }
            None => {
                // The DEN may have taken so long to say nothing that the plugin has little time left.
                self.bridge();
                timeout(lease / 3, self.ledger.renew(&self.begun.run, lease)).await
            }
        };
        match answer {
            Ok(Ok(Hold::Held { until, wishes })) => {
                if self.is_failing.take() {
                    tracing::info!("renewed the lease at last");
                }
                self.supervisor.live_until(until);
                if wishes.cancel {
                    self.stop(Reason::Cancel);
                } else if wishes.interrupt {
                    self.supervisor.interrupt();
                }
                if self.is_alone.get() { asked.at + lease / 3 } else { asked.renewed_at(lease) }
            }
            Ok(Ok(Hold::Lost)) => {
                self.is_lost.set(true);
                self.stop(Reason::LeaseLost);
                asked.at + lease
            }
            Ok(Err(error)) => self.failed(Some(&error)),
            Err(_) => self.failed(None),
        }
    }

    fn failed(&self, error: Option<&StoreError>) -> Instant {
        if !self.is_failing.replace(true) {
            let error = error.map_or_else(|| "no answer in time".to_owned(), ToString::to_string);
            tracing::warn!(error, "cannot renew the task's lease, trying again");
        }
        self.bridge();
        Instant::now() + RETRY.min(self.begun.lease / 10)
    }

    /// Lets the plugin go on for a while, although the lease has not been renewed, if its queue wants that.
    fn bridge(&self) {
        match self.rules.on_lost_lease {
            // This runner lives.
            OnLostLease::Keep => self.supervisor.live_until(Asked::now().plugin_until(self.begun.lease)),
            OnLostLease::Stop => {}
        }
    }

    fn stop(&self, reason: Reason) {
        tracing::warn!(reason = reason.as_str(), "the plugin has to end");
        self.supervisor.end(End { reason, grace: self.rules.grace });
    }
}

/// A part of a twelfth of a lease, another one in each of 64 runners.
fn apart(lease: Duration, process: u32) -> Duration {
    lease / (12 * 64) * (process % 64)
}

fn ends_at(begun: Instant, after: Option<Duration>) -> Option<Instant> {
    begun.checked_add(after?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_lease_was_asked_for_is_known_from_its_end() {
        let lease = Duration::from_secs(30);
        let asked = Asked::now();
        let again = Asked::for_plugin_until(asked.plugin_until(lease), lease);
        assert_eq!(again.boot, asked.boot);
        assert!(again.at.duration_since(asked.at) < Duration::from_secs(1));
        assert_eq!(again.plugin_until(lease), asked.plugin_until(lease));
    }

    #[test]
    fn runners_that_started_at_any_time_renew_together() {
        let (lease, at) = (Duration::from_secs(30), Instant::now());
        let renewed = |boot: Duration| {
            let after = Asked { at, boot }.renewed_at(lease) - at;
            assert!(after > lease / 6 && after <= lease / 3, "{boot:?}: after {after:?}");
            boot + after
        };
        let seconds = Duration::from_secs_f64;
        let starts = [100.001, 101.5, 104.999].map(seconds);
        assert_eq!(starts.map(|start| renewed(start).as_secs()), [110; 3]);
        assert_eq!([100.0, 110.0].map(seconds).map(renewed), [110.0, 120.0].map(seconds), "and go on so");
        assert_eq!(Asked { at, boot: seconds(9.0) }.renewed_at(Duration::ZERO), at);
    }

    #[test]
    fn runners_that_lose_their_den_at_once_renew_apart() {
        let lease = Duration::from_secs(30);
        let mut pauses: Vec<Duration> = (1_000..1_064).map(|process| apart(lease, process)).collect();
        pauses.sort_unstable();
        assert!(pauses.windows(2).all(|next| next[1] - next[0] > Duration::from_millis(39)), "{pauses:?}");
        assert!(pauses[63] < lease / 12, "none comes much later for it");
    }
}
