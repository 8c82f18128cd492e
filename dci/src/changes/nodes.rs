//! Nodes.

use disbatch_core::audit::{AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::Selector;
use disbatch_core::node::{NodeChange, Removed, Updated};
use disbatch_core::store::{Altered, StoreError};

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
