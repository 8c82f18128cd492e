//! Compares passwords. Each comparison takes tens of milliseconds of a processor, so they are made one after another, and
//! a right one is remembered for a while: programs send the password with every request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use disbatch_core::accounts::{Key, PasswordError, PasswordHash, User, UserName};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::bench::Bench;
use super::throttle::Throttle;
use crate::changes::Refusals;
use crate::error::HttpError;
use crate::state::State;

/// How long a right password is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);

/// So many are remembered.
const MOST: usize = 1_000;

type Fingerprint = [u8; 32];

/// Compares passwords.
#[derive(Debug)]
pub struct Passwords {
    throttle: Throttle,
    refusals: Refusals,
    /// Keeps what is remembered from being of use elsewhere.
    salt: Option<Key>,
    remembered: Mutex<HashMap<Fingerprint, Instant>>,
    one_at_a_time: tokio::sync::Mutex<()>,
    bench: Bench,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            throttle: Throttle::default(),
            refusals: Refusals::default(),
            // Without random numbers nothing is remembered.
            salt: Key::new().ok(),
            remembered: Mutex::default(),
            one_at_a_time: tokio::sync::Mutex::default(),
            bench: Bench::default(),
        }
    }
}

impl Passwords {
    /// The user of this name, if this is their password.
    pub async fn user(
        &self,
        state: &State,
        name: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<Option<User>, HttpError> {
        let user = match name.parse::<UserName>() {
            Ok(name) => state.store.find_user(&name).await?,
            Err(_) => None,
        };
        // What cannot be a name is as long as anybody likes, and not worth being remembered.
        let name = if name.parse::<UserName>().is_ok() { name } else { "" };
        let fingerprint = self.fingerprint(user.as_ref(), password);
        if self.remembers(fingerprint) {
            return Ok(user);
        }
        let turn = self.one_at_a_time.lock().await;
        // Another request of the same program may have been first.
        if self.remembers(fingerprint) {
            return Ok(user);
        }
        self.throttle.begin(from, name).map_err(HttpError::too_many_attempts)?;
        let hash = user.as_ref().and_then(|user| user.password.clone());
        let password = password.to_owned();
        let compare = move || match hash {
            Some(hash) => hash.is_of(&password),
            None => {
                PasswordHash::of_nobody(&password);
                false
            }
        };
        let is_right = self.bench.work(compare).await?;
        if !is_right {
            // Somebody may have typed the password in place of the name: only names of users are told.
            let name = user.as_ref().map(|user| user.name.as_str());
            tracing::warn!(user = name, from = from.map(tracing::field::display), "wrong name or password");
            drop(turn);
            self.refusals.note(state, user.as_ref().map(|user| &user.name), from);
            return Ok(None);
        }
        self.throttle.succeeded(from, name);
        self.remember(fingerprint);
        Ok(user)
    }

    /// Waits for what is still to be written about those that were wrong.
    pub async fn written(&self) {
        self.refusals.written().await;
    }

    /// The hash of a new password.
    pub async fn hash(&self, password: String) -> Result<Result<PasswordHash, PasswordError>, HttpError> {
        self.bench.work(move || PasswordHash::of(&password)).await
    }

    /// Counts a token that is none. Right ones are not held up by that.
    pub fn count_wrong_token(&self, from: Option<IpAddr>) -> Result<(), HttpError> {
        self.throttle.begin_token(from).map_err(HttpError::too_many_attempts)
    }

    /// Of a user as stored, and a password: once that is changed, it is another.
    fn fingerprint(&self, user: Option<&User>, password: &str) -> Option<Fingerprint> {
        let (salt, user) = (self.salt.as_ref()?, user?);
        let hash = user.password.as_ref()?;
        let mut digest = Sha256::new();
        for part in [&salt.text(), user.name.as_str(), hash.as_stored(), password] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        Some(digest.finalize().into())
    }

    fn remembers(&self, fingerprint: Option<Fingerprint>) -> bool {
        let Some(fingerprint) = fingerprint else { return false };
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(&fingerprint).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn remember(&self, fingerprint: Option<Fingerprint>) {
        let Some(fingerprint) = fingerprint else { return };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST {
            remembered.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if remembered.len() < MOST {
            remembered.insert(fingerprint, Instant::now());
        }
    }
}
