use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A queue, and one DEN that claims from it.
#[derive(Default)]
struct World {
    queued: BTreeSet<ObjectId>,
    window: Window,
    claimed: Vec<ObjectId>,
}

fn id(number: u32) -> ObjectId {
    ObjectId::from_parts(number, [0; 5], [0; 3])
}

impl World {
    fn ids(&self, reading: Reading) -> Vec<ObjectId> {
        let past = |id: &&ObjectId| match reading.past {
            Some(mark) if self.window.newest_first => **id < mark,
            Some(mark) => **id > mark,
            None => true,
        };
        let in_order: Vec<&ObjectId> = if self.window.newest_first {
            self.queued.iter().rev().collect()
        } else {
            self.queued.iter().collect()
        };
        in_order.into_iter().filter(past).take(reading.limit).copied().collect()
    }

    fn candidates(&mut self, wanted: usize, now: Instant, mut chance: impl FnMut() -> f64) -> Vec<ObjectId> {
        let mut search = Search::of(wanted);
        let mut readings = 0;
        while let Some(reading) = self.window.reading(&search, now, chance()) {
            readings += 1;
            assert!(readings <= 6, "{search:?} {reading:?}");
            let ids = self.ids(reading);
            self.window.read(&mut search, reading, ids, (now, now));
        }
        let ids = self.window.take(wanted);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "none twice");
        ids
    }

    fn claim(&mut self, wanted: usize, now: Instant) -> Vec<ObjectId> {
        let ids = self.candidates(wanted, now, || 0.7);
        let taken: Vec<ObjectId> = ids.into_iter().filter(|id| self.queued.remove(id)).collect();
        self.claimed.extend(&taken);
        taken
    }

    fn first(&self, number: usize) -> Vec<ObjectId> {
        self.ids(Reading { past: None, limit: number, place: Place::Start })
    }
}

#[test]
fn what_is_in_hand_is_not_tried_again_though_it_is_still_queued() {
    let mut world = World { queued: (0..400).map(id).collect(), ..World::default() };
    let now = Instant::now();
    let tried = world.candidates(300, now, || 0.7);
    world.window.in_hand = tried.iter().copied().map(TaskId).collect();
    world.window.scanned = None;
    assert_eq!(world.candidates(50, now, || 0.7), (300..350).map(id).collect::<Vec<_>>());
    // Of those some were not started after all.
    world.window.in_hand = tried[20..].iter().copied().chain((300..350).map(id)).map(TaskId).collect();
    world.window.scanned = None;
    let left: Vec<ObjectId> = (0..20).chain(350..400).map(id).collect();
    assert_eq!(world.candidates(100, now, || 0.7), left);
}

#[derive(Debug, Clone)]
enum Step {
    Submit(u32),
    Claim(usize),
    PutBack(usize),
    Wait(u64),
    LookBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u32..100).prop_map(Step::Submit),
        (1usize..80).prop_map(Step::Claim),
        (0usize..200).prop_map(Step::PutBack),
        (0u64..1_500).prop_map(Step::Wait),
        Just(Step::LookBack),
    ]
}

