//! Which of a group's tasks is next, and which priority is preferred when. Pure.
//!
//! A scheme of n numbers makes n classes: tasks with a priority of n-1 and above, of n-2, and so on to those of 0 and
//! below. `[2, 1]` prefers the first class twice, then the second once, then the first again. What is preferred and not
//! there is replaced by what is there.

use std::cmp::Reverse;

use bson::Bson;
use bson::oid::ObjectId;

use crate::model::whole_number;

pub const MOST_CLASSES: usize = 10;

/// How often each class is preferred before it is the first one's turn again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme(Vec<u32>);

/// Priorities from one to another, both included; all of them by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub least: Option<i64>,
    pub most: Option<i64>,
}

impl Scheme {
    /// A scheme, if it is one: 2 to [`MOST_CLASSES`] numbers from 1 to 100.
    pub fn new(times: Vec<u32>) -> Option<Self> {
        let fits = (2..=MOST_CLASSES).contains(&times.len()) && times.iter().all(|n| (1..=100).contains(n));
        fits.then_some(Self(times))
    }

    pub(super) fn from_bson(value: &Bson) -> Option<Self> {
        let times = value.as_array()?.iter();
        let times: Option<Vec<u32>> = times.map(|n| u32::try_from(whole_number(n)?).ok()).collect();
        Self::new(times?)
    }

    pub fn times(&self) -> &[u32] {
        &self.0
    }

    pub fn preferred(&self, round: i64) -> usize {
        let all: i64 = self.0.iter().copied().map(i64::from).sum();
        let mut position = round.rem_euclid(all.max(1));
        let is_its_turn = |times: &u32| {
            position -= i64::from(*times);
            position < 0
        };
        self.0.iter().position(is_its_turn).unwrap_or(0)
    }

    /// The class of a priority; 0 is the highest.
    pub fn class_of(&self, priority: i64) -> usize {
        let last = self.0.len() - 1;
        last - usize::try_from(priority.max(0)).unwrap_or(last).min(last)
    }

    pub(super) fn range(&self, class: usize) -> Range {
        let last = self.0.len() - 1;
        let priority = i64::try_from(last.saturating_sub(class)).unwrap_or(0);
        Range { least: (class < last).then_some(priority), most: (class > 0).then_some(priority) }
    }
}

impl Range {
    pub fn has(self, priority: i64) -> bool {
        self.least.is_none_or(|least| priority >= least) && self.most.is_none_or(|most| priority <= most)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub task: ObjectId,
    /// Its priority; 0 if it has none.
    pub priority: i64,
    pub again: bool,
}

/// Takes the next task of a group in a round out of those that are known: of the class that is preferred, or else of the
/// highest one. Of these, one that is tried again comes first, then the one with the highest priority, then the oldest.
pub fn next(tasks: &mut Vec<Candidate>, scheme: Option<&Scheme>, round: i64) -> Option<Candidate> {
    let key = |task: &Candidate| {
        let class = scheme.map(|scheme| {
            let class = scheme.class_of(task.priority);
            (class != scheme.preferred(round), class)
        });
        (class, !task.again, Reverse(task.priority), task.task)
    };
    let (at, _) = tasks.iter().enumerate().min_by_key(|(_, task)| key(task))?;
    Some(tasks.remove(at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_take_turns() {
        let scheme = Scheme::new(vec![2, 1]).unwrap();
        let preferred: Vec<usize> = (0..7).map(|round| scheme.preferred(round)).collect();
        assert_eq!(preferred, [0, 0, 1, 0, 0, 1, 0]);
        let classes: Vec<usize> = [-1000, -1, 0, 1, 2, 1000].map(|priority| scheme.class_of(priority)).into();
        assert_eq!(classes, [1, 1, 1, 0, 0, 0]);
        let three = Scheme::new(vec![3, 2, 1]).unwrap();
        let classes: Vec<usize> = [-5, 0, 1, 2, 9].map(|priority| three.class_of(priority)).into();
        assert_eq!(classes, [2, 2, 1, 0, 0]);
    }

    #[test]
    fn what_is_no_scheme_is_refused() {
        for wrong in [vec![], vec![1], vec![0, 1], vec![101, 1], vec![1; 11]] {
            assert_eq!(Scheme::new(wrong.clone()), None, "{wrong:?}");
        }
        assert_eq!(Scheme::from_bson(&bson::bson!([1, "x"])), None);
        assert_eq!(Scheme::from_bson(&bson::bson!([4, 1.0])), Scheme::new(vec![4, 1]));
    }

    proptest! {
        #[test]
        fn each_priority_is_in_the_range_of_its_class_alone(
            times in prop::collection::vec(1u32..5, 2..6),
            priority in -1000i64..1000,
        ) {
            let scheme = Scheme::new(times.clone()).unwrap();
            for class in 0..times.len() {
                prop_assert_eq!(scheme.range(class).has(priority), class == scheme.class_of(priority));
            }
        }

        #[test]
        fn in_a_cycle_each_class_is_preferred_as_often_as_it_says(
            times in prop::collection::vec(1u32..5, 2..6),
            from in -50i64..1_000,
        ) {
            let scheme = Scheme::new(times.clone()).unwrap();
            let cycle = i64::from(times.iter().sum::<u32>());
            let mut counted = vec![0; times.len()];
            for round in from..from + cycle {
                counted[scheme.preferred(round)] += 1;
            }
            prop_assert_eq!(counted, times);
        }
    }

    fn task(number: u8, priority: i64, again: bool) -> Candidate {
        Candidate { task: ObjectId::from_bytes([number; 12]), priority, again }
    }

    fn order(mut tasks: Vec<Candidate>, scheme: Option<&Scheme>) -> Vec<u8> {
        (0..).map_while(|round| next(&mut tasks, scheme, round)).map(|one| one.task.bytes()[0]).collect()
    }

    #[test]
    fn what_is_tried_again_comes_first_then_priority_then_age() {
        let tasks = vec![
            task(1, 0, false),
            task(2, 5, false),
            task(3, 0, true),
            task(4, -7, true),
            task(5, 5, false),
            task(6, -1, false),
        ];
        assert_eq!(order(tasks, None), [3, 4, 2, 5, 1, 6]);
    }

    #[test]
    fn a_scheme_prefers_classes_in_turn_and_takes_what_there_is() {
        let scheme = Scheme::new(vec![2, 1]).unwrap();
        let tasks: Vec<Candidate> =
            (1..=5).map(|n| task(n, 1, false)).chain((11..=14).map(|n| task(n, 0, n == 13))).collect();
        assert_eq!(order(tasks, Some(&scheme)), [1, 2, 13, 3, 4, 11, 5, 12, 14]);
    }
}
