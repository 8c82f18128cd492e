//! Recordings: what an attempt was given, and what it did, in `tasks.recordings`, for [bundles](disbatch_wire::bundles).
//!
//! A runner makes the recording of an attempt that its queue wants recorded ([`Sample`](crate::model::Sample)), and has it stored beside the end
//! of the attempt, with those of others that end at the same time. Nothing depends on it: one that cannot be stored is lost. Its text is JSON, and not a document, as
//! it has values of others whose fields may be called anything.
//!
//! Most of it is the same for all attempts of a queue on a node. That is a document of its own, a [`CommonPart`], which recordings name. Its id has the sum of its text and the
//! day on which it goes: so nobody changes it, and whoever stores it again stores the same. A recording names one that a majority has, and goes before it does. Where it cannot
//! be stored a recording is whole, as all were in earlier releases.

use std::time::Duration;

use bson::raw::{CString, cstr};
use bson::{Bson, DateTime, Document, Regex, doc};
use disbatch_operation::operation;
use disbatch_wire::bundles::Recording;
use futures::TryStreamExt;
use mongodb::options::WriteConcern;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::model::{PLUGIN_VERSION, QueueId, STEPS, Status, Step, TaskId};
use crate::secrets::SHOWN;
use crate::store::{Store, StoreError, of_millis, put, with};
use crate::task::{ERROR, Run, commit_name, of_runs};
use crate::text::hex;

/// How long the end of an attempt waits for its recording to be stored.
const KEEPING_TAKES: Duration = Duration::from_secs(5);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The [`Recording`] as JSON, without what is in `common`.
    pub text: String,
    /// For how long it is kept, in milliseconds.
    pub keep_ms: i64,
    /// None: all of it is in `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common: Option<CommonPart>,
}

/// Where it is stored what recordings have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonPart {
    /// The SHA-256 sum of its text, in hexadecimal.
    sha256: String,
    /// Recordings that name it are kept until this day since 1970 begins, and it for a day longer.
    day: i64,
}

impl CommonPart {
    /// That of this text, for recordings that are kept for so long from now on, and for those of the rest of the day.
    pub fn new(text: &str, now: DateTime, keep_ms: i64) -> Self {
        let day = now.timestamp_millis().saturating_add(keep_ms).div_euclid(DAY_MS).saturating_add(1);
        Self { sha256: hex(Sha256::digest(text.as_bytes())), day }
    }

    /// Whether a recording that is kept for so long from now on may name it.
    pub fn outlives(&self, now: DateTime, keep_ms: i64) -> bool {
        now.timestamp_millis().saturating_add(keep_ms) <= self.until().timestamp_millis()
    }

    fn id(&self) -> String {
        format!("{}.{}", self.sha256, self.day)
    }

    /// Until when recordings are kept that name it.
    fn until(&self) -> DateTime {
        DateTime::from_millis(self.day.saturating_mul(DAY_MS))
    }

    fn document(&self, text: &str) -> Document {
        let expires = DateTime::from_millis(self.day.saturating_add(1).saturating_mul(DAY_MS));
        doc! { "_id": self.id(), "expires": expires, "recording": text }
    }
}

