use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Document, doc};
use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use super::super::Calendar;
use super::super::zone::Change;
use super::*;

const DAY: i64 = 86_400;

fn at(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap()
}

fn spec(cron: &str, zone: &str) -> Spec {
    Spec { zone: Zone::named(zone).unwrap(), ..Spec::new(vec![CronExpr::parse(cron).unwrap()]) }
}

/// What clocks show at the next times.
fn times(spec: &Spec, after: &str, limit: usize) -> Vec<String> {
    let found = spec.preview(None, &Calendars::default(), at(after), limit);
    found.into_iter().map(|occurrence| occurrence.local).collect()
}

#[test]
fn a_time_that_clocks_leave_out_comes_when_they_have_gone_forward() {
    for (cron, zone, after, moved, next) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T03:00:00+02:00",
            "2026-03-30T02:30:00+02:00",
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            "2026-03-08T03:00:00-04:00",
            "2026-03-09T02:30:00-04:00",
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            "2026-10-04T02:30:00+11:00",
            "2026-10-05T02:15:00+11:00",
        ),
    ] {
        let mut spec = spec(cron, zone);
        assert_eq!(times(&spec, after, 2), [moved, next], "{zone}");
        let first = spec.preview(None, &Calendars::default(), at(after), 2);
        assert_eq!((first[0].moved, first[1].moved), (true, false), "{zone}");
        spec.gap = Gap::Skip;
        assert_eq!(times(&spec, after, 1), [next], "{zone}");
    }
}

#[test]
fn a_time_that_clocks_show_twice_comes_once_unless_both_are_wanted() {
    for (cron, zone, after, first, last) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:30:00+01:00",
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T01:30:00-05:00",
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            "2026-04-05T01:45:00+11:00",
            "2026-04-05T01:45:00+10:30",
        ),
    ] {
        let mut spec = spec(cron, zone);
        let found = |spec: &Spec| {
            let until = time(seconds(at(after)) + DAY);
            let found = spec.occurrences(&Calendars::default(), at(after), until, 9);
            found.into_iter().map(|time| spec.zone.local(time)).collect::<Vec<_>>()
        };
        assert_eq!(found(&spec), [first], "{zone}");
        assert!(spec.preview(None, &Calendars::default(), at(after), 1)[0].twice);
        spec.fold = Fold::Last;
        assert_eq!(found(&spec), [last], "{zone}");
        spec.fold = Fold::Both;
        assert_eq!(found(&spec), [first, last], "{zone}");
    }
}

#[test]
fn what_comes_every_hour_goes_by_the_clocks() {
    let hourly = spec("0 * * * *", "Europe/Berlin");
    assert_eq!(
        times(&hourly, "2026-03-28T23:30:00Z", 3),
        ["2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00",]
    );
    assert_eq!(
        times(&hourly, "2026-10-24T23:30:00Z", 3),
        ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00",]
    );
    let quarters = spec("*/15 * * * *", "Australia/Lord_Howe");
    assert_eq!(
        times(&quarters, "2026-04-04T14:20:00Z", 5),
        [
            "2026-04-05T01:30:00+11:00",
            "2026-04-05T01:45:00+11:00",
            "2026-04-05T01:30:00+10:30",
            "2026-04-05T01:45:00+10:30",
            "2026-04-05T02:00:00+10:30",
        ]
    );
    assert!(!hourly.preview(None, &Calendars::default(), at("2026-03-28T23:30:00Z"), 2)[1].moved);
}

#[test]
fn several_times_in_a_gap_come_once() {
    let mut often = spec("*/10 1-3 * * *", "Europe/Berlin");
    let around = |spec: &Spec| times(spec, "2026-03-29T00:45:00Z", 3);
    let after = ["2026-03-29T01:50:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:10:00+02:00"];
    assert_eq!(around(&often), after);
    often.gap = Gap::Skip;
    assert_eq!(around(&often), after, "three is a time of its own");
}

#[test]
fn a_day_that_was_left_out_comes_at_its_end() {
    let daily = spec("0 10 * * *", "Pacific/Apia");
    assert_eq!(
        times(&daily, "2011-12-29T12:00:00Z", 4),
        [
            "2011-12-29T10:00:00-10:00",
            "2011-12-31T00:00:00+14:00",
            "2011-12-31T10:00:00+14:00",
            "2012-01-01T10:00:00+14:00",
        ]
    );
}

