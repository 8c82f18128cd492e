//! Tasks that held locks and have ended, or are to be tried again later: their locks are given back.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;

use super::blocked::{of_round, round_of};
use super::request::LockRequest;
use super::{Parts, Passed, queries};
use crate::model::whole_number;
use crate::store::{Store, StoreError};

/// So many tasks give their locks back at once.
const AT_ONCE: i64 = 200;

impl Store {
    /// Takes their locks from tasks that hold them no more.
    pub(super) async fn release_holders(&self) -> Result<Passed, StoreError> {
        let tasks = self.tasks();
        let only = doc! { "status": 1, "locks": 1, "lock_round": 1 };
        let filter = self.without_left_alone(queries::former_holders());
        let found = tasks.find(filter).projection(only).limit(AT_ONCE);
        // Nobody else may have a lock because of an end that a failover takes back.
        let found = found.read_concern(ReadConcern::majority()).await?;
        let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        let mut by_lock: BTreeMap<String, Vec<(ObjectId, i64)>> = BTreeMap::new();
        let mut alike: HashMap<(i64, i64), Vec<ObjectId>> = HashMap::new();
        for task in &found {
            let status = task.get("status").and_then(whole_number);
            let (Ok(id), Some(status)) = (task.get_object_id("_id"), status) else { continue };
            let round = round_of(task);
            for request in LockRequest::stored(task) {
                by_lock.entry(request.name().to_owned()).or_default().push((id, round));
            }
            alike.entry((status, round)).or_default().push(id);
        }
        let mut parts = Parts::default();
        // Those keep their mark whose locks cannot be taken from them.
        let mut kept: BTreeSet<ObjectId> = BTreeSet::new();
        for (lock, holders) in &by_lock {
            if let Err(error) = self.take_back(lock, holders).await {
                tracing::error!(lock, %error, "a lock cannot be taken back");
                kept.extend(holders.iter().map(|(task, _)| *task));
                parts.note(Err(error))?;
            }
            if parts.is_forbidden() {
                return parts.end();
            }
        }
        let mut passed = Passed::default();
        for ((status, round), mut ids) in alike {
            ids.retain(|id| !kept.contains(id));
            let same = doc! {
                "_id": { "$in": ids }, "status": status, "lock_round": of_round(round), "holds_locks": true,
            };
            let update = doc! { "$unset": { "holds_locks": "", "awaited": "" } };
            passed.unlocked += self.update_found(same, update).await?;
        }
        passed.more = passed.unlocked > 0;
        parts.note(Ok(passed))?;
        parts.end()
    }

    /// Removes holders from a lock: each is a task, and the last round in which it may have had the lock.
    async fn take_back(&self, lock: &str, holders: &[(ObjectId, i64)]) -> Result<(), StoreError> {
        let ids: Vec<ObjectId> = holders.iter().map(|(task, _)| *task).collect();
        let is = |(task, round): &(ObjectId, i64)| {
            doc! { "$and": [{ "$eq": ["$$this.task", task] }, { "$lte": ["$$this.round", *round] }] }
        };
        let any: Vec<Document> = holders.iter().map(is).collect();
        let rest = doc! { "$filter": { "input": "$holders", "cond": { "$not": [{ "$or": any }] } } };
        let update =
            vec![doc! { "$set": { "holders": rest, "dirty": true, "rev": Bson::from(ObjectId::new()) } }];
        self.locks().update_one(doc! { "_id": lock, "holders.task": { "$in": ids } }, update).await?;
        Ok(())
    }
}
