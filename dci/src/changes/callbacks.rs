//! What web services say about their tasks. It is the task's own doing, as what a plugin writes, so that its history tells of
//! it and the audit does not.

use bson::Bson;
use disbatch_core::callbacks::{Heard, Report};
use disbatch_core::store::StoreError;

use super::to_the_end;
use crate::api::callbacks::Caller;
use crate::state::State;

/// Adds to the log of a task.
pub async fn log_of_service(state: &State, caller: Caller, bytes: Vec<u8>) -> Result<Heard, StoreError> {
    let store = state.store.clone();
    to_the_end(state, async move { store.callback_log(caller.task, &caller.token, bytes).await }).await
}

/// Keeps something for the next run.
pub async fn storage_of_service(state: &State, caller: Caller, storage: Bson) -> Result<Heard, StoreError> {
    let store = state.store.clone();
    to_the_end(state, async move { store.callback_storage(caller.task, &caller.token, storage).await }).await
}

/// Ends a task.
pub async fn end_by_service(state: &State, caller: Caller, report: Report) -> Result<Heard, StoreError> {
    let store = state.store.clone();
    to_the_end(state, async move { store.callback_status(caller.task, &caller.token, report).await }).await
}
