//! How much room there is for definitions. A web server reads all of them when somebody looks at a queue, and so does each DEN when one
//! has changed: without a bound, who may define them could end all of these processes. What was put there by other means than ours has
//! any length, and is read only as far as it fits.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use super::{Definition, DefinitionError, LARGEST, MOST, MOST_BYTES, NewDefinition, Place};
use crate::model::whole_number;
use crate::store::{Store, StoreError, Stored};

/// How many bytes each definition has, by name.
type Sizes = BTreeMap<String, usize>;

/// A document has so many bytes at most besides the definition: who has changed it, and what another database has noted.
const BESIDES: usize = 16 * 1024;

/// All that are read have so many bytes at most. Those who store at the same moment may store a little more than they should.
const MOST_READ: usize = 2 * MOST_BYTES;

/// Who was said to be left out: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Store {
    /// Sees to it that all workers together stay within [`MOST`] and [`MOST_BYTES`] when these are stored in such a
    /// place. Who stores at the same moment is not seen, so both together may go a little beyond.
    #[operation(workers = new.len())]
    pub async fn room_for_workers(&self, new: &[NewDefinition], place: Place) -> Result<(), DefinitionError> {
        let sizes = vec![doc! { "$project": { "bytes": { "$bsonSize": "$$ROOT" } } }];
        let found = self.worker_collection().aggregate(sizes).await.map_err(StoreError::from)?;
        let found: Vec<Document> = found.try_collect().await.map_err(StoreError::from)?;
        check(&found.iter().map(size).collect(), new, place != Place::Free)
    }

    /// All workers that fit, by name. One that is too large, or that is none, is logged and left out; the server does not even
    /// send what is too large.
    pub(super) async fn fitting_workers(&self) -> Result<Vec<Definition>, StoreError> {
        let mut found = self.worker_collection().aggregate(sized()).with_type::<Stored>().await?;
        let (mut workers, mut room) = (Vec::new(), MOST_READ);
        while let Some(mut row) = found.try_next().await? {
            let bytes = row.get("bytes").and_then(whole_number).and_then(|bytes| usize::try_from(bytes).ok());
            let Some(Bson::Document(document)) = row.remove("worker") else {
                leave_out(&row, &format!("it has more than {LARGEST} bytes"));
                continue;
            };
            let Some(left) = room.checked_sub(bytes.unwrap_or(MOST_READ)) else {
                leave_out(&row, "there are too many others");
                break;
            };
            room = left;
            match Definition::read(document) {
                Ok(worker) => workers.push(worker),
                Err(error) => tracing::warn!(%error, "ignoring a worker that cannot be read"),
            }
        }
        Ok(workers)
    }
}

fn size(worker: &Document) -> (String, usize) {
    let name = worker.get("_id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
    let bytes = worker.get("bytes").and_then(whole_number).and_then(|bytes| usize::try_from(bytes).ok());
    (name.unwrap_or_default(), bytes.unwrap_or_default())
}

/// Whether there is room. What makes it no worse is let through: somebody may have stored more by other means.
fn check(stored: &Sizes, new: &[NewDefinition], replace: bool) -> Result<(), DefinitionError> {
    let mut after = stored.clone();
    for worker in new.iter().filter(|worker| replace || !stored.contains_key(worker.name.as_str())) {
        after.insert(worker.name.to_string(), worker.bytes());
    }
    if after.len() > MOST.max(stored.len()) {
        return Err(DefinitionError::TooMany(after.len()));
    }
    let bytes = |sizes: &Sizes| sizes.values().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
    if bytes(&after) > MOST_BYTES.max(bytes(stored)) {
        return Err(DefinitionError::TooMuch(bytes(&after)));
    }
    Ok(())
}

/// Each document with its length, and only with that if it is too long.
fn sized() -> [Document; 2] {
    let bytes = || doc! { "$bsonSize": "$$ROOT" };
    let most = i64::try_from(LARGEST + BESIDES).unwrap_or(i64::MAX);
    let fitting = doc! { "$cond": [{ "$lte": [bytes(), most] }, "$$ROOT", Bson::Null] };
    [doc! { "$sort": { "_id": 1 } }, doc! { "$project": { "bytes": bytes(), "worker": fitting } }]
}

fn leave_out(row: &Document, why: &str) {
    let name: String =
        row.get("_id").map(ToString::to_string).unwrap_or_default().chars().take(100).collect();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() < MOST && said.insert(name.clone()) {
        tracing::warn!(worker = name, "ignoring a worker: {why}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn new(name: &str, bytes: usize) -> NewDefinition {
        let fields = json!({ "_id": name, "engine": "http", "description": "x".repeat(bytes) });
        NewDefinition::read(None, fields.as_object().unwrap()).unwrap()
    }

    fn stored(count: usize, bytes: usize) -> Sizes {
        (0..count).map(|n| (format!("W{n}"), bytes)).collect()
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let full = stored(MOST, 10);
        check(&stored(MOST - 1, 10), &[new("New", 0)], false).unwrap();
        let error = check(&full, &[new("New", 0)], true).unwrap_err().to_string();
        assert_eq!(error, "there may be 1000 workers, and this would make 1001");
        check(&full, &[new("W7", 0)], true).unwrap();
        let many = [new("W7", 0), new("New", 0)];
        assert!(matches!(check(&full, &many, false), Err(DefinitionError::TooMany(1_001))));
    }

    #[test]
    fn they_are_not_larger_than_so_much_together() {
        let large = LARGEST - 1_000;
        let count = MOST_BYTES / large;
        let almost = stored(count, large);
        assert!(matches!(check(&almost, &[new("New", large)], false), Err(DefinitionError::TooMuch(_))));
        check(&almost, &[new("W1", large - 1_000)], true).unwrap();
        check(&almost, &[new("W1", large)], false).unwrap();
        // More was put there by other means: it can become less, and not more.
        let beyond = stored(MOST + 5, large);
        check(&beyond, &[new("W1", 5)], true).unwrap();
        assert!(matches!(check(&beyond, &[new("New", 5)], true), Err(DefinitionError::TooMany(_))));
    }

    #[test]
    fn sizes_are_read_as_the_server_tells_them() {
        assert_eq!(size(&doc! { "_id": "A", "bytes": 7 }), ("A".to_owned(), 7));
        assert_eq!(size(&doc! { "_id": 5, "bytes": 9_i64 }), ("5".to_owned(), 9));
    }
}
