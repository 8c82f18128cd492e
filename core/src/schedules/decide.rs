//! What fires when somebody finds a schedule due. Pure: the time is given.
//!
//! Times come in their order. Of those that are due, each fires that is not too late (`catch_up`) and that earlier tasks let
//! fire (`overlap`). All others are passed over, and counted.

use std::time::Duration;

use bson::DateTime;

use super::calendars::Calendars;
use super::zone::{seconds, time};
use super::{Overlap, Schedule};

/// A time that is found due so late still fires, whatever `catch_up` is: somebody has to come by.
pub(super) const GRACE: Duration = Duration::from_secs(60);

/// So many times fire at once; if there are more, they are found due again.
pub(super) const MOST_AT_ONCE: usize = 100;

/// So many tasks of a schedule wait for each other at most.
pub(super) const MOST_QUEUED: usize = 100;

/// So many times that are passed over are counted at once: nobody was there for a long time.
const MOST_COUNTED: usize = 1_000;

/// The outcome of a time whose task would have parameters that its plugin's schema does not allow.
pub(super) const WRONG_PARAMS: &str = "wrong params";

/// What is known of the tasks of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    /// The time now, by the server's clock.
    pub now: DateTime,
    /// How many tasks of the schedule have not ended, or are to be inserted.
    pub live: usize,
    /// Whether its queue exists.
    pub queue: bool,
    /// Whether its parameters fit the schema of the plugin, as far as that is known.
    pub fits: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    /// The times that fire, in their order.
    pub fire: Vec<DateTime>,
    /// How many times are passed over.
    pub skipped: usize,
    /// How many of these are too late.
    pub late: usize,
    /// The newest time that is passed over, if it is newer than those that fire, and why.
    pub newest: Option<(DateTime, &'static str)>,
    /// The next time. `None`: there is none any more.
    pub next: Option<DateTime>,
}

/// Times that are due.
struct Due {
    /// Those that may fire.
    times: Vec<DateTime>,
    /// How many are too late.
    late: usize,
    /// The newest of all of them.
    newest: DateTime,
}

