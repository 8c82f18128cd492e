//! Plugins that the database defines.

use bson::Document;
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::PluginName;
use disbatch_core::store::{Altered, StoreError};
use disbatch_core::workers::{NewWorker, SetWorker, WorkerError, WorkerUpdated};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Makes a worker. The entry, like all of these, has nothing that is secret.
pub async fn create_worker(state: &State, who: &Who, worker: NewWorker) -> Result<(), WorkerError> {
    let (store, by, who) = (state.store.clone(), who.words(), actor(who));
    let change = async move {
        let created = store.create_worker(&worker, &by).await?;
        store.note_audit(&entry(who, Verb::WorkerCreate, &worker.name, None, Some(created))).await;
        Ok::<(), WorkerError>(())
    };
    to_the_end(state, change).await
}

/// Changes a worker that has this revision.
pub async fn update_worker(
    state: &State,
    who: &Who,
    worker: NewWorker,
    rev: i64,
) -> Result<WorkerUpdated, WorkerError> {
    let (store, by, who) = (state.store.clone(), who.words(), actor(who));
    let change = async move {
        let updated = store.update_worker(&worker, rev, &by).await?;
        if let WorkerUpdated::Updated(altered) = &updated {
            let Altered { before, after } = (**altered).clone();
            store.note_audit(&entry(who, Verb::WorkerUpdate, &worker.name, before, Some(after))).await;
        }
        Ok::<WorkerUpdated, WorkerError>(updated)
    };
    to_the_end(state, change).await
}

/// Has a worker be like this, whatever it was before.
pub async fn set_worker(state: &State, who: &Who, worker: NewWorker) -> Result<SetWorker, WorkerError> {
    let (store, by, who) = (state.store.clone(), who.words(), actor(who));
    let change = async move {
        let set = store.set_worker(&worker, &by).await?;
        if let Some(entry) = of_set(who, &worker.name, &set) {
            store.note_audit(&entry).await;
        }
        Ok::<SetWorker, WorkerError>(set)
    };
    to_the_end(state, change).await
}

/// Stores definitions one after the other, if there is room for all of them; `replace`: also in the place of others of their names.
/// Returns what became of each; none: there is another one of its name, which stays. Repeating it completes one that was broken off.
pub async fn import_workers(
    state: &State,
    who: &Who,
    workers: Vec<NewWorker>,
    replace: bool,
) -> Result<Vec<Option<SetWorker>>, WorkerError> {
    let (store, by, who) = (state.store.clone(), who.words(), actor(who));
    let change = async move {
        store.room_for_workers(&workers, replace).await?;
        let mut outcomes = Vec::new();
        for worker in &workers {
            let outcome = store.import_worker(worker, replace, &by).await?;
            if let Some(entry) = outcome.as_ref().and_then(|set| of_set(who.clone(), &worker.name, set)) {
                store.note_audit(&entry).await;
            }
            outcomes.push(outcome);
        }
        Ok::<Vec<Option<SetWorker>>, WorkerError>(outcomes)
    };
    to_the_end(state, change).await
}

/// Removes a worker. Returns whether there was such a worker.
pub async fn delete_worker(state: &State, who: &Who, name: PluginName) -> Result<bool, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let Some(gone) = store.delete_worker(&name, None).await? else {
            return Ok::<bool, StoreError>(false);
        };
        store.note_audit(&entry(who, Verb::WorkerDelete, &name, Some(gone), None)).await;
        Ok(true)
    };
    to_the_end(state, change).await
}

/// The entry about a definition that was to be there. None: nothing has changed.
fn of_set(who: Actor, name: &PluginName, set: &SetWorker) -> Option<AuditEntry> {
    match set {
        SetWorker::Created(created) => {
            Some(entry(who, Verb::WorkerCreate, name, None, Some(created.clone())))
        }
        SetWorker::Updated(altered) => {
            let Altered { before, after } = (**altered).clone();
            Some(entry(who, Verb::WorkerUpdate, name, before, Some(after)))
        }
        SetWorker::Unchanged | SetWorker::Changed { .. } => None,
    }
}

fn entry(
    who: Actor,
    what: Verb,
    name: &PluginName,
    before: Option<Document>,
    after: Option<Document>,
) -> AuditEntry {
    let object = Object::with_name(ObjectKind::Worker, name.as_str());
    AuditEntry { before, after, ..AuditEntry::new(who, what, object) }
}
