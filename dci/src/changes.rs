//! What people and programs change, each time with an entry in the audit. Handlers change things here, and nowhere else.
//!
//! The entry comes after the change, and only if there was one. If it cannot be made, the log says what was changed, and
//! the answer is as if it could: the change stays made. Both come to their end also if whoever has asked hangs up
//! meanwhile, so that nobody can change things without an entry.

mod accounts;
mod files;
mod fleet;
mod schedules;
mod tasks;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::callbacks::{Heard, Token};
use disbatch_core::model::{QueueId, Status, Task, TaskId};
use disbatch_core::store::{Altered, Store, StoreError};
use disbatch_core::task::question::{Awaiting, Replied, Reply};
use serde_json::{Map, Value};

use crate::access::Who;
use crate::state::State;
use crate::{access, allowance};
pub use accounts::{
    Refusals, begin_session, create_token, end_session_of, log_out, revoke_token, set_password,
};
pub use files::{SentChunk, add_files, commit_files, delete_files, finish_content, open_files, put_chunk};
pub use fleet::{
    create_queue, define_plugin, delete_node, delete_queue, import_definitions, lift_rule,
    make_notification_queue, set_rule, update_node, update_queue,
};
pub use schedules::{
    backfill_schedule, create_schedule, delete_schedule, pause_schedule, run_schedule, update_schedule,
};
pub use tasks::{
    ArchivedOne, OfElements, act_on_array, archive_task, cancel_bulk, cancel_task, create_bulk, rerun_task,
    retry_task, set_priority, submit, submit_array,
};

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
    let ask = |store: Store, who: Actor| async move {
        store.ask_for_audit().await?;
        Ok(((), Some(AuditEntry::new(who, Verb::CountersAudit, Object::new(ObjectKind::Counters)))))
    };
    noted(state, actor(who), ask).await
}

/// Sets fields of what `QueueBalance` goes by, if nobody else has changed them since they had the revision `base`. Returns whether it
/// was so.
pub async fn change_balance(
    state: &State,
    who: &Who,
    base: String,
    fields: Document,
) -> Result<bool, StoreError> {
    let what = (Verb::BalanceUpdate, Object::new(ObjectKind::Balance));
    let change = |store: Store, who: Actor| async move {
        let changed = store.change_balance(&base, fields).await?;
        Ok((changed.is_some(), changed.and_then(|changed| altered(who, what, changed))))
    };
    noted(state, actor(who), change).await
}

/// Does what a web service says about its task. It is the task's own doing, as what a plugin writes, so that its history tells of it
/// and the audit does not.
pub async fn by_service<C, F>(state: &State, change: C) -> Result<Heard, StoreError>
where
    C: FnOnce(Store) -> F,
    F: Future<Output = Result<Heard, StoreError>> + Send + 'static,
{
    to_the_end(state, change(state.store.clone())).await
}

/// Changes one object, and notes in the audit what it is like then, if it is different.
pub async fn alter<C, F, E>(state: &State, who: &Who, what: (Verb, Object), change: C) -> Result<(), E>
where
    C: FnOnce(Store) -> F + Send + 'static,
    F: Future<Output = Result<Altered, E>> + Send,
    E: Send + 'static,
{
    noted(state, actor(who), |store, who| async move { Ok(((), altered(who, what, change(store).await?))) })
        .await
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
    let change = move |store: Store, who: Actor| async move {
        let gone = removal(store).await?;
        let is_gone = gone.is_some();
        let entry = is_gone.then(|| AuditEntry { before: gone, ..AuditEntry::new(who, verb, object) });
        Ok((is_gone, entry))
    };
    noted(state, actor(who), change).await
}

/// Changes something, and notes in the audit the entry that comes of it, if one does.
async fn noted<T, C, F, E>(state: &State, who: Actor, change: C) -> Result<T, E>
where
    C: FnOnce(Store, Actor) -> F + Send + 'static,
    F: Future<Output = Result<(T, Option<AuditEntry>), E>> + Send,
    T: Send + 'static,
    E: Send + 'static,
{
    let store = state.store.clone();
    let change = async move {
        let (done, entry) = change(store.clone(), who).await?;
        if let Some(entry) = entry {
            store.note_audit(&entry).await;
        }
        Ok(done)
    };
    to_the_end(state, change).await
}

/// An entry has the ids of so many tasks.
const FIRST: usize = 10;

fn new_tasks(tasks: &[TaskId]) -> Document {
    let first: Vec<ObjectId> = tasks.iter().take(FIRST).map(|id| id.0).collect();
    doc! { "count": i64::try_from(tasks.len()).unwrap_or(i64::MAX), "tasks": first }
}

/// The queue of a task or a schedule.
fn queue_of(document: &Document) -> Option<QueueId> {
    document.get_object_id("queue").ok().map(QueueId)
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

/// What those are known by in the audit who have a link.
const LINK: &str = "a link to answer";

/// Answers what `task` waits with. What was answered is in the task, and not in the audit.
pub async fn answer_task(
    state: &State,
    who: &Who,
    task: &Task,
    (awaiting, value): (Awaiting, Map<String, Value>),
) -> Result<Replied, StoreError> {
    reply(state, (actor(who), who.words()), task, (awaiting, value)).await
}

/// The same by a link that `of` has made, from an address.
pub async fn answer_by_link(
    state: &State,
    (of, from): (&str, &str),
    task: &Task,
    answer: (Awaiting, Map<String, Value>),
) -> Result<Replied, StoreError> {
    let actor = Actor::new(Some(of.to_owned()), Via::Token(LINK.to_owned()), from);
    reply(state, (actor, format!("somebody with a link of {of} from {from}")), task, answer).await
}

async fn reply(
    state: &State,
    (who, by): (Actor, String),
    task: &Task,
    (awaiting, value): (Awaiting, Map<String, Value>),
) -> Result<Replied, StoreError> {
    let (id, queue) = (task.id, task.queue);
    let change = move |store: Store, who: Actor| async move {
        let replied = store.answer_task(id, &awaiting, &Reply { value, by }).await?;
        let entry = match replied {
            Replied::Stored(status) => Some(AuditEntry {
                queue: Some(queue),
                before: Some(doc! { "status": Status::Deferred.code() }),
                after: Some(doc! { "status": status.code() }),
                ..AuditEntry::new(who, Verb::TaskAnswer, Object::with_id(ObjectKind::Task, id.0))
            }),
            Replied::NotAwaited(..) | Replied::NoSuchTask => None,
        };
        Ok((replied, entry))
    };
    noted(state, who, change).await
}

/// Lets whoever has `token` answer what `task` waits with. Returns until when. `None`: it waits no more.
pub async fn link_to_answer(
    state: &State,
    who: &Who,
    task: &Task,
    (awaiting, token): (Awaiting, Token),
) -> Result<Option<DateTime>, StoreError> {
    let by = who.name.clone().unwrap_or_else(|| "the REST API".to_owned());
    let (id, queue) = (task.id, task.queue);
    let link = move |store: Store, who: Actor| async move {
        let until = store.add_answer_link(id, &awaiting, (&token, &by)).await?;
        let entry = until.map(|until| AuditEntry {
            queue: Some(queue),
            more: doc! { "until": until },
            ..AuditEntry::new(who, Verb::TaskAnswerLink, Object::with_id(ObjectKind::Task, id.0))
        });
        Ok((until, entry))
    };
    noted(state, actor(who), link).await
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
