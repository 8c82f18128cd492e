//! Queues and rules of admission, nodes, and plugins that the database defines.

use bson::{Bson, Document, doc};
use disbatch_core::admission::{NewRule, Scope};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::definitions::{DefinitionError, NewDefinition, Place};
use disbatch_core::model::{QueueId, STOPPED, Selector};
use disbatch_core::node::{NodeChange, Removed, Updated};
use disbatch_core::notifications::SubscriptionError;
use disbatch_core::store::{Altered, Store, StoreError};
use disbatch_wire::definitions::DefinitionsImported;

use super::{actor, noted, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Creates a queue with these fields. They have been validated by the caller.
pub async fn create_queue(state: &State, who: &Who, id: QueueId, fields: Document) -> Result<(), StoreError> {
    let create = move |store: Store, who: Actor| async move {
        let mut made = doc! { "_id": id };
        made.extend(fields);
        store.insert_queue(made.clone()).await?;
        Ok(((), Some(entry(who, Verb::QueueCreate, None, Some(made)))))
    };
    noted(state, actor(who), create).await
}

pub async fn make_notification_queue(state: &State, who: &Who) -> Result<(), SubscriptionError> {
    let make = |store: Store, who: Actor| async move {
        let made = store.make_notification_queue().await?;
        Ok(((), made.map(|made| entry(who, Verb::QueueCreate, None, Some(made)))))
    };
    noted(state, actor(who), make).await
}

/// Sets fields of a queue, and removes those whose new value is null, if those of `stored` still have these values. The caller has
/// validated them.
pub async fn update_queue(
    state: &State,
    who: &Who,
    selector: Selector,
    mut fields: Document,
    stored: Vec<(String, Option<Bson>)>,
) -> Result<Updated, StoreError> {
    if stops(&fields) {
        fields.insert(STOPPED, doc! { "by": who.name.clone(), "at": state.store.now() });
    }
    let update = move |store: Store, who: Actor| async move {
        let altered = store.update_queue_from(&selector, fields, &stored).await?;
        let altered = altered.map(without_author);
        let updated = Altered::updated(altered.as_ref());
        let altered = altered.filter(Altered::is_different);
        let entry = altered.map(|queue| entry(who, Verb::QueueUpdate, queue.before, Some(queue.after)));
        Ok((updated, entry))
    };
    noted(state, actor(who), update).await
}

/// Deletes a queue, leaving its tasks. Returns how many were deleted: 0 or 1.
pub async fn delete_queue(state: &State, who: &Who, selector: Selector) -> Result<u64, StoreError> {
    let delete = move |store: Store, who: Actor| async move {
        let gone = store.delete_queue(&selector).await?;
        let deleted = u64::from(gone.is_some());
        Ok((deleted, gone.map(|gone| entry(who, Verb::QueueDelete, Some(gone), None))))
    };
    noted(state, actor(who), delete).await
}

/// Whether a change pauses the queue, or has it accept no tasks.
fn stops(fields: &Document) -> bool {
    fields.get_bool("paused").unwrap_or(false) || !fields.get_bool("accepting").unwrap_or(true)
}

/// An entry of the audit says who it was anyway.
fn without_author(mut altered: Altered) -> Altered {
    for queue in altered.before.iter_mut().chain([&mut altered.after]) {
        queue.remove(STOPPED);
    }
    altered
}

fn entry(who: Actor, what: Verb, before: Option<Document>, after: Option<Document>) -> AuditEntry {
    let of = |document: &Document| Object::of_document(ObjectKind::Queue, document, "name");
    let object = after.as_ref().or(before.as_ref()).map_or(Object::new(ObjectKind::Queue), of);
    AuditEntry { queue: object.id.map(QueueId), before, after, ..AuditEntry::new(who, what, object) }
}

/// Makes a rule, in the place of the one that its scope has, and releases what no rule holds any more.
pub async fn set_rule(state: &State, who: &Who, rule: NewRule) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.set_rule(&rule).await?;
        if let Some(entry) = super::altered(who, (Verb::AdmissionSet, rule_object(&rule.scope)), altered) {
            store.note_audit(&AuditEntry { queue: rule_queue(&rule.scope), ..entry }).await;
        }
        release(&store).await;
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

/// Lifts the rule of a scope, and releases what no rule holds any more. Returns how many tasks were released; `None`: there
/// is no such rule.
pub async fn lift_rule(state: &State, who: &Who, scope: Scope) -> Result<Option<u64>, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let Some(gone) = store.lift_rule(&scope).await? else { return Ok::<Option<u64>, StoreError>(None) };
        let entry = AuditEntry::new(who, Verb::AdmissionLift, rule_object(&scope));
        store.note_audit(&AuditEntry { queue: rule_queue(&scope), before: Some(gone), ..entry }).await;
        Ok(Some(release(&store).await))
    };
    to_the_end(state, change).await
}

