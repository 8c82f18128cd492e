//! Whose task is next: queues in which groups take turns, or share what they use, and queues that go by priority.
//!
//! **Groups.** A task may have a group, whose name may have parts: `tenant/user`. Tasks without one, as those of Perl's
//! programs, are together a group that has no name. In a fair queue, groups take turns ([`turns`]), in the order of their
//! names; or the one comes next that has used the least ([`shares`]). Within its turn a group gives its tasks in an order of
//! their own ([`order`]): one that is tried again first, then by priority, then by age.
//!
//! **Turns are taken before tasks are claimed.** All DENs share the rotation of a queue, a small document (`queue_turns`): by
//! one update that names where it stood, a DEN takes the next turns, and nobody else has them. So however many DENs claim, and
//! however many tasks a group has, between two turns of a group that waits every other has one turn at most. What this rests
//! on is tested on the functions themselves, which are pure.
//!
//! **Reading.** Who waits is found in an index that has one entry for each task with a group: the server skips from one
//! group to the next, so the cost is that of the number of groups. A DEN remembers the answer for about a second
//! (`window.rs`). The first task of each group comes with it; further ones are read ahead, as long as no other DEN has had a
//! turn of the group in between. Tasks without a group are not in that index, so that queues that are not fair pay nothing
//! for it; they are found by reading on in the index that has all tasks (`unindexed_tasks.rs`).
//!
//! **Limits.** `group_threads` limits what a group has claimed or running, as `threads` does for the queue: each claim takes
//! a place of its group, which a unique index gives once, and is confirmed before it is launched. What a `group_rate` does not
//! allow is passed over as a group without tasks is.

mod by_priority;
mod claim;
mod ledger;
mod priority_window;
mod read;
mod rotation;
mod rows;
mod scheme;
mod settings;
pub mod shares;
mod spread;
pub mod turns;
mod unindexed_tasks;
mod uses;
mod window;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocument, doc};

use crate::counters::count::Amount;
use crate::model::{Queue, Status, Task, whole_number};
use crate::store::{Store, StoreError};
pub(crate) use by_priority::index_of_priorities;
pub use ledger::Stay;
pub(crate) use ledger::{KEPT, Ledger};
pub(crate) use priority_window::Ranked as RankedWindow;
pub(crate) use read::index_of_groups;
use read::{has_no_group, has_no_priority};
pub use rows::{GroupFilter, GroupPage, GroupRow, Turns, Why};
pub use scheme::{MOST_CLASSES, Scheme};
pub use settings::{HALF_LIFE, LONGEST_HALF_LIFE, MOST_WEIGHT, Settings, Share};
use unindexed_tasks::Reading;
use window::Want;
pub(crate) use window::Window as FairWindow;

/// A group's name has so many characters at most.
pub const LONGEST_GROUP: usize = 200;

/// The group of tasks that have none.
pub const NO_GROUP: &str = "";

/// What is wrong with the name of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// It is empty or too long.
    #[error("text of 1 to {most} characters", most = LONGEST_GROUP)]
    Length,
    /// It has a control character.
    #[error("text without control characters")]
    Control,
    /// There is nothing before, behind or between its slashes.
    #[error("parts with a slash between them, none of them empty")]
    EmptyPart,
}

/// Checks the name of a group.
///
/// # Errors
/// It is none; the error says what it would have to be.
pub fn check_group(name: &str) -> Result<(), GroupError> {
    if !(1..=LONGEST_GROUP).contains(&name.chars().count()) {
        return Err(GroupError::Length);
    }
    if name.chars().any(char::is_control) {
        return Err(GroupError::Control);
    }
    if name.split('/').any(str::is_empty) { Err(GroupError::EmptyPart) } else { Ok(()) }
}

/// The first part of a group's name.
pub fn tenant_of(group: &str) -> &str {
    group.split('/').next().unwrap_or(group)
}

/// Under which name it is kept what the groups of a tenant have used together, save one that is called as the tenant. No
/// group has such a name.
fn total_of(tenant: &str) -> String {
    format!("{tenant}/")
}

/// The group of a task as it is stored. What is no text is none.
pub(crate) fn group_of(task: &RawDocument) -> &str {
    task.get_str("group").unwrap_or(NO_GROUP)
}

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

/// So many tasks of a queue are looked at for those that have no group, or no priority.
const LOOKED_AT: usize = 1_000;

