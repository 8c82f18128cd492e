//! Bounded counts: exact where that is cheap, and cheap where it is not exact; and what the counters say, which are read as one find.
//!
//! A count up to a bound reads that many entries of the index `{queue, status}` at most, and no task, however many there
//! are. Where it meets the bound, the counters say how many there are; never less than the bound.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeBounds;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};

use super::{BASE, counter_of, statuses_of};
use crate::model::{Phase, QueueId, Status, whole_number};
use crate::store::collections::TASKS;
use crate::store::{Store, StoreError, collect, count_of, in_one, integer, millis, put};
use crate::task::TaskQuery;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Counted to the last.
    Exactly(u64),
    /// More than that; the count ended there.
    MoreThan(u64),
}

/// So many counts are in one command at most.
const IN_A_COMMAND: usize = 100;

impl Amount {
    /// Both together, up to `bound`.
    pub const fn and(self, other: Self, bound: u64) -> Self {
        match (self, other) {
            (Self::Exactly(one), Self::Exactly(other)) => Self::up_to(one.saturating_add(other), bound),
            _ => Self::MoreThan(bound),
        }
    }

    /// The number, and whether there are more.
    pub const fn parts(self) -> (u64, bool) {
        match self {
            Self::Exactly(number) => (number, false),
            Self::MoreThan(number) => (number, true),
        }
    }

    /// What a count says that has ended behind its bound if there is more.
    pub const fn up_to(counted: u64, bound: u64) -> Self {
        if counted > bound { Self::MoreThan(bound) } else { Self::Exactly(counted) }
    }

    /// A number of tasks; if there are more than were counted, one more than that.
    pub const fn at_least(self) -> u64 {
        match self {
            Self::Exactly(tasks) => tasks,
            Self::MoreThan(tasks) => tasks.saturating_add(1),
        }
    }
}

impl Store {
    #[operation(queue = %queue, ?phase)]
    pub async fn count_phase(&self, queue: QueueId, phase: Phase, bound: u64) -> Result<Amount, StoreError> {
        self.count_up_to(of_phase(queue, phase), bound).await
    }

    #[operation]
    pub async fn count_up_to(&self, filter: Document, bound: u64) -> Result<Amount, StoreError> {
        self.count_in(TASKS.name, filter, (bound, None)).await
    }

    /// How many tasks each filter finds, each counted up to its own bound, in few commands however many there are: a command
    /// costs more than a short count.
    #[operation(counts = counts.len())]
    pub async fn count_each_up_to(&self, counts: &[(Document, u64)]) -> Result<Vec<Amount>, StoreError> {
        let mut amounts = Vec::with_capacity(counts.len());
        for some in counts.chunks(IN_A_COMMAND) {
            let found = collect(self.tasks().aggregate(counting_each(some))).await?;
            let counted = |one: &Document| Some((count_of(one, "of")?, count_of(one, "n")?));
            // Of what finds nothing there is no document.
            let found: HashMap<u64, u64> = found.iter().filter_map(counted).collect();
            let counted = |of: u64| found.get(&of).copied().unwrap_or(0);
            amounts.extend((0..).zip(some).map(|(of, (_, bound))| Amount::up_to(counted(of), *bound)));
        }
        Ok(amounts)
    }

    /// How many tasks with one of `statuses` each of `queues` has, if all of them together have at most `most`: one read of the index instead of a count for each.
    /// A queue without any is left out.
    #[operation(queues = queues.len())]
    pub async fn count_few(
        &self,
        queues: &[QueueId],
        statuses: &[i64],
        most: u64,
    ) -> Result<Option<HashMap<QueueId, u64>>, StoreError> {
        let counts = self.count_by_queue(queues, statuses, Some(one_more(most))).await?;
        Ok((counts.values().sum::<u64>() <= most).then_some(counts))
    }

    /// How many tasks a search is for, without its limits, counted up to `bound`. One that is being moved to the archive
    /// at this moment may count twice.
    #[operation]
    pub async fn count_query_up_to(&self, query: &TaskQuery, bound: u64) -> Result<Amount, StoreError> {
        let within = (bound, query.max_time);
        if !query.archive {
            return self.count_in(TASKS.name, query.filter.clone(), within).await;
        }
        let archive = crate::task::archive::COLLECTION;
        let (live, archived) = futures::try_join!(
            self.count_in(TASKS.name, query.filter.clone(), within),
            self.count_in(archive, query.filter.clone(), within),
        )?;
        match (live, archived) {
            (Amount::Exactly(live), Amount::Exactly(archived)) if live + archived <= bound => {
                let filter = query.filter.clone();
                self.count_with_archive(filter, query.max_time).await.map(Amount::Exactly)
            }
            _ => Ok(Amount::MoreThan(bound)),
        }
    }

