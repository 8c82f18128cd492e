//! Whether a process is ready: the database has answered it lately. Load balancers and clusters ask for that, without a login, and are
//! told nothing else.

use std::time::Duration;

use bson::DateTime;
use disbatch_metrics::Gauge;
use tokio::time::{Instant, timeout};

use crate::store::{Store, of_millis};

/// A process to which the database has not answered for longer is not ready. So a failover makes none unready. A DEN looks
/// every two seconds, and so long after an outage at the latest.
pub const READY_WITHIN: Duration = Duration::from_secs(30);

/// What is answered to the question whether the process is there.
pub const ALIVE: &str = "ok\n";

pub const READY: &str = "ready\n";

/// An answer of the database counts for so long before it is asked again.
const FRESH: Duration = Duration::from_secs(1);

/// Nobody who asks waits longer for the database.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a process is not ready, if it is not, by when the database last answered, in seconds since 1970.
pub fn unready(answered: Option<f64>, now: DateTime) -> Option<String> {
    let Some(last) = answered else { return Some("the database has not answered yet".to_owned()) };
    let ago = (seconds(now) - last).max(0.0);
    (ago > READY_WITHIN.as_secs_f64()).then(|| format!("the database has not answered for {ago:.0} s"))
}

fn seconds(now: DateTime) -> f64 {
    of_millis(now.timestamp_millis()).as_secs_f64()
}

/// Of a process that does not look at the database unless it is asked: it looks when somebody wants to know whether it is ready, once
/// a second at most, however many ask.
#[derive(Debug, Default)]
pub struct Looks {
    answered: Gauge,
    next: tokio::sync::Mutex<Option<Instant>>,
}

impl Looks {
    pub async fn unready(&self, store: &Store) -> Option<String> {
        // Whoever comes meanwhile waits for the same answer.
        let looked = timeout(PATIENCE, async {
            let mut next = self.next.lock().await;
            if next.is_some_and(|next| Instant::now() < next) {
                return;
            }
            // Also if this is given up.
            *next = Some(Instant::now() + FRESH);
            if store.ping().await.is_ok() {
                self.answered.set_time(Duration::from_secs_f64(seconds(store.now())));
            }
        });
        let _or_not = looked.await;
        unready(self.answered.get(), store.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_while_the_database_answers() {
        let at = |seconds: i64| DateTime::from_millis(1_795_163_067_000 + seconds * 1_000);
        let told = |seconds: i64| unready(Some(super::seconds(at(0))), at(seconds));
        assert_eq!(unready(None, at(0)).as_deref(), Some("the database has not answered yet"));
        assert_eq!((told(-5), told(0), told(30)), (None, None, None));
        assert_eq!(told(39).as_deref(), Some("the database has not answered for 39 s"));
    }
}
