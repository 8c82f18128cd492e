//! Chosen fields of tasks, and whether they have changed since somebody has seen them.

use disbatch_operation::operation;
use std::collections::{BTreeMap, HashMap};

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use sha2::{Digest, Sha256};

use super::Observed;
use crate::live::LiveStream;
use crate::model::TaskId;
use crate::output::StreamName;
use crate::store::{Store, StoreError};
use crate::task::TaskQuery;

/// What tells one state of the fields from another has so many digits.
const DIGITS: usize = 32;

/// Chosen fields of a task at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    pub fields: Document,
    /// Tells whether they are the same at another moment: it is the same then.
    pub seen: String,
}

impl Chosen {
    /// Fields of a task as they were read.
    fn of(task: Document) -> Self {
        Self::with_size(task).0
    }

    /// The same, and how many bytes they have.
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
        let mut chosen = Chosen::of(task);
        if live.values().any(|bytes| *bytes > 0) {
            let told = format!("{} {} {live:?}", chosen.seen, seen.attempt());
            chosen.seen = digits(told.as_bytes());
        }
        Self { chosen, ended: seen.task.status.has_ended(), live }
    }
}

/// Tells some bytes from others.
fn digits(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hash.chars().take(DIGITS).collect()
}

impl Store {
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
        for stream in StreamName::BOTH {
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
        let ids: Vec<Bson> = tasks.iter().map(|id| Bson::from(*id)).collect();
        let query = TaskQuery {
            filter: doc! { "$and": [{ "_id": { "$in": ids } }, filter] },
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

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn fields_are_the_same_if_nothing_in_them_has_changed() {
        let of = |fields: Document| {
            let mut task = doc! { "_id": ObjectId::new() };
            task.extend(fields);
            Chosen::of(task)
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
