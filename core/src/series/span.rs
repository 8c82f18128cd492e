//! A stretch of time in steps. Pure.

use std::time::Duration;

use bson::{DateTime, Document, doc};

use super::{KEPT, MINUTE_MS};

/// Steps of the same length. Each begins at a multiple of that length since 1970, so that those of different charts agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The beginning of the first step: milliseconds since 1970.
    from: i64,
    /// The length of a step: whole minutes, in milliseconds.
    step: i64,
    /// How many there are, at least one.
    steps: usize,
}

impl Span {
    /// From the step that `since` is in to the one that `now` is in. A step has at least a minute and at most all that is
    /// kept; fractions of a minute count as one. The first step is at the earliest the one that the oldest time that is kept
    /// is in, so it may begin before that.
    pub(super) fn new(since: DateTime, now: DateTime, step: Duration) -> Self {
        let kept = i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
        let now = now.timestamp_millis();
        let since = since.timestamp_millis().clamp(now.saturating_sub(kept), now);
        let minutes = step.as_millis().div_ceil(MINUTE_MS.unsigned_abs().into()).max(1);
        let step = i64::try_from(minutes).unwrap_or(kept).saturating_mul(MINUTE_MS).min(kept);
        let from = since - since.rem_euclid(step);
        let steps = usize::try_from((now - from) / step).unwrap_or(0) + 1;
        Self { from, step, steps }
    }

    /// The beginning: milliseconds since 1970.
    pub(super) fn from(self) -> i64 {
        self.from
    }

    /// The end, which is not in it.
    pub(super) fn until(self) -> i64 {
        let length = i64::try_from(self.steps).unwrap_or(i64::MAX).saturating_mul(self.step);
        self.from.saturating_add(length)
    }

    /// The beginnings of all steps.
    pub(super) fn beginnings(self) -> impl Iterator<Item = DateTime> {
        let steps = i64::try_from(self.steps).unwrap_or(i64::MAX);
        (0..steps).map(move |number| DateTime::from_millis(self.from + number * self.step))
    }

    /// The number of the step that a time is in. `None`: in none.
    pub(super) fn step_of(self, at: DateTime) -> Option<usize> {
        let number = at.timestamp_millis().checked_sub(self.from)?.div_euclid(self.step);
        usize::try_from(number).ok().filter(|number| *number < self.steps)
    }

    /// The beginning of the step that the field `at` of a document is in, for the server.
    pub(super) fn beginning_of_step(self) -> Document {
        let since = doc! { "$subtract": ["$at", DateTime::from_millis(self.from)] };
        doc! { "$subtract": ["$at", { "$mod": [since, self.step] }] }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> DateTime {
        DateTime::from_millis(ms)
    }

    #[test]
    fn steps_are_whole_minutes_and_begin_at_multiples() {
        let (since, now) = (at(1_000_000_000_123), at(1_000_000_200_123));
        let span = Span::new(since, now, Duration::from_secs(60));
        assert_eq!(span, Span { from: 999_999_960_000, step: 60_000, steps: 5 });
        assert_eq!(Span::new(since, now, Duration::ZERO), span);
        let odd = Span::new(since, now, Duration::from_secs(61));
        assert_eq!((odd.step, odd.from.rem_euclid(120_000)), (120_000, 0));
        assert_eq!(span.beginnings().last(), Some(at(1_000_000_200_000)));
    }

    #[test]
    fn there_is_no_more_than_is_kept_and_always_something() {
        let now = at(1_795_000_000_000);
        let minute = Duration::from_secs(60);
        assert_eq!(Span::new(at(0), now, minute).steps, 8 * 24 * 60 + 1);
        assert_eq!(Span::new(at(i64::MAX), now, minute).steps, 1, "the minute that it is");
        assert!(Span::new(at(i64::MIN), now, Duration::MAX).steps <= 2);
    }

    proptest! {
        #[test]
        fn every_time_of_a_span_is_in_one_step(
            back in 0_i64..=691_200_000, now in 1_000_000_000_000_i64..2_000_000_000_000, minutes in 1_u64..2_000,
        ) {
            let span = Span::new(at(now - back), at(now), Duration::from_secs(60 * minutes));
            let beginnings: Vec<DateTime> = span.beginnings().collect();
            for time in [now - back, now - back / 2, now] {
                let begins = beginnings[span.step_of(at(time)).unwrap()].timestamp_millis();
                prop_assert!((begins..begins + span.step).contains(&time));
            }
            prop_assert!(span.until() > now && span.until() - span.step <= now);
            prop_assert_eq!(span.step_of(at(span.until())), None);
            prop_assert_eq!(span.step_of(at(span.from() - 1)), None);
        }
    }
}
