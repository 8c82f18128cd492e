//! Nodes, and plugins that the database defines.

use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::definitions::{DefinitionError, NewDefinition, Place};
use disbatch_core::model::Selector;
use disbatch_core::node::{NodeChange, Removed, Updated};
use disbatch_core::store::{Altered, Store, StoreError};
use disbatch_wire::definitions::DefinitionsImported;

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Sets what an operator may set of a node. The caller has validated it.
pub async fn update_node(
    state: &State,
    who: &Who,
    selector: Selector,
    change: NodeChange,
) -> Result<Updated, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.update_node(&selector, change).await?;
        let updated = Altered::updated(altered.as_ref());
        if let Some(Altered { before, after }) = altered.filter(Altered::is_different) {
            let object = Object::of_document(ObjectKind::Node, &after, "node");
            let entry = AuditEntry::new(who, Verb::NodeUpdate, object);
            store.note_audit(&AuditEntry { before, after: Some(after), ..entry }).await;
        }
        Ok::<Updated, StoreError>(updated)
    };
    to_the_end(state, change).await
}

/// Removes a node whose DEN is not alive.
pub async fn delete_node(state: &State, who: &Who, selector: Selector) -> Result<Removed, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let removed = store.delete_node(&selector).await?;
        if let Removed::Gone(gone) = &removed {
            let object = Object::of_document(ObjectKind::Node, gone, "node");
            let entry = AuditEntry::new(who, Verb::NodeDelete, object);
            store.note_audit(&AuditEntry { before: Some(gone.clone()), ..entry }).await;
        }
        Ok::<Removed, StoreError>(removed)
    };
    to_the_end(state, change).await
}

/// Stores a definition. The entry has nothing that is secret.
pub async fn define_plugin(
    state: &State,
    who: &Who,
    new: NewDefinition,
    place: Place,
) -> Result<Altered, DefinitionError> {
    let (store, by) = (state.store.clone(), (who.words(), actor(who)));
    let change = async move {
        store.room_for_workers(std::slice::from_ref(&new), place).await?;
        define(&store, &by, &new, place).await
    };
    to_the_end(state, change).await
}

/// Stores definitions one after the other, if there is room for all of them. One in whose place there is another one is left.
/// Repeating it completes one that was broken off.
pub async fn import_definitions(
    state: &State,
    who: &Who,
    all: Vec<NewDefinition>,
    place: Place,
) -> Result<DefinitionsImported, DefinitionError> {
    let (store, by) = (state.store.clone(), (who.words(), actor(who)));
    let change = async move {
        store.room_for_workers(&all, place).await?;
        let mut told = DefinitionsImported::default();
        for new in &all {
            let list = match define(&store, &by, new, place).await {
                Ok(altered) if !altered.is_different() => &mut told.unchanged,
                Ok(Altered { before: None, .. }) => &mut told.created,
                Ok(_) => &mut told.updated,
                Err(DefinitionError::NameTaken(name)) => {
                    let there = store.worker(&name).await?;
                    let is_same = there.is_some_and(|there| there.defines(new));
                    if is_same { &mut told.unchanged } else { &mut told.left }
                }
                // Others change it all the time.
                Err(DefinitionError::Changed(_)) => &mut told.left,
                Err(error) => return Err(error),
            };
            list.push(new.name.to_string());
        }
        Ok(told)
    };
    to_the_end(state, change).await
}

async fn define(
    store: &Store,
    (by, who): &(String, Actor),
    new: &NewDefinition,
    place: Place,
) -> Result<Altered, DefinitionError> {
    let altered = store.define_plugin(new, place, by).await?;
    let verb = if altered.before.is_none() { Verb::WorkerCreate } else { Verb::WorkerUpdate };
    let object = Object::with_name(ObjectKind::Worker, new.name.as_str());
    if let Some(entry) = super::altered(who.clone(), (verb, object), altered.clone()) {
        store.note_audit(&entry).await;
    }
    Ok(altered)
}
