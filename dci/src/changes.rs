//! What people and programs change, each time with an entry in the audit. Handlers change things here, and nowhere else.
//!
//! The entry comes after the change, and only if there was one. If it cannot be made, the log says what was changed, and
//! the answer is as if it could: the change stays made. Both come to their end also if whoever has asked hangs up
//! meanwhile, so that nobody can change things without an entry.

mod accounts;
mod admission;
mod archive;
mod arrays;
mod balance;
mod bulk;
mod definitions;
mod files;
mod nodes;
mod queues;
mod refusals;
mod schedules;
mod tasks;

use bson::Document;
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::callbacks::Heard;
use disbatch_core::store::{Altered, Store, StoreError};

use crate::access::{self, Who};
use crate::allowance;
use crate::state::State;

pub use accounts::{begin_session, create_token, end_session_of, log_out, revoke_token, set_password};
pub use admission::{lift_rule, set_rule};
pub use archive::{ArchivedOne, archive_task};
pub use arrays::{act_on_array, submit_array};
pub use balance::{change_balance, pause_balance, save_balance};
pub use bulk::{cancel_bulk, create_bulk};
pub use definitions::{define_plugin, import_definitions};
pub use files::{SentChunk, add_files, commit_files, delete_files, finish_content, open_files, put_chunk};
pub use nodes::{delete_node, update_node};
pub use queues::{create_queue, delete_queue, update_queue};
pub use refusals::Refusals;
pub use schedules::{
    backfill_schedule, create_schedule, delete_calendar, delete_schedule, pause_schedule, run_schedule,
    set_calendar, update_schedule,
};
pub use tasks::{cancel_task, retry_task, set_priority, submit};

/// Somebody who asks, for the audit.
pub fn actor(who: &Who) -> Actor {
    let via = match &who.via {
        access::Via::OpenDoor => Via::OpenDoor,
        access::Via::Session(_) => Via::Session,
        access::Via::Password => Via::Password,
        access::Via::Token { name, .. } => Via::Token(name.clone()),
        access::Via::Proxy => Via::Proxy,
    };
    Actor::new(who.name.clone(), via, who.from.clone())
}

/// Asks for an audit of all counters.
pub async fn audit_counters(state: &State, who: &Who) -> Result<(), StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        store.ask_for_audit().await?;
        let object = Object::new(ObjectKind::Counters);
        store.note_audit(&AuditEntry::new(who, Verb::CountersAudit, object)).await;
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

/// Does what a web service says about its task. It is the task's own doing, as what a plugin writes, so that its history tells of it
/// and the audit does not.
pub async fn by_service<F>(state: &State, change: F) -> Result<Heard, StoreError>
where
    F: Future<Output = Result<Heard, StoreError>> + Send + 'static,
{
    to_the_end(state, change).await
}

/// Changes one object, and notes in the audit what it is like then, if it is different.
pub async fn alter<C, F>(
    state: &State,
    who: &Who,
    (verb, object): (Verb, Object),
    change: C,
) -> Result<(), StoreError>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<Altered, StoreError>> + Send,
{
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let altered = change(store.clone()).await?;
        if altered.is_different() {
            let Altered { before, after } = altered;
            let entry = AuditEntry::new(who, verb, object);
            store.note_audit(&AuditEntry { before, after: Some(after), ..entry }).await;
        }
        Ok(())
    };
    to_the_end(state, change).await
}

/// Removes one object, and notes in the audit what it was like. Returns false if there was none.
pub async fn remove<C, F>(
    state: &State,
    who: &Who,
    (verb, object): (Verb, Object),
    removal: C,
) -> Result<bool, StoreError>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<Option<Document>, StoreError>> + Send,
{
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let Some(gone) = removal(store.clone()).await? else { return Ok(false) };
        store.note_audit(&AuditEntry { before: Some(gone), ..AuditEntry::new(who, verb, object) }).await;
        Ok(true)
    };
    to_the_end(state, change).await
}

/// Does something to its end, whatever becomes of the request that it was asked for with.
async fn to_the_end<T, F>(state: &State, change: F) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let allowance = allowance::now();
    let change = async move {
        let done = change.await;
        drop(allowance);
        done
    };
    match state.runtime.spawn(change).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends, and this request with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::Key;

    use super::*;

    #[test]
    fn the_audit_has_the_same_words_as_the_history_of_tasks_and_no_keys() {
        let (key, text) = (Key::new().unwrap(), "disbatch_secret".to_owned());
        let token = access::Via::Token { name: "nightly".to_owned(), text: text.clone() };
        let all = [access::Via::Session(key.clone()), access::Via::Password, token, access::Via::Proxy];
        for via in all {
            let who = Who { name: Some("alice".to_owned()), via, ..Who::anybody("10.0.0.1".to_owned()) };
            let actor = actor(&who);
            assert_eq!(actor.words(), who.words());
            let told = format!("{actor:?}");
            assert!(!told.contains(&text) && !told.contains(&key.text()), "{told}");
        }
        let anybody = Who::anybody("10.0.0.1".to_owned());
        assert_eq!(actor(&anybody).words(), anybody.words());
    }
}
