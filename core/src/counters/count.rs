//! Bounded counts: exact where that is cheap, and cheap where it is not exact.
//!
//! A count up to a bound reads that many entries of the index `{queue, status}` at most, and no task, however many there
//! are. Where it meets the bound, the counters say how many there are; never less than the bound.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bson::{Document, doc};

use super::{counter_of, statuses_of};
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
