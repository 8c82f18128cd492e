//! Contents that are read back, to find out whether they are what their names say.
//!
//! That takes minutes for large ones, in which nothing is sent: a proxy in between gives up, and its client asks again. So a check
//! goes on to its end in a task of its own, and whoever asks for the same one joins it, or finds the content.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disbatch_core::files::{ContentId, FilesError, Sender};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::error::HttpError;

/// So many are made at once; the others wait. Each of them has a few chunks in memory.
const AT_ONCE: usize = 32;

/// What is checked, and who has sent it.
type Key = (ContentId, Sender);

type CheckResult = Result<(), HttpError>;

/// What each of those has who wait for a check.
type Joined = Shared<BoxFuture<'static, CheckResult>>;

/// The checks that are under way.
#[derive(Debug)]
pub struct Checks {
    under_way: Mutex<HashMap<Key, Joined>>,
    room: Semaphore,
}

impl Default for Checks {
    fn default() -> Self {
        Self { under_way: Mutex::default(), room: Semaphore::new(AT_ONCE) }
    }
}

impl Checks {
    /// What comes of the check of `key` that is under way, or of this one, which begins if there is none. It goes on to its end if
    /// nobody waits for it any more.
    pub async fn join(
        self: &Arc<Self>,
        runtime: &Handle,
        key: Key,
        check: impl Future<Output = Result<(), FilesError>> + Send + 'static,
    ) -> Result<(), HttpError> {
        let (joined, tell) = self.find_or_begin(key.clone());
        if let Some(tell) = tell {
            let under_way = UnderWay { checks: Arc::clone(self), key };
            // Not while the lock is held: what is dropped at once, as the process ends, takes it.
            runtime.spawn(async move {
                let _room = under_way.checks.room.acquire().await;
                let _nobody_waits = tell.send(check.await.map_err(HttpError::from));
            });
        }
        joined.await
    }

    /// The check that is under way. If there is none, what it has come to is to be told.
    fn find_or_begin(&self, key: Key) -> (Joined, Option<oneshot::Sender<CheckResult>>) {
        match self.lock().entry(key) {
            Entry::Occupied(known) => (known.get().clone(), None),
            Entry::Vacant(new) => {
                let (tell, told) = oneshot::channel::<CheckResult>();
                // Broken off, as the process ends: the next one finds what was sent.
                let told = told.map(|told| told.unwrap_or_else(|_| Err(FilesError::Busy.into())));
                (new.insert(told.boxed().shared()).clone(), Some(tell))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Joined>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for the next check of the same, however this one ends.
struct UnderWay {
    checks: Arc<Checks>,
    key: Key,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.checks.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(text: &str) -> Key {
        (ContentId::of(text.as_bytes()), Sender::user(Some("alice")))
    }

    #[tokio::test]
    async fn a_check_goes_on_when_nobody_waits_and_who_asks_again_joins_it() {
        let (checks, runtime) = (Arc::new(Checks::default()), Handle::current());
        let (release, held) = oneshot::channel::<()>();
        let first = async move {
            let _released = held.await;
            Err::<(), FilesError>(FilesError::WrongContent)
        };
        assert_eq!(checks.join(&runtime, key("a"), first).now_or_never(), None, "it is broken off");
        let again = checks.join(&runtime, key("a"), pending());
        let other = checks.join(&runtime, key("b"), async { Ok(()) });
        let both = async {
            assert_eq!(other.await, Ok(()), "another one does not wait for it");
            release.send(()).unwrap();
        };
        let (again, ()) = futures::join!(again, both);
        assert_eq!(again.unwrap_err().status(), 422, "it has what came of the first");
        assert_eq!(checks.join(&runtime, key("a"), async { Ok(()) }).await, Ok(()), "that is over");
        assert!(checks.lock().is_empty());
    }

    #[tokio::test]
    async fn only_so_many_are_made_at_once() {
        let (checks, runtime) = (Arc::new(Checks::default()), Handle::current());
        let begun = Arc::new(AtomicUsize::new(0));
        for n in 0..=AT_ONCE {
            let begun = Arc::clone(&begun);
            let check = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                pending::<Result<(), FilesError>>().await
            };
            assert_eq!(checks.join(&runtime, key(&n.to_string()), check).now_or_never(), None);
        }
        for _ in 0..=AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert_eq!((begun.load(Ordering::Relaxed), checks.lock().len()), (AT_ONCE, AT_ONCE + 1));
    }
}
