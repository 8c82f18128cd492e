use bson::doc;

use super::*;

fn arc(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn task(number: u8) -> Candidate {
    Candidate { task: ObjectId::from_bytes([number; 12]), priority: 0, again: false }
}

fn settings(fields: bson::Document) -> Settings {
    let mut queue = doc! { "_id": ObjectId::new(), "name": "q", "policy": "fair" };
    queue.extend(fields);
    Settings::of(&bson::deserialize_from_document(queue).unwrap())
}

fn turn(group: &str, round: i64, tasks: u32) -> Turn {
    Turn { group: arc(group), round, had: 0, tasks }
}

/// Groups a and b wait; their first tasks are 1 and 2. The rotation stands at a.
fn window(settings: &Settings) -> Window {
    let mut window = Window::default();
    let pointer = Pointer { round: 7, last: "a".to_owned(), had: 1 };
    let heads = vec![Head { group: arc("a"), first: task(1) }, Head { group: arc("b"), first: task(2) }];
    let listed = Listed::whole([arc("a"), arc("b")]);
    let now = Instant::now();
    window.list(listed, heads, (settings, Some(&pointer)), (now, now));
    window
}

fn chosen(choices: &[Choice]) -> Vec<u8> {
    choices.iter().map(|choice| choice.task.task.bytes()[0]).collect()
}

#[test]
fn the_first_tasks_are_known_until_somebody_else_has_had_a_turn() {
    let settings = settings(doc! {});
    let mut window = window(&settings);
    let turns = vec![turn("b", 7, 1), turn("a", 8, 1)];
    assert!(window.wants(&settings, &turns).is_empty(), "nobody else can have had these turns");
    assert_eq!(chosen(&window.choose(&settings, turns)), [2, 1]);
    // The next turn of b is ours again: it is worth reading more of it. Of a, another has had the turn in between.
    let turns = vec![turn("b", 8, 1), turn("a", 10, 1)];
    let wants = window.wants(&settings, &turns);
    let limits: Vec<(&str, usize)> = wants.iter().map(|want| (&*want.group, want.limit)).collect();
    assert_eq!(limits, [("b", 1 + AHEAD), ("a", 1)]);
    window.fill(&arc("b"), vec![task(3), task(4)], true);
    window.fill(&arc("a"), vec![task(5)], false);
    assert_eq!(chosen(&window.choose(&settings, turns)), [3, 5]);
    assert!(window.wants(&settings, &[turn("b", 9, 5)]).is_empty(), "there are no more than are known");
    assert_eq!(chosen(&window.choose(&settings, vec![turn("b", 9, 5)])), [4]);
    assert!(!window.listed.groups.contains("b") && window.listed.groups.contains("a"), "b has nothing left");
}

#[test]
fn a_turn_that_came_to_nothing_is_used_again_for_a_moment() {
    let settings = settings(doc! {});
    let (mut window, now) = (window(&settings), Instant::now());
    let choices = window.choose(&settings, vec![turn("b", 7, 1)]);
    window.put_back(&choices[0].turn.group, choices[0].task);
    window.owe(choices[0].turn.clone(), now);
    assert!(window.take_owed(0, now).is_empty());
    let owed = window.take_owed(9, now);
    assert_eq!(owed, [turn("b", 7, 1)]);
    assert!(window.take_owed(9, now).is_empty(), "once");
    assert!(window.wants(&settings, &owed).is_empty());
    assert_eq!(chosen(&window.choose(&settings, owed)), [2]);
    window.owe(turn("a", 8, 1), now);
    assert!(window.take_owed(9, now + OWED).is_empty());
    assert!(window.owed.is_empty());
}

#[test]
fn a_task_that_cannot_be_claimed_is_left_out_for_a_while() {
    let settings = settings(doc! {});
    let mut window = window(&settings);
    let now = Instant::now();
    window.skip(task(9).task, &arc("a"), now);
    window.fill(&arc("a"), vec![task(9), task(1), task(1)], true);
    assert_eq!(chosen(&window.choose(&settings, vec![turn("a", 8, 3)])), [1]);
    let later = now + SKIPPED;
    window.list(Listed::whole([arc("a")]), Vec::new(), (&settings, None), (later, later));
    window.fill(&arc("a"), vec![task(9)], true);
    assert_eq!(chosen(&window.choose(&settings, vec![turn("a", 9, 1)])), [9]);
}

#[test]
fn where_many_of_a_group_cannot_be_claimed_only_what_no_node_has_is_read() {
    let settings = settings(doc! {});
    let mut window = window(&settings);
    let now = Instant::now();
    let asked = |window: &Window| -> Vec<(usize, bool)> {
        let wants = window.wants(&settings, &[turn("a", 12, 2), turn("b", 12, 2)]);
        wants.iter().map(|want| (want.limit, want.free)).collect()
    };
    for number in 0..AHEAD - 1 {
        window.skip(task(u8::try_from(100 + number).unwrap()).task, &arc("a"), now);
    }
    assert_eq!(asked(&window), [(2 + AHEAD - 1, false), (2, false)]);
    window.skip(task(200).task, &arc("a"), now);
    assert_eq!(asked(&window), [(2 + AHEAD, true), (2, false)]);
}

#[test]
fn who_waits_without_a_group_has_a_part_in_the_shares_at_once() {
    let mut window = window(&settings(doc! {}));
    window.shares = Some((Shares::default(), 1.0));
    window.list_plain();
    assert!(window.shares.is_some(), "nobody has come");
    window.plain.found.push(task(5));
    window.list_plain();
    assert!(window.listed.groups.contains(NO_GROUP) && window.shares.is_none());
}

#[test]
fn places_of_a_group_are_given_once_and_no_more_than_there_are() {
    let settings = settings(doc! { "group_threads": 3 });
    let mut window = window(&settings);
    let now = Instant::now();
    window.places.insert(arc("a"), Places { running: 1, taken: BTreeSet::from([1]) });
    window.places.insert(arc("b"), Places { running: 2, taken: BTreeSet::from([7]) });
    assert_eq!([window.waiter("a", &settings, now).room, window.waiter("b", &settings, now).room], [2, 1]);
    assert_eq!(window.waiter("c", &settings, now).room, 3);
    window.fill(&arc("a"), (10..20).map(task).collect(), true);
    let choices = window.choose(&settings, vec![turn("a", 8, 5)]);
    let mut places: Vec<u64> = choices.iter().filter_map(|choice| choice.place).collect();
    places.sort_unstable();
    assert_eq!((places, chosen(&choices)), (vec![0, 2], vec![10, 11]));
    assert_eq!(window.waiter("a", &settings, now).room, 0);
    let rests = now + Duration::from_secs(3);
    window.rest(arc("b"), rests);
    assert_eq!(window.waiter("b", &settings, now).room, 0);
    assert_eq!(window.next_start(now), Some(Duration::from_secs(3)));
    assert_eq!((window.waiter("b", &settings, rests).room, window.next_start(rests)), (1, None));
}

#[test]
fn with_a_scheme_the_class_of_the_round_is_read() {
    let settings = settings(doc! { "scheme": [2, 1] });
    let mut window = window(&settings);
    let turns = vec![turn("a", 8, 1), turn("b", 8, 1), turn("a", 9, 1)];
    let wants = window.wants(&settings, &turns);
    let wanted: Vec<(&str, usize, Vec<usize>)> =
        wants.iter().map(|want| (&*want.group, want.limit, want.classes.iter().copied().collect())).collect();
    assert_eq!(wanted, [("a", 2, vec![0, 1]), ("b", 1, vec![1])]);
    let high = Candidate { priority: 4, ..task(8) };
    window.fill(&arc("a"), vec![high, task(1), Candidate { priority: 4, ..task(9) }], false);
    window.fill(&arc("b"), vec![high], false);
    // Round 8 is for the low ones, 9 for the high ones.
    assert_eq!(chosen(&window.choose(&settings, turns)), [1, 8, 8]);
}

#[test]
fn who_waits_is_read_again_when_it_is_old_or_something_has_come() {
    let settings = settings(doc! {});
    let mut window = window(&settings);
    let (read, _) = window.read.unwrap();
    assert!(Window::default().is_old(read));
    assert!(!window.is_old(read + Duration::from_millis(900)) && window.is_old(read + FRESH.0));
    window.read = Some((read, Duration::from_millis(100)));
    let at = |ms| read + Duration::from_millis(ms);
    assert!(!window.is_old(at(4_900)) && window.is_old(at(5_000)), "one part in fifty");
    window.look_back();
    assert!(!window.is_old(at(1_900)) && window.is_old(at(2_000)));
}

#[test]
fn who_meets_others_goes_farther_and_comes_back() {
    let mut spread = Spread::default();
    assert_eq!(spread.pick(100, 1.0), 0, "the first one, as long as there is nobody else");
    spread.met_others(1, 1);
    assert_eq!((spread.pick(100, 1.0), spread.pick(3, 1.0), spread.pick(0, 1.0)), (8, 2, 0));
    for _ in 0..20 {
        spread.met_others(4, 4);
    }
    assert_eq!(spread.distance(), FARTHEST);
    for _ in 0..60 {
        spread.met_others(4, 0);
    }
    assert_eq!(spread.distance(), 0);
}
