//! Answers of people to what tasks have asked.

use bson::{DateTime, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::callbacks::Token;
use disbatch_core::model::{Status, Task};
use disbatch_core::store::StoreError;
use disbatch_core::task::question::{Awaiting, Replied, Reply};
use serde_json::{Map, Value};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

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
    let (store, id, queue) = (state.store.clone(), task.id, task.queue);
    let change = async move {
        let replied = store.answer_task(id, &awaiting, &Reply { value, by }).await?;
        if let Replied::Stored(status) = replied {
            let entry = AuditEntry {
                queue: Some(queue),
                before: Some(doc! { "status": Status::Deferred.code() }),
                after: Some(doc! { "status": status.code() }),
                ..AuditEntry::new(who, Verb::TaskAnswer, Object::with_id(ObjectKind::Task, id.0))
            };
            store.note_audit(&entry).await;
        }
        Ok::<Replied, StoreError>(replied)
    };
    to_the_end(state, change).await
}

/// Lets whoever has `token` answer what `task` waits with. Returns until when. `None`: it waits no more.
pub async fn link_to_answer(
    state: &State,
    who: &Who,
    task: &Task,
    (awaiting, token): (Awaiting, Token),
) -> Result<Option<DateTime>, StoreError> {
    let by = who.name.clone().unwrap_or_else(|| "the REST API".to_owned());
    let (store, who, id, queue) = (state.store.clone(), actor(who), task.id, task.queue);
    let change = async move {
        let until = store.add_answer_link(id, &awaiting, (&token, &by)).await?;
        if let Some(until) = until {
            let entry = AuditEntry {
                queue: Some(queue),
                more: doc! { "until": until },
                ..AuditEntry::new(who, Verb::TaskAnswerLink, Object::with_id(ObjectKind::Task, id.0))
            };
            store.note_audit(&entry).await;
        }
        Ok::<Option<DateTime>, StoreError>(until)
    };
    to_the_end(state, change).await
}
