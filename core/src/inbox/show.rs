//! What is seen of a task while its document is in the inbox.

use bson::{Bson, Document, doc};

use super::document::{queue, trace};
use crate::model::document::readable;
use crate::model::{QueueId, Status, TRACE, TaskId, TraceContext};
use crate::store::{Store, StoreError};

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
pub(super) const NO_QUEUE: QueueId = QueueId(bson::oid::ObjectId::from_bytes([0; 12]));
