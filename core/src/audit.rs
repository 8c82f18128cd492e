//! Who did what to which object, when and from where, and what it was before and after: the entries of `audit`.
//!
//! | field | |
//! | --- | --- |
//! | `at` | when it was done, by the clock of the host that has recorded it |
//! | `by` | who did it and from where, in words |
//! | `user`, `via`, `token_name`, `from` | the same in parts ([`Actor`]) |
//! | `what` | what was done, in words ([`Verb`]) |
//! | `object` | what it was done to: `kind`, `id`, `name` ([`Object`]) |
//! | `queue` | the queue that it is about |
//! | `before`, `after` | the fields that have changed, without secrets ([`AuditEntry`]) |
//!
//! There are others for some verbs: `reason`, `count`, and what bulk jobs have. Entries are only ever added: the MongoDB
//! user of the web server can neither change nor remove them. The server removes them when they are as old as
//! configured ([`Store::keep_audit`](crate::store::Store::keep_audit)).

mod actor;
mod difference;
mod object;
mod query;
mod verb;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;

use crate::model::QueueId;
use crate::store::{Store, StoreError, Stored, collections};
pub use actor::{Actor, Via};
pub(crate) use difference::is_same;
use difference::{Difference, trimmed};
pub use object::{Object, ObjectKind};
pub use query::{AuditKey, AuditKeyError, AuditPage, AuditPosition, AuditQuery, CHANGES, Changed, PATIENCE};
pub use verb::Verb;

pub(crate) const COLLECTION: &str = collections::AUDIT.name;

/// What somebody has done, for an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub who: Actor,
    pub what: Verb,
    pub object: Object,
    /// The queue that it is about.
    pub queue: Option<QueueId>,
    /// The object as it was. Of it and of `after` only the fields that have changed are stored: none that are called
    /// `password`, `secure_params`, `token` or `fingerprint`, at any depth, and no more than 2 KiB of a value.
    pub before: Option<Document>,
    pub after: Option<Document>,
    /// What else there is to say. It is stored beside the other fields, with the same limits.
    pub more: Document,
}

impl AuditEntry {
    /// One that says who did what to what.
    pub fn new(who: Actor, what: Verb, object: Object) -> Self {
        Self { who, what, object, queue: None, before: None, after: None, more: Document::new() }
    }

    fn document(&self, id: ObjectId, at: DateTime) -> Document {
        let mut entry = doc! { "_id": id, "at": at };
        entry.extend(Document::from(&self.who));
        entry.insert("what", self.what.words());
        entry.insert("object", self.object.document());
        if let Some(queue) = self.queue {
            entry.insert("queue", queue);
        }
        let Difference { before, after } = Difference::between(self.before.as_ref(), self.after.as_ref());
        for (name, fields) in [("before", before), ("after", after)] {
            if !fields.is_empty() {
                entry.insert(name, fields);
            }
        }
        for (name, value) in trimmed(&self.more) {
            entry.entry(name).or_insert(value);
        }
        entry
    }
}

impl Store {
    /// Adds an entry, with this host's time as `at`. Nothing that there is already is changed, so that nobody who makes
    /// entries needs the right to.
    #[operation]
    pub async fn record_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.audit().insert_one(Stored(entry.document(ObjectId::new(), self.now()))).await?;
        Ok(())
    }

    /// The same for what has been done already, and stays done: if it cannot be recorded, the log says what it was.
    #[operation]
    pub async fn note_audit(&self, entry: &AuditEntry) {
        if let Err(error) = self.record_audit(entry).await {
            let object = &entry.object;
            tracing::error!(
                %error, what = entry.what.words(), by = entry.who.words(), kind = object.kind.as_str(),
                id = object.id.map(tracing::field::display), name = object.name,
                "this was done, and has no entry in the audit"
            );
        }
    }

    fn audit(&self) -> Collection<Stored> {
        self.database().collection(COLLECTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::Action;

    #[test]
    fn an_entry_says_who_did_what_to_what() {
        let [id, queue] = [[1; 12], [2; 12]].map(ObjectId::from_bytes);
        let who = Actor::new(Some("alice".to_owned()), Via::Session, "10.0.0.1");
        let object = Object { name: Some("mail".to_owned()), ..Object::with_id(ObjectKind::Queue, queue) };
        let entry = AuditEntry {
            queue: Some(QueueId(queue)),
            before: Some(doc! { "name": "mail", "threads": 1 }),
            after: Some(doc! { "name": "mail", "threads": 2 }),
            more: doc! { "reason": "more work", "password": "x", "by": "somebody else" },
            ..AuditEntry::new(who, Verb::QueueUpdate, object)
        };
        let at = DateTime::from_millis(1_795_163_067_344);
        let expected = doc! {
            "_id": id, "at": at, "by": "alice from 10.0.0.1", "user": "alice", "via": "session", "from": "10.0.0.1",
            "what": "queue update", "object": { "kind": "queue", "id": queue, "name": "mail" }, "queue": queue,
            "before": { "threads": 1 }, "after": { "threads": 2 }, "reason": "more work",
        };
        assert_eq!(entry.document(id, at), expected);
    }

    #[test]
    fn what_is_not_known_is_not_stored() {
        let who = Actor::new(None, Via::Words("the REST API from 10.0.0.1".to_owned()), "");
        let object = Object::new(ObjectKind::Bulk);
        let entry = AuditEntry::new(who, Verb::BulkEnded(Action::Retry), object);
        let id = ObjectId::new();
        let expected = doc! {
            "_id": id, "at": DateTime::from_millis(5), "by": "the REST API from 10.0.0.1", "what": "bulk retry ended",
            "object": { "kind": "bulk" },
        };
        assert_eq!(entry.document(id, DateTime::from_millis(5)), expected);
    }
}
