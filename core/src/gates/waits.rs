//! What a blocked task waits for, to be told to people.

use disbatch_operation::operation;
use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;
use mongodb::Collection;

use super::after::{AfterFailed, AfterWhen};
use super::blocked::Blocked;
use super::plan::Holder;
use super::request::LockMode;
use crate::model::{QueueId, Status, Task, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored};

/// So many of those that a task waits for are told of.
pub(super) const SHOWN: usize = 20;

/// So many tasks that wait before another are counted; whether it is more does not matter.
pub(super) const COUNTED: u64 = 1_000;

/// A task that another one has to do with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// Its id. `None`: who asks may not know.
    pub id: Option<TaskId>,
    pub queue: Option<QueueId>,
    /// Its status. `None`: there is no such task, or none that is known.
    pub status: Option<Status>,
    pub node: Option<String>,
    /// Since when it holds a lock, if that is what it has to do with.
    pub since: Option<DateTime>,
}

impl Relative {
    /// Conceals all of it but how it is, if who asks may not see its queue.
    pub fn conceal(&mut self, sees: &impl Fn(Option<QueueId>) -> bool) {
        if !sees(self.queue) {
            *self = Self { id: None, queue: None, status: self.status, node: None, since: self.since };
        }
    }

    /// A task of which nothing but the id is known.
    pub(super) fn unknown(id: ObjectId) -> Self {
        Self { id: Some(TaskId(id)), queue: None, status: None, node: None, since: None }
    }

    fn of(task: &Document) -> Option<Self> {
        Some(Self {
            id: Some(TaskId(task.get_object_id("_id").ok()?)),
            queue: task.get_object_id("queue").ok().map(QueueId),
            status: task.get("status").and_then(whole_number).map(Status::from_code),
            node: task.get_str("node").ok().map(str::to_owned),
            since: None,
        })
    }
}

/// The lock that a task waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    pub name: String,
    pub mode: LockMode,
    /// The first of those who hold it.
    pub holders: Vec<Relative>,
    /// How many hold it.
    pub held_by: u64,
    /// How many wait for it before this task; 1,000 stands for that and more.
    pub before: u64,
}

/// What a blocked task waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    /// What the tasks that it comes after must have come to.
    pub when: AfterWhen,
    /// What becomes of it when one of them has failed.
    pub failed: AfterFailed,
    /// The first of those that are not settled.
    pub parents: Vec<Relative>,
    /// How many are not settled.
    pub parents_left: u64,
    pub lock: Option<LockWait>,
}

impl Waits {
    /// Conceals tasks of queues that who asks may not see.
    pub fn conceal(&mut self, sees: impl Fn(Option<QueueId>) -> bool) {
        self.parents.iter_mut().for_each(|parent| parent.conceal(&sees));
        if let Some(lock) = &mut self.lock {
            lock.holders.iter_mut().for_each(|holder| holder.conceal(&sees));
        }
    }
}

impl Store {
    /// What a task waits for, if it is blocked.
    #[operation(task = %task.id)]
    pub async fn blocked_by(&self, task: &Task) -> Result<Waits, StoreError> {
        if task.status != Status::Blocked {
            return Ok(Waits::default());
        }
        let blocked = Blocked::with(task.id.0, Some(task.queue), &task.rest);
        let first: Vec<ObjectId> = blocked.waiting_for.iter().take(SHOWN).copied().collect();
        let known = self.relatives(&first).await?;
        let relative = |id: &ObjectId| known.get(id).cloned().unwrap_or_else(|| Relative::unknown(*id));
        let lock = match blocked.needs.as_deref().and_then(|name| blocked.waiter(name).zip(Some(name))) {
            Some((waiter, name)) => Some(self.lock_wait(&blocked, name, waiter.mode).await?),
            None => None,
        };
        Ok(Waits {
            when: blocked.when,
            failed: blocked.failed,
            parents: first.iter().map(relative).collect(),
            parents_left: blocked.waiting_for.len() as u64,
            lock,
        })
    }

