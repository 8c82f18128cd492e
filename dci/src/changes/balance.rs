//! What `QueueBalance` goes by. What it does itself is not recorded.

use bson::Document;
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::balance::change::Changed;
use disbatch_core::store::{Altered, Store, StoreError};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Sets fields of the document. The caller has validated them.
pub async fn save_balance(state: &State, who: &Who, fields: Document) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.save_balance(fields).await?;
        note(&store, who, Verb::BalanceUpdate, altered).await;
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

/// The same if nobody else has changed them since they had the revision `base`. Returns the new revision; `None`:
/// somebody has.
pub async fn change_balance(
    state: &State,
    who: &Who,
    base: String,
    fields: Document,
) -> Result<Option<String>, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        Ok::<Option<String>, StoreError>(match store.change_balance(&base, fields).await? {
            Changed::Stored(saved) => {
                note(&store, who, Verb::BalanceUpdate, saved.altered).await;
                Some(saved.revision)
            }
            Changed::Meanwhile => None,
        })
    };
    to_the_end(state, change).await
}

/// Sets until when nothing is balanced, in seconds since 1970.
pub async fn pause_balance(state: &State, who: &Who, until: Option<i64>) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.pause_balance(until).await?;
        note(&store, who, Verb::BalancePause, altered).await;
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

async fn note(store: &Store, who: Actor, what: Verb, altered: Altered) {
    if altered.is_different() {
        let Altered { before, after } = altered;
        let entry = AuditEntry::new(who, what, Object::new(ObjectKind::Balance));
        store.note_audit(&AuditEntry { before, after: Some(after), ..entry }).await;
    }
}
