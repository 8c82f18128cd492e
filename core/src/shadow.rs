//! Shadows: a share of a queue's tasks runs a second time, in a queue of its own and without effects, so that somebody sees what a new version of
//! a plugin would have come to.
//!
//! A task that has ended is copied by one DEN at a time, which reads the server's log of changes as notifications do: the task itself, its end and
//! the path to it know nothing of that. **A shadow is made at most once**: its id follows from that of its task, so the server inserts one at most, and it is inserted by an
//! operation that sees the DEN's lease, so that one who has stood still makes nothing of what was over long ago. The place in the log is stored when shadows are there:
//! who takes over begins where some may have been made already. If the log does not reach back so far, or a task has left the database at once, its shadow is not made.
//!
//! **It touches nothing of its task**, and causes nothing: a shadow comes after no task, is of no array and no schedule, holds no locks and no files, is in nobody's quota,
//! and is told to nobody. Tasks with steps, files or secure parameters have none.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use disbatch_operation::operation;

use crate::lease::LeaseName;
use crate::model::{
    FILES, Queue, SHADOW, SHADOW_OF, SHADOW_TENANT, STEPS, Shadow, Status, Task, TaskId, shadow_id,
};
use crate::notifications::Followed;
use crate::secrets;
use crate::store::{Store, StoreError, collect, integer, put};
use crate::task::{SubmitError, TaskOptions};
use disbatch_metrics::labels::Source;

/// Who makes them.
pub const LEASE: LeaseName = LeaseName::new("shadows", Duration::from_secs(20));

/// The place in the log of changes, in the document of the lease.
const PLACE: &str = "place";

/// So many are made at once.
const AT_ONCE: usize = 8;

/// What is read of a shadow and of its task.
const COMPARED: [&str; 8] = ["queue", "status", "exit", "result", "stdout", "stderr", "error", SHADOW_OF];

/// A queue whose tasks have shadows, and the queue of these.
#[derive(Debug, Clone, PartialEq)]
pub struct Shadowed {
    pub queue: Queue,
    pub shadow: Shadow,
    pub other: Queue,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    pub task: Document,
    pub shadow: Document,
}

impl Store {
    /// The queue of the shadows of a queue's tasks. `None`: they have none, or it is gone.
    #[operation(queue = %queue.id)]
    pub async fn find_shadow(&self, queue: &Queue) -> Result<Option<(Shadow, Queue)>, StoreError> {
        let Some(shadow) = Shadow::of(queue) else { return Ok(None) };
        let other = self.find_queue(&shadow.selector()).await?.filter(|other| other.id != queue.id);
        Ok(other.map(|other| (shadow, other)))
    }

    /// The queues whose tasks have shadows, each with the queue of these.
    #[operation]
    pub async fn shadowed_queues(&self) -> Result<Vec<Shadowed>, StoreError> {
        let found = collect(self.queues().find(doc! { SHADOW: { "$type": "object" } })).await?;
        let mut all = Vec::new();
        for queue in found.into_iter().filter_map(read::<Queue>) {
            if let Some((shadow, other)) = self.find_shadow(&queue).await? {
                all.push(Shadowed { queue, shadow, other });
            }
        }
        Ok(all)
    }

    /// Up to where ends have been seen. `None`: nobody has looked.
    #[operation]
    pub async fn shadow_place(&self) -> Result<Option<Timestamp>, StoreError> {
        let lease = self.leases(LEASE).find_one(doc! { "_id": LEASE.id }).await?;
        Ok(lease.and_then(|lease| lease.get_timestamp(PLACE).ok()))
    }

    /// Notes up to where ends have been seen, if `instance` has the lease. Returns whether it has: if not, what it was to make since it had it last
    /// may not be there.
    #[operation]
    pub async fn store_shadow_place(&self, instance: &str, place: Timestamp) -> Result<bool, StoreError> {
        let noted = self.leases(LEASE).update_one(leads(instance), doc! { "$set": { PLACE: place } }).await?;
        Ok(noted.matched_count == 1)
    }

    /// Makes the shadows of those tasks that have ended, as long as `instance` has the lease. Returns how many were made.
    ///
    /// # Errors
    /// The database cannot be reached: some may have been made.
    #[operation(ends = ends.len())]
    pub async fn make_shadows(
        &self,
        ends: &[Followed],
        shadowed: &[Shadowed],
        instance: &str,
    ) -> Result<u64, StoreError> {
        let is_drawn = |task: &TaskId| shadowed.iter().any(|queue| queue.shadow.has(*task));
        let ids: BTreeSet<TaskId> = ends.iter().filter_map(Followed::ended).filter(is_drawn).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let queues: Vec<ObjectId> = shadowed.iter().map(|shadowed| shadowed.queue.id.0).collect();
        let wanted = doc! {
            "_id": { "$in": ids.iter().map(|id| id.0).collect::<Vec<_>>() }, "queue": { "$in": queues },
            SHADOW_OF: { "$exists": false }, STEPS: { "$exists": false }, FILES: { "$exists": false },
            secrets::FIELD: { "$exists": false },
            // Somebody wanted that end.
            "$nor": [{ "status": Status::Terminated, "cancel": { "$type": "object" } }],
        };
        let without = doc! { "stdout": 0, "stderr": 0, "history": 0, "result": 0 };
        let tasks = collect(self.tasks().find(wanted).projection(without)).await?;
        let tasks: Vec<Task> = tasks.into_iter().filter_map(read).collect();
        let ids: Vec<TaskId> = tasks.iter().map(|task| shadow_id(task.id)).collect();
        let missing: BTreeSet<TaskId> = self.missing_tasks(&ids).await?.into_iter().collect();
        let mut due = Vec::new();
        for task in &tasks {
            let own = shadowed.iter().find(|shadowed| shadowed.queue.id == task.queue);
            let own = own.filter(|own| own.shadow.has(task.id) && missing.contains(&shadow_id(task.id)));
            due.extend(own.map(|own| (task, own)));
        }
        let mut made = 0;
        for some in due.chunks(AT_ONCE) {
            let mut making = Vec::new();
            for (task, own) in some {
                making.push(self.make_shadow(task, own, instance));
            }
            made +=
                futures::future::try_join_all(making).await?.into_iter().filter(|made| *made).count() as u64;
        }
        Ok(made)
    }

