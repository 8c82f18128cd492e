//! The recordings, and what must hold for any input.

use bson::doc;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Rows in which Perl's arithmetic ended with an error of its own, with what happens here instead.
const CRASHES: [&str; 2] = ["empty", "unknown_queue"];

fn rows() -> Vec<Value> {
    let text = include_str!("../../../../tests/fixtures/queuebalance_vectors.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn settings(row: &Value) -> Result<Settings, SettingsError> {
    Settings::read(vec![bson::serialize_to_document(&row["balance_in"]).unwrap()])
}

#[test]
fn recorded_queues_get_what_perl_gave_them() {
    let mut compared = 0;
    for row in rows() {
        let name = row["name"].as_str().unwrap_or_default();
        if !row["error"].is_null() || row["maxthreads_out"].is_null() || name == "disabled_future" {
            continue;
        }
        let settings = settings(&row).unwrap();
        let demand = |queue: &String| Demand {
            queued: row["queues_in"][queue]["queued"].as_u64().unwrap(),
            running: row["queues_in"][queue]["running"].as_u64().unwrap(),
        };
        let tiers: Vec<Vec<Demand>> =
            settings.tiers.iter().map(|tier| tier.iter().map(demand).collect()).collect();
        let limit = settings.timetable.limit_at(WeekMinute(0)).unwrap();
        let allotted = allot(limit, &tiers);
        for (queue, threads) in settings.tiers.iter().flatten().zip(allotted.iter().flatten()) {
            // Perl left a field alone that was null and should be 0.
            let recorded = row["maxthreads_out"][queue].as_u64().unwrap_or(0);
            assert_eq!(*threads, recorded, "{name}: {queue}");
        }
        compared += 1;
    }
    assert_eq!(compared, 8);
}

#[test]
fn recorded_mistakes_are_told_in_the_same_words() {
    let mut compared = 0;
    for row in rows() {
        let Some(error) = row["error"].as_str() else { continue };
        let name = row["name"].as_str().unwrap();
        if CRASHES.contains(&name) {
            continue;
        }
        let read = if name == "two_balance_docs" {
            Settings::read(vec![Document::new(), Document::new()])
        } else {
            settings(&row)
        };
        let recorded = error.trim_start_matches("dqb: ").split(" at lib").next().unwrap();
        // Perl's quotation mark is in the wrong place, and it does not look inside.
        let recorded = recorded.replace("'queues is not an ARRAY'", "'queues' is not an ARRAY of ARRAYs");
        assert_eq!(read.unwrap_err().to_string(), recorded);
        compared += 1;
    }
    assert_eq!(compared, 4);
}

#[test]
fn recorded_limits_are_in_force_at_the_recorded_times() {
    let mut compared = 0;
    let mut differences = Vec::new();
    for row in rows().iter().filter(|row| row["results"].is_array()) {
        let max_tasks = row["max_tasks"].as_object().unwrap();
        let entries: Vec<(String, i64)> =
            max_tasks.iter().map(|(time, limit)| (time.clone(), limit.as_i64().unwrap())).collect();
        let timetable = Timetable::read(&entries).unwrap();
        for result in row["results"].as_array().unwrap() {
            let day = u8::try_from(result[0].as_u64().unwrap()).unwrap();
            let (hour, minute) = result[1].as_str().unwrap().split_once(':').unwrap();
            let now = WeekMinute::new(day, hour.parse().unwrap(), minute.parse().unwrap()).unwrap();
            if timetable.limit_at(now) != result[2].as_u64() {
                differences.push((day, result[1].as_str().unwrap().to_owned(), timetable.limit_at(now)));
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 280);
    // Perl first takes a day that has an entry, and only then looks at the time. With entries for Wednesday
    // alone it takes 12:30 of Wednesday at 12:30 of any day, and the one entry of a Saturday holds from its
    // midnight on.
    let other_days = [0, 1, 2, 4, 5, 6].map(|day| (day, "12:30", Some(8)));
    let saturday = ["00:00", "06:59", "07:00", "12:29", "12:30", "12:50", "13:10", "18:20", "19:00"]
        .map(|time| (6, time, Some(1)));
    let expected: Vec<_> = other_days
        .into_iter()
        .chain(saturday)
        .map(|(day, time, here)| (day, time.to_owned(), here))
        .collect();
    assert_eq!(differences, expected);
}

#[test]
fn a_days_own_entry_replaces_that_of_every_day() {
    let entries = [("2 07:00", 1), ("* 07:00", 5), ("* 19:00", 9)];
    let timetable = Timetable::read(&entries.map(|(time, limit)| (time.to_owned(), limit))).unwrap();
    let at = |day, hour, minute| timetable.limit_at(WeekMinute::new(day, hour, minute).unwrap());
    assert_eq!(at(2, 6, 59), Some(9));
    assert_eq!(at(2, 7, 0), Some(1));
    assert_eq!(at(3, 7, 0), Some(5));
    assert_eq!(Timetable::default().limit_at(WeekMinute(0)), None);
}

#[test]
fn what_is_no_time_is_named() {
    for wrong in ["07:00", "7 07:00", "* 24:00", "1 00:60", "", "x 1:1"] {
        let error = Timetable::read(&[(wrong.to_owned(), 1)]).unwrap_err();
        assert_eq!(error, SettingsError::NotATime(wrong.to_owned()));
    }
    let word = doc! { "max_tasks": { "* 07:00": "many" }, "queues": [] };
    assert_eq!(Settings::read(vec![word]), Err(SettingsError::NotTimes));
    let flat = doc! { "max_tasks": {}, "queues": ["q1"] };
    assert_eq!(Settings::read(vec![flat]), Err(SettingsError::NotTiers));
}

#[test]
fn a_queue_is_balanced_once() {
    let stored = doc! { "max_tasks": {}, "queues": [["a", "b"], ["b", "c"]] };
    assert_eq!(Settings::read(vec![stored]).unwrap().tiers, [vec!["a", "b"], vec!["c"]]);
}

fn demands() -> impl Strategy<Value = Vec<Vec<Demand>>> {
    let demand = (0..20_u64, 0..20_u64).prop_map(|(queued, running)| Demand { queued, running });
    prop::collection::vec(prop::collection::vec(demand, 0..4), 0..5)
}

proptest! {
    #[test]
    fn the_sum_never_exceeds_the_limit(limit in 0..40_u64, tiers in demands()) {
        let allotted = allot(limit, &tiers);
        prop_assert!(allotted.iter().flatten().sum::<u64>() <= limit);
    }

    #[test]
    fn no_queue_gets_more_than_it_has_queued(limit in 0..40_u64, tiers in demands()) {
        let allotted = allot(limit, &tiers);
        for (tier, threads) in tiers.iter().zip(&allotted) {
            prop_assert_eq!(tier.len(), threads.len());
            prop_assert!(tier.iter().zip(threads).all(|(demand, threads)| *threads <= demand.queued));
        }
    }

    #[test]
    fn a_tier_is_satisfied_before_a_later_one_and_the_default_one(limit in 0..40_u64, tiers in demands()) {
        // Nothing runs yet: all that counts is who comes first.
        let idle: Vec<Vec<Demand>> = tiers
            .iter()
            .map(|tier| tier.iter().map(|demand| Demand { running: 0, ..*demand }).collect())
            .collect();
        let allotted = allot(limit, &idle);
        let mut left = limit;
        for number in (1..idle.len()).chain((!idle.is_empty()).then_some(0)) {
            let wanted: u64 = idle[number].iter().map(|demand| demand.queued).sum();
            let given: u64 = allotted[number].iter().sum();
            prop_assert_eq!(given, wanted.min(left), "tier {}", number);
            left -= given;
        }
    }

    #[test]
    fn a_later_tier_takes_nothing_from_an_earlier_one(limit in 0..40_u64, tiers in demands()) {
        for number in 2..tiers.len() {
            let mut without = tiers.clone();
            without[number..].iter_mut().flatten().for_each(|demand| *demand = Demand::default());
            let (all, fewer) = (allot(limit, &tiers), allot(limit, &without));
            for earlier in 1..number {
                let total = |allotted: &[Vec<u64>]| allotted[earlier].iter().sum::<u64>();
                // Others queued make the default tier smaller, which can only leave more.
                prop_assert!(total(&all) >= total(&fewer));
            }
        }
    }
}
