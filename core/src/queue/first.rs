//! What monitoring systems want to know of all queues at a cost that does not grow with their tasks: for how long the first one has
//! waited, and the longest one run.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;

use crate::counters::count::Amount;
use crate::model::{QueueId, Status, whole_number};
use crate::store::collections::TASKS;
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

    /// How long the first queued task of each queue has waited, the first by its id; of queues that have one. This is one command,
    /// in which the server looks up one task for each queue.
    #[operation]
    pub async fn longest_waits(&self) -> Result<HashMap<QueueId, Duration>, StoreError> {
        let mut first = claimable_of_any();
        first.insert("$expr", doc! { "$eq": ["$queue", "$$queue"] });
        let pipeline = [
            doc! { "$project": { "_id": 1 } },
            doc! { "$lookup": {
                "from": TASKS.name, "let": { "queue": "$_id" }, "as": "first",
                "pipeline": [
                    { "$match": first }, { "$sort": { "_id": 1 } }, { "$limit": 1 },
                    { "$project": { "ctime": 1, "run_at": 1, "history": 1 } },
                ],
            } },
            doc! { "$unwind": "$first" },
            doc! { "$set": { "now": "$$NOW" } },
        ];
        let found: Vec<Document> =
            self.queues().aggregate(pipeline).max_time(TAKES).await?.try_collect().await?;
        let waits = |row: &Document| {
            let queue = QueueId(row.get_object_id("_id").ok()?);
            let task = RawDocumentBuf::try_from(row.get_document("first").ok()?).ok()?;
            let since = Waiting::of_document(queue, &task)?.since.timestamp_millis();
            let waited = row.get_datetime("now").ok()?.timestamp_millis().saturating_sub(since);
            Some((queue, Duration::from_millis(u64::try_from(waited).unwrap_or(0))))
        };
        Ok(found.iter().filter_map(waits).collect())
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
