//! When a schedule fires: from what clocks show to moments, over every change of the clocks. Pure.
//!
//! Time is looked at in stretches in which the clocks are not changed: within one, what clocks show and moments go
//! together. Where one stretch meets the next, clocks leave times out or show them twice, and [`Gap`] and [`Fold`] say what
//! becomes of these. An expression that means every hour goes by the clocks as they are: what they leave out does not
//! come, and what they show twice comes twice, so that it never pauses.
//!
//! What fires when somebody finds a schedule due is [decided](decide) here as well. Times come in their order. Of those that are
//! due, each fires that is not too late (`catch_up`) and that earlier tasks let fire (`overlap`). All others are passed over,
//! and counted.

use std::time::Duration;

use bson::DateTime;
use sha2::{Digest, Sha256};

use super::calendars::Calendars;
use super::cron::CronExpr;
use super::zone::{Fold, Gap, Stretch, Zone, clock, seconds, since_1970, time};
use super::{Overlap, Schedule, ScheduleId, Spec};

/// It is not looked further ahead than so: 60 years, in seconds. February 29 comes every eight, and calendars may leave little
/// of what comes.
const HORIZON: i64 = 60 * 366 * 86_400;

/// A time that is found due so late still fires, whatever `catch_up` is: somebody has to come by.
const GRACE: Duration = Duration::from_secs(60);

/// So many times fire at once; if there are more, they are found due again.
const MOST_AT_ONCE: usize = 100;

/// So many tasks of a schedule wait for each other at most.
pub(super) const MOST_QUEUED: usize = 100;

/// So many times that are passed over are counted at once: nobody was there for a long time.
const MOST_COUNTED: usize = 1_000;

/// The outcome of a time whose task would have parameters that its plugin's schema does not allow.
pub(super) const WRONG_PARAMS: &str = "wrong params";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    pub time: DateTime,
    /// The same with its delay: when the schedule fires.
    pub due: DateTime,
    /// What clocks in the zone show at `time`, with what was added to UTC: `2026-03-29T03:00:00+02:00`.
    pub local: String,
    /// Clocks leave out the time that was meant, and this is when they have gone forward.
    pub moved: bool,
    pub twice: bool,
}

impl Spec {
    /// The times after `after` and until `until`, at most `limit` of them, in order and without their delays.
    pub fn occurrences(
        &self,
        calendars: &Calendars,
        after: DateTime,
        until: DateTime,
        limit: usize,
    ) -> Vec<DateTime> {
        self.times(calendars, after).take_while(|time| *time <= until).take(limit).collect()
    }

    /// The first time after `after`, without its delay. `None`: there is none, or none within sixty years.
    pub fn next(&self, calendars: &Calendars, after: DateTime) -> Option<DateTime> {
        self.first_after(calendars, seconds(after)).map(time)
    }

    /// A time that has passed and has not fired, as its delay has not passed yet: it is still to fire, if it is one of these
    /// times.
    pub(super) fn still_to_fire(
        &self,
        calendars: &Calendars,
        next_for: Option<DateTime>,
        now: DateTime,
    ) -> Option<DateTime> {
        let is_one = |time: DateTime| self.next(calendars, time.saturating_add_millis(-1)) == Some(time);
        next_for.filter(|time| *time <= now && is_one(*time))
    }

    /// The next times after `after`, at most `limit`, with all that is to be known of them. What their delays are depends
    /// on the schedule; without one they have none.
    pub fn preview(
        &self,
        schedule: Option<ScheduleId>,
        calendars: &Calendars,
        after: DateTime,
        limit: usize,
    ) -> Vec<Occurrence> {
        let shown = |time: DateTime| Occurrence {
            time,
            due: self.due(schedule, time),
            local: self.zone.local(time),
            moved: !self.is_shown_at(seconds(time)),
            twice: self.zone.is_twice(seconds(time)),
        };
        self.times(calendars, after).take(limit).map(shown).collect()
    }

    pub fn due(&self, schedule: Option<ScheduleId>, time: DateTime) -> DateTime {
        time.saturating_add_duration(self.delay(schedule, time))
    }

