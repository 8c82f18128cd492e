//! Whether the node's loop goes on, for the system's manager of services: a DEN that is stuck is to be started again, and one whose database is
//! away is not, as that would help nobody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use disbatch_core::service_manager;
use disbatch_core::store::Store;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

/// A loop that has not come round for so long may be stuck. It comes round every few seconds, and every 30 when the database
/// is away.
const SUSPICIOUS: Duration = Duration::from_secs(60);

/// A database that does not answer within this is away.
const ANSWER: Duration = Duration::from_secs(5);

/// What the node's loop shows of itself.
#[derive(Debug)]
pub struct Vitals {
    came_round: Arc<Mutex<Instant>>,
    is_ready: bool,
    _watch: AbortOnDropHandle<()>,
}

impl Vitals {
    pub fn start(store: Store) -> Self {
        let came_round = Arc::new(Mutex::new(Instant::now()));
        let last = Arc::clone(&came_round);
        let watch = service_manager::watch(async move || {
            let last = *last.lock().unwrap_or_else(PoisonError::into_inner);
            is_well(last, || store.ping()).await
        });
        let watch = AbortOnDropHandle::new(tokio::spawn(watch));
        Self { came_round, is_ready: false, _watch: watch }
    }

    pub fn come_round(&self) {
        *self.came_round.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// It has looked at the database with success.
    pub fn looked(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            service_manager::ready();
        }
    }
}

/// Whether the loop goes on, or does not because the database is away.
async fn is_well<P, T, E>(came_round: Instant, ping: impl FnOnce() -> P) -> bool
where
    P: Future<Output = Result<T, E>>,
{
    came_round.elapsed() < SUSPICIOUS || !matches!(timeout(ANSWER, ping()).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_stuck_if_it_does_not_come_round_although_the_database_answers() {
        let began = Instant::now();
        let answers = || ready(Ok::<(), ()>(()));
        assert!(is_well(began, answers).await);
        tokio::time::advance(SUSPICIOUS).await;
        assert!(!is_well(began, answers).await);
        assert!(is_well(began, || ready(Err::<(), ()>(()))).await, "the database is away");
        assert!(is_well(began, pending::<Result<(), ()>>).await, "the database stands still");
        assert!(is_well(Instant::now(), answers).await);
    }
}
