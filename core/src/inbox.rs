//! The inbox: tasks that an application submits by an insert of its own, in the transaction that writes its own data.
//!
//! A document of `inbox` says what `POST /tasks` would be told (`docs/inbox.md`), and has the `_id` that its task will have. A DEN moves it:
//! it decides as the DCI does ([`document`], [`judge`]), has the server insert the task under that `_id`
//! ([`crate::task`], `submit/inbox.rs`), and removes the document. What is refused becomes a cancelled task that says why.
//!
//! **Once, whoever dies when.** The server inserts a task only while its document is in the inbox, and while there is no such task; it looks
//! in the same operation. A task is archived or deleted only when its document has gone. One whose
//! document comes once more, as an application has repeated its transaction, is found there before. So any number of DENs may move the same at once, and one that stands still for as long as it
//! likes comes too late for what others have moved. A document goes only when its task is there, known to a majority. Whoever dies
//! in between leaves a document whose task is there: whoever comes next only removes it.
//!
//! **Nothing is lost, and nothing holds up others.** What this release does not understand is left, with the time in `left`, for a DEN that
//! does, and is refused when that is an hour ago; so is what comes after tasks that are in the inbox themselves. What was left is looked at
//! now and then, the rest at once.

mod document;
mod judge;
mod pass;

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::Collection;

use crate::model::document::readable;
use crate::model::{QueueId, Status, TRACE, TaskId, TraceContext};
use crate::store::collections::INBOX;
use crate::store::{Store, StoreError};
use document::{queue, trace};
pub use pass::Moved;

/// Since when a document waits for a DEN that understands it.
pub(crate) const LEFT: &str = "left";

/// The field of a refused task that says why: its presence keeps it from being tried again, as its options are not there.
pub(crate) const REFUSED: &str = "refused";

/// Ids that are so old are those of documents that whoever follows the changes should have moved.
pub const UNNOTICED: Duration = Duration::from_secs(2);

/// How old the first document is that was not left: stages that tell it as `in`, in milliseconds.
pub(crate) fn age_of_first() -> [Document; 4] {
    let age = doc! { "$subtract": ["$$NOW", { "$toDate": "$_id" }] };
    let is_id = doc! { "$eq": [{ "$type": "$_id" }, "objectId"] };
    [
        doc! { "$match": { LEFT: Bson::Null } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "what": INBOX.name, "in": { "$cond": [is_id, age, i64::MAX] } } },
    ]
}

impl Store {
    pub(crate) fn inbox(&self) -> Collection<Document> {
        self.database().collection(INBOX.name)
    }
}

impl Store {
    /// For those who have found no task: the one that a document of the inbox is about to become, with `inbox: true`, or that it has
    /// become since, with the fields that `projection` leaves. Its options are shown when it is moved.
    pub(crate) async fn find_in_inbox(
        &self,
        id: TaskId,
        projection: Document,
    ) -> Result<Option<Document>, StoreError> {
        let inbox = self.inbox().clone_with_type();
        let found = match inbox.find_one(doc! { "_id": id }).await.map_err(StoreError::from) {
            // A user of an earlier release.
            Err(error) if error.is_forbidden() => None,
            found => found?.map(readable),
        };
        let Some(mut found) = found else { return self.find_task_fields(id, projection).await };
        let named = match queue(&found) {
            Some(selector) => self.queue_of_document(&selector).await?,
            None => None,
        };
        let producer = self.inbox_config().producer(found.get_str("by").ok()).unwrap_or_default();
        let own = named.as_ref().and_then(|queue| queue.tenant()).map(str::to_owned);
        let mut task = doc! {
            "_id": id, "queue": named.map_or(NO_QUEUE, |queue| queue.id), "status": Status::Queued, "node": Bson::Null,
            "params": found.remove("params").unwrap_or(Bson::Null), "stdout": Bson::Null, "stderr": Bson::Null, "inbox": true,
        };
        let fields = [("owner", producer.owner), ("tenant", own.or(producer.tenant))];
        task.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
        task.extend(trace(&found).as_ref().map(|trace| (TRACE.to_owned(), TraceContext::field(trace))));
        let is_left = |name: &String| name == "_id" || projection.is_empty() || projection.contains_key(name);
        Ok(Some(task.into_iter().filter(|(name, _)| is_left(name)).collect()))
    }
}

/// That of refused tasks whose queue nobody knows.
const NO_QUEUE: QueueId = QueueId(bson::oid::ObjectId::from_bytes([0; 12]));