    async fn make_shadow(
        &self,
        task: &Task,
        Shadowed { queue, other, .. }: &Shadowed,
        instance: &str,
    ) -> Result<bool, StoreError> {
        let Some(options) = options(queue, task) else { return Ok(false) };
        let Bson::Document(params) = task.params() else { return Ok(false) };
        let admitted = self.admit_unasked(other.id, &options).await?;
        let made = self.new_task(other.id, shadow_id(task.id), params.clone(), &options, &admitted).await;
        let mut shadow = match made {
            Ok(shadow) => shadow,
            Err(SubmitError::Store(error)) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, task = %task.id, "it has no shadow");
                return Ok(false);
            }
        };
        shadow.insert(SHADOW_OF, task.id);
        put(&mut shadow, SHADOW_TENANT, task.rest.get_str("tenant").ok());
        let status = Status::stored(&shadow);
        let is_made = self.insert_because(&self.leases(LEASE), leads(instance), shadow).await?;
        if is_made {
            self.submitted(other.id, status, 1, Source::Shadow);
        }
        Ok(is_made)
    }

    /// The latest shadows in the queue `other` of tasks of `queue` that have ended, with these, at most so many.
    #[operation(queue = %queue.id, limit)]
    pub async fn shadow_pairs(
        &self,
        queue: &Queue,
        other: &Queue,
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        let ended = doc! { "queue": other.id, SHADOW_OF: { "$exists": true }, "$nor": [{ "status": { "$in": Status::LIVE.to_vec() } }] };
        let most = integer(limit);
        let tasks = self.tasks();
        let only: Document = COMPARED.map(|field| (field.to_owned(), Bson::from(1))).into_iter().collect();
        let shadows = tasks.find(ended).projection(only).sort(doc! { "_id": -1 }).limit(most);
        let shadows = collect(shadows).await?;
        let of = |shadow: &Document| shadow.get_object_id(SHADOW_OF).ok();
        let ids: Vec<ObjectId> = shadows.iter().filter_map(of).collect();
        let mut tasks = self.tasks_by_id(&ids, &COMPARED).await?;
        tasks.retain(|_, task| task.get_object_id("queue").is_ok_and(|id| id == queue.id.0));
        let pair = |shadow: Document| Some(Pair { task: tasks.remove(&of(&shadow)?)?, shadow });
        Ok(shadows.into_iter().filter_map(pair).collect())
    }
}

/// The document of the lease, as long as it is that of `instance`.
fn leads(instance: &str) -> Document {
    doc! { "_id": LEASE.id, "instance": instance, "$expr": { "$gt": ["$until", "$$NOW"] } }
}

/// What cannot be understood has no shadow.
fn read<T: serde::de::DeserializeOwned>(stored: Document) -> Option<T> {
    bson::deserialize_from_document(stored).ok()
}

/// What a shadow is submitted with. `None`: its task has none.
fn options(queue: &Queue, task: &Task) -> Option<TaskOptions> {
    if queue.rest.contains_key(FILES) {
        return None;
    }
    let asked = TaskOptions::of_task(task).ok()?;
    let TaskOptions { timeout, grace, max_attempts, backoff, group, priority, .. } = asked;
    Some(TaskOptions { timeout, grace, max_attempts, backoff, group, priority, ..TaskOptions::default() })
}

/// A place so long before this time.
pub fn place_before(now: DateTime, by: Duration) -> Timestamp {
    let seconds = now.timestamp_millis() / 1000 - i64::try_from(by.as_secs()).unwrap_or(0);
    Timestamp { time: u32::try_from(seconds).unwrap_or(0), increment: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(document: Document) -> T {
        bson::deserialize_from_document(document).unwrap()
    }

    #[test]
    fn a_shadow_has_nothing_that_others_wait_for_or_pay_for() {
        let queue: Queue = read(doc! { "_id": ObjectId::new(), "name": "q" });
        let task: Task = read(doc! {
            "_id": ObjectId::new(), "queue": queue.id, "status": 1, "timeout": 5_i64, "unique": "k", "locks": ["l"], "group": "g",
            "tenant": "acme", "tags": ["t"], "after": [ObjectId::new()], "array": { "id": ObjectId::new(), "index": 1 },
        });
        let expected = doc! { "timeout": 5_i64, "group": "g", "priority": 0_i64 };
        assert_eq!(options(&queue, &task).unwrap().fields(), expected);
        let with_files: Queue =
            read(doc! { "_id": queue.id, "name": "q", "files": { "input": { "name": "a" } } });
        assert_eq!(options(&with_files, &task), None);
        let shadow: Task =
            read(doc! { "_id": ObjectId::new(), "queue": queue.id, "status": 1, SHADOW_OF: task.id });
        assert_eq!(options(&queue, &shadow), None);
    }

    #[test]
    fn a_place_is_one_of_whole_seconds() {
        let place = place_before(DateTime::from_millis(20_500), Duration::from_secs(15));
        assert_eq!(place, Timestamp { time: 5, increment: 0 });
    }
}
