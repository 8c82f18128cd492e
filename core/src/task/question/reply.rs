//! The answer of a person: one update stores it and queues the task again, so nobody answers twice.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;
use serde_json::{Map, Value};

use super::{ANSWER, Awaiting};
use crate::callbacks::Token;
use crate::model::{AWAITING, QueueId, Status, TaskId, to_document};
use crate::store::{Store, StoreError, collect, count_of};
use crate::task::sweep::undeferred;
use crate::task::transition::{Transition, server_time_in};

/// So many links of a question hold at once: the next one takes the place of the oldest.
const MOST_LINKS: i32 = 20;

/// So long a link holds of a question without a deadline.
const LINK_HOLDS: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub value: Map<String, Value>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Replied {
    Stored(Status),
    /// The task waits for no answer to this question, or not any more: it is in this status, and has this answer.
    NotAwaited(Status, Option<Document>),
    NoSuchTask,
}

impl Store {
    /// Answers the question that a task waits with, which was read as `awaiting`: the task is queued (-7 -> -2, or -4 if it has locks), and its next
    /// attempt gets the answer. Of several answers, one is stored; and none after the deadline.
    #[operation(task = %id)]
    pub async fn answer_task(
        &self,
        id: TaskId,
        awaiting: &Awaiting,
        reply: &Reply,
    ) -> Result<Replied, StoreError> {
        let given = doc! {
            "value": to_document(&reply.value), "by": &reply.by, "attempt": awaiting.attempt,
        };
        let given = doc! { "$mergeObjects": [{ "$literal": given }, { "at": "$$NOW" }] };
        let note = format!("answered by {}", reply.by);
        let answered = |to| undeferred(to, self.now(), &note).compute(ANSWER, given.clone());
        if let Some(status) = self.undefer(id, &open(id, awaiting), answered).await? {
            return Ok(Replied::Stored(status));
        }
        let found = self.find_task_fields(id, doc! { "status": 1, ANSWER: 1 }).await?;
        let Some(task) = found else { return Ok(Replied::NoSuchTask) };
        let status = Status::stored(&task).unwrap_or(Status::Running);
        Ok(Replied::NotAwaited(status, task.get_document(ANSWER).ok().cloned()))
    }

    /// How many tasks of each queue wait for an answer, and which one has waited longest.
    #[operation]
    pub async fn count_awaiting(&self) -> Result<HashMap<QueueId, (u64, TaskId)>, StoreError> {
        let pipeline = [
            doc! { "$match": { "awaiting.asked": { "$exists": true }, "status": Status::Deferred } },
            doc! { "$sort": { "awaiting.asked": 1 } },
            doc! { "$group": { "_id": "$queue", "count": { "$sum": 1 }, "first": { "$first": "$_id" } } },
        ];
        let found = collect(self.tasks().aggregate(pipeline)).await?;
        let of_queue = |found: &Document| {
            let first = TaskId(found.get_object_id("first").ok()?);
            Some((QueueId(found.get_object_id("_id").ok()?), (count_of(found, "count")?, first)))
        };
        Ok(found.iter().filter_map(of_queue).collect())
    }

    /// Lets whoever shows `token` answer that question for `by`, until its deadline, or for a week if it has none. Returns until when. `None`: it does
    /// not wait any more.
    #[operation(task = %id)]
    pub async fn add_answer_link(
        &self,
        id: TaskId,
        awaiting: &Awaiting,
        (token, by): (&Token, &str),
    ) -> Result<Option<DateTime>, StoreError> {
        let until = doc! { "$ifNull": ["$awaiting.deadline", server_time_in(LINK_HOLDS)] };
        let link =
            doc! { "token": { "$literal": token.fingerprint() }, "by": { "$literal": by }, "until": until };
        let before = doc! { "$cond": [{ "$isArray": "$awaiting.links" }, "$awaiting.links", []] };
        let links = doc! { "$slice": [{ "$concatArrays": [before, [link]] }, -MOST_LINKS] };
        let update = Transition::within().compute("awaiting.links", links).pipeline();
        let updated = self
            .tasks()
            .find_one_and_update(open(id, awaiting), update)
            .projection(doc! { AWAITING: 1 })
            .return_document(ReturnDocument::After)
            .await?;
        let links = updated.map(Document::from).and_then(|task| Awaiting::stored(&task));
        Ok(links.and_then(|awaiting| awaiting.links.last().map(|(_, until, _)| *until)))
    }
}

fn open(id: TaskId, awaiting: &Awaiting) -> Document {
    let in_time =
        doc! { "$not": [{ "$lte": [{ "$ifNull": ["$awaiting.deadline", Bson::MaxKey] }, "$$NOW"] }] };
    doc! {
        "_id": id, "status": Status::Deferred, "awaiting.attempt": awaiting.attempt,
        "awaiting.asked": awaiting.asked, "$expr": in_time,
    }
}