    pub(super) fn times(&self, calendars: &Calendars, after: DateTime) -> impl Iterator<Item = DateTime> {
        std::iter::successors(self.next(calendars, after), move |last| self.next(calendars, *last))
    }

    fn first_after(&self, calendars: &Calendars, after: i64) -> Option<i64> {
        let until = after.saturating_add(HORIZON);
        let until = self.end.map_or(until, |end| until.min(seconds(end)));
        // A start within a second is a start after it.
        let start = self.start.map(|start| seconds(start.saturating_add_millis(999)));
        let mut after = start.map_or(after, |start| after.max(start - 1));
        loop {
            let of = |cron: &CronExpr| next_of(cron, &self.zone, (self.gap, self.fold), after, until);
            let found = self.cron.iter().filter_map(of).min()?;
            match calendars.closed(self, found) {
                None => return Some(found),
                Some(zone) => after = zone.end_of_day(found).unwrap_or(found + 1) - 1,
            }
        }
    }

    /// Whether clocks show at this moment what one of the expressions means.
    fn is_shown_at(&self, at: i64) -> bool {
        let Some(local) = self.zone.stretch(at).and_then(|stretch| at.checked_add(stretch.offset)) else {
            return false;
        };
        let shown = |cron: &CronExpr| between(cron, local, local + 1).is_some();
        self.cron.iter().any(shown)
    }
}

/// The first moment after `after`, and not after `until`, that an expression means.
fn next_of(cron: &CronExpr, zone: &Zone, policy: (Gap, Fold), after: i64, until: i64) -> Option<i64> {
    let mut from = after.checked_add(1)?;
    while from <= until {
        let stretch = zone.stretch(from)?;
        if let Some(found) = within(cron, &stretch, policy, from, until) {
            return Some(found);
        }
        from = stretch.end?.0;
    }
    None
}

/// The first moment of a stretch from `from` on, which is in it.
fn within(
    cron: &CronExpr,
    stretch: &Stretch,
    (gap, fold): (Gap, Fold),
    from: i64,
    until: i64,
) -> Option<i64> {
    let offset = stretch.offset;
    let mut low = from.checked_add(offset)?;
    let last = stretch.end.map_or(until + 1, |(end, _)| end.min(until + 1));
    let mut high = last.checked_add(offset)?;
    if !cron.is_every_hour() {
        if let Some((begin, before)) = stretch.begin {
            // Clocks have just gone from `from + before` to `from + offset`.
            if gap == Gap::After && begin == from && between(cron, from + before, from + offset).is_some() {
                return Some(from);
            }
            if fold == Fold::First {
                low = low.max(begin + before);
            }
        }
        if let Some((end, after)) = stretch.end
            && fold == Fold::Last
        {
            high = high.min(end + after);
        }
    }
    Some(between(cron, low, high)? - offset)
}

/// The first time on a clock that an expression means, from `low` on and before `high`.
fn between(cron: &CronExpr, low: i64, high: i64) -> Option<i64> {
    if low >= high { None } else { since_1970(cron.next_from(clock(low)?, clock(high)?)?) }
}

