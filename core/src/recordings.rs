//! Recordings: what an attempt was given, and what it did, in `tasks.recordings`, for [bundles](disbatch_wire::bundles).
//!
//! A runner makes the recording of an attempt that its queue wants recorded ([`Sample`](crate::model::Sample)), and has it stored beside the end
//! of the attempt, with those of others that end at the same time. Nothing depends on it: one that cannot be stored is lost. Its text is JSON, and not a document, as
//! it has values of others whose fields may be called anything.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use disbatch_wire::bundles::Recording;
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::options::{Acknowledgment, WriteConcern};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::model::{PLUGIN_VERSION, QueueId, STEPS, Status, Step, TaskId};
use crate::secrets::SHOWN;
use crate::store::collections::RECORDINGS;
use crate::store::{Store, StoreError};
use crate::task::{ERROR, Run, commit_name, of_runs};

/// How long the end of an attempt waits for its recording to be stored.
const KEEPING_TAKES: Duration = Duration::from_secs(5);

/// What was recorded of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The [`Recording`] as JSON.
    pub text: String,
    /// For how long it is kept, in milliseconds.
    pub keep_ms: i64,
}

impl Recorded {
    fn document(&self, run: &Run, now: DateTime) -> Document {
        let keep = Duration::from_millis(u64::try_from(self.keep_ms).unwrap_or(0));
        doc! {
            "_id": commit_name(run.task, run.attempt), "task": run.task, "attempt": run.attempt, "queue": run.queue,
            "at": now, "expires": DateTime::from(now.to_system_time() + keep), "recording": &self.text,
        }
    }
}

/// Which attempt was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordedAttempt {
    pub task: TaskId,
    pub attempt: i64,
    /// When it had ended.
    pub at: DateTime,
    /// Until when the recording is kept.
    pub expires: DateTime,
}

impl Store {
    /// Keeps what was recorded of runs that end, in one command, if that can be done: their ends do not depend on it. May be repeated.
    pub(crate) async fn keep_recordings(&self, recorded: Vec<(&Run, &Recorded)>) {
        let now = self.now();
        let documents: Vec<_> =
            recorded.into_iter().map(|(run, recorded)| recorded.document(run, now)).collect();
        if documents.is_empty() {
            return;
        }
        let count = documents.len();
        // A majority would only be waited for: who asks for a recording reads what the primary has.
        let once = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let recordings = self.recordings();
        let inserting = recordings.insert_many(documents).ordered(false).write_concern(once);
        match timeout(KEEPING_TAKES, inserting).await.map(|done| done.map_err(StoreError::from)) {
            Ok(Ok(_)) => {}
            // They were stored, and the answer was lost.
            Ok(Err(error)) if error.is_duplicate_only() => {}
            Ok(Err(error)) => tracing::warn!(%error, count, "recordings of attempts are lost"),
            Err(_) => tracing::warn!(count, "recordings of attempts are lost: to store them takes too long"),
        }
    }

    /// What was recorded of an attempt. `None`: it was not, or the time is over for which it was kept.
    #[operation(%task, attempt)]
    pub async fn find_recording(&self, task: TaskId, attempt: i64) -> Result<Option<Recording>, StoreError> {
        let found = self.recordings().find_one(doc! { "_id": commit_name(task, attempt) }).await?;
        let Some(document) = found else { return Ok(None) };
        let text = document.get_str("recording").unwrap_or_default();
        match serde_json::from_str(text) {
            Ok(recording) => Ok(Some(recording)),
            Err(error) => {
                tracing::warn!(%error, %task, attempt, "ignoring a recording that cannot be read");
                Ok(None)
            }
        }
    }

    /// The attempts of a queue that were recorded, the latest first, at most so many.
    #[operation(%queue, limit)]
    pub async fn list_recordings(
        &self,
        queue: QueueId,
        limit: i64,
    ) -> Result<Vec<RecordedAttempt>, StoreError> {
        let found = self.recordings().clone_with_type::<RecordedAttempt>();
        let found = found.find(doc! { "queue": queue }).sort(doc! { "at": -1 }).limit(limit);
        let shown = doc! { "_id": 0, "task": 1, "attempt": 1, "at": 1, "expires": 1 };
        Ok(found.projection(shown).await?.try_collect().await?)
    }

    /// Forgets those of tasks that are gone. Without the right to do so, the server does it when their time is over.
    pub(crate) async fn forget_recordings(&self, tasks: &[Bson]) -> Result<(), StoreError> {
        match self.recordings().delete_many(doc! { "task": { "$in": tasks } }).await.map_err(StoreError::from)
        {
            Err(error) if error.is_forbidden() => Ok(()),
            deleted => deleted.map(|_| ()),
        }
    }

    fn recordings(&self) -> Collection<Document> {
        self.database().collection(RECORDINGS.name)
    }
}

/// What came of a task, and how it was run: nothing that an attempt is given.
const OUTCOME: [&str; 8] = ["result", "exit", ERROR, "complete", "history", "archived", "aside", SHOWN];

/// What an attempt was given that was not recorded, as far as its task still tells. It ran in this version of its plugin, if one was chosen.
pub fn input_of(mut task: Document, attempt: i64, version: Option<&str>) -> Document {
    for field in OUTCOME.into_iter().chain(of_runs()).chain([PLUGIN_VERSION]) {
        task.remove(field);
    }
    if let Some(version) = version {
        task.insert(PLUGIN_VERSION, version);
    }
    if let Ok(steps) = Step::of_field(task.get(STEPS))
        && !steps.is_empty()
    {
        task.insert(STEPS, steps.iter().map(Step::field).collect::<Vec<_>>());
    }
    task.extend(
        doc! { "status": Status::Running, "stdout": Bson::Null, "stderr": Bson::Null, "attempt": attempt },
    );
    task
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_a_task_was_not_its_input() {
        let task = doc! {
            "_id": 1, "status": 2, "params": { "a": 1 }, "stdout": "x", "stderr": "y", "attempt": 3, "exit": { "code": 1 },
            "result": {}, "history": [], "progress": {}, "lease_until": 1, "has_secure_params": true, "tags": ["t"],
            "plugin_version": "3",
            "steps": [{ "name": "get", "params": {}, "status": 1, "exit": {} }],
        };
        let mut expected = doc! {
            "_id": 1, "status": 0, "params": { "a": 1 }, "stdout": Bson::Null, "stderr": Bson::Null, "attempt": 2_i64, "tags": ["t"],
            "steps": [{ "name": "get", "params": {}, "status": -2 }],
        };
        assert_eq!(input_of(task.clone(), 2, None), expected);
        expected.insert("plugin_version", "2");
        assert_eq!(input_of(task, 2, Some("2")), expected);
    }
}
