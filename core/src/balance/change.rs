//! Changes of the document of `QueueBalance` by people, who must not undo what others have set meanwhile.
//!
//! A revision tells one state of what people set together, the timetable and the tiers, from any other. A change names the one
//! that it was made from. It is one update on the condition that `max_tasks` and `queues` are still what they were in
//! that revision, so of several changes that were made from the same state exactly one is stored.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use sha2::{Digest, Sha256};

use crate::store::{Altered, Store, StoreError, still};

/// What people set together.
const SET: [&str; 2] = ["max_tasks", "queues"];

/// The id of a document that is made here: of two that are made at once, one is refused.
const ID: ObjectId = ObjectId::from_bytes(*b"QueueBalance");

/// The revision of a stored document; empty if there is none.
pub fn revision(stored: Option<&Document>) -> String {
    let Some(stored) = stored else { return String::new() };
    let mut hash = Sha256::new();
    for key in SET {
        // With the types: whatever is another value for the database has another text.
        hash.update(format!("{:?}\n", stored.get(key)));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
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
                let made = self.make_balance(fields.clone()).await?;
                made.then(|| Altered::by_setting(None, fields))
            }
        })
    }

    /// Sets until when nothing is balanced, in seconds since 1970, and nothing else.
    #[operation]
    pub async fn pause_balance(&self, until: Option<i64>) -> Result<Altered, StoreError> {
        // As wide as it has to be, like all whole numbers that the API stores.
        let narrow = |until: i64| i32::try_from(until).map_or(Bson::Int64(until), Bson::Int32);
        let fields = doc! { "disabled": until.map_or(Bson::Null, narrow) };
        let update = doc! { "$set": fields.clone(), "$setOnInsert": { "max_tasks": {}, "queues": [] } };
        let before = self.balance().find_one_and_update(doc! {}, update).upsert(true).await?;
        Ok(Altered::by_setting(before.map(Document::from), fields))
    }

    /// Makes the document, unless there is one. Returns whether it was made.
    async fn make_balance(&self, mut fields: Document) -> Result<bool, StoreError> {
        fields.insert("_id", ID);
        let update = doc! { "$setOnInsert": fields };
        let made = self.balance().update_one(doc! {}, update).upsert(true).await.map_err(StoreError::from);
        match made {
            Ok(result) => Ok(result.upserted_id.is_some()),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
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
