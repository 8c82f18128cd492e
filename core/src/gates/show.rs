//! Gates as people and programs look at them: who holds a lock and who waits for it, and what a blocked task waits for.

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;

use super::blocked::{AfterFailed, AfterWhen, Blocked};
use super::holders::Holder;
use super::request::{LockMode, OF_ARRAYS};
use crate::model::{QueueId, Status, Task, TaskId};
use crate::store::{Store, StoreError, Stored, collect, collect_ids};

/// So many of those who wait for a lock are told of.
const WAITING: i64 = 100;

/// So many of those that a task waits for are told of.
const SHOWN: usize = 20;

/// So many tasks that wait before another are counted; whether it is more does not matter.
const COUNTED: u64 = 1_000;

/// So long it is looked for the locks of some queues.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockFilter {
    /// Those whose names begin so. Without it, those of arrays are left out.
    pub prefix: Option<String>,
    /// Those behind this name.
    pub after: Option<String>,
}

impl LockFilter {
    /// Finds what has their names in `field`.
    fn document(&self, field: &str) -> Document {
        // Names have no character beyond.
        let beginning = |prefix: &str| doc! { "$gte": prefix, "$lt": format!("{prefix}\u{7f}") };
        let names = match self.prefix.as_deref() {
            None | Some("") => doc! { "$not": beginning(OF_ARRAYS) },
            Some(prefix) => beginning(prefix),
        };
        let mut all = vec![doc! { field: names }];
        all.extend(self.after.as_ref().map(|after| doc! { field: { "$gt": after } }));
        doc! { "$and": all }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRow {
    pub name: String,
    /// The first of those who hold it, and how each does.
    pub holders: Vec<(LockMode, Relative)>,
    pub held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    pub waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDetails {
    pub row: LockRow,
    /// Who waits for it, in the order in which they get it, and how each wants to hold it.
    pub waiters: Vec<(LockMode, Relative)>,
}

impl LockRow {
    /// Conceals tasks of queues that who asks may not see.
    pub fn conceal(&mut self, sees: &impl Fn(Option<QueueId>) -> bool) {
        self.holders.iter_mut().for_each(|(_, holder)| holder.conceal(sees));
    }
}

impl LockDetails {
    pub fn conceal(&mut self, sees: impl Fn(Option<QueueId>) -> bool) {
        self.row.conceal(&sees);
        self.waiters.iter_mut().for_each(|(_, waiter)| waiter.conceal(&sees));
    }
}

impl Store {
    #[operation]
    pub async fn locks_list(&self, filter: &LockFilter, limit: i64) -> Result<Vec<LockRow>, StoreError> {
        self.lock_rows(filter.document("_id"), limit).await
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
        let mut waiting = filter.document("needs_lock");
        waiting.extend(doc! { "needs_lock": { "$type": "string" }, "queue": { "$in": queues }, "status": Status::Blocked });
        let first = [
            doc! { "$match": waiting },
            doc! { "$group": { "_id": "$needs_lock" } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": limit },
        ];
        let names = collect(self.tasks().aggregate(first).max_time(PATIENCE)).await?;
        let names: Vec<&Bson> = names.iter().filter_map(|name| name.get("_id")).collect();
        let either = doc! { "$or": [{ "holders.queue": { "$in": queues } }, { "_id": { "$in": names } }] };
        self.lock_rows(doc! { "$and": [filter.document("_id"), either] }, limit).await
    }

    async fn lock_rows(&self, filter: Document, limit: i64) -> Result<Vec<LockRow>, StoreError> {
        let locks = self.locks();
        let found = locks.find(filter).sort(doc! { "_id": 1 }).limit(limit);
        let found = collect(found).await?;
        let mut rows = Vec::new();
        for lock in &found {
            rows.extend(self.row_of(lock).await?);
        }
        Ok(rows)
    }

    async fn row_of(&self, lock: &Document) -> Result<Option<LockRow>, StoreError> {
        let Ok(name) = lock.get_str("_id") else { return Ok(None) };
        let held = Holder::all(lock);
        let waiting = doc! { "status": Status::Blocked, "needs_lock": name };
        let waiting = self.tasks().count_documents(waiting).limit(COUNTED).await?;
        let holders = self.told(&held).await?;
        Ok(Some(LockRow { name: name.to_owned(), holders, held_by: held.len() as u64, waiting }))
    }
}

fn waiter(task: &Blocked, name: &str) -> Option<(LockMode, Relative)> {
    let mode = task.waiter(name)?.mode;
    let status = Some(Status::Blocked);
    let relative = Relative { queue: task.queue, status, ..Relative::unknown(task.id) };
    Some((mode, relative))
}

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
    /// It holds a lock that another task waits for, and its queue was deleted.
    pub is_queue_gone: bool,
}

impl Relative {
    /// Conceals all of it but how it is, if who asks may not see its queue.
    pub fn conceal(&mut self, sees: &impl Fn(Option<QueueId>) -> bool) {
        if !sees(self.queue) {
            let Self { status, since, is_queue_gone, .. } = *self;
            *self = Self { id: None, queue: None, status, node: None, since, is_queue_gone };
        }
    }

    /// A task of which nothing but the id is known.
    fn unknown(id: ObjectId) -> Self {
        let id = Some(TaskId(id));
        Self { id, queue: None, status: None, node: None, since: None, is_queue_gone: false }
    }

    fn of(id: ObjectId, task: &Document) -> Self {
        Self {
            queue: task.get_object_id("queue").ok().map(QueueId),
            status: Status::stored(task),
            node: task.get_str("node").ok().map(str::to_owned),
            ..Self::unknown(id)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    pub name: String,
    pub mode: LockMode,
    /// The first of those who hold it.
    pub holders: Vec<Relative>,
    pub held_by: u64,
    /// How many wait for it before this task; 1,000 stands for that and more.
    pub before: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    pub when: AfterWhen,
    pub failed: AfterFailed,
    /// The first of those that are not settled.
    pub parents: Vec<Relative>,
    /// How many are not settled.
    pub parents_left: u64,
    pub lock: Option<LockWait>,
}

impl Waits {
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
        let lock = self.locks().find_one(doc! { "_id": name }).await?;
        let held = lock.as_ref().map(Holder::all).unwrap_or_default();
        let before = doc! { "status": Status::Blocked, "needs_lock": name, "_id": { "$lt": task.id } };
        let before = self.tasks().count_documents(before).limit(COUNTED).await?;
        let mut holders: Vec<Relative> =
            self.told(&held).await?.into_iter().map(|(_, holder)| holder).collect();
        let queues: Vec<QueueId> = holders.iter().filter_map(|holder| holder.queue).collect();
        let collection = self.queues();
        let there = collection.find(doc! { "_id": { "$in": queues } }).projection(doc! { "_id": 1 });
        let there = collect_ids(there).await?;
        for holder in &mut holders {
            holder.is_queue_gone = holder.queue.is_some_and(|queue| !there.contains(&queue.0));
        }
        Ok(LockWait { name: name.to_owned(), mode, holders, held_by: held.len() as u64, before })
    }

    /// What the first of these holders are like, and how each holds the lock.
    async fn told(&self, holders: &[Holder]) -> Result<Vec<(LockMode, Relative)>, StoreError> {
        let first = holders.iter().take(SHOWN);
        let ids: Vec<ObjectId> = first.clone().map(|holder| holder.task).collect();
        let known = self.relatives(&ids).await?;
        let tell = |holder: &Holder| {
            let task = known.get(&holder.task).cloned().unwrap_or_else(|| Relative::unknown(holder.task));
            let queue = task.queue.or(holder.queue.map(QueueId));
            let since = holder.since.filter(|since| *since != DateTime::MIN);
            (holder.mode, Relative { since, queue, ..task })
        };
        Ok(first.map(tell).collect())
    }

    async fn relatives(&self, ids: &[ObjectId]) -> Result<HashMap<ObjectId, Relative>, StoreError> {
        let found = self.tasks_by_id(ids, &["queue", "status", "node"]).await?;
        Ok(found.into_iter().map(|(id, task)| (id, Relative::of(id, &task))).collect())
    }

    /// These fields of tasks, archived ones among them.
    pub(crate) async fn tasks_by_id(
        &self,
        ids: &[ObjectId],
        fields: &[&str],
    ) -> Result<HashMap<ObjectId, Document>, StoreError> {
        let mut known: HashMap<ObjectId, Document> = HashMap::new();
        // In this order: a task leaves `tasks` only when it is in the archive.
        for collection in [self.tasks(), self.archive()] {
            let rest: Vec<ObjectId> = ids.iter().filter(|id| !known.contains_key(*id)).copied().collect();
            if rest.is_empty() {
                break;
            }
            let found = few(&collection, doc! { "_id": { "$in": rest } }, fields, 0).await?;
            known.extend(found.into_iter().filter_map(|task| Some((task.get_object_id("_id").ok()?, task))));
        }
        Ok(known)
    }
}

/// These fields of the documents that match: of so many at most, or of all where that is 0.
pub(super) async fn few(
    collection: &Collection<Stored>,
    filter: Document,
    fields: &[&str],
    limit: i64,
) -> Result<Vec<Document>, StoreError> {
    let only: Document = fields.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))).collect();
    collect(collection.find(filter).projection(only).limit(limit)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_arrays_are_found_when_they_are_asked_for() {
        let all = LockFilter::default().document("_id").to_string();
        assert!(all.contains("$not") && all.contains("array:"), "{all}");
        let some =
            LockFilter { prefix: Some("db".to_owned()), after: Some("db1".to_owned()) }.document("_id");
        let expected =
            doc! { "$and": [{ "_id": { "$gte": "db", "$lt": "db\u{7f}" } }, { "_id": { "$gt": "db1" } }] };
        assert_eq!(some, expected);
    }

    #[test]
    fn of_other_queues_only_how_a_task_is_remains() {
        let [mine, other] = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let relative = |queue| Relative {
            id: Some(TaskId(ObjectId::new())),
            queue,
            status: Some(Status::Running),
            node: Some("n1".to_owned()),
            since: None,
            is_queue_gone: false,
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
