//! Reading counters: one find, and the sum over its documents.

use disbatch_operation::operation;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeBounds;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::BASE;
use crate::model::{Phase, QueueId, Status, whole_number};
use crate::store::{Store, StoreError, collect, integer};

/// All counters as they were written at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    queues: HashMap<ObjectId, Total>,
    /// The number of the last audit that has changed or confirmed something.
    pub(super) version: i64,
    pub audit: AuditNote,
    pub(super) doubted: Option<DateTime>,
    /// When an operator last asked for an audit.
    pub(super) asked: Option<DateTime>,
}

/// What the last audit of all queues has noted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditNote {
    /// When it began.
    pub at: Option<DateTime>,
    /// How many tasks it had to add or take away, over all counters.
    pub corrected: u64,
    pub queues: u64,
    /// For how long it counted: milliseconds.
    pub counting_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) tasks: BTreeMap<i64, i64>,
    /// How many moves were counted since the counters were made.
    pub(super) moves: i64,
    /// Whether an audit has found out where to count from.
    pub(super) is_audited: bool,
}

impl Totals {
    fn of(documents: &[Document]) -> Self {
        let mut totals = Self::default();
        for document in documents {
            if document.get_str("_id").is_ok_and(|id| id == BASE) {
                totals.version = number(document, "version");
                totals.audit = AuditNote::of(document);
                totals.asked = document.get_datetime("asked").ok().copied();
            }
            let doubted = document.get_datetime("doubt").ok().copied();
            totals.doubted = totals.doubted.max(doubted);
            for (queue, counted) in document.get_document("q").into_iter().flatten() {
                if let (Ok(queue), Some(counted)) = (ObjectId::parse_str(queue), counted.as_document()) {
                    totals.queues.entry(queue).or_default().add(counted);
                }
            }
        }
        totals
    }

    /// How many tasks `queue` has in a phase. `None`: nothing is known, as no audit has come to it yet. The phase
    /// of those that run is never known.
    pub fn of_phase(&self, queue: QueueId, phase: Phase) -> Option<u64> {
        self.sum(queue, |status| phase != Phase::Running && Status::from_code(status).phase() == Some(phase))
    }

    /// How many tasks `queue` has that do not run. `None`: that is not known.
    pub fn of_queue(&self, queue: QueueId) -> Option<u64> {
        self.sum(queue, |_| true)
    }

    /// How many tasks `queue` has with one of `statuses`. `None`: that is not known, or one of these has no counter
    /// of its own.
    pub fn of_statuses(&self, queue: QueueId, statuses: &[i64]) -> Option<u64> {
        statuses.iter().all(has_own).then(|| self.sum(queue, |status| statuses.contains(&status)))?
    }

    /// The statuses within `range` that tasks of `queue` have. `None`: that is not known, or one of their counters is
    /// for others too.
    pub fn statuses_within(&self, queue: QueueId, range: impl RangeBounds<i64>) -> Option<Vec<i64>> {
        let within = self.by_status(queue)?.range(range).filter(|(_, tasks)| **tasks > 0);
        let statuses: Vec<i64> = within.map(|(status, _)| *status).collect();
        statuses.iter().all(has_own).then_some(statuses)
    }

    fn sum(&self, queue: QueueId, counts: impl Fn(i64) -> bool) -> Option<u64> {
        let total = self.queues.get(&queue.0).filter(|total| total.is_audited)?;
        let tasks = total.tasks.iter().filter(|(status, _)| counts(**status)).map(|(_, tasks)| *tasks);
        Some(u64::try_from(tasks.sum::<i64>()).unwrap_or(0))
    }

