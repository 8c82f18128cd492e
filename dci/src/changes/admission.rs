//! Rules of admission.

use bson::Document;
use disbatch_core::admission::{NewRule, Scope};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::store::{Altered, Store, StoreError};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Makes a rule, in the place of the one that its scope has, and releases what no rule holds any more.
pub async fn set_rule(state: &State, who: &Who, rule: NewRule) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.set_rule(&rule).await?;
        if altered.is_different() {
            let Altered { before, after } = altered;
            store.note_audit(&entry(who, Verb::AdmissionSet, &rule.scope, (before, Some(after)))).await;
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
        store.note_audit(&entry(who, Verb::AdmissionLift, &scope, (Some(gone), None))).await;
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

fn entry(
    who: Actor,
    what: Verb,
    scope: &Scope,
    (before, after): (Option<Document>, Option<Document>),
) -> AuditEntry {
    let name =
        scope.value().map_or_else(|| scope.kind().to_owned(), |value| format!("{} {value}", scope.kind()));
    let queue = match scope {
        Scope::Queue(queue) => Some(*queue),
        Scope::All | Scope::Tenant(_) | Scope::Owner(_) => None,
    };
    let entry = AuditEntry::new(who, what, Object::with_name(ObjectKind::Admission, name));
    AuditEntry { queue, before, after, ..entry }
}
