//! The inbox: tasks that an application submits by an insert of its own, in the transaction that writes its own data.
//!
//! A document of `inbox` says what `POST /tasks` would be told (`docs/inbox.md`), and has the `_id` that its task will have. A DEN moves it:
//! it decides as the DCI does ([`judge`]), has the server insert the task under that `_id`
//! ([`crate::task`], `submit/insert.rs`), and removes the document. What is refused becomes a cancelled task that says why.
//!
//! **Once, whoever dies when.** The server inserts a task only while its document is in the inbox, and while there is no such task; it looks
//! in the same operation. A task is archived or deleted only when its document has gone. One whose
//! document comes once more, as an application has repeated its transaction, is found there before. So any number of DENs may move the same at once, and one that stands still for as long as it
//! likes comes too late for what others have moved. A document goes only when its task is there, known to a majority. Whoever dies
//! in between leaves a document whose task is there: whoever comes next only removes it.
//!
//! **Nothing is lost, and nothing holds up others.** What this release does not understand is left, with the time in `left`, for a DEN that
//! does, and is refused when that is an hour ago; so is what comes after tasks that are in the inbox themselves. What was left is looked at
//! now and then, the rest at once.

mod judge;
mod pass;

use std::borrow::Cow;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use serde_json::{Map, Value};

pub use pass::Moved;

use crate::model::document::readable;
use crate::model::{QueueId, Selector, Status, TRACE, TaskId, TraceContext, whole_number};
use crate::request::{self, Invalid};
use crate::schema::as_plugins_get;
use crate::secrets;
use crate::store::collections::INBOX;
use crate::store::{Store, StoreError, collect, of_millis, put};
use crate::task::TaskOptions;

/// Since when a document waits for a DEN that understands it.
pub(crate) const LEFT: &str = "left";

/// The field of a refused task that says why: its presence keeps it from being tried again, as its options are not there.
pub(crate) const REFUSED: &str = "refused";

/// Ids that are so old are those of documents that whoever follows the changes should have moved.
pub const UNNOTICED: Duration = Duration::from_secs(2);

const VERSION: i64 = 1;

const FIELDS: [&str; 9] = ["_id", "v", "queue", "params", "options", "key", "by", "trace", LEFT];

/// Options of `POST /tasks` that are not taken here, and why.
const NOT_HERE: [(&str, &str); 4] = [
    (
        secrets::FIELD,
        "secure parameters are not taken by the inbox, where others could read them: use POST /tasks",
    ),
    ("array", "arrays are not taken by the inbox: use POST /tasks"),
    ("idempotency_key", "is the field 'key' of the document"),
    ("tenant", "the tenant follows from the configuration"),
];

/// How old the first document is that was not left: stages that tell it as `in`, in milliseconds.
pub(crate) fn age_of_first() -> [Document; 4] {
    let age = doc! { "$subtract": ["$$NOW", { "$toDate": "$_id" }] };
    let is_id = doc! { "$eq": [{ "$type": "$_id" }, "objectId"] };
    [
        doc! { "$match": { LEFT: Bson::Null } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "what": INBOX.name, "in": { "$cond": [is_id, age, i64::MAX] } } },
    ]
}

impl Store {
    /// How many documents are in the inbox, up to so many, and for how long the first of them has been there by its id, if that tells.
    /// `None`: this user may not look.
    #[operation]
    pub async fn inbox_backlog(&self, most: u64) -> Result<Option<(u64, Option<Duration>)>, StoreError> {
        let first = [
            doc! { "$match": { "_id": { "$type": "objectId" } } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "age": { "$subtract": ["$$NOW", { "$toDate": "$_id" }] } } },
        ];
        let looked = async {
            let documents = self.inbox().count_documents(doc! {}).limit(most).await?;
            Ok::<_, StoreError>((documents, collect(self.inbox().aggregate(first)).await?))
        };
        let looked = StoreError::unless_forbidden(looked.await)?;
        let age = |found: &Document| found.get("age").and_then(whole_number).map(of_millis);
        Ok(looked.map(|(documents, first)| (documents, first.first().and_then(age))))
    }

    /// For those who have found no task: the one that a document of the inbox is about to become, with `inbox: true`, or that it has
    /// become since, with the fields that `projection` leaves. Its options are shown when it is moved.
    pub(crate) async fn find_in_inbox(
        &self,
        id: TaskId,
        projection: Document,
    ) -> Result<Option<Document>, StoreError> {
        let inbox = self.inbox().clone_with_type();
        // A user of an earlier release may not look there.
        let found = StoreError::unless_forbidden(inbox.find_one(doc! { "_id": id }).await)?.flatten();
        let Some(mut found) = found.map(readable) else {
            return self.find_task_fields(id, projection).await;
        };
        let named = match queue(&found) {
            Some(selector) => self.queue_of_document(&selector).await?,
            None => None,
        };
        let producer = self.inbox_config().producer(found.get_str("by").ok()).unwrap_or_default();
        let own = named.as_ref().and_then(|queue| queue.tenant()).map(str::to_owned);
        let mut task = doc! {
            "_id": id, "queue": named.map_or(NO_QUEUE, |queue| queue.id), "status": Status::Queued, "node": Bson::Null,
            "params": found.remove("params").unwrap_or(Bson::Null), "stdout": Bson::Null, "stderr": Bson::Null, "inbox": true,
        };
        put(&mut task, "owner", producer.owner);
        put(&mut task, "tenant", own.or(producer.tenant));
        put(&mut task, TRACE, trace(&found).as_ref().map(TraceContext::field));
        let is_left = |name: &String| name == "_id" || projection.is_empty() || projection.contains_key(name);
        Ok(Some(task.into_iter().filter(|(name, _)| is_left(name)).collect()))
    }
}