/// A number that depends on these bytes alone, and looks like any.
pub(super) fn scattered(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    /// The time now, by the server's clock.
    pub now: DateTime,
    /// How many tasks of the schedule have not ended, or are to be inserted.
    pub live: usize,
    pub queue: bool,
    /// Whether its parameters fit the schema of the plugin, as far as that is known.
    pub fits: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub fire: Vec<DateTime>,
    pub skipped: usize,
    /// How many of these are too late.
    pub late: usize,
    /// The newest time that is passed over, if it is newer than those that fire, and why.
    pub newest: Option<(DateTime, &'static str)>,
    pub next: Option<DateTime>,
}

struct Due {
    /// Those that may fire.
    times: Vec<DateTime>,
    late: usize,
    /// The newest of all of them.
    newest: DateTime,
}

pub(super) fn decide(schedule: &Schedule, calendars: &Calendars, situation: Situation) -> Decision {
    let spec = &schedule.settings.spec;
    let begin = schedule.next_for.unwrap_or(situation.now);
    // The time may have become none, as a calendar has changed.
    let before = time(seconds(begin) - 1);
    let is_one = schedule.settings.catch_up.is_zero()
        || matches!(schedule.settings.overlap, Overlap::Skip | Overlap::Cancel);
    let due = match is_one {
        true => one(schedule, calendars, before, situation.now),
        false => all(schedule, calendars, before, situation.now),
    };
    let Some(Due { mut times, late, newest }) = due else {
        return Decision { next: spec.next(calendars, before), ..Decision::default() };
    };
    let room = match schedule.settings.overlap {
        _ if !situation.queue || !situation.fits => 0,
        Overlap::Allow | Overlap::Cancel => usize::MAX,
        Overlap::Skip => usize::from(situation.live == 0),
        Overlap::Queue => MOST_QUEUED.saturating_sub(situation.live),
    };
    let found = times.len();
    // The oldest have been waiting longest.
    times.truncate(room);
    let why = match (found, situation) {
        (0, _) => "missed",
        (_, Situation { queue: false, .. }) => "no queue",
        (_, Situation { fits: false, .. }) => WRONG_PARAMS,
        _ => "skipped",
    };
    let passed_over = (times.last() != Some(&newest)).then_some((newest, why));
    let skipped = late + found - times.len();
    Decision { fire: times, skipped, late, newest: passed_over, next: spec.next(calendars, newest) }
}

/// The newest time that is due: it may fire if it is not too late, and all before it are passed over.
fn one(schedule: &Schedule, calendars: &Calendars, before: DateTime, now: DateTime) -> Option<Due> {
    let spec = &schedule.settings.spec;
    let is_due = |time: &DateTime| spec.due(Some(schedule.id), *time) <= now;
    // It is near, unless nobody was there for long; so it is looked for from near to far.
    let spans = [60, 3_600, 86_400, i64::MAX].map(|span| seconds(now).saturating_sub(span));
    let from = |span: i64| time(span.saturating_sub(jitter(schedule)).max(seconds(before)));
    let near = |span: i64| spec.times(calendars, from(span)).take_while(is_due).last();
    let newest = spans.into_iter().find_map(near)?;
    let others = spec.times(calendars, before).take_while(|time| *time < newest).take(MOST_COUNTED).count();
    match is_late(schedule, newest, now) {
        true => Some(Due { times: Vec::new(), late: others + 1, newest }),
        false => Some(Due { times: vec![newest], late: others, newest }),
    }
}

/// All times that are due, as far as they fire at once.
fn all(schedule: &Schedule, calendars: &Calendars, before: DateTime, now: DateTime) -> Option<Due> {
    let spec = &schedule.settings.spec;
    let longest =
        i64::try_from(window(schedule).as_secs()).unwrap_or(i64::MAX).saturating_add(jitter(schedule));
    // What was to fire before that is too late with any delay.
    let begin = before.max(time(seconds(now).saturating_sub(longest) - 1));
    let too_late = spec.times(calendars, before).take_while(|time| *time <= begin).take(MOST_COUNTED);
    let (mut late, mut newest) = too_late.fold((0, None), |(late, _), time| (late + 1, Some(time)));
    let mut times = Vec::new();
    for time in spec.times(calendars, begin) {
        if times.len() == MOST_AT_ONCE || spec.due(Some(schedule.id), time) > now {
            break;
        }
        match is_late(schedule, time, now) {
            true => late += 1,
            false => times.push(time),
        }
        newest = Some(time);
    }
    Some(Due { times, late, newest: newest? })
}

/// How late a time may fire.
fn window(schedule: &Schedule) -> Duration {
    schedule.settings.catch_up.max(GRACE)
}

fn is_late(schedule: &Schedule, time: DateTime, now: DateTime) -> bool {
    let due = schedule.settings.spec.due(Some(schedule.id), time);
    due.saturating_add_duration(window(schedule)) < now
}

/// The longest delay, in seconds.
fn jitter(schedule: &Schedule) -> i64 {
    i64::try_from(schedule.settings.spec.jitter.as_secs()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