#[test]
fn it_fires_between_its_start_and_its_end() {
    let mut spec = spec("0 * * * *", "UTC");
    spec.start = Some(at("2026-11-22T10:00:00Z"));
    spec.end = Some(at("2026-11-22T12:00:00Z"));
    let all = ["2026-11-22T10:00:00+00:00", "2026-11-22T11:00:00+00:00", "2026-11-22T12:00:00+00:00"];
    assert_eq!(times(&spec, "2026-01-01T00:00:00Z", 9), all);
    spec.start = Some(at("2026-11-22T10:00:00.001Z"));
    assert_eq!(times(&spec, "2026-01-01T00:00:00Z", 9), all[1..]);
    assert_eq!(times(&spec, "2026-11-22T12:00:00Z", 9), [""; 0]);
}

#[test]
fn several_expressions_are_one_row_of_times() {
    let mut spec = spec("0 6 * * *", "UTC");
    spec.cron.push(CronExpr::parse("0 6,18 * * *").unwrap());
    let found = times(&spec, "2026-11-22T00:00:00Z", 3);
    assert_eq!(
        found,
        ["2026-11-22T06:00:00+00:00", "2026-11-22T18:00:00+00:00", "2026-11-23T06:00:00+00:00"]
    );
}

#[test]
fn jitter_changes_when_it_fires_and_not_for_what() {
    let mut spec = spec("0 * * * *", "UTC");
    spec.jitter = std::time::Duration::from_secs(60);
    let id = ScheduleId(bson::oid::ObjectId::new());
    for found in spec.preview(Some(id), &Calendars::default(), at("2026-11-22T00:00:00Z"), 50) {
        assert_eq!(seconds(found.time) % 3_600, 0);
        assert!(found.time <= found.due && found.due <= time(seconds(found.time) + 60));
        assert_eq!(found.due, spec.due(Some(id), found.time));
    }
}

#[test]
fn february_29_comes_although_it_is_rare() {
    let leap = spec("0 0 29 2 *", "UTC");
    assert_eq!(
        times(&leap, "2096-03-01T00:00:00Z", 2),
        ["2104-02-29T00:00:00+00:00", "2108-02-29T00:00:00+00:00"]
    );
}

/// The changes of the clocks of all zones in the years that are well known, of zones that are alike only once, and only
/// those that have no other one near.
fn all_changes() -> Vec<(Zone, Change)> {
    let (from, until) = (at("2000-01-01T00:00:00Z"), at("2037-12-31T00:00:00Z"));
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for name in TimeZoneDatabase::bundled().available() {
        let Some(zone) = Zone::compiled_in(name.as_str()) else { panic!("{name}") };
        let changes = zone.changes(from, until, 10_000);
        if !seen.insert(format!("{changes:?}")) {
            continue;
        }
        let is_near = |one: &Change, other: &Change| {
            one != other && (seconds(one.at) - seconds(other.at)).abs() < 7 * DAY
        };
        let alone = |change: &&Change| !changes.iter().any(|other| is_near(change, other));
        all.extend(changes.iter().filter(alone).map(|change| (zone.clone(), *change)));
    }
    assert!(all.len() > 1_500, "there are {}", all.len());
    all
}

/// The daily expression for what clocks show at a moment.
fn daily(local: i64) -> CronExpr {
    let of_day = local.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    CronExpr::parse(&format!("{second} {minute} {hour} * * *")).unwrap()
}

/// The moments around a change for what a clock shows once a day: each day by itself, by trying both offsets.
fn expected(zone: &Zone, change: &Change, local: i64, policy: (Gap, Fold)) -> Vec<i64> {
    let mut all = BTreeSet::new();
    for day in -4..=4 {
        let local = local + day * DAY;
        let offsets: BTreeSet<i64> = [change.before, change.after].into();
        let shown = |offset: &i64| zone.offset(time(local - offset)) == *offset;
        let moments = offsets.iter().filter(|offset| shown(offset)).map(|offset| local - offset);
        let moments: BTreeSet<i64> = moments.collect();
        match (moments.len(), policy) {
            (0, (Gap::After, _)) => drop(all.insert(seconds(change.at))),
            (0, (Gap::Skip, _)) => {}
            (_, (_, Fold::First)) => all.extend(moments.first()),
            (_, (_, Fold::Last)) => all.extend(moments.last()),
            (_, (_, Fold::Both)) => all.extend(moments),
        }
    }
    all.into_iter().collect()
}

