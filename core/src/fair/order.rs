//! Which of a group's tasks is next. Pure.

use std::cmp::Reverse;

use bson::oid::ObjectId;

use super::scheme::Scheme;

/// A task that may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub task: ObjectId,
    /// Its priority; 0 if it has none.
    pub priority: i64,
    /// It is tried again.
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
    use super::*;

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
