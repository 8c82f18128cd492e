//! Whether the threads that answer requests go on, for the system's manager of services.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use disbatch_core::service_manager;
use tokio::time::{Instant, sleep};

/// How often each thread shows that it goes on.
const EVERY: Duration = Duration::from_secs(1);

/// A thread that has not done so for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);

type Pulse = Mutex<Instant>;

/// The threads that answer requests.
#[derive(Debug, Clone, Default)]
pub struct Workers(Arc<Mutex<Vec<Weak<Pulse>>>>);

impl Workers {
    /// Called on a thread of its own by each of them. Nothing unless somebody wants to know.
    pub fn enter(&self) {
        if !service_manager::is_watching() {
            return;
        }
        let pulse = Arc::new(Pulse::new(Instant::now()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&pulse));
        // It goes with its thread.
        actix_web::rt::spawn(async move {
            loop {
                *pulse.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                sleep(EVERY).await;
            }
        });
    }

    /// Whether all that are there go on.
    pub fn go_on(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pulse| pulse.strong_count() > 0);
        all.iter()
            .filter_map(Weak::upgrade)
            .all(|pulse| pulse.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_stands_still_counts_and_one_that_is_gone_does_not() {
        let workers = Workers::default();
        assert!(workers.go_on());
        let (one, other) = (Arc::new(Pulse::new(Instant::now())), Arc::new(Pulse::new(Instant::now())));
        workers.0.lock().unwrap().extend([Arc::downgrade(&one), Arc::downgrade(&other)]);
        tokio::time::advance(STUCK).await;
        *one.lock().unwrap() = Instant::now();
        assert!(!workers.go_on());
        drop(other);
        assert!(workers.go_on());
    }
}