#[test]
fn each_day_has_its_time_over_every_change_of_the_clocks() {
    let policies = [(Gap::After, Fold::First), (Gap::Skip, Fold::Last), (Gap::After, Fold::Both)];
    for (n, (zone, change)) in all_changes().into_iter().enumerate() {
        let (at, length) = (seconds(change.at), change.after - change.before);
        let (low, high) = (at + change.before.min(change.after), at + change.before.max(change.after));
        // In the middle of what is left out or shown twice, and at its ends, before it and after it in turn.
        let ends = [low - 7_200, low - 1, low, high - 1, high, high + 7_200];
        for local in [(low + high) / 2, ends[n % ends.len()]] {
            let policy = policies[n / ends.len() % policies.len()];
            let (gap, fold) = policy;
            let spec = Spec { gap, fold, zone: zone.clone(), ..Spec::new(vec![daily(local)]) };
            // It may be a whole day that is left out.
            let around = length.abs() + 3 * DAY / 2;
            let (after, until) = (at - around, at + around);
            let expected = expected(&zone, &change, local, policy);
            let is_near = |time: &i64| *time > after && *time <= until;
            let expected: Vec<DateTime> = expected.into_iter().filter(is_near).map(time).collect();
            let found = spec.occurrences(&Calendars::default(), time(after), time(until), 100);
            assert_eq!(found, expected, "{} {change:?} {} {policy:?}", zone.name(), spec.cron[0].text());
        }
    }
}

#[test]
fn what_comes_every_half_hour_misses_nothing_that_clocks_show() {
    for (zone, change) in all_changes() {
        let spec = Spec { zone: zone.clone(), ..Spec::new(vec![CronExpr::parse("*/30 * * * *").unwrap()]) };
        let at = seconds(change.at) / 900 * 900;
        let (after, until) = (at - 10_800, at + 10_800);
        let shown = |at: &i64| (at + zone.offset(time(*at))) % 1_800 == 0;
        let expected: Vec<DateTime> = (1..=24).map(|n| after + n * 900).filter(shown).map(time).collect();
        let found = spec.occurrences(&Calendars::default(), time(after), time(until), 100);
        assert_eq!(found, expected, "{} {change:?}", zone.name());
    }
}

proptest! {
    #[test]
    fn a_row_of_times_is_the_same_wherever_it_is_begun(
        start in 946_684_800_i64..2_145_916_800, hours in "[0-9]|1[0-9]|2[0-3]", minute in 0_u8..60,
        zone in prop_oneof![
            Just("Europe/Berlin"), Just("America/St_Johns"), Just("Australia/Lord_Howe"), Just("Africa/Cairo"),
            Just("America/Havana"), Just("Asia/Tehran"), Just("Antarctica/Troll"),
        ],
        fold in prop_oneof![Just(Fold::First), Just(Fold::Last), Just(Fold::Both)],
    ) {
        let spec = Spec { fold, ..spec(&format!("{minute} {hours} * * *"), zone) };
        let none = Calendars::default();
        let row = spec.occurrences(&none, time(start), time(start + 400 * DAY), 500);
        prop_assert!(row.is_sorted_by(|a, b| a < b));
        prop_assert!(row.len() >= 399, "{}", row.len());
        for pair in row.windows(2) {
            prop_assert_eq!(spec.next(&none, pair[0]), Some(pair[1]));
            let between = time((seconds(pair[0]) + seconds(pair[1])) / 2);
            prop_assert_eq!(spec.next(&none, between), Some(pair[1]));
        }
    }
}

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

fn found_at(second: i64) -> Situation {
    Situation { now: time(BEGIN + second), live: 0, queue: true, fits: true }
}

/// The times that fire and the next one, in seconds since the beginning, how many are passed over, and why the newest.
fn decided(
    schedule: &Schedule,
    situation: Situation,
) -> (Vec<i64>, usize, Option<&'static str>, Option<i64>) {
    let decision = decide(schedule, &Calendars::default(), situation);
    let since = |time: &DateTime| seconds(*time) - BEGIN;
    let fire = decision.fire.iter().map(since).collect();
    (fire, decision.skipped, decision.newest.map(|(_, why)| why), decision.next.as_ref().map(since))
}

#[test]
fn a_time_that_has_come_fires() {
    let schedule = schedule(doc! {});
    assert_eq!(decided(&schedule, found_at(0)), (vec![0], 0, None, Some(60)));
    assert_eq!(decided(&schedule, found_at(59)), (vec![0], 0, None, Some(60)));
}

