//! How much room there is for workers. A web server reads all of them when somebody looks at a queue, and so does each DEN when one
//! has changed: without a bound, who may define them could end all of these processes.

use disbatch_operation::operation;
use std::collections::BTreeMap;

use bson::{Document, doc};
use futures::TryStreamExt;

use super::{MOST, MOST_BYTES, NewWorker, WorkerError};
use crate::model::whole_number;
use crate::store::{Store, StoreError};

/// How many bytes each worker has, by name.
type Sizes = BTreeMap<String, usize>;

impl Store {
    /// Sees to it that all workers together stay within [`MOST`] and [`MOST_BYTES`] when these are stored; `replace`: also in
    /// the place of others of their names. Who stores at the same moment is not seen, so both together may go a little beyond.
    ///
    /// # Errors
    /// There would be too many, or too much; or the database cannot be reached.
    #[operation(workers = new.len())]
    pub async fn room_for_workers(&self, new: &[NewWorker], replace: bool) -> Result<(), WorkerError> {
        let sizes = vec![doc! { "$project": { "bytes": { "$bsonSize": "$$ROOT" } } }];
        let found = self.worker_collection().aggregate(sizes).await.map_err(StoreError::from)?;
        let found: Vec<Document> = found.try_collect().await.map_err(StoreError::from)?;
        check(&found.iter().map(size).collect(), new, replace)
    }
}

fn size(worker: &Document) -> (String, usize) {
    let name = worker.get("_id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
    let bytes = worker.get("bytes").and_then(whole_number).and_then(|bytes| usize::try_from(bytes).ok());
    (name.unwrap_or_default(), bytes.unwrap_or_default())
}

/// Whether there is room. What makes it no worse is let through: somebody may have stored more by other means.
fn check(stored: &Sizes, new: &[NewWorker], replace: bool) -> Result<(), WorkerError> {
    let mut after = stored.clone();
    for worker in new.iter().filter(|worker| replace || !stored.contains_key(worker.name.as_str())) {
        after.insert(worker.name.to_string(), worker.bytes());
    }
    if after.len() > MOST.max(stored.len()) {
        return Err(WorkerError::TooMany(after.len()));
    }
    let bytes = |sizes: &Sizes| sizes.values().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
    if bytes(&after) > MOST_BYTES.max(bytes(stored)) {
        return Err(WorkerError::TooMuch(bytes(&after)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::LARGEST;
    use super::*;

    fn new(name: &str, bytes: usize) -> NewWorker {
        let fields = json!({ "_id": name, "engine": "http", "description": "x".repeat(bytes) });
        NewWorker::read(None, fields.as_object().unwrap()).unwrap()
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
        assert!(matches!(check(&full, &many, false), Err(WorkerError::TooMany(1_001))));
    }

    #[test]
    fn they_are_not_larger_than_so_much_together() {
        let large = LARGEST - 1_000;
        let count = MOST_BYTES / large;
        let almost = stored(count, large);
        assert!(matches!(check(&almost, &[new("New", large)], false), Err(WorkerError::TooMuch(_))));
        check(&almost, &[new("W1", large - 1_000)], true).unwrap();
        check(&almost, &[new("W1", large)], false).unwrap();
        // More was put there by other means: it can become less, and not more.
        let beyond = stored(MOST + 5, large);
        check(&beyond, &[new("W1", 5)], true).unwrap();
        assert!(matches!(check(&beyond, &[new("New", 5)], true), Err(WorkerError::TooMany(_))));
    }

    #[test]
    fn sizes_are_read_as_the_server_tells_them() {
        assert_eq!(size(&doc! { "_id": "A", "bytes": 7 }), ("A".to_owned(), 7));
        assert_eq!(size(&doc! { "_id": 5, "bytes": 9_i64 }), ("5".to_owned(), 9));
    }
}
