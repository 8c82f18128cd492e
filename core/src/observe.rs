//! Observe: what those look at who wait for a task to go on. They are told by [`Store::task_changes`] when to look
//! again, or look again and again.
//! They may choose fields, and are told whether these have changed since they have seen them.

mod feed;

use std::collections::{BTreeMap, HashMap};

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

use crate::live::LiveStream;
use crate::model::{Status, Task, TaskId};
use crate::output::StreamName;
use crate::store::collections::{ARCHIVE, INBOX, LIVE, TASKS};
use crate::store::error::typed;
use crate::store::{Rows, Store, StoreError, Stored, attended};
use crate::task::TaskQuery;
use crate::text::hex;

pub(crate) use feed::{AWAIT, Changes, LOST, text_of, time_of};
pub use feed::{Feed, FeedError, FeedFilter, Position, StatusChange};

/// What tells one state of the fields from another has so many digits.
const DIGITS: usize = 32;

/// Where a task stands, without what may be large.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The task, without parameters, output and result.
    pub task: Task,
    pub archived: bool,
}

impl Observed {
    /// The number of its latest attempt, 0 if nobody counted.
    pub fn attempt(&self) -> i64 {
        self.task.attempt().unwrap_or(0)
    }

    pub fn is_running(&self) -> bool {
        self.task.status == Status::Running
    }

    /// Whether nothing will be added to the output of this attempt.
    pub fn is_over(&self, attempt: i64) -> bool {
        !self.is_running() || self.attempt() != attempt
    }

    pub fn progress(&self) -> Option<&Document> {
        self.task.rest.get("progress").and_then(Bson::as_document)
    }
}

/// Chosen fields of a task at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    pub fields: Document,
    /// Tells whether they are the same at another moment: it is the same then.
    pub seen: String,
}

impl Chosen {
    /// Fields of a task as they were read, and how many bytes they have.
    fn with_size(mut task: Document) -> (Self, usize) {
        task.remove("_id");
        // The order in which they are stored says nothing.
        let mut names: Vec<String> = task.keys().cloned().collect();
        names.sort();
        let fields: Document =
            names.into_iter().filter_map(|name| task.remove(&name).map(|value| (name, value))).collect();
        // What is no document cannot be stored, so this does not fail.
        let bytes = bson::serialize_to_vec(&fields).unwrap_or_default();
        (Self { fields, seen: digits(&bytes) }, bytes.len())
    }
}

/// Chosen fields of a task, and what is not in its document.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// The fields. Other output that has come while it runs is another `seen`.
    pub chosen: Chosen,
    pub ended: bool,
    /// While it runs, how many bytes there are so far of each stream of output among the fields.
    pub live: BTreeMap<StreamName, u64>,
}

impl Watched {
    fn of(task: Document, seen: &Observed, live: BTreeMap<StreamName, u64>) -> Self {
        let (mut chosen, _) = Chosen::with_size(task);
        if live.values().any(|bytes| *bytes > 0) {
            let told = format!("{} {} {live:?}", chosen.seen, seen.attempt());
            chosen.seen = digits(told.as_bytes());
        }
        Self { chosen, ended: seen.task.status.has_ended(), live }
    }
}

fn digits(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes)).chars().take(DIGITS).collect()
}

