//! What monitoring systems want to know of all queues at a cost that does not grow with their tasks: which waits first and for how long, and how
//! long the longest one has run.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;

use crate::counters::count::Amount;
use crate::model::{QueueId, SHADOW_OF, Status, Task, whole_number};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError};
use crate::task::{Waiting, claimable_of_any};

/// The server may take so long for one answer.
const TAKES: Duration = Duration::from_secs(5);

/// Tasks of a queue that are claimed or running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnderWay {
    pub claimed: u64,
    pub running: u64,
    /// How long the one that was started first has been running.
    pub longest: Option<Duration>,
}

/// The first task of a queue that waits.
#[derive(Debug, Clone)]
pub struct FirstTask {
    /// What tells why it waits. `None`: it cannot be read.
    pub task: Option<Task>,
    /// How long it has waited, if it can be claimed.
    pub waited: Option<Duration>,
}

impl FirstTask {
    fn fields() -> Document {
        doc! { "queue": 1, "status": 1, "node": 1, "gate": 1, "group": 1, "ctime": 1, "run_at": 1, "history": 1, SHADOW_OF: 1 }
    }

    fn of(queue: QueueId, task: Document, now: DateTime) -> Self {
        let raw = RawDocumentBuf::try_from(&task).ok();
        let task = typed::<Task>(TASKS.name, task).ok();
        let is_queued = task.as_ref().is_some_and(|task| task.status == Status::Queued);
        let since = raw.filter(|_| is_queued).and_then(|raw| Waiting::of_document(queue, &raw));
        let waited = since.map(|waiting| {
            let ms = now.timestamp_millis().saturating_sub(waiting.since.timestamp_millis());
            Duration::from_millis(u64::try_from(ms).unwrap_or(0))
        });
        Self { task, waited }
    }
}

impl Store {
    /// How many tasks of these queues are claimed and running. It reads these tasks, and no others.
    #[operation]
    pub async fn tasks_under_way(
        &self,
        queues: &[QueueId],
    ) -> Result<HashMap<QueueId, UnderWay>, StoreError> {
        let ids: Vec<_> = queues.iter().map(|id| id.0).collect();
        let is = |status: Status| doc! { "$sum": { "$cond": [{ "$eq": ["$status", status] }, 1, 0] } };
        let is_date = |field: &str| doc! { "$eq": [{ "$type": field }, "date"] };
        let started = doc! { "$and": [{ "$eq": ["$status", Status::Running] }, is_date("$started")] };
        let since = doc! { "$subtract": ["$$NOW", "$first"] };
        let pipeline = [
            doc! { "$match": {
                "queue": { "$in": ids }, "status": { "$in": [Status::Claimed, Status::Running] },
            } },
            doc! { "$group": {
                "_id": "$queue", "claimed": is(Status::Claimed), "running": is(Status::Running),
                "first": { "$min": { "$cond": [started, "$started", Bson::Null] } },
            } },
            doc! { "$set": { "longest": { "$cond": [is_date("$first"), since, Bson::Null] } } },
        ];
        let found: Vec<Document> =
            self.tasks().aggregate(pipeline).max_time(TAKES).await?.try_collect().await?;
        let of_queue = |group: &Document| {
            let count = |name| group.get(name).and_then(whole_number).map_or(0, i64::unsigned_abs);
            let longest = group.get("longest").and_then(whole_number);
            let longest = longest.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            let counts = UnderWay { claimed: count("claimed"), running: count("running"), longest };
            Some((QueueId(group.get_object_id("_id").ok()?), counts))
        };
        Ok(found.iter().filter_map(of_queue).collect())
    }

    /// The first task that waits of each queue that has one: the first by its id that can be claimed, else one that is blocked, else one that
    /// is deferred. This is one command, in which the server looks up at most three tasks for each queue, by indexes.
    #[operation]
    pub async fn first_tasks(&self) -> Result<HashMap<QueueId, FirstTask>, StoreError> {
        let first = |r#as: &str, mut filter: Document, order: Option<Document>| {
            filter.insert("$expr", doc! { "$eq": ["$queue", "$$queue"] });
            let mut pipeline = vec![doc! { "$match": filter }];
            pipeline.extend(order.map(|order| doc! { "$sort": order }));
            pipeline.extend([doc! { "$limit": 1 }, doc! { "$project": FirstTask::fields() }]);
            doc! { "$lookup": { "from": TASKS.name, "let": { "queue": "$_id" }, "as": r#as, "pipeline": pipeline } }
        };
        let found_first = doc! { "$first": { "$concatArrays": ["$claimable", "$blocked", "$deferred"] } };
        let pipeline = [
            doc! { "$project": { "_id": 1 } },
            first("claimable", claimable_of_any(), Some(doc! { "_id": 1 })),
            first("blocked", doc! { "status": Status::Blocked }, None),
            first("deferred", doc! { "status": Status::Deferred }, None),
            doc! { "$project": { "first": found_first, "now": "$$NOW" } },
            doc! { "$match": { "first": { "$type": "object" } } },
        ];
        let found: Vec<Document> =
            self.queues().aggregate(pipeline).max_time(TAKES).await?.try_collect().await?;
        let of_queue = |mut row: Document| {
            let queue = QueueId(row.get_object_id("_id").ok()?);
            let now = row.get_datetime("now").ok().copied()?;
            let Some(Bson::Document(task)) = row.remove("first") else { return None };
            Some((queue, FirstTask::of(queue, task, now)))
        };
        Ok(found.into_iter().filter_map(of_queue).collect())
    }

    /// How many tasks hold locks, and how many wait for one; counted up to `bound`.
    #[operation]
    pub async fn count_locks(&self, bound: u64) -> Result<(u64, u64), StoreError> {
        let holding = doc! { "holds_locks": true };
        let waiting = doc! { "status": Status::Blocked, "needs_lock": { "$exists": true } };
        let (holding, waiting) =
            futures::try_join!(self.count_up_to(holding, bound), self.count_up_to(waiting, bound))?;
        let number = |amount| match amount {
            Amount::Exactly(tasks) | Amount::MoreThan(tasks) => tasks,
        };
        Ok((number(holding), number(waiting)))
    }
}
