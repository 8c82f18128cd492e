//! How many tasks each queue has. Counting reads an index entry per task, which takes long where millions are
//! kept; whoever looks every second need not wait for that each time.
//!
//! Up to [`LARGE`] tasks every answer is counted afresh and exact. Beyond that an answer that is not counted
//! within [`PATIENCE`] is the one before, never older than [`OLDEST`] when asked for, while the new one is made.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use disbatch_core::model::QueueId;
use disbatch_core::queue::Counts;
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::Notify;

/// The most tasks whose answers are always exact.
pub const LARGE: u64 = 100_000;

/// How long an answer waits for being counted afresh.
const PATIENCE: Duration = Duration::from_millis(20);

/// An answer that is older has to wait for a new one.
const OLDEST: Duration = Duration::from_secs(5);

/// How many queues are counted at once. Each takes three connections for a moment.
const COUNTED_AT_ONCE: usize = 4;

/// The counts of all queues, as they were when last counted.
#[derive(Debug, Default)]
pub struct QueueCounts {
    last: Mutex<Option<Arc<Snapshot>>>,
    counting: AtomicBool,
    counted: Notify,
}

/// Counts that belong together.
#[derive(Debug)]
struct Snapshot {
    began: Instant,
    counts: HashMap<QueueId, Counts>,
}

impl Snapshot {
    fn may_be_shown(&self, queues: &[QueueId]) -> bool {
        let tasks: u64 = self.counts.values().map(|c| c.queued + c.running + c.completed).sum();
        tasks > LARGE
            && self.began.elapsed() < OLDEST
            && queues.iter().all(|queue| self.counts.contains_key(queue))
    }
}

impl QueueCounts {
    /// How many tasks each of `queues` has.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn of(
        self: &Arc<Self>,
        store: &Store,
        queues: Vec<QueueId>,
    ) -> Result<HashMap<QueueId, Counts>, StoreError> {
        let store = store.clone();
        self.with(queues, async move |queues| count(&store, queues).await).await
    }

    async fn with<F>(
        self: &Arc<Self>,
        queues: Vec<QueueId>,
        count: F,
    ) -> Result<HashMap<QueueId, Counts>, StoreError>
    where
        F: AsyncFnOnce(Vec<QueueId>) -> Result<HashMap<QueueId, Counts>, StoreError> + 'static,
    {
        let Some(previous) = self.last().filter(|last| last.may_be_shown(&queues)) else {
            let began = Instant::now();
            let counts = count(queues).await?;
            self.remember(Snapshot { began, counts: counts.clone() });
            return Ok(counts);
        };
        // Listen before the count begins, or its end could be missed.
        let counted = self.counted.notified();
        tokio::pin!(counted);
        counted.as_mut().enable();
        if !self.counting.swap(true, Ordering::AcqRel) {
            actix_web::rt::spawn(Arc::clone(self).renew(count(queues)));
        }
        let in_time = tokio::time::timeout(PATIENCE, counted).await.is_ok();
        let shown = if in_time { self.last().unwrap_or(previous) } else { previous };
        Ok(shown.counts.clone())
    }

    async fn renew(
        self: Arc<Self>,
        count: impl Future<Output = Result<HashMap<QueueId, Counts>, StoreError>>,
    ) {
        let _done = Done(&self);
        let began = Instant::now();
        match count.await {
            Ok(counts) => self.remember(Snapshot { began, counts }),
            // Answers older than `OLDEST` are not shown, so the next request meets the error itself.
            Err(error) => tracing::debug!(%error, "cannot count the tasks of queues"),
        }
    }

    fn last(&self) -> Option<Arc<Snapshot>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, snapshot: Snapshot) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }
}

/// Ends a count, also one that is broken off.
struct Done<'a>(&'a QueueCounts);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.counting.store(false, Ordering::Release);
        self.0.counted.notify_waiters();
    }
}

async fn count(store: &Store, queues: Vec<QueueId>) -> Result<HashMap<QueueId, Counts>, StoreError> {
    let count = async |queue: QueueId| Ok((queue, store.count_queue(queue).await?));
    futures::stream::iter(queues).map(count).buffer_unordered(COUNTED_AT_ONCE).try_collect().await
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn completed(queue: QueueId, completed: u64) -> HashMap<QueueId, Counts> {
        HashMap::from([(queue, Counts { completed, ..Counts::default() })])
    }

    async fn ask(counts: &Arc<QueueCounts>, queue: QueueId, now: u64) -> u64 {
        counts.with(vec![queue], async move |_| Ok(completed(queue, now))).await.unwrap()[&queue].completed
    }

    async fn ask_slowly(counts: &Arc<QueueCounts>, queue: QueueId, now: u64, go: Arc<Notify>) -> u64 {
        let count = async move |_| {
            go.notified().await;
            Ok(completed(queue, now))
        };
        counts.with(vec![queue], count).await.unwrap()[&queue].completed
    }

    #[actix_web::test]
    async fn few_tasks_are_counted_each_time() {
        let (counts, queue) = (Arc::new(QueueCounts::default()), QueueId(ObjectId::new()));
        for number in [1, 2, LARGE, 3] {
            assert_eq!(ask(&counts, queue, number).await, number);
        }
    }

    #[actix_web::test]
    async fn many_tasks_are_shown_as_they_were_while_they_are_counted() {
        let (counts, queue) = (Arc::new(QueueCounts::default()), QueueId(ObjectId::new()));
        let go = Arc::new(Notify::new());
        assert_eq!(ask(&counts, queue, LARGE + 1).await, LARGE + 1);
        assert_eq!(ask_slowly(&counts, queue, LARGE + 2, go.clone()).await, LARGE + 1);
        assert_eq!(ask(&counts, queue, LARGE + 9).await, LARGE + 1, "only one count at a time");
        let counted = counts.counted.notified();
        go.notify_one();
        counted.await;
        assert_eq!(counts.last().unwrap().counts[&queue].completed, LARGE + 2);
        assert_eq!(ask(&counts, queue, LARGE + 3).await, LARGE + 3, "counted in time");
    }

    #[actix_web::test]
    async fn a_new_queue_and_an_old_answer_wait_for_the_count() {
        let (counts, queue) = (Arc::new(QueueCounts::default()), QueueId(ObjectId::new()));
        ask(&counts, queue, LARGE + 1).await;
        let new = QueueId(ObjectId::new());
        assert_eq!(ask(&counts, new, LARGE + 5).await, LARGE + 5);
        let long_ago = Instant::now().checked_sub(OLDEST).unwrap();
        counts.remember(Snapshot { began: long_ago, counts: completed(new, LARGE + 5) });
        assert_eq!(ask(&counts, new, LARGE + 6).await, LARGE + 6);
    }

    #[actix_web::test]
    async fn a_count_that_fails_leaves_the_way_free() {
        let (counts, queue) = (Arc::new(QueueCounts::default()), QueueId(ObjectId::new()));
        ask(&counts, queue, LARGE + 1).await;
        let damaged = StoreError::DamagedOutput { id: ObjectId::new(), reason: "test".to_owned() };
        let shown = counts.with(vec![queue], async move |_| Err(damaged)).await.unwrap();
        assert_eq!(shown[&queue].completed, LARGE + 1);
        assert_eq!(ask(&counts, queue, LARGE + 2).await, LARGE + 2);
    }
}
