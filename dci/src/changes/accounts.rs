//! Sessions, passwords and tokens of those who ask, and logins that were refused.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::accounts::{Key, NewToken, PasswordHash, User, UserName, Visitor};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use disbatch_core::lock;
use disbatch_core::model::QueueId;
use disbatch_core::store::{Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{actor, noted};
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
    let who = Actor::new(Some(user.name.to_string()), Via::Session, from.as_str());
    let (limits, user) = (state.access.limits, user.clone());
    let begin = move |store: Store, who: Actor| async move {
        let visitor = Visitor { user: &user, from: &from, agent: &agent };
        let key = store.begin_session(visitor, limits).await?;
        let object = Object::with_name(ObjectKind::User, user.name.as_str());
        Ok((key, Some(AuditEntry::new(who, Verb::Login, object))))
    };
    noted(state, who, begin).await
}

pub async fn log_out(state: &State, who: &Who, key: &Key) -> Result<(), StoreError> {
    let key = key.clone();
    let end = move |store: Store, who: Actor| async move {
        store.end_session(&key).await?;
        let object = Object { name: who.name.clone(), ..Object::new(ObjectKind::User) };
        Ok(((), Some(AuditEntry::new(who, Verb::Logout, object))))
    };
    noted(state, actor(who), end).await
}

/// Ends one of somebody's sessions. Returns false if they have no such session.
pub async fn end_session_of(
    state: &State,
    who: &Who,
    user: &UserName,
    id: ObjectId,
) -> Result<bool, StoreError> {
    let user = user.clone();
    let end = move |store: Store, who: Actor| async move {
        let ended = store.end_session_of(&user, id).await?;
        let object = Object::with_id(ObjectKind::Session, id);
        Ok((ended, ended.then(|| AuditEntry::new(who, Verb::SessionEnd, object))))
    };
    noted(state, actor(who), end).await
}

/// Gives somebody another password, and ends their sessions. Returns false if there is nobody of that name.
pub async fn set_password(
    state: &State,
    who: &Who,
    user: &UserName,
    password: PasswordHash,
) -> Result<bool, StoreError> {
    let user = user.clone();
    let set = move |store: Store, who: Actor| async move {
        let changed = store.set_password(&user, &password).await?;
        let object = Object::with_name(ObjectKind::User, user.as_str());
        Ok((changed, changed.then(|| AuditEntry::new(who, Verb::PasswordChange, object))))
    };
    noted(state, actor(who), set).await
}

/// Makes a token, and returns its text, which nobody can read again.
pub async fn create_token(state: &State, who: &Who, new: NewToken) -> Result<String, StoreError> {
    let create = move |store: Store, who: Actor| async move {
        let text = store.create_token(&new).await?;
        let id = text.split_once('_').and_then(|(_, key)| Key::parse(key)).map(|key| key.id);
        let object = Object { id, ..Object::with_name(ObjectKind::Token, new.name.as_str()) };
        let entry = AuditEntry::new(who, Verb::TokenCreate, object);
        Ok((text, Some(AuditEntry { after: Some(made(&new)), ..entry })))
    };
    noted(state, actor(who), create).await
}

/// Revokes one of somebody's tokens. Returns false if they have no such token.
pub async fn revoke_token(
    state: &State,
    who: &Who,
    user: &UserName,
    id: ObjectId,
) -> Result<bool, StoreError> {
    let user = user.clone();
    let revoke = move |store: Store, who: Actor| async move {
        // For its name; whether it is there is decided when it is removed.
        let known = store.list_tokens(Some(&user)).await?.into_iter().find(|token| token.id == id);
        let revoked = store.revoke_token(id, Some(&user)).await?;
        let object = Object { id: Some(id), name: known.map(|token| token.name), kind: ObjectKind::Token };
        let before = Some(doc! { "user": user.as_str() });
        let entry = || AuditEntry { before, ..AuditEntry::new(who, Verb::TokenRevoke, object) };
        Ok((revoked, revoked.then(entry)))
    };
    noted(state, actor(who), revoke).await
}

fn made(new: &NewToken) -> Document {
    let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(|queue| queue.0).collect::<Vec<ObjectId>>();
    let mut made = doc! { "user": new.user.as_str(), "role": new.role.as_str() };
    if let Some(queues) = &new.queues {
        made.insert("queues", ids(queues));
    }
    if let Some(lasts) = new.lasts {
        made.insert("days", i64::try_from(lasts.as_secs() / DAY).unwrap_or(i64::MAX));
    }
    made
}

/// For a name and an address there is one entry in this time.
const QUIET: Duration = Duration::from_secs(60);

