//! Changes of the statuses of tasks, each of them and in their order: what a program follows that may miss none. They come from the
//! server's log of changes, so a follower who comes back goes on where he was, for as long as the log reaches back.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::change_stream::event::ResumeToken;
use mongodb::options::{ChangeStreamOptions, FullDocumentType};
use serde::Deserialize;

use super::changes::{Changes, text_of};
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError, all_of};
use crate::tags::TAGS;
use crate::task::archive;

/// 286: the log does not reach back so far any more. 136: it has gone round meanwhile.
pub(crate) const LOST: [i32; 2] = [286, 136];

/// How long the server looks for another change before it says that there is none. A connection to the database is not kept while
/// a follower waits, as there may be more followers than connections.
pub(crate) const AWAIT: Duration = Duration::from_millis(1);

/// Which changes a follower gets. What is not given restricts nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeedFilter {
    pub queues: Option<Vec<QueueId>>,
    /// Only tasks of these queues, and those of these tenants in whatever queue.
    pub within: Option<(Vec<QueueId>, Vec<String>)>,
    /// The status to which it has changed.
    pub statuses: Vec<i64>,
    /// Only changes that are the end of a task.
    pub ended: bool,
    pub schedule: Option<ObjectId>,
    pub group: Option<String>,
    pub tenant: Option<String>,
    /// As [`crate::tags::query`] says it.
    pub tags: Option<Document>,
}

impl FeedFilter {
    fn query(&self) -> Document {
        let of = |queues: &[QueueId]| doc! { "queue": { "$in": queues } };
        let mut all: Vec<Document> = self.queues.iter().map(|queues| of(queues)).collect();
        if let Some((queues, tenants)) = &self.within {
            all.push(doc! { "$or": [of(queues), { "tenant": { "$in": tenants } }] });
        }
        if !self.statuses.is_empty() {
            all.push(doc! { "status": { "$in": &self.statuses } });
        }
        if self.ended {
            all.push(archive::ended());
        }
        all.extend(self.schedule.map(|schedule| doc! { "schedule": schedule }));
        all.extend(self.tags.clone());
        for (name, value) in [("group", &self.group), ("tenant", &self.tenant)] {
            all.extend(value.as_ref().map(|value| doc! { name: value }));
        }
        all_of(all)
    }
}

/// A place in the log of changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Position(ResumeToken);

impl Position {
    /// Reads what [`Position::text`] wrote. `None`: nothing that a server could have made.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = (16..=4096).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let token = is_one.then(|| bson::deserialize_from_bson(doc! { "_data": text }.into()))?;
        token.ok().map(Self)
    }

    /// As a word of hexadecimal digits.
    pub fn text(&self) -> Option<String> {
        text_of(&self.0)
    }
}

/// What a task has changed to. What could not be read, or was deleted meanwhile, is not there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StatusChange {
    pub task: TaskId,
    pub status: Status,
    pub queue: Option<Bson>,
    pub node: Option<Bson>,
    pub attempt: Option<Bson>,
    pub mtime: Option<Bson>,
    pub schedule: Option<Bson>,
    pub group: Option<Bson>,
    pub tenant: Option<Bson>,
    pub tags: Option<Bson>,
}

/// Why there is no feed.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The changes after this position are not kept any more.
    #[error("what happened after this event is no longer kept by the database")]
    Lost,
    /// The database cannot read this position.
    #[error("this is no id of an event of this database")]
    Position,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The changes that a follower gets.
#[derive(Debug)]
pub struct Feed {
    changes: Changes,
}

impl Store {
    /// The changes of tasks after `position`, or from now on.
    ///
    /// # Errors
    /// The log does not reach back to `position`, or `position` is none; the database cannot be reached, or has no change streams
    /// ([`StoreError::has_no_change_streams`]).
    #[operation]
    pub async fn feed(&self, filter: &FeedFilter, position: Option<Position>) -> Result<Feed, FeedError> {
        let changed = doc! { "$or": [
            { "operationType": { "$in": ["insert", "replace"] } },
            { "operationType": "update", "updateDescription.updatedFields.status": { "$exists": true } },
        ] };
        // The task as it is when this is read may be further than this change of it.
        let then = |name: &str| doc! { "$ifNull": [format!("$updateDescription.updatedFields.{name}"), format!("$fullDocument.{name}")] };
        let mut fields = doc! { "task": "$documentKey._id" };
        for name in ["status", "node", "attempt", "mtime"] {
            fields.insert(name, then(name));
        }
        for name in ["queue", "schedule", "group", "tenant", TAGS] {
            fields.insert(name, format!("$fullDocument.{name}"));
        }
        let pipeline =
            vec![doc! { "$match": changed }, doc! { "$project": fields }, doc! { "$match": filter.query() }];
        let asked = position.is_some();
        let options = ChangeStreamOptions::builder()
            .full_document(FullDocumentType::UpdateLookup)
            .max_await_time(AWAIT)
            .resume_after(position.map(|Position(token)| token))
            .build();
        let changes = Changes::open(self, pipeline, options).await.map_err(|error| {
            let error = StoreError::from(error);
            match error.write_failure() {
                Some(failure) if LOST.contains(&failure.code) => FeedError::Lost,
                Some(_) if asked && !error.is_transient() && !error.has_no_change_streams() => {
                    FeedError::Position
                }
                _ => FeedError::Store(error),
            }
        })?;
        Ok(Feed { changes })
    }
}

impl Feed {
    /// The next change, if there is one by now. One that cannot be read is none.
    ///
    /// # Errors
    /// The database cannot be reached, or the log has been overtaken.
    #[operation]
    pub async fn next_change(&mut self) -> Result<Option<StatusChange>, StoreError> {
        while let Some(change) = self.changes.next().await? {
            match bson::deserialize_from_document(change) {
                Ok(change) => return Ok(Some(change)),
                Err(error) => {
                    tracing::warn!(%error, "a change of a task cannot be read, followers do not get it")
                }
            }
        }
        Ok(None)
    }

    /// After all that [`Feed::next_change`] returned, and after what the filter left out.
    pub fn position(&self) -> Option<Position> {
        self.changes.place().map(Position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_were_written() {
        let text = "8269226F0B000000012B042C0100296E5A1004";
        assert_eq!(Position::parse(text).unwrap().text().unwrap(), text);
        for strange in ["", "attempt:1", "82", "8269226F0B000000012B042C0100296E5A100x", &"8".repeat(5000)] {
            assert_eq!(Position::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_filter_asks_for_what_was_given() {
        assert_eq!(FeedFilter::default().query(), doc! {});
        let (queue, schedule) = (ObjectId::new(), ObjectId::new());
        let filter = FeedFilter {
            queues: Some(vec![QueueId(queue)]),
            statuses: vec![1, -6],
            schedule: Some(schedule),
            group: Some("g".to_owned()),
            tags: Some(doc! { "tags": { "$all": ["a"] } }),
            within: Some((vec![], vec!["t".to_owned()])),
            ..FeedFilter::default()
        };
        let none: [ObjectId; 0] = [];
        assert_eq!(
            filter.query(),
            doc! { "$and": [
                { "queue": { "$in": [queue] } },
                { "$or": [{ "queue": { "$in": none } }, { "tenant": { "$in": ["t"] } }] },
                { "status": { "$in": [1_i64, -6_i64] } },
                { "schedule": schedule },
                { "tags": { "$all": ["a"] } },
                { "group": "g" },
            ] }
        );
    }
}
