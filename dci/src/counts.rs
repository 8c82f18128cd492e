//! How many tasks there are, at a cost that does not grow with them.
//!
//! The tasks of a queue that wait and those that have ended are counted up to a bound, so that small numbers are exact at
//! every moment, whoever writes tasks. Beyond the bound the answer is what the counters say
//! ([`disbatch_core::counters`]), never less than the bound; that there are so many is remembered for a few
//! seconds and not counted again each time. Tasks that run are always counted. Where there are no counters (no DEN of
//! this release has looked yet, or this user may not read them), all are counted, and the answer is used for
//! as long as keeps counting to a small part of the time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bson::{Bson, Document};
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Phase, QueueId, whole_number};
use disbatch_core::queue::Counts;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::TaskQuery;
use futures::{StreamExt, TryStreamExt};

use crate::ui::parts::grouped;

/// The most that is counted for a search.
pub const BOUND: u64 = 10_000;

/// All bounds of an answer together: with many queues each has a smaller one.
const ALL_BOUNDS: u64 = 20_000;

/// No bound is smaller.
const LEAST_BOUND: u64 = 1_000;

/// How long it is remembered that there are many.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Counting everything takes at most one part in so many of the time.
const SHARE: u32 = 50;

/// How much is counted at once.
const AT_ONCE: usize = 8;

/// The phases that may be long.
const LONG: [Phase; 2] = [Phase::Queued, Phase::Completed];

#[derive(Debug, Default)]
pub struct QueueCounts {
    many: Mutex<HashMap<(QueueId, Phase), Instant>>,
    whole: tokio::sync::Mutex<HashMap<(QueueId, Phase), Whole>>,
}

/// All tasks of a queue and a phase, counted to the last.
#[derive(Debug, Clone, Copy)]
struct Whole {
    tasks: u64,
    until: Instant,
}

/// How far is counted in each of so many queues.
pub fn bound(queues: usize) -> u64 {
    (ALL_BOUNDS / (queues as u64).max(1)).clamp(LEAST_BOUND, BOUND)
}

/// The same for a page, where the counters tell the rest: however many queues it shows, all bounds together stay the
/// same, so that it comes at once.
pub fn bound_of_page(queues: usize) -> u64 {
    (ALL_BOUNDS / (queues as u64).max(1)).clamp(1, BOUND)
}

impl QueueCounts {
    pub async fn of(
        self: &Arc<Self>,
        store: &Store,
        queues: Vec<QueueId>,
    ) -> Result<HashMap<QueueId, Counts>, StoreError> {
        if queues.is_empty() {
            return Ok(HashMap::new());
        }
        let bound = bound(queues.len());
        let phases: Vec<(QueueId, Phase)> =
            queues.iter().flat_map(|queue| LONG.map(|phase| (*queue, phase))).collect();
        let amounts = async {
            let amount = async |(queue, phase)| {
                Ok::<_, StoreError>((queue, phase, self.amount(store, queue, phase, bound).await?))
            };
            futures::stream::iter(phases).map(amount).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await
        };
        let (running, amounts) = futures::try_join!(store.count_running(&queues), amounts)?;
        let is_long = amounts.iter().any(|(.., amount)| matches!(amount, Amount::MoreThan(_)));
        let totals = if is_long { store.read_counters().await? } else { None };
        let mut counts: HashMap<QueueId, Counts> = HashMap::new();
        for (queue, phase, amount) in amounts {
            let tasks = match amount {
                Amount::Exactly(tasks) => tasks,
                Amount::MoreThan(bound) => self.beyond(store, (queue, phase), bound, totals.as_ref()).await?,
            };
            let of_queue = counts.entry(queue).or_default();
            match phase {
                Phase::Queued => of_queue.queued = tasks,
                Phase::Running => {}
                Phase::Completed => of_queue.completed = tasks,
            }
        }
        for (queue, running) in running {
            counts.entry(queue).or_default().running = running;
        }
        Ok(counts)
    }

    async fn amount(
        &self,
        store: &Store,
        queue: QueueId,
        phase: Phase,
        bound: u64,
    ) -> Result<Amount, StoreError> {
        let key = (queue, phase);
        if self.many().get(&key).is_some_and(|seen| seen.elapsed() < REMEMBERED) {
            return Ok(Amount::MoreThan(bound));
        }
        let amount = store.count_phase(queue, phase, bound).await?;
        match amount {
            Amount::MoreThan(_) => drop(self.many().insert(key, Instant::now())),
            Amount::Exactly(_) => drop(self.many().remove(&key)),
        }
        Ok(amount)
    }

