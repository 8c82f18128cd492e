//! Never too many starts, and none that is lost by being given back.

use bson::{Document, doc};
use proptest::prelude::*;

use super::*;
use crate::rate::KEPT_TAKES;

/// A time of some day, in milliseconds since 1970.
const NOW: i64 = 1_795_163_067_344;

fn nothing() -> Taken<usize> {
    Taken { tat: 0, takes: Vec::new() }
}

/// What the server does when starts are taken.
fn take(taken: &mut Taken<usize>, rate: &Rate, now: i64, wanted: u64, id: usize) -> i64 {
    if taken.is_out_of_reach(rate, now) {
        *taken = Taken { tat: nanos(now) + rate.reach(), takes: Vec::new() };
    }
    let n = i64::try_from(taken.allowed(rate, now).min(wanted)).unwrap();
    if n > 0 {
        taken.takes.push(Take { id, at: now, n });
    }
    if taken.takes.len() > usize::try_from(KEPT_TAKES).unwrap() {
        let first = taken.takes.remove(0);
        taken.tat = taken.tat.max(nanos(first.at)) + first.n * rate.interval();
    }
    n
}

/// What it does when some are given back. Returns whether they count as never taken.
fn give_back(taken: &mut Taken<usize>, id: usize, unused: i64) -> bool {
    match taken.takes.iter_mut().find(|take| take.id == id && take.n >= unused) {
        Some(take) => {
            take.n -= unused;
            true
        }
        None => false,
    }
}

fn rate(n: u64, per: u64, burst: u64) -> Rate {
    Rate { n, per, burst }
}

#[test]
fn a_rate_is_three_whole_numbers_of_which_the_last_may_be_missing() {
    let read = |document: Document| Rate::read(&document.into());
    assert_eq!(read(doc! { "n": 10, "per": 60, "burst": 3 }), Some(rate(10, 60, 3)));
    assert_eq!(read(doc! { "n": 10_i64, "per": 60.0 }), Some(rate(10, 60, 1)));
    assert_eq!(read(doc! { "n": 500, "per": 1 }), Some(rate(500, 1, 50)));
    assert_eq!(read(doc! { "n": 500, "per": 60 }), Some(rate(500, 60, 1)));
    assert_eq!(read(doc! { "n": MOST, "per": 1 }), Some(rate(100_000, 1, 10_000)));
    for wrong in [
        doc! {},
        doc! { "n": 1 },
        doc! { "per": 1 },
        doc! { "n": 0, "per": 1 },
        doc! { "n": 1, "per": 0.5 },
        doc! { "n": 1, "per": LONGEST + 1 },
        doc! { "n": MOST + 1, "per": 1 },
        doc! { "n": 1, "per": 1, "burst": 0 },
        doc! { "n": "1", "per": 1 },
    ] {
        assert_eq!(read(wrong.clone()), None, "{wrong}");
    }
    assert_eq!(Rate::read(&Bson::from(5)), None);
}

#[test]
fn starts_come_at_once_up_to_the_burst_and_then_one_by_one() {
    let (rate, mut taken) = (rate(2, 1, 3), nothing());
    assert_eq!((taken.allowed(&rate, NOW), taken.wait(&rate, NOW)), (3, None));
    assert_eq!(take(&mut taken, &rate, NOW, 2, 0), 2);
    assert_eq!(take(&mut taken, &rate, NOW, 9, 1), 1);
    assert_eq!(take(&mut taken, &rate, NOW, 1, 2), 0);
    assert_eq!(taken.wait(&rate, NOW), Some(Duration::from_millis(500)));
    assert_eq!(taken.wait(&rate, NOW + 200), Some(Duration::from_millis(300)));
    assert_eq!(take(&mut taken, &rate, NOW + 500, 9, 3), 1);
    assert_eq!(taken.allowed(&rate, NOW + 60_000), 3, "no more than the burst are saved up");
}

#[test]
fn what_is_given_back_late_does_not_let_more_start_at_once() {
    let (rate, mut taken) = (rate(1, 1, 3), nothing());
    assert_eq!(take(&mut taken, &rate, NOW, 3, 0), 3);
    assert_eq!(take(&mut taken, &rate, NOW + 2_900, 2, 1), 2);
    assert!(give_back(&mut taken, 0, 3));
    // As if the first take had never been: one of three is left.
    assert_eq!(taken.allowed(&rate, NOW + 2_900), 1);
}

#[test]
fn another_rate_counts_from_now_on() {
    let (slow, quick, mut taken) = (rate(1, LONGEST.unsigned_abs(), 100), rate(10, 1, 1), nothing());
    assert_eq!(take(&mut taken, &slow, NOW, 100, 0), 100);
    assert_eq!(take(&mut taken, &quick, NOW + 1_000, 1, 1), 0);
    assert_eq!(taken.wait(&quick, NOW + 1_000), Some(Duration::from_millis(100)));
    assert_eq!(take(&mut taken, &quick, NOW + 1_100, 5, 2), 1);
}

