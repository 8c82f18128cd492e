//! Logins that were refused: whoever guesses passwords must not fill the database with entries, nor learn from the time
//! that an entry takes which names there are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::doc;
use disbatch_core::accounts::UserName;
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::store::Store;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::state::State;

/// For a name and an address there is one entry in this time.
const QUIET: Duration = Duration::from_secs(60);

/// In this time there are entries for so many names and addresses. The log has the others.
const MOST: usize = 100;

/// A user, or nobody of whom there is a user, and an address.
type Key = (Option<UserName>, Option<IpAddr>);

/// Which refusals have an entry.
#[derive(Debug, Default)]
pub struct Refusals {
    told: Arc<RefusalLog>,
    /// The entries that are being made.
    notes: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct RefusalLog(Mutex<HashMap<Key, Seen>>);

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
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are made are let go of.
        while notes.try_join_next().is_some() {}
        notes.spawn_on(async move { told.note(&store, user, from, now).await }, &state.runtime);
    }

    /// Waits for the entries that are being made.
    pub async fn written(&self) {
        let mut notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
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
    fn count(&self, key: Key, now: Instant) -> Option<i64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    use super::*;

    fn key(user: Option<&str>, host: u8) -> Key {
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