/// That of refused tasks whose queue nobody knows.
const NO_QUEUE: QueueId = QueueId(bson::oid::ObjectId::from_bytes([0; 12]));

#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    pub queue: Selector,
    pub params: Document,
    /// Without whose they are.
    pub options: TaskOptions,
    /// An idempotency key.
    pub key: Option<String>,
    pub by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Unread {
    /// A later release may understand it.
    Unknown(String),
    Wrong(String),
}

impl From<Invalid> for Unread {
    fn from(invalid: Invalid) -> Self {
        Self::Wrong(invalid.to_string())
    }
}

fn read(document: &Document) -> Result<Wanted, Unread> {
    let wrong = |what: &str| Unread::Wrong(what.to_owned());
    let given = |name: &str| document.get(name).filter(|value| **value != Bson::Null);
    match given("v").map(whole_number) {
        Some(Some(VERSION)) => {}
        None => return Err(wrong("v is missing")),
        Some(_) => {
            return Err(Unread::Unknown(format!("v must be {VERSION}: no other version is known here")));
        }
    }
    let options = match given("options").map(json) {
        None => Map::new(),
        Some(Value::Object(options)) => options,
        Some(_) => return Err(wrong("options must be an object")),
    };
    let is_given = |name: &str| options.contains_key(name) || document.contains_key(name);
    if let Some((name, why)) = NOT_HERE.iter().find(|(name, _)| is_given(name)) {
        return Err(Unread::Wrong(format!(".{name}: {why}")));
    }
    if let Some(name) = document.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(Unread::Unknown(format!("the field '{}' is unknown", shortened(name))));
    }
    let known = request::names();
    if let Some(name) = options.keys().find(|name| !known.contains(name.as_str())) {
        return Err(Unread::Unknown(format!("the option '{}' is unknown", shortened(name))));
    }
    let options = request::options(|name| options.get(name).map(Cow::Borrowed))?;
    let queue = queue(document).ok_or_else(|| wrong("queue must be the name or the id of a queue"))?;
    let Some(Bson::Document(params)) = given("params") else {
        return Err(wrong("params must be an object"));
    };
    if params.is_empty() && options.steps.is_empty() {
        return Err(wrong("params must have a key"));
    }
    if let Value::Object(params) = as_plugins_get(params) {
        request::check_keys(&params)?;
    }
    let text = |name: &str| given(name).map(|value| request::text(name, &json(value))).transpose();
    let (key, by) = (text("key")?, text("by")?);
    Ok(Wanted {
        queue,
        params: params.clone(),
        options: TaskOptions { trace: trace(document), ..options },
        key,
        by,
    })
}

fn queue(document: &Document) -> Option<Selector> {
    match document.get("queue")? {
        Bson::String(name) => Some(Selector::parse(name)),
        Bson::ObjectId(id) => Some(Selector::Id(*id)),
        _ => None, // Nothing else names one.
    }
}

/// The trace of a document: its `traceparent`, or an object as tasks have it. What cannot be used is as if it were not there.
fn trace(document: &Document) -> Option<TraceContext> {
    match document.get("trace")? {
        Bson::String(parent) => TraceContext::of(Some(parent), None, None),
        Bson::Document(field) => TraceContext::of_field(field),
        _ => None, // Nothing else says anything.
    }
}

/// A value as REST has it: times are text.
fn json(value: &Bson) -> Value {
    match value {
        Bson::DateTime(at) => Value::from(at.try_to_rfc3339_string().unwrap_or_default()),
        Bson::Document(fields) => fields.iter().map(|(name, value)| (name.clone(), json(value))).collect(),
        other => other.clone().into_relaxed_extjson(),
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
