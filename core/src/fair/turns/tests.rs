use std::collections::BTreeMap;

use bson::oid::ObjectId;
use proptest::prelude::*;

use super::*;

const FREE: u64 = u64::MAX;

fn names(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|number| Arc::from(format!("g{number:03}"))).collect()
}

fn listed(groups: &[&str]) -> Listed {
    Listed::whole(groups.iter().map(|group| Arc::from(*group)))
}

/// The groups of turns, one for each task.
fn told(turns: &[Turn]) -> Vec<String> {
    turns.iter().flat_map(|turn| vec![turn.group.to_string(); turn.tasks as usize]).collect()
}

fn alike(_: &str) -> Waiter {
    Waiter { weight: 1, room: FREE }
}

#[test]
fn groups_take_turns_in_the_order_of_their_names() {
    let taken = take(&Pointer::default(), &listed(&["b", "a", "c"]), alike, 5);
    assert_eq!(told(&taken.turns), ["a", "b", "c", "a", "b"]);
    assert_eq!(taken.pointer, Pointer { round: 1, last: "b".to_owned(), had: 1 });
    assert_eq!(taken.turns.iter().map(|turn| turn.round).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
    let next = take(&taken.pointer, &listed(&["a", "b", "bb", "c"]), alike, 3);
    assert_eq!(told(&next.turns), ["bb", "c", "a"], "a new one comes where its name is");
}

#[test]
fn tasks_without_a_group_are_one_that_comes_first() {
    let taken = take(&Pointer::default(), &listed(&["", "a"]), alike, 3);
    assert_eq!(told(&taken.turns), ["", "a", ""]);
}

#[test]
fn a_turn_may_be_taken_in_parts() {
    let of = |group: &str| Waiter { weight: if group == "b" { 3 } else { 1 }, room: FREE };
    let waiting = listed(&["a", "b"]);
    let (mut pointer, mut had) = (Pointer::default(), Vec::new());
    for _ in 0..6 {
        let taken = take(&pointer, &waiting, of, 1);
        had.extend(told(&taken.turns));
        pointer = taken.pointer;
    }
    assert_eq!(had, ["a", "b", "b", "b", "a", "b"]);
    assert_eq!(told(&take(&Pointer::default(), &waiting, of, 6).turns), had);
    // It does not wait any more: the rest of its turn is nobody's.
    assert_eq!(told(&take(&pointer, &listed(&["a"]), of, 2).turns), ["a", "a"]);
}

#[test]
fn where_none_of_those_that_were_read_has_room_it_goes_on_behind_them_and_once_around() {
    let part = |end: &str, from: &str| Listed::part(Vec::new(), Arc::from(end), Arc::from(from));
    let pointer = |round: i64, last: &str| Pointer { round, last: last.to_owned(), had: 0 };
    let first = Pointer { round: 4, last: "m".to_owned(), had: 2 };
    let second = part("t", "m").beyond(&first, &first);
    assert_eq!(second, Some(pointer(4, "t")));
    let third = part("c", "t").beyond(&pointer(4, "t"), &first);
    assert_eq!(third, Some(pointer(5, "c")), "the way leads around the end");
    assert_eq!(part("m", "c").beyond(&pointer(5, "c"), &first), None);
    assert_eq!(part("p", "c").beyond(&pointer(5, "c"), &first), None);
    assert_eq!(listed(&["a", "z"]).beyond(&first, &first), None, "all were read");
}

#[test]
fn a_group_without_room_is_passed_over() {
    let of = |group: &str| Waiter { weight: 1, room: if group == "a" { 2 } else { FREE } };
    let taken = take(&Pointer::default(), &listed(&["a", "b"]), of, 7);
    assert_eq!(told(&taken.turns), ["a", "b", "a", "b", "b", "b", "b"]);
    let full = |_: &str| Waiter { weight: 1, room: 0 };
    let nothing = take(&taken.pointer, &listed(&["a", "b"]), full, 7);
    assert_eq!((nothing.turns, nothing.pointer, nothing.unknown), (Vec::new(), taken.pointer, false));
    assert!(take(&Pointer::default(), &Listed::default(), alike, 1).turns.is_empty());
}

#[test]
fn what_is_not_known_is_not_passed_over() {
    let part = |groups: &[&str], after: &str, up_to: &str| {
        Listed::part(groups.iter().map(|group| Arc::from(*group)), Arc::from(after), Arc::from(up_to))
    };
    let at = |last: &str| Pointer { round: 7, last: last.to_owned(), had: 1 };
    // Read from c on, up to f.
    let taken = take(&at("c"), &part(&["d", "f"], "f", "c"), alike, 5);
    assert_eq!((told(&taken.turns), taken.unknown), (vec!["d".to_owned(), "f".to_owned()], true));
    assert_eq!(taken.pointer, at("f"));
    for lost in ["f", "g", "a", "b"] {
        let taken = take(&at(lost), &part(&["d", "f"], "f", "c"), alike, 1);
        assert!(taken.turns.is_empty() && taken.unknown, "{lost}");
    }
    // Read from c on, around the end, up to a.
    let taken = take(&at("d"), &part(&["a", "e"], "a", "c"), alike, 5);
    assert_eq!((told(&taken.turns), taken.unknown), (vec!["e".to_owned(), "a".to_owned()], true));
    assert_eq!(taken.pointer.round, 8);
    let gone = take(&at("a"), &part(&[], "a", "c"), alike, 1);
    assert!(gone.unknown && gone.turns.is_empty());
}

/// Has turns taken by some DENs, so many tasks at once each time.
fn play(
    groups: &[Arc<str>],
    weights: &BTreeMap<Arc<str>, u32>,
    sizes: &[u64],
    listed: impl Fn(&Pointer) -> Listed,
) -> Vec<Turn> {
    let of = |group: &str| Waiter { weight: weights.get(group).copied().unwrap_or(1), room: FREE };
    let (mut pointer, mut turns) = (Pointer::default(), Vec::new());
    for size in sizes {
        let mut left = *size;
        while left > 0 {
            let taken = take(&pointer, &listed(&pointer), of, left);
            assert!(!taken.turns.is_empty() || groups.is_empty() || taken.unknown);
            left -= taken.turns.iter().map(|turn| u64::from(turn.tasks)).sum::<u64>();
            pointer = taken.pointer;
            turns.extend(taken.turns);
            if groups.is_empty() {
                break;
            }
        }
    }
    turns
}

/// As it is read when there are too many: `most` of them, from the pointer on.
fn read_in_part(groups: &[Arc<str>], pointer: &Pointer, most: usize) -> Listed {
    let last: Arc<str> = Arc::from(pointer.last.as_str());
    let from = groups.iter().filter(|group| ***group >= *last);
    let before = groups.iter().filter(|group| ***group < *last);
    let read: Vec<Arc<str>> = from.chain(before).take(most).cloned().collect();
    match read.last().cloned() {
        Some(end) if read.len() < groups.len() => Listed::part(read, end, last),
        _ => Listed::whole(read),
    }
}

fn any_weights(count: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1u32..6, count..=count)
}

