//! The rotation of a queue, which all DENs share: `queue_turns` has a document for each queue, `{_id, round, last, had}`.
//! Turns are taken by one update, on the condition that nobody else has taken any since.

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::options::{CollectionOptions, ReturnDocument};

use super::turns::Pointer;
use crate::model::{QueueId, whole_number};
use crate::store::collections;
use crate::store::{Store, StoreError};
use crate::task::one_member;

pub(crate) const TURNS: &str = collections::TURNS.name;

impl Store {
    /// Where the rotation of `queue` stands.
    pub(super) async fn rotation(&self, queue: QueueId) -> Result<Pointer, StoreError> {
        let found = self.turns().find_one(doc! { "_id": queue }).await?;
        Ok(found.as_ref().map(pointer_of).unwrap_or_default())
    }

    /// Moves the rotation on. Returns whether it stood where it was said to stand.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the user ([`StoreError::is_forbidden`]).
    pub(super) async fn move_rotation(
        &self,
        queue: QueueId,
        from: &Pointer,
        to: &Pointer,
    ) -> Result<bool, StoreError> {
        let update = doc! {
            "$set": { "round": to.round, "last": &to.last, "had": i64::from(to.had) },
            "$currentDate": { "at": true },
        };
        // At the beginning there is no document.
        let is_first = *from == Pointer::default();
        let moved = self.turns().update_one(standing(queue, from), update).upsert(is_first).await;
        match moved.map_err(StoreError::from) {
            Ok(moved) => Ok(moved.matched_count == 1 || moved.upserted_id.is_some()),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes so many rounds, where there are no turns. Returns the first of them.
    pub(super) async fn take_rounds(&self, queue: QueueId, rounds: usize) -> Result<i64, StoreError> {
        let rounds = i64::try_from(rounds).unwrap_or(i64::MAX);
        let update = doc! { "$inc": { "round": rounds }, "$currentDate": { "at": true } };
        let taken = self
            .turns()
            .find_one_and_update(doc! { "_id": queue }, update)
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        let after = taken.as_ref().map(pointer_of).unwrap_or_default().round;
        Ok(after.saturating_sub(rounds))
    }

    /// A turn that is lost with its server is taken once more, which hurts nobody, so nobody waits for a majority.
    fn turns(&self) -> Collection<Document> {
        let options = CollectionOptions::builder().write_concern(one_member()).build();
        self.database().collection_with_options(TURNS, options)
    }
}

fn pointer_of(document: &Document) -> Pointer {
    let number = |field: &str| document.get(field).and_then(whole_number);
    Pointer {
        round: number("round").unwrap_or(0),
        last: document.get_str("last").unwrap_or_default().to_owned(),
        had: number("had").and_then(|had| u32::try_from(had).ok()).unwrap_or(0),
    }
}

/// What the document must be like. What is not there is nothing.
fn standing(queue: QueueId, pointer: &Pointer) -> Document {
    let mut like = doc! { "_id": queue };
    let number = |number: i64| {
        if number == 0 {
            doc! { "$in": [0, bson::Bson::Null] }
        } else {
            doc! { "$eq": number }
        }
    };
    like.insert("round", number(pointer.round));
    like.insert("had", number(i64::from(pointer.had)));
    let last = match pointer.last.as_str() {
        "" => doc! { "$in": ["", bson::Bson::Null] },
        last => doc! { "$eq": last },
    };
    like.insert("last", last);
    like
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_rotation_is_read_whatever_is_there() {
        assert_eq!(pointer_of(&doc! {}), Pointer::default());
        let stored = doc! { "round": 7_i64, "last": "a/b", "had": 2 };
        assert_eq!(pointer_of(&stored), Pointer { round: 7, last: "a/b".to_owned(), had: 2 });
        assert_eq!(pointer_of(&doc! { "round": "x", "last": 5, "had": -1 }), Pointer::default());
    }

    #[test]
    fn a_rotation_is_moved_from_where_it_stood() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let like = standing(queue, &Pointer { round: 7, last: "$a".to_owned(), had: 0 });
        let expected = doc! {
            "_id": queue, "round": { "$eq": 7_i64 }, "had": { "$in": [0, bson::Bson::Null] }, "last": { "$eq": "$a" },
        };
        assert_eq!(like, expected);
    }
}