    /// A number that is larger than `bound`.
    async fn beyond(
        &self,
        store: &Store,
        (queue, phase): (QueueId, Phase),
        bound: u64,
        totals: Option<&Totals>,
    ) -> Result<u64, StoreError> {
        if let Some(tasks) = totals.and_then(|totals| totals.of_phase(queue, phase)) {
            return Ok(tasks.max(bound));
        }
        // One at a time: whoever comes meanwhile has the same answer.
        let mut whole = self.whole.lock().await;
        if let Some(known) = whole.get(&(queue, phase)).filter(|known| Instant::now() < known.until) {
            return Ok(known.tasks);
        }
        let began = Instant::now();
        let tasks = match store.count_phase(queue, phase, u64::MAX).await? {
            Amount::Exactly(tasks) | Amount::MoreThan(tasks) => tasks,
        };
        let until = Instant::now() + began.elapsed() * SHARE;
        whole.insert((queue, phase), Whole { tasks, until });
        Ok(tasks)
    }

    fn many(&self) -> MutexGuard<'_, HashMap<(QueueId, Phase), Instant>> {
        disbatch_core::lock(&self.many)
    }
}

/// How many tasks a search finds: what the counters say where it is for a queue or for statuses of a queue and finds more
/// than [`BOUND`], else counted to the last.
pub async fn of_search(store: &Store, query: TaskQuery) -> Result<u64, StoreError> {
    if query.archive {
        return store.count_query(query).await;
    }
    let Some((queue, statuses)) = of_queue(&query.filter) else { return store.count_query(query).await };
    if let Amount::Exactly(tasks) = store.count_up_to(query.filter.clone(), BOUND).await? {
        return Ok(tasks);
    }
    match counted(store, queue, statuses.as_deref()).await? {
        Some(tasks) => Ok(tasks.max(BOUND)),
        None => store.count_query(query).await,
    }
}

/// How many tasks a search finds, for people: not counted beyond [`BOUND`].
pub async fn about(store: &Store, query: TaskQuery) -> Result<String, StoreError> {
    let bound = match store.count_query_up_to(&query, BOUND).await? {
        Amount::Exactly(tasks) => return Ok(tasks.to_string()),
        Amount::MoreThan(bound) => bound,
    };
    let known = match of_queue(&query.filter).filter(|_| !query.archive) {
        Some((queue, statuses)) => counted(store, queue, statuses.as_deref()).await?,
        None => None,
    };
    Ok(known.map_or_else(|| words(Amount::MoreThan(bound)), |tasks| tasks.max(bound).to_string()))
}

pub fn words(amount: Amount) -> String {
    match amount {
        Amount::Exactly(tasks) => tasks.to_string(),
        Amount::MoreThan(bound) => format!("{}+", grouped(bound)),
    }
}

async fn counted(store: &Store, queue: QueueId, statuses: Option<&[i64]>) -> Result<Option<u64>, StoreError> {
    let Some(totals) = store.read_counters().await? else { return Ok(None) };
    let Some(statuses) = statuses else {
        let Some(others) = totals.of_queue(queue) else { return Ok(None) };
        let running = store.count_running(&[queue]).await?;
        return Ok(Some(others + running.get(&queue).copied().unwrap_or(0)));
    };
    Ok(totals.of_statuses(queue, statuses))
}

/// The queue that a filter is for, and the statuses if it has any, if it has nothing else.
fn of_queue(filter: &Document) -> Option<(QueueId, Option<Vec<i64>>)> {
    let queue = QueueId(filter.get_object_id("queue").ok()?);
    let statuses = match filter.get("status") {
        None => None,
        Some(Bson::Document(any)) if any.len() == 1 => {
            Some(any.get_array("$in").ok()?.iter().map(whole_number).collect::<Option<Vec<i64>>>()?)
        }
        Some(status) => Some(vec![whole_number(status)?]),
    };
    (filter.len() == 1 + usize::from(statuses.is_some())).then_some((queue, statuses))
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn many_queues_share_what_is_counted() {
        assert_eq!([0, 1, 2, 5, 20, 100].map(bound), [10_000, 10_000, 10_000, 4_000, 1_000, 1_000]);
    }

    #[test]
    fn only_queues_and_statuses_have_counters() {
        let queue = ObjectId::new();
        let id = QueueId(queue);
        assert_eq!(of_queue(&doc! { "queue": queue }), Some((id, None)));
        assert_eq!(of_queue(&doc! { "queue": queue, "status": 2 }), Some((id, Some(vec![2]))));
        let any = doc! { "queue": queue, "status": { "$in": [1, -2_i64] } };
        assert_eq!(of_queue(&any), Some((id, Some(vec![1, -2]))));
        for other in [
            doc! {},
            doc! { "status": 1 },
            doc! { "queue": queue, "node": "n" },
            doc! { "queue": queue, "status": { "$gt": 1 } },
            doc! { "queue": queue, "status": { "$in": [1, "x"] } },
            doc! { "queue": queue, "status": 1, "node": "n" },
            doc! { "queue": { "$in": [queue] } },
        ] {
            assert_eq!(of_queue(&other), None, "{other}");
        }
    }
}
