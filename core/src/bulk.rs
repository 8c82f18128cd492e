//! Bulk jobs: one action on many tasks, in the background, with progress, and finished by another DCI if the
//! one that took it dies.
//!
//! A job is a document of `bulk`. Whoever works on it holds its lease, by the server's clock, and renews it with
//! the progress after each batch, in one conditional update; that update also brings back whether the job has
//! been cancelled or taken over. Tasks are taken in the order of their ids, and `position` is the last one that
//! is done with; `pending` are the tasks of the batch that is being worked on. Whoever takes a job over tries those
//! again, which does no harm, as each action looks at the task's status, counts those that are done, and goes on behind them.

mod run;
mod select;

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_values::words;
pub use disbatch_wire::bulk::BulkAction as Action;
use mongodb::options::ReturnDocument;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use crate::model::{ArrayId, QueueId, TaskId};
use crate::paging::Position;
use crate::store::collections::BULK;
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, integer, put};
use crate::task::transition::server_time_in;

pub use run::{Rerun, Worker, follow};

/// How long a job is its DCI's without a sign of progress.
pub const LEASE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Queues {
    /// Of all queues, said in words.
    #[serde(rename = "*")]
    All,
    #[serde(untagged)]
    One(QueueId),
}

/// Which tasks. All that is given must be so. It is stored and shown as it is here.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkFilter {
    /// Of which queue; `None`: of any, as `ids` says which.
    pub queue: Option<Queues>,
    /// With one of these statuses. Empty: any that the action applies to; a retry leaves out those that
    /// succeeded.
    #[serde(rename = "status", skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<i64>,
    /// Not changed for so long.
    #[serde(with = "seconds")]
    pub older_than: Option<Duration>,
    pub ids: Option<Vec<TaskId>>,
    pub array: Option<ArrayId>,
    pub schedule: Option<ObjectId>,
    pub node: Option<String>,
    pub group: Option<String>,
    pub tenant: Option<String>,
    /// With all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// With one of these, if there are some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_tags: Vec<String>,
    /// Made at this time or later.
    pub created_since: Option<DateTime>,
    /// Made before this time.
    pub created_until: Option<DateTime>,
    /// Whether archived ones, too, if the action is for these: they are unless this is false.
    pub archive: Option<bool>,
    /// Also those that have succeeded, of which a retry leaves alone whose status nobody asks for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub succeeded: bool,
}

mod seconds {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Duration;

    pub fn serialize<S: Serializer>(age: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
        age.map(|age| age.as_secs_f64()).serialize(out)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(stored: D) -> Result<Option<Duration>, D::Error> {
        let age = Option::<f64>::deserialize(stored)?;
        age.map(Duration::try_from_secs_f64).transpose().map_err(D::Error::custom)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct BulkRequest {
    pub action: Action,
    pub filter: BulkFilter,
    pub reason: Option<String>,
    pub who: Actor,
    /// If it is more than an action.
    pub rerun: Option<Rerun>,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum State {
        /// It is worked on, or waits for someone to take it over.
        Running = "running",
        /// All tasks have been looked at.
        Done = "done",
        /// Somebody stopped it.
        Cancelled = "cancelled",
        /// The database refused it.
        Failed = "failed",
    }
}

/// A task that could not be acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkError {
    pub id: TaskId,
    pub error: String,
}

/// A document of `bulk`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkJob {
    #[serde(rename = "_id")]
    pub id: ObjectId,
    pub action: Action,
    /// The filter as it was asked for.
    pub filter: Document,
    pub reason: Option<String>,
    /// Who wanted it, in words.
    pub by: String,
    /// The same in parts, for the audit; empty in jobs of older releases.
    #[serde(default)]
    pub actor: Document,
    pub state: State,
    /// How many tasks matched when it was made; `None` if counting them took too long.
    pub total: Option<i64>,
    /// How many tasks it has changed.
    pub done: i64,
    /// How many needed nothing any more, or could not be acted on.
    pub skipped: i64,
    /// The first tasks that could not be acted on.
    pub errors: Vec<BulkError>,
    pub failure: Option<String>,
    /// The last task that was looked at.
    pub position: Option<ObjectId>,
    /// The tasks that are being acted on.
    pub pending: Vec<ObjectId>,
    /// The newest task that there was when the job was made; no later one is touched.
    pub newest: ObjectId,
    pub created: DateTime,
    /// When it last got on.
    pub updated: DateTime,
    /// Who works on it.
    pub instance: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Rerun>,
    /// How many tasks that come after those of a rerun wait for them again, when it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downstream: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BulkCancelled {
    /// It stops after the batch that it is at.
    Cancelled,
    NotRunning(State),
    NoSuchJob,
}

impl Store {
    /// Makes a job, whose worker `instance` is, and notes it in the audit. A note that cannot be made does not keep
    /// the job from being worked on.
    #[operation]
    pub async fn create_bulk(&self, request: &BulkRequest, instance: &str) -> Result<BulkJob, StoreError> {
        let total = self.count_bulk(request.action, &request.filter).await?;
        let newest = self.newest_task(request.filter.reaches_archive(request.action)).await?;
        let literal = |value: Bson| doc! { "$literal": value };
        let mut fields = doc! {
            "action": request.action.as_str(),
            "filter": literal(request.filter.document().into()),
            "reason": literal(request.reason.clone().map_or(Bson::Null, Bson::from)),
            "by": literal(request.who.words().into()),
            "actor": literal(request.who.document().into()),
            "state": State::Running.as_str(),
            "total": total.map_or(Bson::Null, Bson::from),
            "done": 0_i64, "skipped": 0_i64, "errors": [], "position": Bson::Null, "pending": [], "newest": newest,
            "created": "$$NOW", "updated": "$$NOW",
            "instance": literal(instance.into()), "lease_until": server_time_in(LEASE),
        };
        if let Some(rerun) = &request.rerun {
            let rerun =
                bson::serialize_to_bson(rerun).map_err(|error| StoreError::unfit(&error.to_string()))?;
            fields.insert("rerun", literal(rerun));
        }
        let id = ObjectId::new();
        let made = self
            .bulk()
            .find_one_and_update(doc! { "_id": id }, vec![doc! { "$set": fields }])
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        let job: BulkJob = typed(BULK.name, made.unwrap_or_default())?;
        self.note_audit(&job.audit_entry(Verb::Bulk(job.action))).await;
        Ok(job)
    }

