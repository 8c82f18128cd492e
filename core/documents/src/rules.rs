//! What a queue and a task ask for: what to do when an attempt fails or its runner dies, and its hard ends.
//!
//! A task's own fields come first, then its queue's. Values that make no sense count as not given: other
//! programs write these documents too.

use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_values::liberal::{integer, number};
use disbatch_values::words;

use super::{Queue, Task};

/// How often a task of a queue that requeues is tried when nothing says so.
pub const REQUEUE_ATTEMPTS: i64 = 3;

/// How long a plugin has between SIGTERM and SIGKILL when nothing says so.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// Longer times than this (ten years) are cut.
const LONGEST: f64 = 315_360_000.0;

words! {
    /// What becomes of a task whose runner or node died.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OnOrphan {
        /// It ends as -6 (Disbatch 4: at most once).
        Fail = "fail",
        /// It is tried again, up to `max_attempts` (at least once).
        Requeue = "requeue",
    }
}

words! {
    /// What a runner does when it could not renew its lease because it cannot reach the database.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OnLostLease {
        /// Let the plugin go on, and deliver its output when the database is back.
        Keep = "keep",
        /// Kill the plugin, so that whoever takes the task over is alone.
        Stop = "stop",
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Seconds.
    pub base: f64,
    /// By how much each further pause is longer.
    pub factor: f64,
    /// The longest pause in seconds.
    pub max: f64,
    /// By which part of itself a pause is shortened or lengthened at random, 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    /// Joex's rule: 2^attempt seconds; here with a limit of an hour and a tenth of jitter.
    fn default() -> Self {
        Self { base: 1.0, factor: 2.0, max: 3600.0, jitter: 0.1 }
    }
}

impl Backoff {
    /// The rule that a document gives, with defaults for what it leaves out.
    pub fn from_document(document: &Document) -> Self {
        let default = Self::default();
        let read = |key: &str, default: f64| {
            document.get(key).and_then(number).filter(|n| n.is_finite() && *n >= 0.0).unwrap_or(default)
        };
        Self {
            base: read("base", default.base),
            factor: read("factor", default.factor),
            max: read("max", default.max),
            jitter: read("jitter", default.jitter).min(1.0),
        }
    }

    /// The pause after so many failures (at least 1). `chance` is a random number from 0 to 1.
    pub fn pause(&self, failures: i64, chance: f64) -> Duration {
        let exponent = i32::try_from(failures.clamp(0, 1000)).unwrap_or(1000);
        let pause = (self.base * self.factor.powi(exponent)).min(self.max).min(LONGEST);
        let swing = 1.0 + self.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
        seconds(pause * swing).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    pub on_orphan: OnOrphan,
    pub on_lost_lease: OnLostLease,
    pub max_attempts: Option<i64>,
    pub backoff: Backoff,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// When the task must have ended.
    pub deadline: Option<DateTime>,
    pub grace: Duration,
}

impl Rules {
    /// The rules for `task` in `queue` (`None`: the queue is gone).
    pub fn of(task: &Task, queue: Option<&Queue>) -> Self {
        let empty = Document::new();
        Self::from_fields(&task.rest, queue.map_or(&empty, |queue| &queue.rest))
    }

    /// The rules for a task of `queue` that asks for nothing.
    pub fn of_queue(queue: &Queue) -> Self {
        Self::from_fields(&Document::new(), &queue.rest)
    }

    fn from_fields(task: &Document, queue: &Document) -> Self {
        let field = |name: &str| task.get(name).or_else(|| queue.get(name));
        let word = |name: &str| field(name).and_then(Bson::as_str);
        // Disbatch's way, also for what nobody knows.
        let on_orphan = word("on_orphan").and_then(OnOrphan::named).unwrap_or(OnOrphan::Fail);
        let has_locks = task.get("locks").and_then(Bson::as_array).is_some_and(|locks| !locks.is_empty());
        let on_lost_lease = match (word("on_lost_lease").and_then(OnLostLease::named), on_orphan) {
            // Somebody else may run it by then, or have its locks: two at once would be worse than a plugin killed in vain.
            _ if has_locks => OnLostLease::Stop,
            (Some(OnLostLease::Stop), _) | (_, OnOrphan::Requeue) => OnLostLease::Stop,
            (_, OnOrphan::Fail) => OnLostLease::Keep,
        };
        let duration = |name: &str| field(name).and_then(number).and_then(seconds);
        Self {
            on_orphan,
            on_lost_lease,
            max_attempts: field("max_attempts").and_then(integer).filter(|n| *n >= 1),
            backoff: field("backoff")
                .and_then(Bson::as_document)
                .map_or_else(Backoff::default, Backoff::from_document),
            timeout: duration("timeout").filter(|timeout| !timeout.is_zero()),
            deadline: task.get("deadline").and_then(Bson::as_datetime).copied(),
            grace: duration("grace").unwrap_or(DEFAULT_GRACE),
        }
    }

