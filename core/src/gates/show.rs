//! Locks as people and programs look at them: who holds them, and who waits.

use disbatch_operation::operation;
use std::collections::HashMap;

use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;

use super::blocked::Blocked;
use super::plan::Holder;
use super::request::{LockMode, OF_ARRAYS};
use super::waits::{COUNTED, Relative};
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError};

/// So many of those who wait for a lock are told of.
const WAITING: i64 = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockFilter {
    /// Those whose names begin so. Without it, those of arrays are left out.
    pub prefix: Option<String>,
    /// Those behind this name.
    pub after: Option<String>,
}

impl LockFilter {
    fn document(&self) -> Document {
        let mut all = Vec::new();
        match self.prefix.as_deref() {
            Some(prefix) if !prefix.is_empty() => {
                // Names have no character beyond.
                all.push(doc! { "_id": { "$gte": prefix, "$lt": format!("{prefix}\u{7f}") } });
            }
            _ => all
                .push(doc! { "_id": { "$not": { "$gte": OF_ARRAYS, "$lt": format!("{OF_ARRAYS}\u{7f}") } } }),
        }
        if let Some(after) = &self.after {
            all.push(doc! { "_id": { "$gt": after } });
        }
        doc! { "$and": all }
    }
}

/// A lock, with the first of those who hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRow {
    pub name: String,
    /// The first of those who hold it, and how each does.
    pub holders: Vec<(LockMode, Relative)>,
    /// How many hold it.
    pub held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    pub waiting: u64,
    /// The queues of all who hold it.
    queues: Vec<QueueId>,
}

/// A lock, with the first of those who wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDetails {
    /// What the list has of it.
    pub row: LockRow,
    /// Who waits for it, in the order in which they get it, and how each wants to hold it.
    pub waiters: Vec<(LockMode, Relative)>,
}

impl LockRow {
    /// Conceals tasks of queues that who asks may not see.
    pub fn conceal(&mut self, sees: &impl Fn(Option<QueueId>) -> bool) {
        self.holders.iter_mut().for_each(|(_, holder)| holder.conceal(sees));
    }

    /// Whether one of the tasks that hold it is of a queue that who asks may see.
    fn is_of(&self, sees: &impl Fn(Option<QueueId>) -> bool) -> bool {
        self.queues.iter().any(|queue| sees(Some(*queue)))
    }
}

impl LockDetails {
    /// Conceals tasks of queues that who asks may not see. `None`: all are of such queues, so that who asks may not know
    /// of the lock.
    pub fn concealed(mut self, sees: impl Fn(Option<QueueId>) -> bool) -> Option<Self> {
        let is_of = self.row.is_of(&sees) || self.waiters.iter().any(|(_, waiter)| sees(waiter.queue));
        self.row.conceal(&sees);
        self.waiters.iter_mut().for_each(|(_, waiter)| waiter.conceal(&sees));
        is_of.then_some(self)
    }
}

impl Store {
    /// Locks in the order of their names, at most so many.
    #[operation]
    pub async fn locks_list(&self, filter: &LockFilter, limit: i64) -> Result<Vec<LockRow>, StoreError> {
        let locks = self.locks();
        let found = locks.find(filter.document()).sort(doc! { "_id": 1 }).limit(limit);
        let found: Vec<Document> = found.await?.try_collect().await?;
        let mut rows = Vec::new();
        for lock in &found {
            rows.extend(self.row_of(lock).await?);
        }
        Ok(rows)
    }

    /// One lock. `None`: nobody holds it or waits for it.
    #[operation]
    pub async fn lock(&self, name: &str) -> Result<Option<LockDetails>, StoreError> {
        let Some(lock) = self.locks().find_one(doc! { "_id": name }).await? else { return Ok(None) };
        let Some(row) = self.row_of(&lock).await? else { return Ok(None) };
        let waiting = self.blocked(doc! { "needs_lock": name }, WAITING).await?;
        let waiters = waiting.iter().filter_map(|task| waiter(task, name)).collect();
        Ok(Some(LockDetails { row, waiters }))
    }

