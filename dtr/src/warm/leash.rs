//! Until when the guard lets a warm plugin live. Pure.
//!
//! While a plugin has a task, the guard must know of no later time than that of the task's own lease. An earlier one
//! is safe too, as long as it is put off in time. So the guard, which is a process that has to wake up for
//! each word, hears of most short tasks nothing.

use std::time::Duration;

/// A plugin that has no task may live for ever: the guard need not wake up for it. Its runner's end ends it all the same.
const WITHOUT_TASK: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

/// What the guard has been told last, as times of [`crate::boot_time`].
#[derive(Debug)]
pub struct Leash {
    told: Duration,
    /// What it has not been told yet.
    kept_back: Option<Duration>,
}

impl Leash {
    /// The guard was told this when it started the plugin.
    pub fn new(told: Duration) -> Self {
        Self { told, kept_back: None }
    }

    /// A task begins at `now` that may last until `until`. Returns what the guard has to be told before.
    pub fn begin(&mut self, until: Duration, now: Duration) -> Option<Duration> {
        let enough = now.saturating_add(until.saturating_sub(now) / 2);
        if enough <= self.told && self.told <= until {
            self.kept_back = Some(until).filter(|until| *until > self.told);
            return None;
        }
        Some(self.tell(until))
    }

    /// The guard is told of this time.
    pub fn tell(&mut self, until: Duration) -> Duration {
        self.kept_back = None;
        self.told = until;
        until
    }

    /// How long what was kept back may be kept back at most: half of what the guard grants.
    pub fn must_tell_in(&self, now: Duration) -> Option<Duration> {
        self.kept_back.map(|_| self.told.saturating_sub(now) / 2)
    }

    /// What was kept back, to be told now.
    pub fn tell_kept_back(&mut self) -> Option<Duration> {
        self.kept_back.take().map(|until| self.tell(until))
    }

    /// How long a plugin without a task may be left alone before the guard is told of [`Leash::put_off`].
    pub fn must_put_off_in(&self, now: Duration) -> Duration {
        self.told.saturating_sub(now) / 2
    }

    /// Whether the guard knows that the plugin has no task.
    pub fn is_put_off(&self, now: Duration) -> bool {
        self.told.saturating_sub(now) > WITHOUT_TASK / 2
    }

    /// A plugin that has no task may live for long.
    pub fn put_off(&mut self, now: Duration) -> Duration {
        self.tell(now.saturating_add(WITHOUT_TASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn short_tasks_in_a_row_need_few_words() {
        let mut leash = Leash::new(s(127));
        let mut told = 0;
        for now in 100..200 {
            if let Some(until) = leash.begin(s(now + 27), s(now)) {
                assert_eq!(until, s(now + 27));
                told += 1;
            }
            assert!(leash.told <= s(now + 27), "never more than the task's lease");
            assert!(leash.told >= s(now + 13), "and always half of it");
        }
        assert!((6..10).contains(&told), "{told}");
    }

    #[test]
    fn a_task_that_lasts_gets_all_of_its_lease() {
        let mut leash = Leash::new(s(120));
        assert_eq!(leash.begin(s(127), s(100)), None);
        assert_eq!(leash.must_tell_in(s(100)), Some(s(10)));
        assert_eq!(leash.tell_kept_back(), Some(s(127)));
        assert_eq!((leash.must_tell_in(s(110)), leash.tell_kept_back()), (None, None));
        assert_eq!(leash.begin(s(127), s(101)), None);
        assert_eq!(leash.must_tell_in(s(101)), None, "it has all of it");
    }

    #[test]
    fn a_renewal_takes_the_place_of_what_was_kept_back() {
        let mut leash = Leash::new(s(120));
        assert_eq!(leash.begin(s(127), s(100)), None);
        assert_eq!(leash.tell(s(136)), s(136));
        assert_eq!(leash.tell_kept_back(), None);
    }

    #[test]
    fn after_a_time_without_tasks_the_lease_counts_again() {
        let mut leash = Leash::new(s(127));
        assert_eq!(leash.must_put_off_in(s(101)), s(13));
        assert!(!leash.is_put_off(s(101)));
        assert_eq!(leash.put_off(s(114)), WITHOUT_TASK + s(114));
        assert!(leash.is_put_off(s(120)));
        assert_eq!(leash.begin(s(147), s(120)), Some(s(147)), "later than the lease of the task");
        assert_eq!(leash.begin(s(90), s(120)), Some(s(90)), "a lease that is over");
    }
}
