//! What tasks come to, from the server's log of changes, in its order.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use disbatch_operation::operation;
use mongodb::options::ChangeStreamOptions;
use serde::Deserialize;

use super::state::Position;
use super::{About, End, QUEUE};
use crate::inbox::REFUSED;
use crate::model::{SHADOW_OF, Status, TaskId, whole_number};
use crate::observe::{AWAIT, Changes, LOST, text_of, time_of};
use crate::store::{Store, StoreError, collect};
use crate::tags::{self, TAGS};

/// An entry of a history is that of a change if their times are so near to each other.
const SAME: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// What happened then is not kept any more.
    #[error("the database's log of changes does not reach back so far")]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FollowError {
    fn of(error: mongodb::error::Error) -> Self {
        let error = StoreError::from(error);
        match error.write_failure() {
            Some(failure) if LOST.contains(&failure.code) => Self::Lost,
            _ => Self::Store(error),
        }
    }
}

#[derive(Debug)]
pub struct Follower {
    changes: Changes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    pub position: Position,
    task: ObjectId,
    status: Status,
    attempt: i64,
    at: DateTime,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "_id")]
    token: Token,
    time: Timestamp,
    task: ObjectId,
    status: Bson,
    /// By the clock of the server. Before MongoDB 6.0 it does not tell.
    at: Option<DateTime>,
    /// The new entries of its history, each as the `v` of a document.
    entries: Option<Vec<Document>>,
    /// All of it, where the log has nothing less: it has become too long, or the document was replaced.
    history: Option<Vec<Bson>>,
    /// Whether the whole document was replaced, so that its status may be as it was before.
    #[serde(default)]
    replaced: bool,
}

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "_data")]
    data: String,
}

impl Followed {
    fn of(change: Document) -> Option<Self> {
        let change: Change = bson::deserialize_from_document(change).ok()?;
        let status = Status::from_code(whole_number(&change.status)?);
        let is_this = |entry: &&Document| entry.get("status").and_then(whole_number) == Some(status.code());
        let mut new = change.entries.iter().flatten().filter_map(|entry| entry.get_document("v").ok());
        let mut all = change.history.iter().flatten().filter_map(Bson::as_document);
        let entry = new.rfind(is_this).or_else(|| all.rfind(is_this));
        let time = i64::from(change.time.time) * 1000;
        if change.replaced {
            let at = entry?.get_datetime("at").ok()?.timestamp_millis();
            if u128::from(time.abs_diff(at)) > SAME.as_millis() {
                return None; // It had this status already.
            }
        }
        Some(Self {
            position: Position { time: change.time, token: change.token.data },
            task: change.task,
            status,
            attempt: entry.and_then(|entry| entry.get("attempt")).and_then(whole_number).unwrap_or(0),
            at: change.at.unwrap_or(DateTime::from_millis(time + 999)),
        })
    }

    /// Whether it is a success, which few want to know.
    pub fn is_success(&self) -> bool {
        self.status == Status::Succeeded
    }

    /// The task, if it has ended for good with what its plugin came to, or took too long.
    pub fn ended(&self) -> Option<TaskId> {
        let is_end = self.status.code() >= 1 || self.status == Status::Terminated;
        is_end.then_some(TaskId(self.task))
    }
}

impl Store {
    /// Follows what tasks come to from this time on.
    ///
    /// # Errors
    /// The log does not reach back so far; the database cannot be reached, or has no change streams
    /// ([`StoreError::has_no_change_streams`]).
    #[operation]
    pub async fn follow_ends(&self, since: Timestamp) -> Result<Follower, FollowError> {
        let ends = [Status::Orphaned, Status::Terminated];
        // What is deferred anew, as it waits for a lock for instance, has not failed once more.
        let failed_again =
            |field: &str, failures: &str| doc! { field: Status::Deferred, failures: { "$exists": true } };
        let followed = |fields: &str| {
            let (status, failures) = (format!("{fields}.status"), format!("{fields}.failures"));
            doc! { "$or": [
                { &status: { "$gte": 1 } }, { &status: { "$in": ends.to_vec() } }, failed_again(&status, &failures),
            ] }
        };
        let updated = |name: &str| format!("$updateDescription.updatedFields.{name}");
        let now = |name: &str| doc! { "$ifNull": [updated(name), format!("$fullDocument.{name}")] };
        let is_of_history = doc! { "$eq": [{ "$substrCP": ["$$this.k", 0, 8] }, "history."] };
        let entries = doc! { "$filter": {
            "input": { "$objectToArray": "$updateDescription.updatedFields" }, "cond": is_of_history,
        } };
        let pipeline = vec![
            doc! { "$match": { "$or": [
                { "$and": [{ "operationType": "update" }, followed("updateDescription.updatedFields")] },
                { "$and": [{ "operationType": "replace" }, followed("fullDocument")] },
                // What the inbox refuses begins with its end.
                { "operationType": "insert", format!("fullDocument.{REFUSED}"): { "$exists": true } },
            ] } },
            doc! { "$project": {
                "task": "$documentKey._id", "time": "$clusterTime", "status": now("status"), "at": "$wallTime",
                "entries": entries, "history": now("history"), "replaced": { "$eq": ["$operationType", "replace"] },
            } },
        ];
        let options =
            ChangeStreamOptions::builder().start_at_operation_time(since).max_await_time(AWAIT).build();
        let changes = Changes::open(self, pipeline, options).await.map_err(FollowError::of)?;
        Ok(Follower { changes })
    }

