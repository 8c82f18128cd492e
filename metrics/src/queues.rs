//! What is counted for each queue. Users make queues, and labels must not grow without end: the first [`MOST`] have their
//! names, and all others are `other` together.
//!
//! Series are kept by the ids of queues, and have their names when they are written: so a counter goes on when its queue gets
//! another name, and whoever counts needs no name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use crate::declared::OfQueue;

/// So many queues have a label of their own.
pub const MOST: usize = 1_000;

/// The label of all others.
pub const OTHER: &str = "other";

/// The id of a queue.
pub type Id = [u8; 12];

#[derive(Debug)]
pub struct Queues {
    most: usize,
    known: RwLock<QueueLabels>,
    other: Arc<OfQueue>,
}

#[derive(Debug, Default)]
struct QueueLabels {
    own: HashMap<Id, Own>,
    /// Those that are `other`.
    folded: HashSet<Id>,
}

/// A queue with a label of its own.
#[derive(Debug, Default)]
struct Own {
    /// `None`: it has not been read yet.
    name: Option<String>,
    /// It was not there when queues were read.
    was_missing: bool,
    series: Option<Arc<OfQueue>>,
}

impl Default for Queues {
    fn default() -> Self {
        Self::bounded(MOST)
    }
}

impl Queues {
    /// At most so many have a label of their own.
    pub fn bounded(most: usize) -> Self {
        Self { most, known: RwLock::default(), other: Arc::default() }
    }

    /// What is counted for a queue.
    pub fn of(&self, id: Id) -> Arc<OfQueue> {
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(series) = known.own.get(&id).and_then(|own| own.series.as_ref()) {
                return Arc::clone(series);
            }
            if known.folded.contains(&id) {
                return Arc::clone(&self.other);
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match known.own(id, self.most) {
            Some(own) => Arc::clone(own.series.get_or_insert_default()),
            None => Arc::clone(&self.other),
        }
    }

    /// These are all queues, with their names. What was counted for those that are gone is forgotten.
    pub fn are<'a>(&self, queues: impl Iterator<Item = (Id, &'a str)> + Clone) {
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let is_known = |(id, name): (Id, &str)| {
                known.folded.contains(&id)
                    || known.own.get(&id).is_some_and(|own| own.name.as_deref() == Some(name))
            };
            if queues.clone().count() == known.count() && queues.clone().all(is_known) {
                return;
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let there: HashSet<Id> = queues.clone().map(|(id, _)| id).collect();
        let before = known.own.len();
        // One without a name may have been made since they were read, and is among them the next time if it is not gone.
        known.own.retain(|id, own| {
            there.contains(id) || (own.name.is_none() && !std::mem::replace(&mut own.was_missing, true))
        });
        known.folded.retain(|id| there.contains(id));
        if known.own.len() < before {
            known.folded.clear();
        }
        for (id, name) in queues {
            if let Some(own) = known.own(id, self.most) {
                own.name = Some(name.to_owned());
            }
        }
    }

    /// How many queues are `other`.
    pub fn folded(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).folded.len()
    }

    /// The labels of all queues that have one of their own. All others are [`OTHER`].
    pub fn labels(&self) -> HashMap<Id, String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut times: HashMap<&str, usize> = HashMap::new();
        known
            .own
            .values()
            .filter_map(|own| own.name.as_deref())
            .for_each(|name| *times.entry(name).or_default() += 1);
        let label = |(id, own): (&Id, &Own)| {
            let hex = || id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let label = match own.name.as_deref() {
                None | Some("") => hex(),
                Some(name) if name == OTHER || times.get(name).is_some_and(|times| *times > 1) => {
                    format!("{name} ({})", hex())
                }
                Some(name) => name.to_owned(),
            };
            (*id, label)
        };
        known.own.iter().map(label).collect()
    }

    /// All that was counted, by label.
    pub(crate) fn all(&self) -> Vec<(String, Arc<OfQueue>)> {
        let mut labels = self.labels();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let series = |(id, own): (&Id, &Own)| Some((labels.remove(id)?, Arc::clone(own.series.as_ref()?)));
        let mut all: Vec<_> = known.own.iter().filter_map(series).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        if !known.folded.is_empty() || Arc::strong_count(&self.other) > 1 {
            all.push((OTHER.to_owned(), Arc::clone(&self.other)));
        }
        all
    }
}

impl QueueLabels {
    fn count(&self) -> usize {
        self.own.len() + self.folded.len()
    }

    fn own(&mut self, id: Id, most: usize) -> Option<&mut Own> {
        if self.own.len() >= most && !self.own.contains_key(&id) {
            self.folded.insert(id);
            return None;
        }
        self.folded.remove(&id);
        Some(self.own.entry(id).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> Id {
        [number; 12]
    }

    fn labels(queues: &Queues) -> Vec<String> {
        queues.all().into_iter().map(|(label, _)| label).collect()
    }

    #[test]
    fn beyond_the_bound_queues_are_counted_together() {
        let queues = Queues::bounded(2);
        let names: Vec<(Id, String)> = (1..=5).map(|number| (id(number), format!("q{number}"))).collect();
        queues.are(names.iter().map(|(id, name)| (*id, name.as_str())));
        assert_eq!(queues.folded(), 3);
        for (id, _) in &names {
            queues.of(*id).claimed.inc();
        }
        assert_eq!(labels(&queues), ["q1", "q2", OTHER]);
        assert!(Arc::ptr_eq(&queues.of(id(3)), &queues.of(id(5))));
        // A place that is free again is given again.
        queues.are(names[1..].iter().map(|(id, name)| (*id, name.as_str())));
        assert_eq!(queues.folded(), 2);
        queues.of(id(3)).claimed.inc();
        assert_eq!(labels(&queues), ["q2", "q3", OTHER]);
    }

    #[test]
    fn one_that_nobody_has_read_yet_is_not_forgotten() {
        let queues = Queues::bounded(3);
        let new = queues.of(id(7));
        queues.are([(id(1), "one")].into_iter());
        assert!(Arc::ptr_eq(&new, &queues.of(id(7))));
        assert_eq!(labels(&queues), ["070707070707070707070707"]);
        drop(queues.of(id(8)));
        queues.are([(id(1), "one"), (id(7), "seven")].into_iter());
        assert_eq!(labels(&queues), ["080808080808080808080808", "seven"]);
        queues.are([(id(1), "one")].into_iter());
        assert!(labels(&queues).is_empty() && !Arc::ptr_eq(&new, &queues.of(id(7))));
    }

    #[test]
    fn a_counter_goes_on_under_another_name_and_labels_are_different() {
        let queues = Queues::default();
        let all = [(id(1), "a"), (id(2), "a"), (id(3), ""), (id(4), OTHER)];
        queues.are(all.into_iter());
        let first = queues.of(id(1));
        all.iter().for_each(|(id, _)| drop(queues.of(*id)));
        let hex = |number: u8| format!("{number:02x}").repeat(12);
        let expected =
            [hex(3), format!("a ({})", hex(1)), format!("a ({})", hex(2)), format!("other ({})", hex(4))];
        assert_eq!(labels(&queues), expected);
        queues.are([(id(1), "b"), (id(2), "a"), (id(3), "c"), (id(4), "d")].into_iter());
        assert_eq!(labels(&queues), ["a", "b", "c", "d"]);
        assert!(Arc::ptr_eq(&first, &queues.of(id(1))));
    }
}
