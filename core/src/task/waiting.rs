//! Since when a task has waited, and since when the one of a queue has that has waited longest.
//!
//! Ids are in the order of creation, and a task cannot wait longer than it exists. So of a queue the first ones are looked at,
//! and those that were deferred or tried again among them count from then.

use bson::{Bson, DateTime, RawDocument, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::pages::{Order, PageQuery, Position, Selection};
use crate::model::{QueueId, Status, Task, date_time, whole_number};
use crate::store::{Store, StoreError};

/// So many tasks are looked at. If all of them were tried again, a later one may have waited longer.
const LOOKED_AT: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub queue: QueueId,
    /// The time at which it could be claimed: its creation, its `run_at`, or the moment when it was queued again after an
    /// end, whichever came last.
    pub since: DateTime,
}

impl Waiting {
    /// By a document of `tasks`. `None`: it has no times.
    pub fn of_document(queue: QueueId, task: &RawDocument) -> Option<Self> {
        let time = |name| task.get_datetime(name).ok();
        let history = task.get_array("history").into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?.as_document()?;
            let status = entry.get("status").ok()??;
            let status = status.as_i32().map(i64::from).or_else(|| status.as_i64())?;
            Some((status, entry.get_datetime("at").ok()?))
        });
        since(time("ctime"), time("run_at"), history).map(|since| Self { queue, since })
    }

    pub(super) fn of_task(task: &Task) -> Option<Self> {
        let created = task.ctime.as_ref().and_then(date_time);
        let due = task.rest.get_datetime("run_at").ok().copied();
        let history = task.rest.get_array("history").into_iter().flatten().filter_map(|entry| {
            let entry = entry.as_document()?;
            let status = entry.get("status").and_then(whole_number)?;
            Some((status, entry.get("at").and_then(Bson::as_datetime).copied()?))
        });
        since(created, due, history).map(|since| Self { queue: task.queue, since })
    }
}

/// `history` has statuses and the times from which the task had them.
fn since(
    created: Option<DateTime>,
    due: Option<DateTime>,
    history: impl Iterator<Item = (i64, DateTime)>,
) -> Option<DateTime> {
    let mut since = created.max(due);
    let mut before = None;
    for (status, at) in history {
        // A claim that is given back was queued all the time.
        let is_new = |before: Status| !matches!(before, Status::Queued | Status::Claimed);
        let status = Status::from_code(status);
        if status == Status::Queued && before.is_some_and(is_new) {
            since = since.max(Some(at));
        }
        before = Some(status);
    }
    since
}

impl Store {
    #[operation(queue = %queue)]
    pub async fn longest_blocked(&self, queue: QueueId) -> Result<Option<DateTime>, StoreError> {
        let of = Selection { statuses: Some(vec![Status::Blocked.code()]), ..Selection::of_queue(queue) };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: 1 };
        Ok(self.find_page(&page).await?.rows.first().map(|id| id.0.timestamp()))
    }

    #[operation(queue = %queue)]
    pub async fn longest_waiting(&self, queue: QueueId) -> Result<Option<DateTime>, StoreError> {
        let of = Selection { statuses: Some(vec![Status::Queued.code()]), ..Selection::of_queue(queue) };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: LOOKED_AT };
        let ids = self.find_page(&page).await?.rows;
        if ids.is_empty() {
            return Ok(None);
        }
        let times = doc! { "ctime": 1, "run_at": 1, "history.status": 1, "history.at": 1 };
        let still = doc! { "_id": { "$in": ids }, "status": Status::Queued.code() };
        let mut found = self.raw_tasks().find(still).projection(times).await?;
        let mut longest = None;
        while let Some(task) = found.try_next().await? {
            let since = Waiting::of_document(queue, &task).map(|waiting| waiting.since);
            // One without times was made when its id was.
            let made = || task.get_object_id("_id").ok().map(|id| id.timestamp());
            longest = [longest, since.or_else(made)].into_iter().flatten().min();
        }
        Ok(longest)
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, RawDocumentBuf};

    use super::*;

    fn waits_since(fields: Document) -> Option<i64> {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let mut document = doc! { "_id": ObjectId::from_bytes([2; 12]), "queue": queue, "status": -1 };
        document.extend(fields);
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let task: Task = bson::deserialize_from_document(document).unwrap();
        let waiting = Waiting::of_document(queue, &raw);
        assert_eq!(waiting, Waiting::of_task(&task));
        waiting.map(|waiting| waiting.since.timestamp_millis())
    }

    fn at(ms: i64) -> DateTime {
        DateTime::from_millis(ms)
    }

    fn history(entries: &[(i32, i64)]) -> Vec<Document> {
        entries.iter().map(|(status, ms)| doc! { "status": status, "at": at(*ms) }).collect()
    }

    #[test]
    fn a_task_waits_from_its_creation_or_its_time() {
        assert_eq!(waits_since(doc! {}), None);
        assert_eq!(waits_since(doc! { "ctime": at(5) }), Some(5));
        let delayed = doc! { "ctime": at(5), "run_at": at(50), "history": history(&[(-2, 51), (-1, 60)]) };
        assert_eq!(waits_since(delayed), Some(50));
        let odd = doc! { "ctime": at(5), "run_at": "soon", "history": [1, { "status": -2 }, {}] };
        assert_eq!(waits_since(odd), Some(5));
    }

    #[test]
    fn a_claim_that_is_given_back_does_not_end_the_wait() {
        let entries = history(&[(-1, 10), (-2, 20), (-1, 30)]);
        assert_eq!(waits_since(doc! { "ctime": at(5), "history": entries }), Some(5));
    }

    #[test]
    fn a_task_that_is_tried_again_waits_from_then() {
        let entries =
            history(&[(-1, 10), (0, 11), (2, 20), (-2, 3_000), (-1, 3_010), (-2, 3_020), (-1, 3_030)]);
        assert_eq!(waits_since(doc! { "ctime": at(5), "history": entries }), Some(3_000));
    }
}