impl Store {
    /// Where a task stands, also when it is in the archive or the inbox. `None`: there is no such task.
    #[operation(task = %id)]
    pub async fn observe_task(&self, id: TaskId) -> Result<Option<Observed>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "node": 1, "mtime": 1, "attempt": 1, "progress": 1 };
        if let Some((task, archived)) = self.stored_task::<Stored>(id, only.clone()).await? {
            let of = if archived { ARCHIVE.name } else { TASKS.name };
            return Ok(Some(Observed { task: typed(of, task)?, archived }));
        }
        let new = self.find_in_inbox(id, only).await?;
        new.map(|task| Ok(Observed { task: typed(INBOX.name, task)?, archived: false })).transpose()
    }

    /// What a task holds as its output: null, text, or the id of a file. `None`: there is no such task.
    #[operation(task = %id)]
    pub async fn task_output(&self, id: TaskId, stream: StreamName) -> Result<Option<Bson>, StoreError> {
        let found = self.stored_task::<Stored>(id, doc! { stream.as_str(): 1 }).await?;
        Ok(found.map(|(task, _)| output(task, stream)))
    }

    /// What is kept of the output of an earlier attempt, likewise. `None`: nothing is kept of such an attempt.
    #[operation(task = %id, attempt)]
    pub async fn attempt_output(
        &self,
        id: TaskId,
        attempt: i64,
        stream: StreamName,
    ) -> Result<Option<Bson>, StoreError> {
        let of_attempt = doc! { "task": id, "attempt": attempt };
        let found = self.attempts().find_one(of_attempt).projection(doc! { stream.as_str(): 1 }).await?;
        Ok(found.map(|attempt| output(attempt, stream)))
    }

    /// The ids of tasks as they change, and as their live output grows, from now on. A hint, not a record: a
    /// change that is told may be visible already, and one before this call is not told.
    ///
    /// # Errors
    /// The database cannot be reached, or has no change streams ([`StoreError::has_no_change_streams`]); within the stream
    /// when it is lost.
    #[operation]
    pub async fn task_changes(&self) -> Result<Rows<TaskId>, StoreError> {
        let of_interest = doc! { "$match": { "$or": [
            { "ns.coll": TASKS.name, "operationType": { "$in": ["insert", "update", "replace", "delete"] } },
            { "ns.coll": LIVE.name, "operationType": { "$in": ["insert", "update"] } },
        ] } };
        // Nothing of the tasks themselves, which may be large. The ids of live output name their task.
        let task = doc! { "$ifNull": ["$documentKey._id.task", "$documentKey._id"] };
        let only_ids = doc! { "$project": { "_id": 1, "task": task } };
        let changes = self.database().watch().pipeline([of_interest, only_ids]).await?;
        let ids = changes.with_type::<Document>().filter_map(|change| {
            std::future::ready(match change {
                Ok(change) => change.get_object_id("task").ok().map(|id| Ok(TaskId(id))),
                Err(error) => Some(Err(StoreError::from(error))),
            })
        });
        Ok(attended(ids))
    }

    /// Chosen fields of a task, also of one in the archive, with the output that comes while it runs. `None`: there is no such
    /// task.
    #[operation(task = %id)]
    pub async fn watch_fields(
        &self,
        id: TaskId,
        projection: &Document,
    ) -> Result<Option<Watched>, StoreError> {
        let Some(seen) = self.observe_task(id).await? else { return Ok(None) };
        let mut live = BTreeMap::new();
        for stream in StreamName::ALL {
            if seen.is_running() && projection.contains_key(stream.as_str()) {
                let of = LiveStream { task: id, attempt: seen.attempt(), stream };
                live.insert(stream, self.live_end(of).await?);
            }
        }
        let task = match self.find_task_fields(id, projection.clone()).await? {
            Some(task) => Some(task),
            None => self.find_in_inbox(id, projection.clone()).await?,
        };
        Ok(task.map(|task| Watched::of(task, &seen, live)))
    }

    /// Chosen fields of those of `tasks` that `filter` finds, also of those in the archive. `None`: they have more than
    /// `most` bytes.
    #[operation(tasks = tasks.len())]
    pub async fn chosen_fields_of(
        &self,
        tasks: &[TaskId],
        filter: Document,
        projection: &Document,
        most: usize,
    ) -> Result<Option<HashMap<TaskId, Chosen>>, StoreError> {
        let query = TaskQuery {
            filter: doc! { "$and": [{ "_id": { "$in": tasks } }, filter] },
            projection: Some(projection.clone()),
            archive: true,
            ..TaskQuery::default()
        };
        let mut found = self.stream_tasks(query).await?;
        let (mut chosen, mut bytes) = (HashMap::new(), 0_usize);
        while let Some(task) = found.try_next().await? {
            let Ok(id) = task.get_object_id("_id") else { continue };
            let (task, size) = Chosen::with_size(task);
            bytes = bytes.saturating_add(size);
            if bytes > most {
                return Ok(None);
            }
            chosen.insert(TaskId(id), task);
        }
        Ok(Some(chosen))
    }
}

fn output(mut of: Stored, stream: StreamName) -> Bson {
    of.remove(stream.as_str()).unwrap_or(Bson::Null)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn fields_are_the_same_if_nothing_in_them_has_changed() {
        let of = |fields: Document| {
            let mut task = doc! { "_id": ObjectId::new() };
            task.extend(fields);
            Chosen::with_size(task).0
        };
        let one = of(doc! { "status": 0, "progress": { "percent": 40 } });
        assert_eq!(one.seen, of(doc! { "progress": { "percent": 40 }, "status": 0 }).seen);
        assert_eq!(one.fields, doc! { "progress": { "percent": 40 }, "status": 0 });
        assert_eq!(one.seen.len(), DIGITS);
        for other in [
            doc! { "status": 0 },
            doc! { "status": 1, "progress": { "percent": 40 } },
            doc! { "status": 0, "progress": { "percent": 41 } },
            doc! { "status": 0, "progress": { "percent": 40 }, "result": Bson::Null },
        ] {
            assert_ne!(one.seen, of(other).seen);
        }
    }
}