#[test]
fn the_largest_numbers_can_be_counted() {
    let widest = rate(1, LONGEST.unsigned_abs(), LARGEST.unsigned_abs());
    let mut taken = nothing();
    assert_eq!(take(&mut taken, &widest, NOW, u64::MAX, 0), LARGEST);
    assert!(taken.wait(&widest, NOW).is_some() && !taken.is_out_of_reach(&widest, NOW));
    let busy = (0..32).map(|id| Take { id, at: NOW, n: LARGEST }).collect();
    assert!(Taken { tat: 0, takes: busy }.is_out_of_reach(&widest, NOW));
}

/// One who takes some starts a while after the one before, and tells `later` takes after that how many it has used.
#[derive(Debug, Clone)]
struct Taker {
    after: i64,
    wanted: u64,
    unused: u64,
    later: usize,
}

fn any_taker() -> impl Strategy<Value = Taker> {
    let after = prop_oneof![Just(0), 0_i64..40, 0_i64..4_000];
    (after, 1_u64..25, 0_u64..25, 0_usize..6).prop_map(|(after, wanted, unused, later)| Taker {
        after,
        wanted,
        unused,
        later,
    })
}

fn any_rate() -> impl Strategy<Value = Rate> {
    (1_u64..200, 1_u64..20, 1_u64..20).prop_map(|(n, per, burst)| Rate { n, per, burst })
}

/// Lets them all take. Returns when how many were used.
fn play(rate: &Rate, takers: &[Taker]) -> Vec<(i64, i64)> {
    let (mut taken, mut now) = (nothing(), NOW);
    let mut used = Vec::new();
    let mut to_return: Vec<(usize, usize, i64)> = Vec::new();
    for (id, taker) in takers.iter().enumerate() {
        now += taker.after;
        let n = take(&mut taken, rate, now, taker.wanted, id);
        let unused = n.min(i64::try_from(taker.unused).unwrap());
        used.push((now, n - unused));
        to_return.push((id + taker.later, id, unused));
        to_return.retain(|(when, of, unused)| {
            if *when <= id {
                give_back(&mut taken, *of, *unused);
            }
            *when > id
        });
    }
    used
}

proptest! {
    #[test]
    fn no_stretch_of_time_has_more_starts_than_the_rate_and_the_burst(
        rate in any_rate(),
        takers in prop::collection::vec(any_taker(), 1..80),
    ) {
        let used = play(&rate, &takers);
        for (first, (from, _)) in used.iter().enumerate() {
            let mut starts = 0;
            for (to, n) in &used[first..] {
                starts += i128::from(*n);
                // starts <= n * t / per + burst, without a division.
                let (n, per) = (i128::from(rate.n), i128::from(rate.per));
                let allowed = n * i128::from(to - from) + i128::from(rate.burst) * per * 1000;
                prop_assert!(starts * per * 1000 <= allowed, "{starts} starts in {} ms", to - from);
            }
        }
    }

    #[test]
    fn what_is_given_back_was_never_taken(
        rate in any_rate(),
        takers in prop::collection::vec(any_taker(), 2..30),
        which in any::<prop::sample::Index>(),
        later in 0_i64..10_000,
    ) {
        let which = which.index(takers.len());
        let (mut with, mut without, mut now) = (nothing(), nothing(), NOW);
        for (id, taker) in takers.iter().enumerate() {
            now += taker.after;
            let n = take(&mut with, &rate, now, taker.wanted, id);
            if id != which && n > 0 {
                without.takes.push(Take { id, at: now, n });
            }
        }
        let of_it = with.takes.iter().find(|take| take.id == which).map_or(0, |take| take.n);
        prop_assert!(of_it == 0 || give_back(&mut with, which, of_it));
        for now in [now, now + later] {
            prop_assert_eq!(with.allowed(&rate, now), without.allowed(&rate, now));
            prop_assert_eq!(with.wait(&rate, now), without.wait(&rate, now));
        }
    }

    #[test]
    fn the_next_start_is_possible_exactly_when_it_was_said(
        rate in any_rate(),
        takers in prop::collection::vec(any_taker(), 1..40),
    ) {
        let (mut taken, mut now) = (nothing(), NOW);
        for (id, taker) in takers.iter().enumerate() {
            now += taker.after;
            let n = take(&mut taken, &rate, now, taker.wanted, id);
            match taken.wait(&rate, now) {
                None => prop_assert_eq!(u64::try_from(n).unwrap(), taker.wanted, "it could have had more"),
                Some(wait) => {
                    let wait = i64::try_from(wait.as_millis()).unwrap();
                    prop_assert_eq!(taken.allowed(&rate, now + wait - 1), 0);
                    prop_assert!(taken.allowed(&rate, now + wait) > 0);
                }
            }
        }
    }
}