    /// The names of locks that blocked tasks of these queues need, or that their tasks hold, in order; for those who may
    /// see no others.
    #[operation]
    pub async fn locks_of_queues(
        &self,
        queues: &[QueueId],
        filter: &LockFilter,
        limit: i64,
    ) -> Result<Vec<LockRow>, StoreError> {
        let mut names: Vec<Bson> = Vec::new();
        let of_queues = doc! { "queue": { "$in": queues }, "status": Status::Blocked };
        names.extend(self.tasks().distinct("needs_lock", of_queues).await?);
        let ids: Vec<bson::oid::ObjectId> = queues.iter().map(|queue| queue.0).collect();
        let locks = self.locks();
        let either = doc! { "$or": [{ "holders.queue": { "$in": ids } }, { "_id": { "$in": names } }] };
        let both = doc! { "$and": [filter.document(), either] };
        let found = locks.find(both).sort(doc! { "_id": 1 }).limit(limit);
        let found: Vec<Document> = found.await?.try_collect().await?;
        let mut rows = Vec::new();
        for lock in &found {
            rows.extend(self.row_of(lock).await?);
        }
        Ok(rows)
    }

    async fn row_of(&self, lock: &Document) -> Result<Option<LockRow>, StoreError> {
        let Ok(name) = lock.get_str("_id") else { return Ok(None) };
        let stored = lock.get_array("holders").map(Vec::as_slice).unwrap_or_default();
        let holders: Vec<Holder> = stored.iter().filter_map(Holder::stored).collect();
        let waiting = doc! { "status": Status::Blocked, "needs_lock": name };
        let waiting = self.tasks().count_documents(waiting).limit(COUNTED).await?;
        let modes: HashMap<TaskId, LockMode> =
            holders.iter().map(|holder| (TaskId(holder.task), holder.mode)).collect();
        let queues = holders.iter().filter_map(|holder| holder.queue).map(QueueId).collect();
        let told = self.told(&holders).await?;
        let with_mode = |holder: Relative| {
            let mode = holder.id.and_then(|id| modes.get(&id).copied()).unwrap_or(LockMode::Exclusive);
            (mode, holder)
        };
        let held_by = holders.len() as u64;
        let holders = told.into_iter().map(with_mode).collect();
        Ok(Some(LockRow { name: name.to_owned(), holders, held_by, waiting, queues }))
    }
}

fn waiter(task: &Blocked, name: &str) -> Option<(LockMode, Relative)> {
    let mode = task.waiter(name)?.mode;
    let relative = Relative {
        id: Some(TaskId(task.id)),
        queue: task.queue,
        status: Some(Status::Blocked),
        node: None,
        since: None::<DateTime>,
    };
    Some((mode, relative))
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_lock_without_a_task_that_one_may_see_is_none() {
        let queue = QueueId(ObjectId::new());
        let relative = |queue| Relative {
            id: Some(TaskId(ObjectId::new())),
            queue,
            status: Some(Status::Running),
            node: None,
            since: None,
        };
        let details = |held, waits| LockDetails {
            row: LockRow {
                name: "db".to_owned(),
                holders: vec![(LockMode::Exclusive, relative(held))],
                held_by: 1,
                waiting: 1,
                queues: held.into_iter().collect(),
            },
            waiters: vec![(LockMode::Exclusive, relative(waits))],
        };
        let sees = |asked: Option<QueueId>| asked == Some(queue);
        assert_eq!(details(None, None).concealed(sees), None);
        let waits = details(None, Some(queue)).concealed(sees).unwrap();
        assert_eq!((waits.row.holders[0].1.id, waits.waiters[0].1.id.is_some()), (None, true));
        assert!(details(Some(queue), None).concealed(sees).is_some());
    }

    #[test]
    fn locks_of_arrays_are_found_when_they_are_asked_for() {
        let all = LockFilter::default().document().to_string();
        assert!(all.contains("$not") && all.contains("array:"), "{all}");
        let some = LockFilter { prefix: Some("db".to_owned()), after: Some("db1".to_owned()) }.document();
        let expected =
            doc! { "$and": [{ "_id": { "$gte": "db", "$lt": "db\u{7f}" } }, { "_id": { "$gt": "db1" } }] };
        assert_eq!(some, expected);
    }
}
