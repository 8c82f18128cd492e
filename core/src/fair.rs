//! Whose task is next: queues in which groups take turns, or share what they use, and queues that go by priority.
//!
//! **Groups.** A task may have a group, whose name may have parts, of which the first is its tenant: `tenant/user`. Tasks without one, as those of Perl's
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
pub mod order;
mod read;
mod rows;
pub mod shares;
pub mod turns;
mod unindexed_tasks;
mod window;

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document, RawDocument};
use disbatch_values::words;

pub(crate) use by_priority::{Ranked as RankedWindow, index_of_priorities};
pub use ledger::Stay;
pub(crate) use ledger::{KEPT, Ledger};
pub use order::{MOST_CLASSES, Scheme};
pub(crate) use read::index_of_groups;
pub use rows::{Before, GroupFilter, GroupPage};
pub(crate) use window::Window as FairWindow;

use crate::model::{Queue, number, whole_number};
use crate::store::count_of;

pub const LONGEST_GROUP: usize = 200;

pub const NO_GROUP: &str = "";

/// How long it takes until what a group has used counts half, when nothing says so.
pub const HALF_LIFE: Duration = Duration::from_secs(3600);

/// The longest half-life: 30 days. Documents of groups are kept three times as long.
pub const LONGEST_HALF_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

pub const MOST_WEIGHT: u32 = 100;

/// What is wrong with the name of a group is what it has to be.
pub fn check_group(name: &str) -> Result<(), String> {
    if !(1..=LONGEST_GROUP).contains(&name.chars().count()) {
        return Err(format!("text of 1 to {LONGEST_GROUP} characters"));
    }
    if name.chars().any(char::is_control) {
        return Err("text without control characters".to_owned());
    }
    if name.split('/').any(str::is_empty) {
        return Err("parts with a slash between them, none of them empty".to_owned());
    }
    Ok(())
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

words! {
    /// What the groups of a queue share.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Share {
        /// Each group starts as many tasks as any other.
        #[default]
        Turns = "turns",
        /// Each group has its tasks run for as long as any other.
        Use = "use",
    }
}

/// What applies to the groups of a queue. Values that make no sense count as not given: other programs write these documents
/// too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    pub share: Share,
    /// Which priorities are preferred when, if that is not always the highest.
    pub scheme: Option<Scheme>,
    /// How many tasks of a group may be claimed or running at once.
    pub group_threads: Option<u64>,
    weights: HashMap<String, u32>,
    half_life: Option<Duration>,
}

impl Settings {
    pub fn of(queue: &Queue) -> Self {
        let field = |name: &str| queue.rest.get(name);
        let half_life = field("half_life").and_then(number).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self {
            share: field("share").and_then(Bson::as_str).and_then(Share::named).unwrap_or_default(),
            scheme: field("scheme").and_then(Scheme::from_bson),
            group_threads: count_of(&queue.rest, "group_threads").filter(|threads| *threads > 0),
            weights: field("weights").and_then(Bson::as_document).map(weights).unwrap_or_default(),
            half_life: half_life.filter(|time| !time.is_zero() && *time <= LONGEST_HALF_LIFE),
        }
    }

    pub fn weight(&self, group: &str) -> u32 {
        self.weights.get(group).copied().unwrap_or(1).clamp(1, MOST_WEIGHT)
    }

    /// How much more than others a group gets of what its tenant gets. One that is all of its tenant gets all of that.
    pub fn weight_within(&self, group: &str) -> u32 {
        if tenant_of(group) == group { 1 } else { self.weight(group) }
    }

    pub fn half_life(&self) -> Duration {
        self.half_life.unwrap_or(HALF_LIFE)
    }
}

fn weights(stored: &Document) -> HashMap<String, u32> {
    let weight = |(group, weight): (&String, &Bson)| {
        let weight = whole_number(weight).and_then(|weight| u32::try_from(weight).ok())?;
        (1..=MOST_WEIGHT).contains(&weight).then(|| (group.clone(), weight))
    };
    stored.iter().filter_map(weight).collect()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{RawDocumentBuf, deserialize_from_document, doc};

    use super::*;

    #[test]
    fn groups_are_parts_with_slashes_between_them() {
        for good in ["a", "acme/ann", "a/b/c", "ann@example.com", "\u{e9}".repeat(200).as_str()] {
            assert_eq!(check_group(good), Ok(()), "{good}");
        }
        let empty_part = "parts with a slash between them, none of them empty";
        for (wrong, why) in [
            ("", "text of 1 to 200 characters"),
            ("x".repeat(201).as_str(), "text of 1 to 200 characters"),
            ("a\nb", "text without control characters"),
            ("/", empty_part),
            ("a/", empty_part),
            ("a//b", empty_part),
        ] {
            assert_eq!(check_group(wrong), Err(why.to_owned()), "{wrong}");
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

    fn settings(fields: Document) -> Settings {
        let mut queue = doc! { "_id": ObjectId::new(), "name": "q", "policy": "fair" };
        queue.extend(fields);
        Settings::of(&deserialize_from_document(queue).unwrap())
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let plain = settings(doc! {});
        assert_eq!(plain, Settings::default());
        assert_eq!((plain.weight("a"), plain.half_life(), plain.share), (1, HALF_LIFE, Share::Turns));
        let rubbish = doc! {
            "share": 7, "scheme": "2,1", "group_threads": 0, "half_life": -1, "weights": { "a": 0, "b": 101, "c": "x" },
        };
        assert_eq!(settings(rubbish), plain);
    }

    #[test]
    fn settings_are_read() {
        let set = settings(doc! {
            "share": "use", "scheme": [2, 1], "group_threads": 3, "half_life": 60, "weights": { "a": 5, "a/b.c": 2 },
        });
        assert_eq!(
            (set.share, set.group_threads, set.half_life()),
            (Share::Use, Some(3), Duration::from_secs(60))
        );
        assert!(set.scheme.is_some());
        assert_eq!((set.weight("a"), set.weight("a/b.c"), set.weight("b")), (5, 2, 1));
        assert_eq!((set.weight_within("a"), set.weight_within("a/b.c")), (1, 2));
    }
}