    async fn count_in(
        &self,
        collection: &str,
        filter: Document,
        (bound, max_time): (u64, Option<Duration>),
    ) -> Result<Amount, StoreError> {
        let mut command = counting(collection, filter, Some(bound));
        put(&mut command, "maxTimeMS", max_time.map(millis));
        let counted = self.database().run_command(command).await?;
        Ok(Amount::up_to(count_of(&counted, "n").unwrap_or(0), bound))
    }

    /// How many tasks of each of `queues` are claimed or running. One without any is left out.
    #[operation]
    pub async fn count_running(&self, queues: &[QueueId]) -> Result<HashMap<QueueId, u64>, StoreError> {
        self.count_by_queue(queues, &[-1, 0], None).await
    }

    async fn count_by_queue(
        &self,
        queues: &[QueueId],
        statuses: &[i64],
        limit: Option<i64>,
    ) -> Result<HashMap<QueueId, u64>, StoreError> {
        let found = doc! { "$match": { "queue": { "$in": queues }, "status": { "$in": statuses } } };
        let limit = limit.map(|limit| doc! { "$limit": limit });
        let grouped = doc! { "$group": { "_id": "$queue", "tasks": { "$sum": 1 } } };
        let pipeline = [Some(found), limit, Some(grouped)].into_iter().flatten();
        let groups = collect(self.tasks().aggregate(pipeline)).await?;
        let pair =
            |group: &Document| Some((QueueId(group.get_object_id("_id").ok()?), count_of(group, "tasks")?));
        Ok(groups.iter().filter_map(pair).collect())
    }

    /// How many tasks a queue has in each counter, counted to the last.
    pub(super) async fn count_truth(&self, queue: QueueId) -> Result<BTreeMap<i64, i64>, StoreError> {
        let statuses = self.tasks().distinct("status", doc! { "queue": queue }).await?;
        let counters = statuses.iter().filter_map(whole_number).filter_map(counter_of);
        let counters: BTreeSet<i64> = counters.collect();
        let mut truth = BTreeMap::new();
        for counter in counters {
            let filter = doc! { "queue": queue, "status": statuses_of(counter) };
            let counted = self.database().run_command(counting(TASKS.name, filter, None)).await?;
            truth.insert(counter, counted.get("n").and_then(whole_number).unwrap_or(0));
        }
        Ok(truth)
    }
}

/// One count after the other, each of which leaves a document with its number.
fn counting_each(counts: &[(Document, u64)]) -> Vec<Document> {
    let numbered = |(of, (filter, bound)): (i64, &(Document, u64))| {
        let stages = vec![
            doc! { "$match": filter },
            doc! { "$limit": one_more(*bound) },
            doc! { "$count": "n" },
            doc! { "$addFields": { "of": of } },
        ];
        (TASKS.name, stages)
    };
    in_one((0..).zip(counts).map(numbered))
}

/// The command that counts index entries, one more than `bound`.
fn counting(collection: &str, filter: Document, bound: Option<u64>) -> Document {
    let mut command = doc! { "count": collection, "query": filter };
    put(&mut command, "limit", bound.map(one_more));
    command
}

/// It is counted so far, to tell whether there are more.
fn one_more(bound: u64) -> i64 {
    integer(bound).saturating_add(1)
}

fn of_phase(queue: QueueId, phase: Phase) -> Document {
    let statuses = match phase {
        Phase::Queued => doc! { "$lte": -2, "$nin": Status::STOPPED.to_vec() },
        Phase::Running => doc! { "$in": [-1, 0] },
        Phase::Completed => doc! { "$gte": 1 },
    };
    doc! { "queue": queue, "status": statuses }
}

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
        let counted = self.by_status(queue)?.iter().filter(|(status, _)| counts(**status));
        Some(u64::try_from(counted.map(|(_, tasks)| *tasks).sum::<i64>()).unwrap_or(0))
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
        let unsigned = |name| count_of(note, name).unwrap_or(0);
        Self {
            at: note.get_datetime("at").ok().copied(),
            corrected: unsigned("corrected"),
            queues: unsigned("queues"),
            counting_ms: unsigned("counting_ms"),
        }
    }

    pub(super) fn document(&self) -> Document {
        doc! {
            "at": self.at, "corrected": integer(self.corrected), "queues": integer(self.queues),
            "counting_ms": integer(self.counting_ms),
        }
    }
}

/// Whether a status has a counter of its own.
fn has_own(status: &i64) -> bool {
    counter_of(*status) == Some(*status) && statuses_of(*status).contains_key("$eq")
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