proptest! {
    #[test]
    fn one_den_claims_in_order_and_sees_what_was_put_back_within_a_second(
        steps in prop::collection::vec(step(), 1..60),
        newest_first in any::<bool>(),
    ) {
        let mut world = World::default();
        world.window.newest_first = newest_first;
        let (mut now, mut next) = (Instant::now(), 0);
        // When something was last put behind the mark.
        let mut behind: Option<Instant> = None;
        for step in steps {
            match step {
                Step::Submit(tasks) => {
                    world.queued.extend((next..next + tasks).map(id));
                    next += tasks;
                    // For the newest first, all new ones are behind the mark.
                    behind = if newest_first { Some(now) } else { behind };
                }
                Step::PutBack(which) => {
                    if !world.claimed.is_empty() {
                        let which = which % world.claimed.len();
                        world.queued.insert(world.claimed.swap_remove(which));
                        behind = Some(now);
                    }
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::LookBack => {
                    world.window.scanned = None;
                    behind = None;
                }
                Step::Claim(wanted) => {
                    let expected = world.first(wanted);
                    let all = world.queued.len();
                    let claimed = world.claim(wanted, now);
                    let seen = behind.is_none_or(|since| now - since >= SCAN_EVERY);
                    prop_assert!(!claimed.is_empty() || all == 0, "it waits for nothing");
                    if seen {
                        prop_assert_eq!(claimed, expected);
                        behind = None;
                    }
                }
            }
        }
    }

    #[test]
    fn many_dens_leave_nothing_and_take_the_head_soon(
        dens in 2usize..20,
        tasks in 100u32..1_000,
        apart in 1u32..1_000,
        chances in prop::collection::vec(0.0f64..1.0, 64),
    ) {
        let mut world = World { queued: (0..tasks).map(|n| id(n * apart)).collect(), ..World::default() };
        let mut windows: Vec<Window> = (0..dens).map(|_| Window::default()).collect();
        let (mut now, mut chances) = (Instant::now(), chances.into_iter().cycle());
        let mut waiting = (id(0), now);
        while let Some(head) = world.queued.first().copied() {
            if head != waiting.0 {
                waiting = (head, now);
            }
            prop_assert!(now - waiting.1 < Duration::from_secs(20), "the head waits: {waiting:?}");
            // All of them read before the first one claims.
            let read = |window: &mut Window| {
                std::mem::swap(&mut world.window, window);
                let ids = world.candidates(8, now, || chances.next().unwrap_or(0.5));
                std::mem::swap(&mut world.window, window);
                ids
            };
            let tries: Vec<Vec<ObjectId>> = windows.iter_mut().map(read).collect();
            for (window, tried) in windows.iter_mut().zip(tries) {
                let lost = tried.iter().filter(|id| !world.queued.remove(id)).count();
                window.met_others(tried.len(), lost);
            }
            now += Duration::from_millis(50);
        }
    }

    #[test]
    fn dens_that_know_of_each_other_seldom_try_the_same_and_leave_nothing(
        sizes in prop::collection::vec(1usize..9, 2..6),
        tasks in 1_000u32..3_000,
        apart in 1u32..1_000,
        first_is_slow in any::<bool>(),
    ) {
        let mut world = World { queued: (0..tasks).map(|n| id(n * apart)).collect(), ..World::default() };
        let sum = |sizes: &[usize]| sizes.iter().sum::<usize>() as u64;
        let share = |den: usize| Share::new(sum(&sizes[..den]), sum(&sizes[den..=den]), sum(&sizes));
        let mut windows: Vec<Window> =
            (0..sizes.len()).map(|den| Window { share: share(den), ..Window::default() }).collect();
        let (mut now, mut turn, mut tried, mut lost) = (Instant::now(), 0, 0, 0);
        let mut waiting = (id(0), now);
        while let Some(head) = world.queued.first().copied() {
            if head != waiting.0 {
                waiting = (head, now);
            }
            prop_assert!(now - waiting.1 < Duration::from_secs(90), "the head waits: {waiting:?}");
            let is_deep = world.queued.len() > 1_000;
            turn += 1;
            let mut tries = Vec::new();
            for (den, window) in windows.iter_mut().enumerate() {
                if den > 0 || !first_is_slow || turn % 50 == 0 {
                    std::mem::swap(&mut world.window, window);
                    tries.push((den, world.candidates(2 * sizes[den], now, || 0.5)));
                    std::mem::swap(&mut world.window, window);
                }
            }
            for (den, ids) in tries {
                let missed = ids.iter().filter(|id| !world.queued.remove(id)).count();
                windows[den].met_others(ids.len(), missed);
                (tried, lost) = if is_deep { (tried + ids.len(), lost + missed) } else { (tried, lost) };
            }
            now += Duration::from_millis(50);
        }
        // What the slow one leaves all others reach for.
        let most = if first_is_slow { tried / 2 } else { tried / 20 };
        prop_assert!(lost <= most, "{lost} of {tried} were lost");
    }

    #[test]
    fn whoever_leaves_tasks_out_still_gets_the_last_ones(
        tasks in 0u32..300,
        distance in 0usize..FARTHEST,
        wanted in 1usize..40,
    ) {
        let mut world = World { queued: (0..tasks).map(id).collect(), ..World::default() };
        world.window.distance = distance;
        let now = Instant::now();
        for _ in 0..=tasks {
            world.claim(wanted, now);
        }
        prop_assert!(world.queued.is_empty(), "{} are left", world.queued.len());
    }
}

#[test]
fn the_distance_grows_with_losses_and_shrinks_without() {
    let mut window = Window::default();
    window.met_others(8, 2);
    assert_eq!(window.distance, 0, "a few losses are no contention");
    for _ in 0..20 {
        window.met_others(8, 8);
    }
    assert_eq!(window.distance, FARTHEST);
    for _ in 0..100 {
        window.met_others(8, 0);
    }
    assert_eq!(window.distance, 0, "alone again: exact order");
}

#[test]
fn reading_from_the_start_gets_rarer_where_it_is_slow() {
    let began = Instant::now();
    let scanned = |took: u64| Window {
        mark: Some(id(1)),
        scanned: Some((began, Duration::from_millis(took))),
        ..Window::default()
    };
    let due = |took, after| scanned(took).is_scan_due(began + Duration::from_millis(after));
    assert!(!due(1, 999) && due(1, 1_000));
    assert!(!due(100, 4_999) && due(100, 5_000));
    assert!(!due(5_000, 9_999) && due(5_000, 10_000));
    let now = began + Duration::from_millis(10);
    assert!(scanned(1).may_scan(now) && !scanned(100).may_scan(now));
}

#[test]
fn new_tasks_that_are_told_of_are_not_looked_for() {
    let mut world = World::default();
    let now = Instant::now();
    world.queued.extend((10..13).map(id));
    assert_eq!(world.claim(9, now), (10..13).map(id).collect::<Vec<_>>());
    // In another order than that of their ids, and one that was read before it was told of.
    world.queued.extend([id(30), id(20)]);
    for told in [vec![id(30), id(12)], vec![id(20)]] {
        world.window.came(told.into_iter());
    }
    // Long after: else it would be read from the start.
    let later = now + SCAN_EVERY * 5;
    let search = Search::of(9);
    assert_eq!(world.window.reading(&search, later, 0.5), None);
    assert_eq!(world.window.take(9), [id(20), id(30)]);
    // All else is looked for as ever.
    assert_eq!(world.window.reading(&search, later, 0.5).map(|reading| reading.place), Some(Place::Start));
}

#[test]
fn what_is_queued_again_does_not_wait_behind_what_is_told_of() {
    let now = Instant::now();
    let told = |several: std::ops::Range<u32>| {
        let mut world = World::default();
        world.queued.extend((10..13).map(id));
        assert_eq!(world.claim(9, now).len(), 3);
        world.queued.extend(several.clone().map(id));
        world.window.came(several.map(id));
        assert!(world.window.told);
        // Nobody tells of it.
        world.queued.insert(id(5));
        world
    };
    let mut world = told(20..500);
    assert_eq!(world.claim(1, now), [id(20)], "it was read a moment ago");
    assert_eq!(world.claim(2, now + SCAN_EVERY), [id(5), id(21)]);
    let mut world = told(20..500);
    world.window.scanned = None;
    assert_eq!(world.claim(1, now), [id(5)]);
    // As many as are wanted come all the time.
    let mut world = told(20..21);
    assert_eq!(world.claim(1, now + SCAN_EVERY * 9), [id(20)]);
    world.queued.insert(id(21));
    world.window.came(std::iter::once(id(21)));
    assert_eq!(world.claim(1, now + SCAN_AT_LEAST_EVERY), [id(5)]);
}

#[test]
fn no_more_ids_are_kept_than_may_be_needed() {
    let mut world = World::default();
    let now = Instant::now();
    world.queued.insert(id(1));
    assert_eq!(world.claim(2, now), [id(1)]);
    let most = u32::try_from(FARTHEST).unwrap();
    let all: Vec<_> = (0..3 * most).map(|one| id(10 + one)).collect();
    for some in all.chunks(256) {
        world.queued.extend(some);
        world.window.came(some.iter().copied());
    }
    assert_eq!(world.window.ids.len(), FARTHEST);
    let mut claimed = Vec::new();
    while claimed.len() < all.len() {
        let some = world.claim(1_000, now);
        assert!(!some.is_empty());
        claimed.extend(some);
    }
    assert_eq!(claimed, all);
}

#[test]
fn an_old_id_that_is_told_of_comes_before_what_was_read() {
    for distance in [0, CONTENDED_RUN] {
        let mut world = World::default();
        let now = Instant::now();
        world.queued.extend((1_000..1_500).map(id));
        assert_eq!(world.claim(5, now).len(), 5);
        world.window.distance = distance;
        // One of now and then comes late anyway.
        let is_late = |world: &mut World, new: u32| {
            world.queued.insert(id(new));
            world.window.came(std::iter::once(id(new)));
            std::mem::take(&mut world.window.older)
        };
        let mark = world.window.mark.unwrap().timestamp().timestamp_millis() / 1_000;
        assert!(!is_late(&mut world, u32::try_from(mark).unwrap() - 1));
        assert!(is_late(&mut world, 940));
        world.window.came(std::iter::once(id(940)));
        assert_eq!(world.claim(1, now), [id(940)]);
        assert!(!world.window.older);
    }
}

#[test]
fn what_is_told_of_does_not_come_before_what_has_not_been_read() {
    let mut world = World::default();
    let now = Instant::now();
    world.queued.extend((0..500).map(id));
    assert_eq!(world.claim(5, now).len(), 5);
    world.queued.insert(id(900));
    world.window.came(std::iter::once(id(900)));
    assert_eq!(world.claim(64, now).last(), Some(&id(68)));
}