/// What comes before a task of a fair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    /// Turns of other groups, if these can be told.
    pub turns: Option<u64>,
    /// Tasks of its group.
    pub tasks: u64,
    /// Its group has as many tasks running as it may have: so many.
    pub full: Option<u64>,
}

impl Store {
    /// What comes before a task of a fair queue. Up to `most` tasks are counted.
    pub(crate) async fn before_in_group(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<Before, StoreError> {
        let settings = Settings::of(queue);
        let group = task.rest.get("group").and_then(Bson::as_str).unwrap_or(NO_GROUP);
        let (order, _) = self.order_of_groups(queue).await?;
        let mut full = None;
        if let Some(threads) = settings.group_threads {
            let running = self.running_by_group(queue.id).await?;
            full = running.get(group).is_some_and(|group| group.places.running >= threads).then_some(threads);
        }
        let tasks = if group == NO_GROUP {
            self.before_among_plain(queue, task, most).await?
        } else {
            let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
            let want = Want { group: Arc::from(group), limit, classes: BTreeSet::new(), free: false };
            let found = self.tasks_of_groups(queue.id, &[want], None).await?;
            let tasks = found.into_iter().next().map(|(tasks, _)| tasks).unwrap_or_default();
            let at = tasks.iter().position(|one| one.task == task.id.0).unwrap_or(tasks.len());
            u64::try_from(at).unwrap_or(most).min(most)
        };
        let turns = order.turns_before(group, |group| settings.weight(group));
        Ok(Before { turns, tasks, full })
    }

    async fn before_among_plain(&self, queue: &Queue, task: &Task, most: u64) -> Result<u64, StoreError> {
        let reading = Reading { past: None, limit: LOOKED_AT };
        let (read, _, plain) = self.plain_tasks(queue, reading, has_no_group).await?;
        let before = plain.iter().take_while(|one| one.task != task.id.0).count();
        let is_seen = before < plain.len() || read < LOOKED_AT;
        Ok(if is_seen { u64::try_from(before).unwrap_or(most).min(most) } else { most })
    }

    /// How many tasks come before one of a queue that goes by priority, up to `most`.
    pub(crate) async fn before_by_priority(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<u64, StoreError> {
        let priority = task.rest.get("priority").and_then(whole_number).unwrap_or(0);
        let with = |fields: Document| {
            let mut filter = doc! { "queue": queue.id, "status": Status::Queued };
            filter.extend(fields);
            (filter, most)
        };
        let higher = with(doc! { "priority": { "$gt": priority } });
        let older = with(doc! { "priority": priority, "_id": { "$lt": task.id } });
        let counted = self.count_each_up_to(&[higher, older]).await?;
        let ranked: u64 =
            counted.iter().map(|(Amount::Exactly(tasks) | Amount::MoreThan(tasks))| *tasks).sum();
        let reading = Reading { past: None, limit: LOOKED_AT };
        let (_, _, plain) = self.plain_tasks(queue, reading, has_no_priority).await?;
        let is_before = |one: &Candidate| priority < 0 || (priority == 0 && one.task < task.id.0);
        let plain = plain.iter().filter(|one| is_before(one)).count();
        Ok(ranked.saturating_add(u64::try_from(plain).unwrap_or(most)).min(most))
    }
}

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;

    #[test]
    fn groups_are_parts_with_slashes_between_them() {
        for good in ["a", "acme/ann", "a/b/c", "ann@example.com", "\u{e9}".repeat(200).as_str()] {
            assert_eq!(check_group(good), Ok(()), "{good}");
        }
        for (wrong, why) in [
            ("", GroupError::Length),
            ("x".repeat(201).as_str(), GroupError::Length),
            ("a\nb", GroupError::Control),
            ("/", GroupError::EmptyPart),
            ("a/", GroupError::EmptyPart),
            ("a//b", GroupError::EmptyPart),
        ] {
            assert_eq!(check_group(wrong), Err(why), "{wrong}");
        }
        assert!(check_group(&total_of("a")).is_err(), "a total is no group");
        assert_eq!((tenant_of("acme/ann"), tenant_of("ann"), tenant_of(NO_GROUP)), ("acme", "ann", ""));
    }

    #[test]
    fn a_task_without_a_group_is_in_the_one_without_a_name() {
        let group = |task| group_of(&RawDocumentBuf::try_from(&task).unwrap()).to_owned();
        assert_eq!(group(doc! { "group": "a" }), "a");
        assert_eq!(group(doc! { "group": 5 }), NO_GROUP);
        assert_eq!(group(doc! {}), NO_GROUP);
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