    /// The pause before the next attempt when one has failed after `failures` earlier ones, `None` if there
    /// is no next attempt.
    pub fn after_failure(&self, failures: i64, chance: f64) -> Option<Duration> {
        self.again(self.max_attempts.unwrap_or(1), failures, chance)
    }

    /// The same when its runner has died.
    pub fn after_death(&self, failures: i64, chance: f64) -> Option<Duration> {
        match self.on_orphan {
            OnOrphan::Fail => None,
            OnOrphan::Requeue => self.again(self.max_attempts.unwrap_or(REQUEUE_ATTEMPTS), failures, chance),
        }
    }

    fn again(&self, attempts: i64, failures: i64, chance: f64) -> Option<Duration> {
        let failed = failures.saturating_add(1);
        (failed < attempts).then(|| self.backoff.pause(failed, chance))
    }
}

fn seconds(seconds: f64) -> Option<Duration> {
    (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use bson::{deserialize_from_document, doc, oid::ObjectId};

    use super::*;

    fn rules(task: Document, queue: Document) -> Rules {
        let mut whole = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0 };
        whole.extend(task);
        let mut of_queue = doc! { "_id": ObjectId::new(), "name": "q" };
        of_queue.extend(queue);
        let queue = deserialize_from_document(of_queue).unwrap();
        Rules::of(&deserialize_from_document(whole).unwrap(), Some(&queue))
    }

    #[test]
    fn a_plain_task_is_tried_once_as_in_disbatch() {
        let plain = rules(doc! {}, doc! {});
        assert_eq!((plain.on_orphan, plain.on_lost_lease), (OnOrphan::Fail, OnLostLease::Keep));
        assert_eq!((plain.after_failure(0, 0.5), plain.after_death(0, 0.5)), (None, None));
        assert_eq!((plain.timeout, plain.deadline, plain.grace), (None, None, DEFAULT_GRACE));
    }

    #[test]
    fn the_task_comes_before_its_queue_and_rubbish_counts_as_nothing() {
        let queue = doc! { "max_attempts": 3, "timeout": "soon", "grace": 1.5, "on_orphan": "requeue" };
        let mixed = rules(doc! { "max_attempts": 2, "grace": -1 }, queue);
        assert_eq!(mixed.max_attempts, Some(2));
        assert_eq!(mixed.timeout, None);
        assert_eq!(mixed.grace, DEFAULT_GRACE);
        assert_eq!((mixed.on_orphan, mixed.on_lost_lease), (OnOrphan::Requeue, OnLostLease::Stop));
        assert!(mixed.after_failure(0, 0.5).is_some());
        assert_eq!(mixed.after_failure(1, 0.5), None);
    }

    #[test]
    fn a_task_with_locks_does_not_go_on_without_its_lease() {
        let queue = doc! { "on_lost_lease": "keep" };
        let on_lost_lease = |task| rules(task, queue.clone()).on_lost_lease;
        assert_eq!(on_lost_lease(doc! { "locks": ["db"] }), OnLostLease::Stop);
        assert_eq!(on_lost_lease(doc! { "locks": [] }), OnLostLease::Keep);
    }

    #[test]
    fn pauses_follow_joex_up_to_the_longest() {
        let joex = Backoff::default();
        let middle: Vec<u64> = (1..5).map(|failures| joex.pause(failures, 0.5).as_secs()).collect();
        assert_eq!(middle, [2, 4, 8, 16]);
        assert_eq!(joex.pause(40, 0.5), Duration::from_secs(3600));
        assert_eq!(joex.pause(1, 0.0), Duration::from_millis(1800));
        assert_eq!(joex.pause(1, 1.0), Duration::from_millis(2200));
        let odd = Backoff::from_document(&doc! { "base": f64::NAN, "factor": 1, "jitter": 7, "max": "x" });
        assert_eq!(odd, Backoff { factor: 1.0, jitter: 1.0, ..joex });
    }

    #[test]
    fn a_requeueing_queue_gives_a_poisonous_task_up_after_three_deaths() {
        let requeue = rules(doc! {}, doc! { "on_orphan": "requeue" });
        let again: Vec<bool> = (0..4).map(|failures| requeue.after_death(failures, 0.5).is_some()).collect();
        assert_eq!(again, [true, true, false, false]);
        assert_eq!(requeue.after_failure(0, 0.5), None, "a failure is no death");
    }
}