/// What to do with a schedule that was found due.
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
        return Decision {
            fire: Vec::new(),
            skipped: 0,
            late: 0,
            newest: None,
            next: spec.next(calendars, before),
        };
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
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use proptest::prelude::*;

    use super::super::Calendar;
    use super::*;

    /// 2026-11-22T00:00:00Z.
    const BEGIN: i64 = 1_795_305_600;

    fn schedule(fields: Document) -> Schedule {
        let mut document = doc! {
            "_id": ObjectId::from_bytes([7; 12]), "queue": ObjectId::from_bytes([8; 12]), "cron": "* * * * *",
            "overlap": "allow", "next_for": time(BEGIN),
        };
        document.extend(fields);
        Schedule::read(document).unwrap()
    }

    fn at(second: i64) -> Situation {
        Situation { now: time(BEGIN + second), live: 0, queue: true, fits: true }
    }

    /// The times that fire and the next one, in seconds since the beginning, how many are passed over, and why the newest.
    fn decided(
        schedule: &Schedule,
        situation: Situation,
    ) -> (Vec<i64>, usize, Option<&'static str>, Option<i64>) {
        let decision = decide(schedule, &Calendars::none(), situation);
        let since = |time: &DateTime| seconds(*time) - BEGIN;
        let fire = decision.fire.iter().map(since).collect();
        (fire, decision.skipped, decision.newest.map(|(_, why)| why), decision.next.as_ref().map(since))
    }

    #[test]
    fn a_time_that_has_come_fires() {
        let schedule = schedule(doc! {});
        assert_eq!(decided(&schedule, at(0)), (vec![0], 0, None, Some(60)));
        assert_eq!(decided(&schedule, at(59)), (vec![0], 0, None, Some(60)));
    }

    #[test]
    fn without_catching_up_only_the_newest_fires_and_within_a_minute() {
        let often = schedule(doc! {});
        assert_eq!(decided(&often, at(605)), (vec![600], 10, None, Some(660)));
        let hourly = schedule(doc! { "cron": "@hourly" });
        assert_eq!(decided(&hourly, at(60)), (vec![0], 0, None, Some(3_600)));
        assert_eq!(decided(&hourly, at(61)), (vec![], 1, Some("missed"), Some(3_600)));
        assert_eq!(decided(&hourly, at(8 * 3_600 - 1)), (vec![], 8, Some("missed"), Some(8 * 3_600)));
    }

    #[test]
    fn what_is_not_too_late_is_caught_up() {
        let often = schedule(doc! { "catch_up": 3_600 });
        let (fire, skipped, _, next) = decided(&often, at(605));
        assert_eq!((fire.len(), fire[0], skipped, next), (11, 0, 0, Some(660)));
        let (fire, skipped, _, next) = decided(&often, at(3 * 3_600 + 5));
        assert_eq!((fire.len(), fire[0], skipped, next), (60, 2 * 3_600 + 60, 121, Some(3 * 3_600 + 60)));
        let hourly = schedule(doc! { "cron": "@hourly", "catch_up": 600 });
        assert_eq!(decided(&hourly, at(5_000)), (vec![], 2, Some("missed"), Some(7_200)));
        assert_eq!(decided(&hourly, at(4_200)), (vec![3_600], 1, None, Some(7_200)));
    }

    #[test]
    fn a_long_absence_is_caught_up_bit_by_bit() {
        let mut every_second = schedule(doc! { "cron": "* * * * * *", "catch_up": 3_600 });
        let mut fired = Vec::new();
        for round in 0.. {
            let (fire, skipped, _, next) = decided(&every_second, at(7_200));
            assert!(fire.len() <= MOST_AT_ONCE);
            // Those that are not counted one by one are many.
            assert_eq!(skipped, if round == 0 { MOST_COUNTED } else { 0 });
            fired.extend(fire);
            every_second.next_for = next.map(|next| time(BEGIN + next));
            if next > Some(7_200) {
                break;
            }
        }
        assert_eq!(fired, (3_600..=7_200).collect::<Vec<_>>());
    }

    #[test]
    fn what_earlier_tasks_do_not_let_fire_is_passed_over() {
        let of = |overlap: &str, live| {
            let schedule = schedule(doc! { "overlap": overlap, "catch_up": 3_600 });
            decided(&schedule, Situation { live, ..at(125) })
        };
        assert_eq!(of("allow", 50), (vec![0, 60, 120], 0, None, Some(180)));
        assert_eq!(of("skip", 0), (vec![120], 2, None, Some(180)));
        assert_eq!(of("skip", 1), (vec![], 3, Some("skipped"), Some(180)));
        assert_eq!(of("cancel", 7), (vec![120], 2, None, Some(180)));
        assert_eq!(of("queue", 1), (vec![0, 60, 120], 0, None, Some(180)));
        assert_eq!(of("queue", MOST_QUEUED - 1), (vec![0], 2, Some("skipped"), Some(180)));
        assert_eq!(of("queue", MOST_QUEUED + 5), (vec![], 3, Some("skipped"), Some(180)));
        let without = Situation { queue: false, ..at(5) };
        assert_eq!(decided(&schedule(doc! {}), without), (vec![], 1, Some("no queue"), Some(60)));
        let unfit = Situation { fits: false, ..at(5) };
        assert_eq!(decided(&schedule(doc! {}), unfit), (vec![], 1, Some("wrong params"), Some(60)));
    }

    #[test]
    fn a_day_that_was_taken_out_meanwhile_does_not_come() {
        let calendar = doc! { "name": "closed", "dates": ["2026-11-22"] };
        let calendars = Calendars::of([Calendar::read(&calendar).unwrap()]);
        let schedule =
            schedule(doc! { "cron": "@hourly", "calendars": [{ "name": "closed" }], "catch_up": 600 });
        let decision = decide(&schedule, &calendars, at(5));
        let next = Some(time(BEGIN + 86_400));
        assert_eq!(decision, Decision { fire: vec![], skipped: 0, late: 0, newest: None, next });
    }

    #[test]
    fn after_the_last_time_there_is_none() {
        let schedule = schedule(doc! { "end": time(BEGIN + 30) });
        assert_eq!(decided(&schedule, at(1)), (vec![0], 0, None, None));
    }

    #[test]
    fn a_time_fires_with_its_delay() {
        let schedule = schedule(doc! { "jitter": 50 });
        let due = schedule.settings.spec.due(Some(schedule.id), time(BEGIN));
        let early = DateTime::from_millis(due.timestamp_millis() - 1);
        assert!(decide(&schedule, &Calendars::none(), Situation { now: early, ..at(0) }).fire.is_empty());
        let decision = decide(&schedule, &Calendars::none(), Situation { now: due, ..at(0) });
        assert_eq!(decision.fire, [time(BEGIN)]);
    }

    proptest! {
        #[test]
        fn each_time_comes_once_whenever_somebody_looks(
            looks in proptest::collection::vec(1_i64..400, 1..30), jitter in 0_i64..40,
            overlap in prop_oneof![Just("allow"), Just("skip"), Just("queue"), Just("cancel")],
            catch_up in prop_oneof![Just(0_i64), Just(90), Just(100_000)],
        ) {
            let mut schedule = schedule(doc! { "jitter": jitter, "overlap": overlap, "catch_up": catch_up });
            let (mut now, mut fired, mut skipped) = (0, Vec::new(), 0);
            for look in looks {
                now += look;
                let due = schedule.next_for.map(|next| schedule.settings.spec.due(Some(schedule.id), next));
                if due.is_some_and(|due| due > time(BEGIN + now)) {
                    continue;
                }
                let (fire, passed_over, _, next) = decided(&schedule, at(now));
                prop_assert!(next > schedule.next_for.map(|next| seconds(next) - BEGIN));
                schedule.next_for = next.map(|next| time(BEGIN + next));
                fired.extend(fire);
                skipped += passed_over;
            }
            prop_assert!(fired.is_sorted_by(|a, b| a < b), "{:?}", fired);
            let come = schedule.next_for.map_or(0, |next| (seconds(next) - BEGIN) / 60);
            prop_assert_eq!(i64::try_from(fired.len() + skipped).unwrap(), come);
            if catch_up == 100_000 && matches!(overlap, "allow" | "queue") {
                prop_assert_eq!(skipped, 0);
            }
        }
    }
}