proptest! {
    #[test]
    fn between_two_turns_of_a_group_every_other_has_its_weight_at_most(
        weights in (1usize..8).prop_flat_map(any_weights),
        sizes in prop::collection::vec(1u64..20, 1..40),
    ) {
        let groups = names(weights.len());
        let weights: BTreeMap<Arc<str>, u32> = groups.iter().cloned().zip(weights).collect();
        let turns = play(&groups, &weights, &sizes, |_| Listed::whole(groups.clone()));
        let all: u64 = sizes.iter().sum();
        prop_assert_eq!(turns.iter().map(|turn| u64::from(turn.tasks)).sum::<u64>(), all, "nothing is left over");
        for group in &groups {
            let mine: Vec<usize> = (0..turns.len()).filter(|at| turns[*at].group == *group).collect();
            for pair in mine.windows(2) {
                let (from, to) = (&turns[pair[0]], &turns[pair[1]]);
                prop_assert!(to.round - from.round <= 1, "it is left out of no round");
                for other in groups.iter().filter(|other| *other != group) {
                    let between = turns[pair[0] + 1..pair[1]].iter().filter(|turn| turn.group == *other);
                    let had: u32 = between.map(|turn| turn.tasks).sum();
                    prop_assert!(had <= weights[other], "{other} had {had} between two turns of {group}");
                }
            }
        }
    }

    #[test]
    fn in_whole_rounds_each_group_has_its_weight(
        weights in (1usize..8).prop_flat_map(any_weights),
        rounds in 1u64..9,
        size in 1u64..30,
    ) {
        let groups = names(weights.len());
        let weights: BTreeMap<Arc<str>, u32> = groups.iter().cloned().zip(weights).collect();
        let all = rounds * u64::from(weights.values().sum::<u32>());
        let mut sizes = vec![size; usize::try_from(all / size).unwrap()];
        sizes.push(all % size);
        let turns = play(&groups, &weights, &sizes, |_| Listed::whole(groups.clone()));
        for (group, weight) in &weights {
            let had: u64 = turns.iter().filter(|turn| turn.group == *group).map(|turn| u64::from(turn.tasks)).sum();
            prop_assert_eq!(had, rounds * u64::from(*weight));
        }
    }

    #[test]
    fn however_turns_are_taken_and_read_their_order_is_the_same(
        weights in (1usize..12).prop_flat_map(any_weights),
        sizes in prop::collection::vec(1u64..9, 1..30),
        most in 2usize..6,
    ) {
        let groups = names(weights.len());
        let weights: BTreeMap<Arc<str>, u32> = groups.iter().cloned().zip(weights).collect();
        let whole = |_: &Pointer| Listed::whole(groups.clone());
        let parts = |pointer: &Pointer| read_in_part(&groups, pointer, most);
        let at_once = told(&play(&groups, &weights, &[sizes.iter().sum()], whole));
        prop_assert_eq!(&told(&play(&groups, &weights, &sizes, whole)), &at_once);
        prop_assert_eq!(&told(&play(&groups, &weights, &sizes, parts)), &at_once);
    }

    #[test]
    fn as_much_is_given_as_there_is_room(
        rooms in prop::collection::vec(0u64..6, 0..8),
        wanted in 0u64..40,
    ) {
        let groups = names(rooms.len());
        let of_group: BTreeMap<Arc<str>, u64> = groups.iter().cloned().zip(rooms.clone()).collect();
        let of = |group: &str| Waiter { weight: 2, room: of_group[group] };
        let taken = take(&Pointer::default(), &Listed::whole(groups.clone()), of, wanted);
        let given = |group: &Arc<str>| -> u64 {
            taken.turns.iter().filter(|turn| turn.group == *group).map(|turn| u64::from(turn.tasks)).sum()
        };
        for group in &groups {
            prop_assert!(given(group) <= of_group[group]);
        }
        prop_assert_eq!(groups.iter().map(given).sum::<u64>(), wanted.min(rooms.iter().sum()));
    }
}

#[test]
fn a_rotation_is_read_whatever_is_there() {
    assert_eq!(pointer_of(&doc! {}), Pointer::default());
    let stored = doc! { "round": 7_i64, "last": "a/b", "had": 2 };
    assert_eq!(pointer_of(&stored), Pointer { round: 7, last: "a/b".to_owned(), had: 2 });
    assert_eq!(pointer_of(&doc! { "round": "x", "last": 5, "had": -1 }), Pointer::default());
}

#[test]
fn a_rotation_is_moved_from_where_it_stood() {
    let queue = QueueId(ObjectId::from_bytes([1; 12]));
    let like = standing(queue, &Pointer { round: 7, last: "$a".to_owned(), had: 0 });
    let expected = doc! {
        "_id": queue, "round": { "$eq": 7_i64 }, "had": { "$in": [0, bson::Bson::Null] }, "last": { "$eq": "$a" },
    };
    assert_eq!(like, expected);
}