/// In this time there are entries for so many names and addresses. The log has the others.
const MOST: usize = 100;

/// A user, or nobody of whom there is a user, and an address.
type Refused = (Option<UserName>, Option<IpAddr>);

/// Logins that were refused, as far as they have an entry: whoever guesses passwords must not fill the database with entries, nor
/// learn from the time that an entry takes which names there are.
#[derive(Debug, Default)]
pub struct Refusals {
    told: Arc<RefusalLog>,
    notes: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct RefusalLog(Mutex<HashMap<Refused, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    told: Instant,
    /// How many there were since then.
    since: i64,
}

impl Refusals {
    /// Makes an entry of it that somebody has shown a wrong password, if it is time for one. What they have given as the
    /// name is told only if it is that of a user: it may be a password in the wrong field.
    ///
    /// Nobody waits for it: names of users have more entries than others, and an answer that comes later would tell which
    /// those are.
    pub fn note(&self, state: &State, user: Option<&UserName>, from: Option<IpAddr>) {
        let (told, store, user, now) =
            (Arc::clone(&self.told), state.store.clone(), user.cloned(), Instant::now());
        let mut notes = lock(&self.notes);
        // Those that are made are let go of.
        while notes.try_join_next().is_some() {}
        notes.spawn_on(async move { told.note(&store, user, from, now).await }, &state.runtime);
    }

    pub async fn written(&self) {
        let mut notes = std::mem::take(&mut *lock(&self.notes));
        while notes.join_next().await.is_some() {}
    }
}

impl RefusalLog {
    async fn note(&self, store: &Store, user: Option<UserName>, from: Option<IpAddr>, now: Instant) {
        let name = user.as_ref().map(ToString::to_string);
        let Some(count) = self.count((user, from), now) else { return };
        let from = from.map_or_else(|| "an unknown address".to_owned(), |address| address.to_string());
        let object = Object { name, ..Object::new(ObjectKind::User) };
        let entry = AuditEntry::new(Actor::refused(from), Verb::LoginRefused, object);
        store.note_audit(&AuditEntry { more: doc! { "count": count }, ..entry }).await;
    }

    /// How many there were since the last that has an entry, with this one. `None`: this one gets none.
    fn count(&self, key: Refused, now: Instant) -> Option<i64> {
        let mut all = lock(&self.0);
        let is_quiet = |seen: &Seen| now.duration_since(seen.told) < QUIET;
        if let Some(seen) = all.get_mut(&key) {
            let count = seen.since.saturating_add(1);
            if is_quiet(seen) {
                seen.since = count;
                return None;
            }
            *seen = Seen { told: now, since: 0 };
            return Some(count);
        }
        if all.len() >= MOST {
            all.retain(|_, seen| is_quiet(seen));
        }
        if all.len() >= MOST {
            return None;
        }
        all.insert(key, Seen { told: now, since: 0 });
        Some(1)
    }
}

#[cfg(test)]
mod tests {
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

    fn key(user: Option<&str>, host: u8) -> Refused {
        (user.map(|name| name.parse().unwrap()), Some([10, 0, 0, host].into()))
    }

    #[test]
    fn there_is_one_entry_a_minute_for_a_name_and_an_address() {
        let (refusals, now) = (RefusalLog::default(), Instant::now());
        assert_eq!(refusals.count(key(Some("alice"), 1), now), Some(1));
        for seconds in [0, 1, 59] {
            let later = now + Duration::from_secs(seconds);
            assert_eq!(refusals.count(key(Some("alice"), 1), later), None, "{seconds}");
        }
        assert_eq!(refusals.count(key(Some("bob"), 1), now), Some(1));
        assert_eq!(refusals.count(key(Some("alice"), 2), now), Some(1));
        assert_eq!(refusals.count(key(None, 1), now), Some(1));
        let later = now + QUIET;
        assert_eq!(refusals.count(key(Some("alice"), 1), later), Some(4), "the others are counted");
        assert_eq!(refusals.count(key(Some("alice"), 1), later), None);
        assert_eq!(refusals.count(key(Some("alice"), 1), later + QUIET), Some(2));
    }

    #[test]
    fn there_are_not_many_entries_however_many_addresses_there_are() {
        let (refusals, now) = (RefusalLog::default(), Instant::now());
        let told =
            |at: Instant| (0..=255).filter(|host| refusals.count(key(None, *host), at).is_some()).count();
        assert_eq!(told(now), MOST);
        assert_eq!(told(now + Duration::from_secs(30)), 0);
        assert_eq!(told(now + QUIET), MOST);
        assert!(refusals.0.lock().unwrap().len() <= MOST);
    }
}
