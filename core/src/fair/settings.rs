//! What a queue says about whose turn it is. Values that make no sense count as not given: other programs write these
//! documents too.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document};

use super::group::tenant_of;
use super::scheme::Scheme;
use crate::model::{Queue, number, whole_number};

/// How long it takes until what a group has used counts half, when nothing says so.
pub const HALF_LIFE: Duration = Duration::from_secs(3600);

/// The longest half-life: 30 days. Documents of groups are kept three times as long.
pub const LONGEST_HALF_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

pub const MOST_WEIGHT: u32 = 100;

/// What is shared fairly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Share {
    /// Turns: each group starts as many tasks as any other.
    #[default]
    Turns,
    /// Use: each group has its tasks run for as long as any other.
    Use,
}

/// What applies to the groups of a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    pub share: Share,
    /// Which priorities are preferred when, if that is not always the highest.
    pub scheme: Option<Scheme>,
    /// How many tasks of a group may be claimed or running at once.
    pub group_threads: Option<u64>,
    pub(super) weights: HashMap<String, u32>,
    pub(super) half_life: Option<Duration>,
}

impl Settings {
    /// Those of `queue`.
    pub fn of(queue: &Queue) -> Self {
        let field = |name: &str| queue.rest.get(name);
        let half_life = field("half_life").and_then(number).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self {
            share: match field("share").and_then(Bson::as_str) {
                Some("use") => Share::Use,
                _ => Share::Turns,
            },
            scheme: field("scheme").and_then(Scheme::from_bson),
            group_threads: field("group_threads")
                .and_then(whole_number)
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0),
            weights: field("weights").and_then(Bson::as_document).map(weights).unwrap_or_default(),
            half_life: half_life.filter(|time| !time.is_zero() && *time <= LONGEST_HALF_LIFE),
        }
    }

    /// The same with these weights.
    #[must_use]
    pub fn with_weights(self, weights: HashMap<String, u32>) -> Self {
        Self { weights, ..self }
    }

    /// How much more than others a group gets.
    pub fn weight(&self, group: &str) -> u32 {
        self.weights.get(group).copied().unwrap_or(1).clamp(1, MOST_WEIGHT)
    }

    /// How much more than others a group gets of what its tenant gets. One that is all of its tenant gets all of that.
    pub fn weight_within(&self, group: &str) -> u32 {
        if tenant_of(group) == group { 1 } else { self.weight(group) }
    }

    /// After how long what was used counts half.
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
    use bson::{deserialize_from_document, doc, oid::ObjectId};

    use super::*;

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
