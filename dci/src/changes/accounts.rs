//! Sessions, passwords and tokens of those who ask.

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::accounts::{Key, NewToken, PasswordHash, User, UserName, Visitor};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::model::QueueId;
use disbatch_core::store::StoreError;

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// A day in seconds.
const DAY: u64 = 86_400;

/// Begins a session of somebody who has shown their password, from an address and with a browser that calls itself so.
pub async fn begin_session(
    state: &State,
    user: &User,
    from: String,
    agent: String,
) -> Result<Key, StoreError> {
    let (store, limits, user) = (state.store.clone(), state.access.limits, user.clone());
    let change = async move {
        let visitor = Visitor { user: &user, from: &from, agent: &agent };
        let key = store.begin_session(visitor, limits).await?;
        let who = Actor::new(Some(user.name.to_string()), Via::Session, from.as_str());
        let object = Object::with_name(ObjectKind::User, user.name.as_str());
        store.note_audit(&AuditEntry::new(who, Verb::Login, object)).await;
        Ok::<Key, StoreError>(key)
    };
    to_the_end(state, change).await
}

pub async fn log_out(state: &State, who: &Who, key: &Key) -> Result<(), StoreError> {
    let (store, who, key) = (state.store.clone(), actor(who), key.clone());
    let change = async move {
        store.end_session(&key).await?;
        let object = Object { name: who.name.clone(), ..Object::new(ObjectKind::User) };
        store.note_audit(&AuditEntry::new(who, Verb::Logout, object)).await;
        Ok::<(), StoreError>(())
    };
    to_the_end(state, change).await
}

/// Ends one of somebody's sessions. Returns false if they have no such session.
pub async fn end_session_of(
    state: &State,
    who: &Who,
    user: &UserName,
    id: ObjectId,
) -> Result<bool, StoreError> {
    let (store, who, user) = (state.store.clone(), actor(who), user.clone());
    let change = async move {
        let ended = store.end_session_of(&user, id).await?;
        if ended {
            let object = Object::with_id(ObjectKind::Session, id);
            store.note_audit(&AuditEntry::new(who, Verb::SessionEnd, object)).await;
        }
        Ok::<bool, StoreError>(ended)
    };
    to_the_end(state, change).await
}

/// Gives somebody another password, and ends their sessions. Returns false if there is nobody of that name.
pub async fn set_password(
    state: &State,
    who: &Who,
    user: &UserName,
    password: PasswordHash,
) -> Result<bool, StoreError> {
    let (store, who, user) = (state.store.clone(), actor(who), user.clone());
    let change = async move {
        let changed = store.set_password(&user, &password).await?;
        if changed {
            let object = Object::with_name(ObjectKind::User, user.as_str());
            store.note_audit(&AuditEntry::new(who, Verb::PasswordChange, object)).await;
        }
        Ok::<bool, StoreError>(changed)
    };
    to_the_end(state, change).await
}

/// Makes a token, and returns its text, which nobody can read again.
pub async fn create_token(state: &State, who: &Who, new: NewToken) -> Result<String, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let text = store.create_token(&new).await?;
        let id = text.split_once('_').and_then(|(_, key)| Key::parse(key)).map(|key| key.id);
        let object = Object { id, ..Object::with_name(ObjectKind::Token, new.name.as_str()) };
        let entry = AuditEntry::new(who, Verb::TokenCreate, object);
        store.note_audit(&AuditEntry { after: Some(made(&new)), ..entry }).await;
        Ok::<String, StoreError>(text)
    };
    to_the_end(state, change).await
}

/// Revokes one of somebody's tokens. Returns false if they have no such token.
pub async fn revoke_token(
    state: &State,
    who: &Who,
    user: &UserName,
    id: ObjectId,
) -> Result<bool, StoreError> {
    let (store, who, user) = (state.store.clone(), actor(who), user.clone());
    let change = async move {
        // For its name; whether it is there is decided when it is removed.
        let known = store.list_tokens(Some(&user)).await?.into_iter().find(|token| token.id == id);
        let revoked = store.revoke_token(id, Some(&user)).await?;
        if revoked {
            let object =
                Object { id: Some(id), name: known.map(|token| token.name), kind: ObjectKind::Token };
            let entry = AuditEntry::new(who, Verb::TokenRevoke, object);
            let before = Some(doc! { "user": user.as_str() });
            store.note_audit(&AuditEntry { before, ..entry }).await;
        }
        Ok::<bool, StoreError>(revoked)
    };
    to_the_end(state, change).await
}

/// What the audit has of a new token.
fn made(new: &NewToken) -> Document {
    let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(|queue| queue.0).collect::<Vec<ObjectId>>();
    let mut made = doc! { "user": new.user.as_str(), "role": new.role.name() };
    if let Some(queues) = &new.queues {
        made.insert("queues", ids(queues));
    }
    if let Some(lasts) = new.lasts {
        made.insert("days", i64::try_from(lasts.as_secs() / DAY).unwrap_or(i64::MAX));
    }
    made
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use disbatch_core::accounts::Role;

    use super::*;

    #[test]
    fn a_token_is_told_by_what_it_is_good_for() {
        let queue = QueueId(ObjectId::new());
        let new = NewToken {
            user: "alice".parse().unwrap(),
            name: "nightly".to_owned(),
            role: Role::Submitter,
            queues: Some(BTreeSet::from([queue])),
            lasts: Some(Duration::from_secs(30 * DAY)),
        };
        let expected = doc! { "user": "alice", "role": "submitter", "queues": [queue.0], "days": 30_i64 };
        assert_eq!(made(&new), expected);
        let whole = NewToken { queues: None, lasts: None, ..new };
        assert_eq!(made(&whole), doc! { "user": "alice", "role": "submitter" });
    }
}