    /// What the tasks of these changes have come to, as far as it is to be told: those of tasks that are gone are not, nor are those
    /// of tasks that deliver messages, nor attempts that have failed and are repeated, nor tasks whose end somebody wanted.
    #[operation(changes = changes.len())]
    pub async fn describe_ends(&self, changes: &[Followed]) -> Result<Vec<(Position, End)>, StoreError> {
        let tasks: Vec<ObjectId> = changes.iter().map(|change| change.task).collect();
        let fields = ["queue", "schedule", "tenant", TAGS, "cancel", SHADOW_OF];
        let known = self.tasks_by_id(&tasks, &fields).await?;
        let died = self.died(changes).await?;
        let end = |change: &Followed| {
            let task = known.get(&change.task)?;
            let queue = task.get_object_id("queue").ok().filter(|queue| *queue != QUEUE.0)?;
            if task.contains_key(SHADOW_OF) {
                return None;
            }
            let is_told = match change.status {
                Status::Deferred => died.contains(&(change.task, change.attempt)),
                Status::Terminated => !matches!(task.get("cancel"), Some(Bson::Document(_))),
                _ => true, // Nothing else is followed.
            };
            let about =
                About { queue: Some(queue), schedule: task.get_object_id("schedule").ok(), node: None };
            let tenant = task.get_str("tenant").ok().map(str::to_owned);
            let tags = tags::stored(task.get(TAGS));
            let end = End { about, tenant, tags, task: change.task, at: change.at, status: change.status };
            is_told.then(|| (change.position.clone(), end))
        };
        Ok(changes.iter().filter_map(end).collect())
    }

    /// Which attempts have ended because their runners died, of tasks that are tried again.
    async fn died(&self, changes: &[Followed]) -> Result<HashSet<(ObjectId, i64)>, StoreError> {
        let again = changes.iter().filter(|change| change.status == Status::Deferred);
        let again: Vec<Document> =
            again.map(|change| doc! { "task": change.task, "attempt": change.attempt }).collect();
        if again.is_empty() {
            return Ok(HashSet::new());
        }
        let died = doc! { "$or": again, "status": Status::Orphaned };
        let found = collect(self.attempts().find(died).projection(doc! { "task": 1, "attempt": 1 })).await?;
        let attempt = |found: &Document| {
            Some((found.get_object_id("task").ok()?, found.get("attempt").and_then(whole_number)?))
        };
        Ok(found.iter().filter_map(attempt).collect())
    }
}

impl Follower {
    /// The changes that there are by now, up to `most`. One that cannot be read is none.
    #[operation]
    pub async fn followed(&mut self, most: usize) -> Result<Vec<Followed>, FollowError> {
        let mut found = Vec::new();
        while found.len() < most {
            let next = self.changes.next().await.map_err(FollowError::of)?;
            let Some(change) = next else { break };
            found.extend(Followed::of(change));
        }
        Ok(found)
    }

    /// After all that was returned, and after what is not followed.
    pub fn position(&self) -> Option<Position> {
        let token = text_of(&self.changes.place()?)?;
        Some(Position { time: time_of(&token)?, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attempt_is_that_of_the_new_entry() {
        let task = ObjectId::new();
        let mut change = doc! {
            "_id": { "_data": "82AA" }, "time": Timestamp { time: 7, increment: 1 }, "task": task, "status": -7,
            "entries": [
                { "k": "history.2", "v": { "status": 0, "attempt": 1 } }, { "k": "history.3", "v": { "status": -7_i64, "attempt": 2 } },
            ],
        };
        let followed = Followed::of(change.clone()).unwrap();
        assert_eq!(
            (followed.attempt, followed.status, followed.at.timestamp_millis()),
            (2, Status::Deferred, 7_999)
        );
        // A history that is as long as it may be comes as a whole, as it does where the document was replaced.
        let at = |seconds: i64| DateTime::from_millis(seconds * 1000);
        change.insert("entries", Bson::Null);
        change.insert("history", vec![doc! { "status": -7, "attempt": 3, "at": at(8) }]);
        assert_eq!(Followed::of(change.clone()).unwrap().attempt, 3);
        change.insert("replaced", true);
        assert_eq!(Followed::of(change.clone()).unwrap().attempt, 3);
        change.insert("history", vec![doc! { "status": -7, "attempt": 3, "at": at(1) }]);
        assert_eq!(Followed::of(change.clone()), None, "it was deferred before");
        change.insert("task", "no id");
        assert_eq!(Followed::of(change), None);
    }
}