/// What is not released now is released soon, by whichever process looks for it.
async fn release(store: &Store) -> u64 {
    store.release_held().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot release held tasks: they are released soon");
        0
    })
}

fn rule_object(scope: &Scope) -> Object {
    let value = scope.value().map(|value| format!(" {value}")).unwrap_or_default();
    Object::with_name(ObjectKind::Admission, format!("{}{value}", scope.kind()))
}

fn rule_queue(scope: &Scope) -> Option<QueueId> {
    match scope {
        Scope::Queue(queue) => Some(*queue),
        Scope::All | Scope::Tenant(_) | Scope::Owner(_) => None,
    }
}

/// Sets what an operator may set of a node. The caller has validated it.
pub async fn update_node(
    state: &State,
    who: &Who,
    selector: Selector,
    change: NodeChange,
) -> Result<Updated, StoreError> {
    let update = move |store: Store, who: Actor| async move {
        let altered = store.update_node(&selector, change).await?;
        let updated = Altered::updated(altered.as_ref());
        let entry = altered.filter(Altered::is_different).map(|Altered { before, after }| {
            let object = Object::of_document(ObjectKind::Node, &after, "node");
            AuditEntry { before, after: Some(after), ..AuditEntry::new(who, Verb::NodeUpdate, object) }
        });
        Ok((updated, entry))
    };
    noted(state, actor(who), update).await
}

/// Removes a node whose DEN is not alive.
pub async fn delete_node(state: &State, who: &Who, selector: Selector) -> Result<Removed, StoreError> {
    let delete = move |store: Store, who: Actor| async move {
        let removed = store.delete_node(&selector).await?;
        let Removed::Gone(gone) = &removed else { return Ok((removed, None)) };
        let object = Object::of_document(ObjectKind::Node, gone, "node");
        let entry =
            AuditEntry { before: Some(gone.clone()), ..AuditEntry::new(who, Verb::NodeDelete, object) };
        Ok((removed, Some(entry)))
    };
    noted(state, actor(who), delete).await
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

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn it_is_noted_who_stops_a_queue_and_an_entry_has_that_once() {
        assert!(stops(&doc! { "paused": true }) && stops(&doc! { "accepting": false }));
        assert!(!stops(&doc! { "paused": false, "threads": 0 }) && !stops(&doc! { "accepting": Bson::Null }));
        let queue = |at: i64| doc! { "paused": true, STOPPED: { "at": at } };
        let altered = without_author(Altered { before: Some(queue(1)), after: queue(2) });
        assert!(!altered.is_different(), "{altered:?}");
    }

    #[test]
    fn a_queue_is_told_by_the_name_that_it_has_last() {
        let id = ObjectId::new();
        let (old, new) = (doc! { "_id": id, "name": "old" }, doc! { "_id": id, "name": "new" });
        let of = |before, after| {
            let entry = entry(Actor::refused("10.0.0.1"), Verb::QueueUpdate, before, after);
            assert_eq!((entry.queue, entry.object.id), (Some(QueueId(id)), Some(id)));
            entry.object.name.unwrap()
        };
        assert_eq!(of(Some(old.clone()), Some(new.clone())), "new");
        assert_eq!(of(Some(old), None), "old");
        assert_eq!(of(None, Some(new)), "new");
    }
}
