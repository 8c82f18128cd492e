//! A blocked task, as far as its gates are concerned.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;

use super::after::{AfterFailed, AfterWhen, Parent, Verdict, judge};
use super::plan::Waiter;
use super::request::LockRequest;
use crate::model::{QueueId, Status, whole_number};
use crate::store::{Store, StoreError};

/// A task of the status -4.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Blocked {
    pub id: ObjectId,
    pub queue: Option<QueueId>,
    pub when: AfterWhen,
    pub failed: AfterFailed,
    /// Those of the tasks that it comes after that are not settled yet.
    pub waiting_for: Vec<ObjectId>,
    /// What it asks for, in order.
    pub locks: Vec<LockRequest>,
    /// How often it has been blocked.
    pub round: i64,
    /// The lock that it waits for.
    pub needs: Option<String>,
    pub run_at: Option<DateTime>,
}

impl Blocked {
    /// What is read of it.
    fn fields() -> Document {
        doc! {
            "queue": 1, "after_when": 1, "after_failed": 1, "waiting_for": 1, "locks": 1, "lock_round": 1,
            "needs_lock": 1, "run_at": 1,
        }
    }

    pub(super) fn of(task: &Document) -> Option<Self> {
        let queue = task.get_object_id("queue").ok().map(QueueId);
        Some(Self::with(task.get_object_id("_id").ok()?, queue, task))
    }

    /// A task with this id and these fields.
    pub(super) fn with(id: ObjectId, queue: Option<QueueId>, task: &Document) -> Self {
        let ids = task.get_array("waiting_for").map(Vec::as_slice).unwrap_or_default();
        Self {
            id,
            queue,
            when: AfterWhen::stored(task.get("after_when")),
            failed: AfterFailed::stored(task.get("after_failed")),
            waiting_for: ids.iter().filter_map(Bson::as_object_id).collect(),
            locks: LockRequest::stored(task),
            round: round_of(task),
            needs: task.get_str("needs_lock").ok().map(str::to_owned),
            run_at: task.get_datetime("run_at").ok().copied(),
        }
    }

    /// What follows from what is known of those that it waits for. Of the others it is taken that they go on.
    pub(super) fn verdict(&self, known: impl Fn(&ObjectId) -> Option<Parent>) -> Verdict {
        let parent = |id: &ObjectId| (*id, known(id).unwrap_or(Parent::Live));
        let parents: Vec<(ObjectId, Parent)> = self.waiting_for.iter().map(parent).collect();
        judge(self.when, self.failed, &parents)
    }

    /// Its request for the lock of this name.
    pub(super) fn waiter(&self, lock: &str) -> Option<Waiter> {
        let request = self.locks.iter().find(|request| request.name() == lock)?;
        let queue = self.queue.map(|queue| queue.0);
        Some(Waiter { task: self.id, round: self.round, mode: request.mode(), queue })
    }

    /// The lock that it needs once it has this one.
    pub(super) fn lock_after(&self, lock: &str) -> Option<&str> {
        self.locks.iter().map(LockRequest::name).find(|name| *name > lock)
    }
}

pub(super) fn round_of(task: &Document) -> i64 {
    task.get("lock_round").and_then(whole_number).unwrap_or(0)
}

/// Matches tasks in a round.
pub(super) fn of_round(round: i64) -> Bson {
    if round == 0 { Bson::from(doc! { "$in": [0, Bson::Null] }) } else { Bson::from(round) }
}

/// Matches tasks that wait for no other.
pub(super) fn waits_for_none() -> Bson {
    Bson::from(doc! { "$in": [Bson::Null, Bson::Array(Vec::new())] })
}

impl Store {
    /// Blocked tasks that `filter` matches, the oldest first.
    pub(super) async fn blocked(&self, filter: Document, limit: i64) -> Result<Vec<Blocked>, StoreError> {
        self.blocked_as(filter, limit, ReadConcern::local()).await
    }

    /// Those who wait for a lock, as a majority has them: who is given a lock because it waits must be seen to wait by
    /// whoever looks later whether it may have the lock.
    pub(super) async fn waiting_for_lock(&self, lock: &str, limit: i64) -> Result<Vec<Blocked>, StoreError> {
        self.blocked_as(doc! { "needs_lock": lock }, limit, ReadConcern::majority()).await
    }

    async fn blocked_as(
        &self,
        filter: Document,
        limit: i64,
        concern: ReadConcern,
    ) -> Result<Vec<Blocked>, StoreError> {
        let mut blocked = doc! { "status": Status::Blocked };
        blocked.extend(filter);
        let tasks = self.tasks();
        let found = tasks.find(blocked).projection(Blocked::fields()).sort(doc! { "_id": 1 }).limit(limit);
        let found = found.read_concern(concern).await?;
        let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        Ok(found.iter().filter_map(Blocked::of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_goes_on() {
        let ids = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let task =
            doc! { "_id": ObjectId::new(), "waiting_for": [ids[0], ids[1], "odd"], "locks": ["b", "a/2"] };
        let task = Blocked::of(&task).unwrap();
        assert_eq!(task.waiting_for, ids);
        let good = |id: &ObjectId| (*id == ids[0]).then_some(Parent::Ended(Status::Succeeded));
        assert_eq!(task.verdict(good), Verdict::Wait);
        assert_eq!(task.verdict(|_| Some(Parent::Gone)), Verdict::Never(Some(ids[0])));
        assert_eq!(
            (task.lock_after(""), task.lock_after("a"), task.lock_after("b")),
            (Some("a"), Some("b"), None)
        );
        assert!(task.waiter("a").is_some() && task.waiter("c").is_none());
        assert_eq!(task.round, 0);
    }
}
