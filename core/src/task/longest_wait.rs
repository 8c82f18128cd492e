//! Since when the task of a queue waits that has waited longest.
//!
//! Ids are in the order of creation, and a task cannot wait longer than it exists. So the first ones are looked at,
//! and those that were deferred or tried again among them count from then ([`super::wait_start`]).

use bson::oid::ObjectId;
use bson::{DateTime, RawDocumentBuf, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use mongodb::Collection;

use super::pages::{Order, PageQuery, Position, Selection};
use super::wait_start::Waiting;
use crate::model::{QueueId, Status};
use crate::store::{Store, StoreError};

/// So many tasks are looked at. If all of them were tried again, a later one may have waited longer.
const LOOKED_AT: usize = 50;

impl Store {
    /// Since when the task of `queue` is there that is the oldest of those that are blocked; `None`: none is.
    #[operation(queue = %queue)]
    pub async fn longest_blocked(&self, queue: QueueId) -> Result<Option<DateTime>, StoreError> {
        let of = Selection { statuses: Some(vec![Status::Blocked.code()]), ..Selection::of_queue(queue) };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: 1 };
        Ok(self.find_page(&page).await?.ids.first().map(|id| id.0.timestamp()))
    }

    /// Since when the task of `queue` waits that has waited longest of those that can be claimed; `None`: none can.
    #[operation(queue = %queue)]
    pub async fn longest_waiting(&self, queue: QueueId) -> Result<Option<DateTime>, StoreError> {
        let of = Selection { statuses: Some(vec![Status::Queued.code()]), ..Selection::of_queue(queue) };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: LOOKED_AT };
        let ids: Vec<ObjectId> = self.find_page(&page).await?.ids.iter().map(|id| id.0).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let tasks: Collection<RawDocumentBuf> = self.tasks().clone_with_type();
        let times = doc! { "ctime": 1, "run_at": 1, "history.status": 1, "history.at": 1 };
        let still = doc! { "_id": { "$in": ids }, "status": Status::Queued.code() };
        let mut found = tasks.find(still).projection(times).await?;
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