    /// Jobs from a position on, the latest first unless they are read backwards.
    #[operation]
    pub async fn list_bulk(
        &self,
        position: Position<ObjectId>,
        limit: i64,
    ) -> Result<Vec<BulkJob>, StoreError> {
        let (filter, order) = match position {
            Position::First => (doc! {}, -1),
            Position::After(job) => (doc! { "_id": { "$lt": job } }, -1),
            Position::Before(job) => (doc! { "_id": { "$gt": job } }, 1),
        };
        let found = collect(self.bulk().find(filter).sort(doc! { "_id": order }).limit(limit)).await?;
        found.into_iter().map(|document| typed(BULK.name, document)).collect()
    }

    #[operation]
    pub async fn find_bulk(&self, id: ObjectId) -> Result<Option<BulkJob>, StoreError> {
        let found = self.bulk().find_one(doc! { "_id": id }).await?;
        found.map(|document| typed(BULK.name, document)).transpose()
    }

    /// Stops a job. What it has done stays done.
    #[operation]
    pub async fn cancel_bulk(&self, id: ObjectId, who: &Actor) -> Result<BulkCancelled, StoreError> {
        let running = doc! { "_id": id, "state": State::Running.as_str() };
        let by = doc! { "$literal": who.words() };
        let cancelled = doc! { "state": State::Cancelled.as_str(), "updated": "$$NOW", "cancelled_by": by };
        let Some(job) = self.change_bulk(running, cancelled).await? else {
            let state = self.find_bulk(id).await?.map(|job| job.state);
            return Ok(state.map_or(BulkCancelled::NoSuchJob, BulkCancelled::NotRunning));
        };
        let entry = job.audit_entry(Verb::BulkCancelled(job.action));
        self.note_audit(&AuditEntry { who: who.clone(), ..entry }).await;
        Ok(BulkCancelled::Cancelled)
    }

    /// Takes over a job whose worker has not been heard of for the length of its lease, if there is one.
    #[operation]
    pub async fn take_over_bulk(&self, instance: &str) -> Result<Option<BulkJob>, StoreError> {
        let abandoned = doc! {
            "state": State::Running.as_str(), "$expr": { "$lte": ["$lease_until", "$$NOW"] },
        };
        let take = doc! { "instance": { "$literal": instance }, "lease_until": server_time_in(LEASE) };
        self.change_bulk(abandoned, take).await
    }

    /// Changes a job that is like this, and returns what it is then. `None`: there is none.
    async fn change_bulk(&self, like: Document, change: Document) -> Result<Option<BulkJob>, StoreError> {
        let bulk = self.bulk();
        let changed = bulk.find_one_and_update(like, vec![doc! { "$set": change }]);
        let changed = changed.return_document(ReturnDocument::After).await?;
        changed.map(|document| typed(BULK.name, document)).transpose()
    }
}

impl BulkJob {
    /// The filter, with the number of ids in place of the ids.
    pub fn short_filter(&self) -> Document {
        let mut filter = self.filter.clone();
        put(&mut filter, "ids", self.filter.get_array("ids").ok().map(|ids| integer(ids.len())));
        filter
    }

    fn audit_entry(&self, what: Verb) -> AuditEntry {
        let mut more = doc! { "filter": self.short_filter(), "count": self.total, "job": self.id };
        put(&mut more, "reason", self.reason.as_ref());
        if self.state != State::Running {
            more.extend(doc! { "state": self.state.as_str(), "done": self.done, "skipped": self.skipped });
        }
        let who = Actor::stored(&self.actor, &self.by);
        let queue = self.filter.get_object_id("queue").ok().map(QueueId);
        AuditEntry { queue, more, ..AuditEntry::new(who, what, Object::with_id(ObjectKind::Bulk, self.id)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_apply_to_the_live_or_to_the_ended() {
        for status in -8..=99 {
            let live = matches!(status, -7 | -4 | -2 | -1 | 0);
            assert_eq!(Action::Cancel.applies_to(status), live, "{status}");
            for action in [Action::Retry, Action::Archive, Action::Delete] {
                assert_eq!(action.applies_to(status), !live && status != -8, "{status}");
            }
        }
    }

    #[test]
    fn actions_are_named() {
        for action in Action::ALL {
            assert_eq!(Action::named(action.as_str()), Some(action));
            assert_eq!(Bson::from(action.as_str()), bson::serialize_to_bson(&action).unwrap());
        }
        assert_eq!(Action::named("drop"), None);
    }
}
