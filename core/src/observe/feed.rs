//! Changes of the statuses of tasks, each of them and in their order: what a program follows that may miss none. They come from the
//! server's log of changes, so a follower who comes back goes on where he was, for as long as the log reaches back.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, Timestamp, doc};
use disbatch_operation::operation;
use mongodb::Collection;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::Error;
use mongodb::options::{ChangeStreamOptions, FullDocumentType};
use serde::Deserialize;

use crate::model::{QueueId, Status, TaskId};
use crate::store::collections::TASKS;
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

/// What tells of changes of tasks, in their order. Where the collection is dropped or renamed, as `mongorestore --drop` does, the server ends that without an error: it
/// goes on right behind.
#[derive(Debug)]
pub(crate) struct Changes {
    tasks: Collection<Document>,
    pipeline: Vec<Document>,
    options: ChangeStreamOptions,
    stream: ChangeStream<Document>,
}

impl Changes {
    pub(crate) async fn open(
        store: &Store,
        pipeline: Vec<Document>,
        options: ChangeStreamOptions,
    ) -> Result<Self, Error> {
        let tasks = store.database().collection::<Document>(TASKS.name);
        let stream = watch(&tasks, &pipeline, &options).await?;
        Ok(Self { tasks, pipeline, options, stream })
    }

    /// The next one, if there is one by now.
    pub(crate) async fn next(&mut self) -> Result<Option<Document>, Error> {
        let next = self.stream.next_if_any().await?;
        if next.is_none() && !self.stream.is_alive() {
            let last = self.place().as_ref().and_then(text_of);
            let ended = last.as_deref().and_then(time_of);
            self.options.resume_after = None;
            self.options.start_at_operation_time =
                ended.map(|at| Timestamp { increment: at.increment.saturating_add(1), ..at });
            self.stream = watch(&self.tasks, &self.pipeline, &self.options).await?;
        }
        Ok(next)
    }

    /// After all that [`Changes::next`] returned, and after what the pipeline left out.
    pub(crate) fn place(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }
}

async fn watch(
    tasks: &Collection<Document>,
    pipeline: &[Document],
    options: &ChangeStreamOptions,
) -> Result<ChangeStream<Document>, Error> {
    let stream = tasks.watch().pipeline(pipeline.to_vec()).with_options(options.clone()).await?;
    Ok(stream.with_type())
}

/// A place as a word of hexadecimal digits.
pub(crate) fn text_of(place: &ResumeToken) -> Option<String> {
    match bson::serialize_to_bson(place).ok()? {
        Bson::Document(token) => token.get_str("_data").ok().map(str::to_owned),
        _ => None, // No server makes any other.
    }
}

/// The time that a place begins with, as an index has it: its type, seconds, and a number.
pub(crate) fn time_of(place: &str) -> Option<Timestamp> {
    let (kind, rest) = place.split_at_checked(2)?;
    let (time, rest) = rest.split_at_checked(8)?;
    let increment = rest.get(..8)?;
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    (kind == "82").then_some(Timestamp { time: number(time)?, increment: number(increment)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_begins_with_its_time() {
        let place = "8269226F0B000000012B042C0100296E5A1004";
        assert_eq!(time_of(place), Some(Timestamp { time: 0x6922_6F0B, increment: 1 }));
        for odd in ["", "82", "8369226F0B00000001", "8269226F0B", "82é"] {
            assert_eq!(time_of(odd), None, "{odd}");
        }
    }

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
