//! Whose turn is next, where groups take turns: who waits and where the rotation stands in, turns out.
//!
//! Groups have their turns in the order of their names, and then it is the first one's turn again: that is a round. A group
//! with the weight w has w tasks in its turn. So between two turns of a group that waits, every other group has one turn at
//! most. All DENs share one rotation: whoever takes turns moves the pointer on, and nobody else has these turns. `queue_turns`
//! has a document for the rotation of each queue, `{_id, round, last, had}`, and turns are taken by one update, on the
//! condition that nobody else has taken any since.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use mongodb::Collection;
use mongodb::options::{CollectionOptions, ReturnDocument};

use crate::model::{QueueId, whole_number};
use crate::store::{Store, StoreError, collections, integer};
use crate::task::one_member;

/// Where the rotation of a queue stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer {
    /// How often it has begun with the first group again.
    pub round: i64,
    /// The group that had its turn last, or has it still.
    pub last: String,
    /// How many tasks of its turn have been given.
    pub had: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// How many tasks its turn is for; at least 1.
    pub weight: u32,
    /// How many more of its tasks may be claimed now. A group without room is passed over.
    pub room: u64,
}

/// A turn, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub group: Arc<str>,
    pub round: i64,
    /// How many tasks of the turn were given before.
    pub had: u32,
    /// How many are given now.
    pub tasks: u32,
}

/// The groups that wait, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    pub groups: BTreeSet<Arc<str>>,
    /// Of the groups in between it is not known whether they wait.
    gap: Option<Gap>,
}

/// Names behind `after` and before `up_to`, or around the end to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gap {
    after: Arc<str>,
    up_to: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub turns: Vec<Turn>,
    pub pointer: Pointer,
    /// There may be more, which is not known: read who waits from where the pointer is.
    pub unknown: bool,
}

enum Next<'a> {
    /// This group, and whether a round begins with it.
    Group(&'a Arc<str>, bool),
    Nobody,
    Unknown,
}

impl Gap {
    fn has(&self, name: &str) -> bool {
        name != &*self.after && is_passed(name, &self.after, &self.up_to)
    }
}

/// Whether one comes by `name` on the way from one name up to another, and around the end if that comes before. The first
/// is on the way, the second is not.
fn is_passed(name: &str, from: &str, to: &str) -> bool {
    if from < to { from <= name && name < to } else { name >= from || name < to }
}

impl Listed {
    pub fn whole(groups: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self { groups: groups.into_iter().collect(), gap: None }
    }

    /// The groups that wait from `up_to` on and, in the rotation, not behind `after`.
    pub fn part(groups: impl IntoIterator<Item = Arc<str>>, after: Arc<str>, up_to: Arc<str>) -> Self {
        Self { groups: groups.into_iter().collect(), gap: Some(Gap { after, up_to }) }
    }

    pub fn is_whole(&self) -> bool {
        self.gap.is_none()
    }

    /// The last of them, in the order of the rotation as it was read.
    pub fn end(&self) -> Option<&Arc<str>> {
        self.gap.as_ref().map(|gap| &gap.after).or_else(|| self.groups.last())
    }

    /// From where on to read who waits when it was read from `from` on, and none of these has room. `None`: that is all of
    /// the way around to `first`.
    pub fn beyond(&self, from: &Pointer, first: &Pointer) -> Option<Pointer> {
        let end = &*self.gap.as_ref()?.after;
        let is_around = from.last != first.last && is_passed(&first.last, &from.last, end);
        if is_around || end == first.last.as_str() || end == from.last.as_str() {
            return None;
        }
        let round = from.round + i64::from(end < from.last.as_str());
        Some(Pointer { round, last: end.to_owned(), had: 0 })
    }

    /// The first group after another one in the rotation that may have a turn.
    fn next(&self, from: &str, may: impl Fn(&str) -> bool) -> Next<'_> {
        if self.gap.as_ref().is_some_and(|gap| gap.has(from)) {
            return Next::Unknown;
        }
        let behind = (Bound::Excluded(from), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(from));
        let first =
            |range: (Bound<&str>, Bound<&str>)| self.groups.range::<str, _>(range).find(|group| may(group));
        let around = || first(before).map(|group| (group, true));
        let found = first(behind).map(|group| (group, false)).or_else(around);
        match (found, &self.gap) {
            (Some((group, _)), Some(gap)) if is_passed(&gap.after, from, group) => Next::Unknown,
            (Some((group, begins)), _) => Next::Group(group, begins),
            (None, Some(_)) => Next::Unknown,
            (None, None) => Next::Nobody,
        }
    }
}