impl Recorded {
    fn document(&self, run: &Run, now: DateTime) -> Document {
        let expires = DateTime::from(now.to_system_time() + of_millis(self.keep_ms));
        let mut document = doc! {
            "_id": commit_name(run.task, run.attempt), "task": run.task, "attempt": run.attempt, "queue": run.queue,
            "at": now, "expires": expires, "recording": &self.text,
        };
        if let Some(common) = &self.common {
            // It may have taken days until the end could be stored.
            document.extend(doc! { "common": common.id(), "expires": expires.min(common.until()) });
        }
        document
    }
}

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
        let recordings = self.recordings();
        let inserting =
            recordings.insert_many(documents).ordered(false).write_concern(WriteConcern::nodes(1));
        match timeout(KEEPING_TAKES, inserting).await.map(|done| done.map_err(StoreError::from)) {
            Ok(Ok(_)) => {}
            // They were stored, and the answer was lost.
            Ok(Err(error)) if error.is_duplicate_only() => {}
            Ok(Err(error)) => tracing::warn!(%error, count, "recordings of attempts are lost"),
            Err(_) => tracing::warn!(count, "recordings of attempts are lost: to store them takes too long"),
        }
    }

    /// Keeps what recordings have in common. Tells whether a majority has it: then recordings may name it. May be repeated.
    #[operation]
    pub async fn keep_common(&self, part: &CommonPart, text: &str) -> bool {
        let recordings = self.recordings();
        let inserting = recordings.insert_many([part.document(text)]).write_concern(WriteConcern::majority());
        match timeout(KEEPING_TAKES, inserting).await.map(|done| done.map_err(StoreError::from)) {
            Ok(Ok(_)) => return true,
            // The server has waited for a majority all the same.
            Ok(Err(error)) if error.is_duplicate_only() => return true,
            Ok(Err(error)) => tracing::warn!(%error, "cannot store what recordings have in common"),
            Err(_) => tracing::warn!("to store what recordings have in common takes too long"),
        }
        false
    }

    /// What was recorded of an attempt. `None`: it was not, or the time is over for which it was kept.
    #[operation(%task, attempt)]
    pub async fn find_recording(&self, task: TaskId, attempt: i64) -> Result<Option<Recording>, StoreError> {
        let found = self.recordings().find_one(doc! { "_id": commit_name(task, attempt) }).await?;
        let Some(own) = found else { return Ok(None) };
        let recording = match own.get_str("common") {
            Err(_) => read(&own),
            Ok(common) => match self.recordings().find_one(doc! { "_id": common }).await? {
                Some(part) => read(&own).and_then(|own| Ok(own.with(read(&part)?))),
                None => {
                    tracing::warn!(%task, attempt, common, "ignoring a recording: what it has in common with others is gone");
                    return Ok(None);
                }
            },
        };
        let odd = |error: &serde_json::Error| {
            tracing::warn!(%error, %task, attempt, "ignoring a recording that cannot be read");
        };
        Ok(recording.inspect_err(odd).ok())
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
        // Ids begin with those of tasks, so there is no index for it.
        let of_task = |task| {
            let pattern = CString::try_from(format!("^{task}\\.")).ok()?;
            Some(Regex { pattern, options: cstr!("").into() })
        };
        let ids: Vec<Regex> = tasks.iter().filter_map(Bson::as_object_id).filter_map(of_task).collect();
        StoreError::unless_forbidden(self.recordings().delete_many(doc! { "_id": { "$in": ids } }).await)?;
        Ok(())
    }
}

fn read(document: &Document) -> serde_json::Result<Recording> {
    serde_json::from_str(document.get_str("recording").unwrap_or_default())
}

/// What came of a task, and how it was run: nothing that an attempt is given.
const OUTCOME: [&str; 8] = ["result", "exit", ERROR, "complete", "history", "archived", "aside", SHOWN];

/// What an attempt was given that was not recorded, as far as its task still tells. It ran in this version of its plugin, if one was chosen.
pub fn input_of(mut task: Document, attempt: i64, version: Option<&str>) -> Document {
    for field in OUTCOME.into_iter().chain(of_runs()).chain([PLUGIN_VERSION]) {
        task.remove(field);
    }
    put(&mut task, PLUGIN_VERSION, version);
    if let Ok(steps) = Step::of_field(task.get(STEPS))
        && !steps.is_empty()
    {
        task.insert(STEPS, steps.iter().map(Step::field).collect::<Vec<_>>());
    }
    let running =
        doc! { "status": Status::Running, "stdout": Bson::Null, "stderr": Bson::Null, "attempt": attempt };
    with(task, running)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use proptest::prelude::*;

    use super::*;
    use crate::model::NodeName;

    proptest! {
        #[test]
        fn a_recording_goes_a_day_before_what_it_names(
            now in 0..4_000_000_000_000_i64,
            keep_ms in 1..3651 * DAY_MS,
            late in 0..10 * DAY_MS,
        ) {
            let at = DateTime::from_millis;
            let part = CommonPart::new("text", at(now), keep_ms);
            prop_assert!(part.outlives(at(now), keep_ms) && !part.outlives(at(now + DAY_MS + 1), keep_ms));
            let (id, node) = (ObjectId::from_bytes([1; 12]), NodeName::new("n"));
            let run = Run { task: TaskId(id), queue: QueueId(id), node, attempt: 2, instance: None };
            let recorded = Recorded { text: "own".to_owned(), keep_ms, common: Some(part.clone()) };
            let (own, common) = (recorded.document(&run, at(now + late)), part.document("text"));
            let expires = |document: &Document| document.get_datetime("expires").unwrap().timestamp_millis();
            prop_assert!(expires(&own) + DAY_MS <= expires(&common), "{own} {common}");
            prop_assert!(expires(&own) >= now + keep_ms, "{own}");
            prop_assert_eq!(own.get("common"), common.get("_id"));
        }
    }

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
