//! Workers as they are read: what was put there by other means than ours has any length, and every DEN holds all of them and hands
//! them on.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use super::{LARGEST, MOST, MOST_BYTES, Worker};
use crate::model::whole_number;
use crate::store::{Store, StoreError, Stored};

/// A document has so many bytes at most besides the definition: who has changed it, and what another database has noted.
const BESIDES: usize = 16 * 1024;

/// All that are read have so many bytes at most. Those who store at the same moment may store a little more than they should.
const MOST_READ: usize = 2 * MOST_BYTES;

/// Who was said to be left out: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Store {
    /// All workers that fit, by name. One that is too large, or that is none, is logged and left out; the server does not even
    /// send what is too large.
    pub(super) async fn fitting_workers(&self) -> Result<Vec<Worker>, StoreError> {
        let mut found = self.worker_collection().aggregate(with_sizes()).with_type::<Stored>().await?;
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
            match Worker::read(document) {
                Ok(worker) => workers.push(worker),
                Err(error) => tracing::warn!(%error, "ignoring a worker that cannot be read"),
            }
        }
        Ok(workers)
    }
}

/// Each document with its length, and only with that if it is too long.
fn with_sizes() -> [Document; 2] {
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
