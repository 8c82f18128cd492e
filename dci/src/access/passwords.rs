//! Compares passwords. Each comparison takes tens of milliseconds of a processor, so they are made one after another, and
//! a right one is remembered for a while: programs send the password with every request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use disbatch_core::accounts::{Key, PasswordError, PasswordHash, User, UserName};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::Instant;

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

/// So many may wait.
const MOST_WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Where passwords are hashed: one after another, in a thread of its own, whatever becomes of the request. Each takes 19 MiB of
/// memory, which one thread uses again and again.
#[derive(Debug)]
pub struct Bench(Option<SyncSender<Job>>);

impl Default for Bench {
    fn default() -> Self {
        let (sender, jobs) = sync_channel::<Job>(MOST_WAITING);
        let started = std::thread::Builder::new().name("passwords".to_owned()).spawn(move || {
            for job in jobs {
                job();
            }
        });
        match started {
            Ok(_) => Self(Some(sender)),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that compares passwords");
                Self(None)
            }
        }
    }
}

impl Bench {
    /// Does something there, and waits for it.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let (done, outcome) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Whoever asked may be gone.
            let _nobody_waits = done.send(work());
        });
        let busy = || HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "too many log in at once: try again");
        self.0.as_ref().and_then(|jobs| jobs.try_send(job).ok()).ok_or_else(busy)?;
        outcome.await.map_err(|_| busy())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_is_too_much_is_refused_and_the_rest_is_done_by_one_thread() {
        let bench = Bench::default();
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(bench.work(name).await.unwrap().as_deref(), Some("passwords"));
        let (go, wait) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let mut waiting = vec![Box::pin(bench.work(move || {
            let _heard = begun.send(());
            wait.recv().is_ok()
        }))];
        assert!(futures::poll!(waiting[0].as_mut()).is_pending());
        begins.await.unwrap();
        let mut others: Vec<_> = (0..MOST_WAITING).map(|_| Box::pin(bench.work(|| true))).collect();
        for other in &mut others {
            assert!(futures::poll!(other.as_mut()).is_pending());
        }
        assert_eq!(bench.work(|| true).await.unwrap_err().status(), 503);
        go.send(()).unwrap();
        assert!(waiting.remove(0).await.unwrap());
        for other in others {
            assert!(other.await.unwrap());
        }
    }
}
