//! Bulk jobs. The store makes their entries, as it also ends them.

use bson::oid::ObjectId;
use disbatch_core::bulk::{BulkCancelled, BulkRequest};
use disbatch_core::store::StoreError;

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Makes a job, and begins with it. Returns its id.
pub async fn create_bulk(state: &State, wanted: BulkRequest) -> Result<ObjectId, StoreError> {
    let (store, worker) = (state.store.clone(), state.bulk.clone());
    let change = async move {
        let job = store.create_bulk(&wanted, worker.instance()).await?;
        let id = job.id;
        worker.start(job);
        Ok::<ObjectId, StoreError>(id)
    };
    to_the_end(state, change).await
}

/// Stops a job. What it has done stays done.
pub async fn cancel_bulk(state: &State, who: &Who, id: ObjectId) -> Result<BulkCancelled, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    to_the_end(state, async move { store.cancel_bulk(id, &who).await }).await
}
