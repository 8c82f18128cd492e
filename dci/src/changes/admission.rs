//! Rules of admission.

use disbatch_core::admission::{NewRule, Scope};
use disbatch_core::audit::{AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::QueueId;
use disbatch_core::store::{Store, StoreError};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Makes a rule, in the place of the one that its scope has, and releases what no rule holds any more.
pub async fn set_rule(state: &State, who: &Who, rule: NewRule) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.set_rule(&rule).await?;
        if let Some(entry) = super::altered(who, (Verb::AdmissionSet, object(&rule.scope)), altered) {
            store.note_audit(&AuditEntry { queue: queue(&rule.scope), ..entry }).await;
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
        let entry = AuditEntry::new(who, Verb::AdmissionLift, object(&scope));
        store.note_audit(&AuditEntry { queue: queue(&scope), before: Some(gone), ..entry }).await;
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

fn object(scope: &Scope) -> Object {
    let value = scope.value().map(|value| format!(" {value}")).unwrap_or_default();
    Object::with_name(ObjectKind::Admission, format!("{}{value}", scope.kind()))
}

fn queue(scope: &Scope) -> Option<QueueId> {
    match scope {
        Scope::Queue(queue) => Some(*queue),
        Scope::All | Scope::Tenant(_) | Scope::Owner(_) => None,
    }
}
