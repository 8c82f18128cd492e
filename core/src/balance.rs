//! `QueueBalance`: the one document that says how many tasks may run when, and in which order queues get
//! them. Here it is read, saved and changed; the loop works with it.
//!
//! People who change it must not undo what others have set meanwhile. A change names the [`revision`] that it was made from. It
//! is one update on the condition that `max_tasks` and `queues` are still what they were in that revision, so of several changes
//! that were made from the same state exactly one is stored.

pub mod plan;
pub mod run;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use sha2::{Digest, Sha256};

use crate::model::{date_time, to_bson};
use crate::store::{Altered, Store, StoreError, still, with};
use crate::text::hex;

/// What people set together.
const SET: [&str; 2] = ["max_tasks", "queues"];

/// The id of a document that is made here: of two that are made at once, one is refused.
const ID: ObjectId = ObjectId::from_bytes(*b"QueueBalance");

/// The document of `balance`. Each part holds what can be understood of the stored one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BalanceDocument {
    /// `"<0-6 or *> HH:MM"` and how many tasks may run from then on, in the stored order. Entries without a
    /// number are left out.
    pub max_tasks: Vec<(String, i64)>,
    /// Names of queues in tiers; see [`plan::allot`] for their order. Parts that are no lists of names are left out.
    pub queues: Vec<Vec<String>>,
    /// Until when nothing is to be balanced, in seconds since 1970.
    pub disabled: Option<i64>,
    /// `OK`, `WARNING` or `CRITICAL`, as the loop has last found it.
    pub status: Option<String>,
    pub message: Option<String>,
    pub timestamp: Option<DateTime>,
    /// All other fields, and `max_tasks`, `queues`, `disabled`, `status`, `message` or `timestamp` where they
    /// could not be understood at all.
    pub rest: Document,
}

impl From<Document> for BalanceDocument {
    fn from(document: Document) -> Self {
        let mut read = Self::default();
        for (key, value) in document {
            let understood = match key.as_str() {
                "max_tasks" => max_tasks(&value).map(|entries| read.max_tasks = entries),
                "queues" => queues(&value).map(|tiers| read.queues = tiers),
                "disabled" => integer(&value).map(|until| read.disabled = Some(until)),
                "status" => value.as_str().map(|text| read.status = Some(text.to_owned())),
                "message" => value.as_str().map(|text| read.message = Some(text.to_owned())),
                "timestamp" => date_time(&value).map(|at| read.timestamp = Some(at)),
                _ => None, // Nobody knows what it is, so it is kept as it is.
            };
            if understood.is_none() {
                read.rest.insert(key, value);
            }
        }
        read
    }
}

impl Store {
    #[operation]
    pub async fn stored_balance(&self) -> Result<Option<Document>, StoreError> {
        Ok(self.balance().find_one(doc! {}).await?.map(Document::from))
    }

    /// Sets fields of the document, which is created if there is none. The caller has validated them.
    #[operation]
    pub async fn save_balance(&self, fields: Document) -> Result<Altered, StoreError> {
        let update = doc! { "$set": fields.clone() };
        let before = self.balance().find_one_and_update(doc! {}, update).upsert(true).await?;
        Ok(Altered::by_setting(before.map(Document::from), fields))
    }
}

fn max_tasks(value: &Bson) -> Option<Vec<(String, i64)>> {
    let entries = value.as_document()?.iter();
    Some(entries.filter_map(|(time, most)| Some((time.clone(), integer(most)?))).collect())
}

fn queues(value: &Bson) -> Option<Vec<Vec<String>>> {
    let names = |tier: &Bson| Some(tier.as_array()?.iter().filter_map(name).collect());
    Some(value.as_array()?.iter().filter_map(names).collect())
}

/// Perl takes a number for a name.
fn name(value: &Bson) -> Option<String> {
    match value {
        Bson::String(name) => Some(name.clone()),
        Bson::Int32(number) => Some(number.to_string()),
        Bson::Int64(number) => Some(number.to_string()),
        _ => None, // Nothing else names a queue.
    }
}

/// Numbers may be stored as text.
fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::String(text) => text.trim().parse().ok(),
        Bson::Boolean(flag) => Some(i64::from(*flag)),
        number => crate::model::whole_number(number),
    }
}

/// Tells one state of what people set together, the timetable and the tiers, from any other. Empty if there is none.
pub fn revision(stored: Option<&Document>) -> String {
    let Some(stored) = stored else { return String::new() };
    let mut hash = Sha256::new();
    for key in SET {
        // With the types: whatever is another value for the database has another text.
        hash.update(format!("{:?}\n", stored.get(key)));
    }
    hex(hash.finalize())
}

