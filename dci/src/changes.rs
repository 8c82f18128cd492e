//! What people and programs change, each time with an entry in the audit. Handlers change things here, and nowhere else.
//!
//! The entry comes after the change, and only if there was one. If it cannot be made, the log says what was changed, and
//! the answer is as if it could: the change stays made. Both come to their end also if whoever has asked hangs up
//! meanwhile, so that nobody can change things without an entry.

mod accounts;
mod answers;
mod bulk;
mod files;
mod fleet;
mod queues;
mod refusals;
mod schedules;
mod tasks;

use bson::Document;
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::callbacks::Heard;
use disbatch_core::store::{Altered, Store, StoreError};

use crate::access::Who;
use crate::state::State;
use crate::{access, allowance};
pub use accounts::{begin_session, create_token, end_session_of, log_out, revoke_token, set_password};
pub use answers::{answer_by_link, answer_task, link_to_answer};
pub use bulk::{OfElements, act_on_array, cancel_bulk, create_bulk, submit_array};
pub use files::{SentChunk, add_files, commit_files, delete_files, finish_content, open_files, put_chunk};
pub use fleet::{define_plugin, delete_node, import_definitions, update_node};
pub use queues::{create_queue, delete_queue, lift_rule, set_rule, update_queue};
pub use refusals::Refusals;
pub use schedules::{
    backfill_schedule, create_schedule, delete_schedule, pause_schedule, run_schedule, update_schedule,
};
pub use tasks::{ArchivedOne, archive_task, cancel_task, rerun_task, retry_task, set_priority, submit};

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

/// Sets fields of what `QueueBalance` goes by, if nobody else has changed them since they had the revision `base`. Returns whether it
/// was so.
pub async fn change_balance(
    state: &State,
    who: &Who,
    base: String,
    fields: Document,
) -> Result<bool, StoreError> {
    let (who, what) = (actor(who), (Verb::BalanceUpdate, Object::new(ObjectKind::Balance)));
    let change = |store: Store| async move {
        let changed = store.change_balance(&base, fields).await?;
        Ok((changed.is_some(), changed.and_then(|changed| altered(who, what, changed))))
    };
    noted(state, change).await
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
pub async fn alter<C, F, E>(state: &State, who: &Who, what: (Verb, Object), change: C) -> Result<(), E>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<Altered, E>> + Send,
    E: Send + 'static,
{
    let who = actor(who);
    noted(state, |store| async move { Ok(((), altered(who, what, change(store).await?))) }).await
}

/// Removes one object, and notes in the audit what it was like. Returns false if there was none.
pub async fn remove<C, F, E>(
    state: &State,
    who: &Who,
    (verb, object): (Verb, Object),
    removal: C,
) -> Result<bool, E>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<Option<Document>, E>> + Send,
    E: Send + 'static,
{
    let who = actor(who);
    let change = move |store: Store| async move {
        let gone = removal(store).await?;
        let is_gone = gone.is_some();
        let entry = is_gone.then(|| AuditEntry { before: gone, ..AuditEntry::new(who, verb, object) });
        Ok((is_gone, entry))
    };
    noted(state, change).await
}

/// Changes something, and notes in the audit the entry that comes of it, if one does.
async fn noted<T, C, F, E>(state: &State, change: C) -> Result<T, E>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<(T, Option<AuditEntry>), E>> + Send,
    T: Send + 'static,
    E: Send + 'static,
{
    let store = state.store.clone();
    let change = async move {
        let (done, entry) = change(store.clone()).await?;
        if let Some(entry) = entry {
            store.note_audit(&entry).await;
        }
        Ok(done)
    };
    to_the_end(state, change).await
}

/// The entry about an object that was changed, if it is different.
fn altered(who: Actor, (verb, object): (Verb, Object), altered: Altered) -> Option<AuditEntry> {
    altered.is_different().then(|| {
        let Altered { before, after } = altered;
        AuditEntry { before, after: Some(after), ..AuditEntry::new(who, verb, object) }
    })
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
