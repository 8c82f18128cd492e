//! Unowned: claims and runs that no living process can have, because somebody has written them by hand, or a program that is gone.
//!
//! They get a lease, as every other has: who owns one prolongs it, else it runs out, and the task is queued again or buried.

use std::collections::HashSet;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::transition::{Transition, server_time_in};
use crate::store::{Store, StoreError};

/// So many get one at once.
const AT_ONCE: i64 = 1_000;

impl Store {
    /// The names in which tasks are claimed or running without a lease, and that no node has: programs of Perl Disbatch write the entry
    /// of their node before they claim, and every second.
    #[operation]
    pub async fn unknown_owners(&self) -> Result<HashSet<String>, StoreError> {
        let mut unleased = taken();
        unleased.insert("lease_until", Bson::Null);
        let pipeline = [doc! { "$match": unleased }, doc! { "$group": { "_id": "$node" } }];
        let found: Vec<Document> = self.tasks().aggregate(pipeline).await?.try_collect().await?;
        let name = |group: &Document| group.get_str("_id").map(str::to_owned).ok();
        let mut owners: HashSet<String> = found.iter().filter_map(name).collect();
        if !owners.is_empty() {
            let names: Vec<&String> = owners.iter().collect();
            for known in self.nodes().distinct("node", doc! { "node": { "$in": names } }).await? {
                known.as_str().map(|name| owners.remove(name));
            }
        }
        Ok(owners)
    }

    /// Gives a lease to claims and runs whose lease is no time, and to those without one that are in nobody's name, or in that of
    /// one who is `gone`. Returns how many there were.
    #[operation]
    pub async fn lease_unowned(&self, lease: Duration, gone: &[&str]) -> Result<u64, StoreError> {
        let odd = doc! { "lease_until": { "$exists": true, "$not": { "$type": ["date", "null"] } } };
        // Not `$type` of the query language, which also takes lists with a text.
        let nobodys = doc! {
            "lease_until": Bson::Null, "$expr": { "$ne": [{ "$type": "$node" }, "string"] },
        };
        let of_gone = doc! { "lease_until": Bson::Null, "node": { "$in": gone } };
        let mut unowned = taken();
        unowned.insert("$or", [odd, nobodys, of_gone].to_vec());
        let filter = self.without_left_alone(unowned.clone());
        let found = self.tasks().find(filter).projection(doc! { "_id": 1 }).limit(AT_ONCE).await?;
        let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        let ids = found.iter().filter_map(|task| task.get("_id").cloned()).collect();
        let leased = Transition::within().compute("lease_until", server_time_in(lease));
        self.update_each(ids, &unowned, leased.pipeline()).await
    }
}

/// Matches claims and runs, as the index of leases has them.
fn taken() -> Document {
    doc! { "status": { "$gte": -1, "$lte": 0 } }
}