    /// The counters of a queue by status, as far as there are any.
    pub fn by_status(&self, queue: QueueId) -> Option<&BTreeMap<i64, i64>> {
        self.queues.get(&queue.0).filter(|total| total.is_audited).map(|total| &total.tasks)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = ObjectId> {
        self.queues.keys().copied()
    }

    pub(super) fn total(&self, queue: QueueId) -> Total {
        self.queues.get(&queue.0).cloned().unwrap_or_default()
    }
}

impl Total {
    fn add(&mut self, counted: &Document) {
        self.moves += number(counted, "m");
        self.is_audited |= counted.contains_key("at");
        for (status, tasks) in counted.get_document("n").into_iter().flatten() {
            if let (Ok(status), Some(tasks)) = (status.parse::<i64>(), whole_number(tasks)) {
                *self.tasks.entry(status).or_default() += tasks;
            }
        }
    }
}

impl AuditNote {
    fn of(base: &Document) -> Self {
        let Ok(note) = base.get_document("audit") else { return Self::default() };
        let unsigned = |name| u64::try_from(number(note, name)).unwrap_or(0);
        Self {
            at: note.get_datetime("at").ok().copied(),
            corrected: unsigned("corrected"),
            queues: unsigned("queues"),
            counting_ms: unsigned("counting_ms"),
        }
    }

    pub(super) fn document(&self) -> Document {
        let stored = |number: u64| Bson::Int64(integer(number));
        doc! {
            "at": self.at, "corrected": stored(self.corrected), "queues": stored(self.queues),
            "counting_ms": stored(self.counting_ms),
        }
    }
}

/// Whether a status has a counter of its own.
fn has_own(status: &i64) -> bool {
    super::counter_of(*status) == Some(*status) && super::statuses_of(*status).contains_key("$eq")
}

fn number(document: &Document, field: &str) -> i64 {
    document.get(field).and_then(whole_number).unwrap_or(0)
}

impl Store {
    /// All counters. What this process has noted is written first, so that it is among them. `None`: there are none
    /// that this user may read.
    #[operation]
    pub async fn read_counters(&self) -> Result<Option<Totals>, StoreError> {
        if let Err(error) = self.flush_counters().await {
            tracing::debug!(%error, "counters are read without what was noted last");
        }
        StoreError::unless_forbidden(self.totals().await)
    }

    pub(super) async fn totals(&self) -> Result<Totals, StoreError> {
        let documents =
            collect(self.counter_documents().find(doc! {}).projection(doc! { "last": 0 })).await?;
        Ok(Totals::of(&documents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_sum_of_all_documents_once_there_is_a_base() {
        let queue = ObjectId::new();
        let hex = queue.to_hex();
        let part = |queued: i64, done: i32| {
            doc! {
                "_id": "part1", "q": { &hex: { "m": 7_i64, "n": { "-2": queued, "1": done, "300": "odd", "x": 1 } } },
            }
        };
        let (id, at) = (QueueId(queue), DateTime::from_millis(0));
        let totals = Totals::of(&[part(5, 2), part(-3, 9)]);
        assert_eq!(totals.of_phase(id, Phase::Queued), None, "nobody knows where they count from");
        let base = doc! {
            "_id": "base", "version": 3, "q": { &hex: { "n": { "-2": 1_i64, "-5": 7_i64, "2": 4_i64 }, "at": at } },
            "audit": { "at": at, "corrected": 5_i64, "queues": 1, "counting_ms": 2_i64 },
        };
        let totals = Totals::of(&[part(5, 2), base, part(-3, 9)]);
        assert_eq!(totals.of_phase(id, Phase::Queued), Some(3));
        assert_eq!(totals.of_phase(id, Phase::Completed), Some(15));
        assert_eq!(totals.of_phase(id, Phase::Running), Some(0));
        assert_eq!(totals.of_queue(id), Some(25), "with those that were cancelled");
        assert_eq!(totals.of_statuses(id, &[2, 1]), Some(15));
        assert_eq!(totals.of_statuses(id, &[0]), None, "those that run have none");
        assert_eq!(totals.of_statuses(id, &[400]), None, "it shares one with others");
        assert_eq!(totals.statuses_within(id, 2..), Some(vec![2]), "what is not there is left out");
        assert_eq!((totals.version, totals.total(id).moves, totals.audit.corrected), (3, 14, 5));
        assert_eq!(AuditNote::of(&doc! { "audit": totals.audit.document() }), totals.audit);
    }

    #[test]
    fn what_drifted_below_nothing_is_nothing() {
        let queue = ObjectId::new();
        let base = doc! { "_id": "base", "q": {
            queue.to_hex(): { "n": { "1": -4_i64 }, "at": DateTime::from_millis(0) },
        } };
        assert_eq!(Totals::of(&[base]).of_phase(QueueId(queue), Phase::Completed), Some(0));
    }
}