#[test]
fn without_catching_up_only_the_newest_fires_and_within_a_minute() {
    let often = schedule(doc! {});
    assert_eq!(decided(&often, found_at(605)), (vec![600], 10, None, Some(660)));
    let hourly = schedule(doc! { "cron": "@hourly" });
    assert_eq!(decided(&hourly, found_at(60)), (vec![0], 0, None, Some(3_600)));
    assert_eq!(decided(&hourly, found_at(61)), (vec![], 1, Some("missed"), Some(3_600)));
    assert_eq!(decided(&hourly, found_at(8 * 3_600 - 1)), (vec![], 8, Some("missed"), Some(8 * 3_600)));
}

#[test]
fn what_is_not_too_late_is_caught_up() {
    let often = schedule(doc! { "catch_up": 3_600 });
    let (fire, skipped, _, next) = decided(&often, found_at(605));
    assert_eq!((fire.len(), fire[0], skipped, next), (11, 0, 0, Some(660)));
    let (fire, skipped, _, next) = decided(&often, found_at(3 * 3_600 + 5));
    assert_eq!((fire.len(), fire[0], skipped, next), (60, 2 * 3_600 + 60, 121, Some(3 * 3_600 + 60)));
    let hourly = schedule(doc! { "cron": "@hourly", "catch_up": 600 });
    assert_eq!(decided(&hourly, found_at(5_000)), (vec![], 2, Some("missed"), Some(7_200)));
    assert_eq!(decided(&hourly, found_at(4_200)), (vec![3_600], 1, None, Some(7_200)));
}

#[test]
fn a_long_absence_is_caught_up_bit_by_bit() {
    let mut every_second = schedule(doc! { "cron": "* * * * * *", "catch_up": 3_600 });
    let mut fired = Vec::new();
    for round in 0.. {
        let (fire, skipped, _, next) = decided(&every_second, found_at(7_200));
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
        decided(&schedule, Situation { live, ..found_at(125) })
    };
    assert_eq!(of("allow", 50), (vec![0, 60, 120], 0, None, Some(180)));
    assert_eq!(of("skip", 0), (vec![120], 2, None, Some(180)));
    assert_eq!(of("skip", 1), (vec![], 3, Some("skipped"), Some(180)));
    assert_eq!(of("cancel", 7), (vec![120], 2, None, Some(180)));
    assert_eq!(of("queue", 1), (vec![0, 60, 120], 0, None, Some(180)));
    assert_eq!(of("queue", MOST_QUEUED - 1), (vec![0], 2, Some("skipped"), Some(180)));
    assert_eq!(of("queue", MOST_QUEUED + 5), (vec![], 3, Some("skipped"), Some(180)));
    let without = Situation { queue: false, ..found_at(5) };
    assert_eq!(decided(&schedule(doc! {}), without), (vec![], 1, Some("no queue"), Some(60)));
    let unfit = Situation { fits: false, ..found_at(5) };
    assert_eq!(decided(&schedule(doc! {}), unfit), (vec![], 1, Some("wrong params"), Some(60)));
}

#[test]
fn a_day_that_was_taken_out_meanwhile_does_not_come() {
    let calendar = doc! { "name": "closed", "dates": ["2026-11-22"] };
    let calendars = Calendars::of([Calendar::read(&calendar).unwrap()]);
    let schedule = schedule(doc! { "cron": "@hourly", "calendars": [{ "name": "closed" }], "catch_up": 600 });
    let decision = decide(&schedule, &calendars, found_at(5));
    let next = Some(time(BEGIN + 86_400));
    assert_eq!(decision, Decision { fire: vec![], skipped: 0, late: 0, newest: None, next });
}

#[test]
fn after_the_last_time_there_is_none() {
    let schedule = schedule(doc! { "end": time(BEGIN + 30) });
    assert_eq!(decided(&schedule, found_at(1)), (vec![0], 0, None, None));
}

#[test]
fn a_time_fires_with_its_delay() {
    let schedule = schedule(doc! { "jitter": 50 });
    let due = schedule.settings.spec.due(Some(schedule.id), time(BEGIN));
    let early = DateTime::from_millis(due.timestamp_millis() - 1);
    let situation = Situation { now: early, ..found_at(0) };
    assert!(decide(&schedule, &Calendars::default(), situation).fire.is_empty());
    let decision = decide(&schedule, &Calendars::default(), Situation { now: due, ..found_at(0) });
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
            let (fire, passed_over, _, next) = decided(&schedule, found_at(now));
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