impl Store {
    /// Sets `max_tasks` and `queues`, which the caller has validated, if the document still has the revision `base`. `None`: it has
    /// another one, and nothing has changed.
    #[operation]
    pub async fn change_balance(&self, base: &str, fields: Document) -> Result<Option<Altered>, StoreError> {
        let stored = self.stored_balance().await?;
        if revision(stored.as_ref()) != base {
            return Ok(None);
        }
        Ok(match stored {
            Some(stored) => {
                let set = doc! { "$set": fields.clone() };
                let before = self.balance().find_one_and_update(unchanged(&stored), set).await?;
                before.map(|before| Altered::by_setting(Some(before.into()), fields))
            }
            None => {
                let update = doc! { "$setOnInsert": with(fields.clone(), doc! { "_id": ID }) };
                let made = self.balance().update_one(doc! {}, update).upsert(true).await;
                let made = StoreError::unless_duplicate(made)?.and_then(|made| made.upserted_id);
                made.map(|_| Altered::by_setting(None, fields))
            }
        })
    }

    /// Sets until when nothing is balanced, in seconds since 1970, and nothing else.
    #[operation]
    pub async fn pause_balance(&self, until: Option<i64>) -> Result<Altered, StoreError> {
        let fields = doc! { "disabled": to_bson(&until.into()) };
        let update = doc! { "$set": fields.clone(), "$setOnInsert": { "max_tasks": {}, "queues": [] } };
        let before = self.balance().find_one_and_update(doc! {}, update).upsert(true).await?;
        Ok(Altered::by_setting(before.map(Document::from), fields))
    }
}

/// What holds as long as nobody has set anything else.
fn unchanged(stored: &Document) -> Document {
    doc! { "_id": stored.get("_id"), "$expr": still(SET.into_iter().map(|key| (key, stored.get(key)))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_understood_is_read_and_the_rest_kept() {
        let at = DateTime::from_millis(1_795_163_068_000);
        let read = BalanceDocument::from(doc! {
            "max_tasks": { "* 07:00": 1, "1 19:00": "5", "* 20:00": "many", "* 21:00": 2.0 },
            "queues": [["q1", 7], "q2", ["q3"]],
            "disabled": Bson::Null, "status": "OK", "message": 5, "timestamp": at, "x": 1,
        });
        let entries = [("* 07:00", 1), ("1 19:00", 5), ("* 21:00", 2)];
        assert_eq!(read.max_tasks, entries.map(|(time, most)| (time.to_owned(), most)));
        assert_eq!(read.queues, [vec!["q1", "7"], vec!["q3"]]);
        assert_eq!((read.disabled, read.status.as_deref()), (None, Some("OK")));
        assert_eq!((read.message, read.timestamp), (None, Some(at)));
        assert_eq!(read.rest, doc! { "disabled": Bson::Null, "message": 5, "x": 1 });
    }

    #[test]
    fn a_revision_is_of_what_people_set_and_of_nothing_else() {
        let of = |document: Document| revision(Some(&document));
        let first = of(doc! { "_id": 1, "max_tasks": { "* 07:00": 5 }, "queues": [["a"]], "status": "OK" });
        let later =
            doc! { "max_tasks": { "* 07:00": 5 }, "queues": [["a"]], "disabled": 9, "status": "WARNING" };
        assert_eq!(first, of(later));
        let others = [
            doc! { "max_tasks": { "* 07:00": 6 }, "queues": [["a"]] },
            doc! { "max_tasks": { "* 07:00": 5 }, "queues": [["a"], []] },
            doc! { "max_tasks": { "* 07:00": 5 }, "queues": ["a"] },
            doc! { "max_tasks": { "* 07:00": 5 } },
            doc! { "queues": [["a"]] },
            doc! {},
        ];
        let mut seen = vec![first, revision(None)];
        for other in others {
            let revision = of(other.clone());
            assert!(!seen.contains(&revision), "{other}");
            seen.push(revision);
        }
    }

    #[test]
    fn a_change_depends_on_what_was_there() {
        let stored = doc! { "_id": 1, "queues": [["$a"]], "status": "OK" };
        let expected = doc! { "_id": 1, "$expr": { "$and": [
            { "$eq": [{ "$type": "$max_tasks" }, "missing"] },
            { "$eq": ["$queues", { "$literal": [["$a"]] }] },
        ] } };
        assert_eq!(unchanged(&stored), expected);
    }
}
