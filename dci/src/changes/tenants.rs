//! What tenants may take.

use bson::Document;
use disbatch_core::audit::{AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::store::{Altered, StoreError};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// Sets limits of a tenant, and removes those whose new value is null. The caller has validated them.
pub async fn set_tenant(state: &State, who: &Who, name: String, limits: Document) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = store.set_tenant(&name, limits).await?;
        if altered.is_different() {
            let Altered { before, after } = altered;
            let entry = AuditEntry::new(who, Verb::TenantSet, Object::with_name(ObjectKind::Tenant, name));
            store.note_audit(&AuditEntry { before, after: Some(after), ..entry }).await;
        }
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

/// Removes the limits of a tenant. Returns false if it had none.
pub async fn delete_tenant(state: &State, who: &Who, name: String) -> Result<bool, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let Some(gone) = store.delete_tenant(&name).await? else { return Ok::<bool, StoreError>(false) };
        let entry = AuditEntry::new(who, Verb::TenantDelete, Object::with_name(ObjectKind::Tenant, name));
        store.note_audit(&AuditEntry { before: Some(gone), ..entry }).await;
        Ok(true)
    };
    to_the_end(state, change).await
}