    async fn lock_wait(&self, task: &Blocked, name: &str, mode: LockMode) -> Result<LockWait, StoreError> {
        let holders = self.holders_of(name).await?;
        let before = doc! { "status": Status::Blocked, "needs_lock": name, "_id": { "$lt": task.id } };
        let before = self.tasks().count_documents(before).limit(COUNTED).await?;
        let held_by = holders.len() as u64;
        let holders = self.told(&holders).await?;
        Ok(LockWait { name: name.to_owned(), mode, holders, held_by, before })
    }

    async fn holders_of(&self, name: &str) -> Result<Vec<Holder>, StoreError> {
        let lock = self.locks().find_one(doc! { "_id": name }).await?;
        let stored = lock.as_ref().and_then(|lock| lock.get_array("holders").ok());
        Ok(stored.into_iter().flatten().filter_map(Holder::stored).collect())
    }

    /// What the first of these holders are like.
    pub(super) async fn told(&self, holders: &[Holder]) -> Result<Vec<Relative>, StoreError> {
        let first = holders.iter().take(SHOWN);
        let ids: Vec<ObjectId> = first.clone().map(|holder| holder.task).collect();
        let known = self.relatives(&ids).await?;
        let tell = |holder: &Holder| {
            let task = known.get(&holder.task).cloned().unwrap_or_else(|| Relative::unknown(holder.task));
            let queue = task.queue.or(holder.queue.map(QueueId));
            Relative { since: holder.since.filter(|since| *since != DateTime::MIN), queue, ..task }
        };
        Ok(first.map(tell).collect())
    }

    /// Tasks by their ids, archived ones among them.
    pub(super) async fn relatives(
        &self,
        ids: &[ObjectId],
    ) -> Result<HashMap<ObjectId, Relative>, StoreError> {
        let mut known: HashMap<ObjectId, Relative> = HashMap::new();
        for collection in [self.tasks(), self.archive()] {
            let rest = ids.iter().filter(|id| !known.contains_key(*id));
            let rest: Vec<ObjectId> = rest.copied().collect();
            if rest.is_empty() {
                break;
            }
            for task in
                few(&collection, doc! { "_id": { "$in": rest } }, &["queue", "status", "node"]).await?
            {
                if let (Ok(id), Some(relative)) = (task.get_object_id("_id"), Relative::of(&task)) {
                    known.insert(id, relative);
                }
            }
        }
        Ok(known)
    }
}

/// These fields of the documents that match.
pub(super) async fn few(
    collection: &Collection<Stored>,
    filter: Document,
    fields: &[&str],
) -> Result<Vec<Document>, StoreError> {
    let only: Document = fields.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))).collect();
    let found = collection.find(filter).projection(only).await?;
    Ok(found.map_ok(Document::from).try_collect().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_other_queues_only_how_a_task_is_remains() {
        let [mine, other] = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let relative = |queue| Relative {
            id: Some(TaskId(ObjectId::new())),
            queue,
            status: Some(Status::Running),
            node: Some("n1".to_owned()),
            since: None,
        };
        let lock = LockWait {
            name: "db".to_owned(),
            mode: LockMode::Shared,
            holders: vec![relative(Some(other))],
            held_by: 1,
            before: 0,
        };
        let parents = vec![relative(Some(mine)), relative(Some(other)), relative(None)];
        let mut waits = Waits { parents, parents_left: 3, lock: Some(lock), ..Waits::default() };
        waits.conceal(|queue| queue == Some(mine));
        let ids: Vec<bool> = waits.parents.iter().map(|parent| parent.id.is_some()).collect();
        assert_eq!(ids, [true, false, false]);
        assert_eq!(waits.parents[1].status, Some(Status::Running));
        let holder = &waits.lock.unwrap().holders[0];
        assert_eq!((holder.id, holder.node.as_deref(), holder.queue), (None, None, None));
    }
}