/// Pure: the next turns after `pointer`, for `wanted` tasks in all. What is to be known of a group that waits is told by `of`.
pub fn take(pointer: &Pointer, listed: &Listed, of: impl Fn(&str) -> Waiter, wanted: u64) -> Taken {
    let mut taken = Taken { turns: Vec::new(), pointer: pointer.clone(), unknown: false };
    let mut given: HashMap<Arc<str>, u64> = HashMap::new();
    let mut left = wanted;
    while left > 0 {
        let room = |group: &str| of(group).room.saturating_sub(given.get(group).copied().unwrap_or(0));
        let at = &taken.pointer;
        let is_on = |group: &&Arc<str>| at.had < of(group).weight.max(1) && room(group) > 0;
        let (group, round, had) = match listed.groups.get(at.last.as_str()).filter(is_on) {
            Some(group) => (Arc::clone(group), at.round, at.had),
            None => match listed.next(&at.last, |group| room(group) > 0) {
                Next::Group(group, begins) => (Arc::clone(group), at.round + i64::from(begins), 0),
                Next::Nobody => break,
                Next::Unknown => {
                    taken.unknown = true;
                    break;
                }
            },
        };
        let of_turn = u64::from(of(&group).weight.max(1).saturating_sub(had));
        let tasks = u32::try_from(left.min(of_turn).min(room(&group))).unwrap_or(u32::MAX);
        left -= u64::from(tasks);
        *given.entry(Arc::clone(&group)).or_default() += u64::from(tasks);
        taken.pointer = Pointer { round, last: group.to_string(), had: had + tasks };
        taken.turns.push(Turn { group, round, had, tasks });
    }
    taken
}

impl Store {
    pub(super) async fn rotation(&self, queue: QueueId) -> Result<Pointer, StoreError> {
        let found = self.turns().find_one(doc! { "_id": queue }).await?;
        Ok(found.as_ref().map(pointer_of).unwrap_or_default())
    }

    /// Returns whether it stood where it was said to stand.
    pub(super) async fn move_rotation(
        &self,
        queue: QueueId,
        from: &Pointer,
        to: &Pointer,
    ) -> Result<bool, StoreError> {
        let update = doc! {
            "$set": { "round": to.round, "last": &to.last, "had": i64::from(to.had) },
            "$currentDate": { "at": true },
        };
        // At the beginning there is no document.
        let is_first = *from == Pointer::default();
        let moved = self.turns().update_one(standing(queue, from), update).upsert(is_first).await;
        let moved = StoreError::unless_duplicate(moved)?;
        Ok(moved.is_some_and(|moved| moved.matched_count == 1 || moved.upserted_id.is_some()))
    }

    /// Takes so many rounds, where there are no turns. Returns the first of them.
    pub(super) async fn take_rounds(&self, queue: QueueId, rounds: usize) -> Result<i64, StoreError> {
        let rounds = integer(rounds);
        let update = doc! { "$inc": { "round": rounds }, "$currentDate": { "at": true } };
        let turns = self.turns();
        let taken = turns.find_one_and_update(doc! { "_id": queue }, update).upsert(true);
        let taken = taken.return_document(ReturnDocument::After).await?;
        let after = taken.as_ref().map(pointer_of).unwrap_or_default().round;
        Ok(after.saturating_sub(rounds))
    }

    /// A turn that is lost with its server is taken once more, which hurts nobody, so nobody waits for a majority.
    fn turns(&self) -> Collection<Document> {
        let options = CollectionOptions::builder().write_concern(one_member()).build();
        self.database().collection_with_options(collections::TURNS.name, options)
    }
}

fn pointer_of(document: &Document) -> Pointer {
    let number = |field: &str| document.get(field).and_then(whole_number);
    Pointer {
        round: number("round").unwrap_or(0),
        last: document.get_str("last").unwrap_or_default().to_owned(),
        had: number("had").and_then(|had| u32::try_from(had).ok()).unwrap_or(0),
    }
}

/// What the document must be like. What is not there is nothing.
fn standing(queue: QueueId, pointer: &Pointer) -> Document {
    let number = |number: i64| match number {
        0 => doc! { "$in": [0, Bson::Null] },
        number => doc! { "$eq": number },
    };
    let last = match pointer.last.as_str() {
        "" => doc! { "$in": ["", Bson::Null] },
        last => doc! { "$eq": last },
    };
    doc! { "_id": queue, "round": number(pointer.round), "had": number(pointer.had.into()), "last": last }
}

#[cfg(test)]
mod tests;
