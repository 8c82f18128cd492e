//! What the overview shows, gathered with a few reads. Those that grow with the number of queues are shared by all who look, and
//! kept for some seconds.

use std::collections::HashMap;
use std::time::Duration;

use bson::{DateTime, Document};
use disbatch_core::counters::Totals;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::queue::Counts;
use disbatch_core::series::{Ended, Point};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use futures::{StreamExt, TryStreamExt};

use super::throughput::Span;
use crate::api::list_queues;
use crate::state::State;
use crate::ui::kept::Kept;
use crate::ui::node_state::Now;

/// How long what ended within the last hour is kept. Processes write it every few seconds.
const HOUR_KEPT: Duration = Duration::from_secs(5);

/// How long it is kept which tasks wait longest.
const OLDEST_KEPT: Duration = Duration::from_secs(3);

/// So many queues are asked for their oldest task at once.
const AT_ONCE: usize = 8;

/// A task that can be claimed.
const QUEUED: i64 = -2;

/// What is kept for a while.
#[derive(Debug, Default)]
pub struct Memory {
    hour: Kept<HashMap<QueueId, Vec<Ended>>>,
    oldest: Kept<HashMap<QueueId, DateTime>>,
    throughput: [Kept<Vec<Point>>; Span::ALL.len()],
}

/// All of it.
#[derive(Debug)]
pub struct Facts {
    /// In order of name.
    pub queues: Vec<QueueFacts>,
    /// In order of name, as stored.
    pub nodes: Vec<Document>,
    /// When that was so.
    pub now: Now,
}

/// A queue and its tasks.
#[derive(Debug)]
pub struct QueueFacts {
    /// As stored.
    pub queue: Queue,
    /// How many tasks it has.
    pub counts: Counts,
    /// How many of these have failed, as far as that is known.
    pub failed: Option<u64>,
    /// What ended in each minute of the last hour; nothing if nothing did.
    pub hour: Vec<Ended>,
    /// Since when the task waits that waits longest.
    pub oldest: Option<DateTime>,
}

impl QueueFacts {
    /// How many tasks ended within the last hour.
    pub fn last_hour(&self) -> Ended {
        self.hour.iter().fold(Ended::default(), |mut sum, minute| {
            sum.merge(*minute);
            sum
        })
    }
}

impl Facts {
    /// Gathers it.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn gather(state: &State) -> Result<Self, StoreError> {
        let store = &state.store;
        let memory = &state.overview;
        let (counted, totals, nodes, server, hour) = futures::try_join!(
            list_queues::counted(state),
            store.read_counters(),
            store.list_nodes(),
            store.server_time(),
            memory.hour.get(HOUR_KEPT, store.last_hour()),
        )?;
        let waiting = counted.iter().filter(|(_, counts)| counts.queued > 0).map(|(queue, _)| queue.id);
        let waiting: Vec<QueueId> = waiting.collect();
        let oldest = memory.oldest.get(OLDEST_KEPT, oldest(store, waiting)).await?;
        let fact = |(queue, counts): (Queue, Counts)| QueueFacts {
            failed: totals.as_ref().and_then(|totals| failed(totals, queue.id, counts)),
            hour: hour.get(&queue.id).cloned().unwrap_or_default(),
            // It may have been claimed since.
            oldest: oldest.get(&queue.id).copied().filter(|_| counts.queued > 0),
            queue,
            counts,
        };
        let mut queues: Vec<QueueFacts> = counted.into_iter().map(fact).collect();
        queues.sort_by_cached_key(|facts| {
            let name = facts.queue.display_name();
            (name.to_lowercase(), name, facts.queue.id)
        });
        Ok(Self { queues, nodes, now: Now { server, host: store.now() } })
    }
}

impl Memory {
    /// What happened in all queues together.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn throughput(
        &self,
        store: &Store,
        span: Span,
    ) -> Result<std::sync::Arc<Vec<Point>>, StoreError> {
        let length = i64::try_from(span.length().as_millis()).unwrap_or(i64::MAX);
        let since = DateTime::from_millis(store.now().timestamp_millis().saturating_sub(length));
        let [hour, day, week] = &self.throughput;
        let kept = match span {
            Span::Hour => hour,
            Span::Day => day,
            Span::Week => week,
        };
        kept.get(span.every(), store.series(None, since, span.step())).await
    }
}

/// Since when the task of each queue waits that waits longest. Its id says when it was submitted.
async fn oldest(store: &Store, queues: Vec<QueueId>) -> Result<HashMap<QueueId, DateTime>, StoreError> {
    let first = async |queue: QueueId| {
        let of = Selection { queue: Some(queue), statuses: Some(vec![QUEUED]), node: None };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: 1 };
        let found = store.find_page(&page).await?;
        Ok::<_, StoreError>(found.ids.first().map(|task| (queue, task.0.timestamp())))
    };
    let found = futures::stream::iter(queues).map(first).buffer_unordered(AT_ONCE);
    let found: Vec<Option<(QueueId, DateTime)>> = found.try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// How many tasks of a queue have failed by the counters, which may be a second old.
fn failed(totals: &Totals, queue: QueueId, counts: Counts) -> Option<u64> {
    let by_status = totals.by_status(queue)?;
    let failed: i64 = by_status.range(2..).map(|(_, tasks)| *tasks).sum();
    Some(u64::try_from(failed).unwrap_or(0).min(counts.completed))
}
