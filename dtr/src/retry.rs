//! Keeps trying what must not be lost while the database is away.

use std::time::Duration;

use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::store::StoreError;
use tokio::time::{Instant, timeout};

/// The first and the longest pause between attempts: they are doubled each time.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// How long to keep trying.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// So long, then give up.
    Until(Duration),
    /// Until it works or a second signal ends the process.
    Endless,
}

/// Repeats `operation` with growing pauses as long as its error is one that time may mend.
///
/// The operation is told whether an earlier attempt may have reached the server without our knowing.
pub async fn retry<T, Fut: Future<Output = Result<T, StoreError>>>(
    [first, longest]: [Duration; 2],
    what: &str,
    patience: Patience,
    lifecycle: &Lifecycle,
    mut operation: impl FnMut(bool) -> Fut,
) -> Result<T, StoreError> {
    let started = Instant::now();
    let mut pause = first;
    let mut again = false;
    loop {
        let error = match operation(again).await {
            Ok(value) => {
                if again {
                    tracing::info!(after_s = started.elapsed().as_secs(), "{what}: done at last");
                }
                return Ok(value);
            }
            Err(error) => error,
        };
        let exhausted = matches!(patience, Patience::Until(limit) if started.elapsed() + pause > limit);
        if !error.is_transient() || exhausted || lifecycle.is_ending() {
            return Err(error);
        }
        tracing::warn!(%error, retry_in_ms = pause.as_millis(), "{what} failed, trying again");
        if timeout(pause, lifecycle.ending()).await.is_ok() {
            return Err(error);
        }
        pause = (pause * 2).min(longest);
        again = true;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn unreachable() -> StoreError {
        StoreError::from(mongodb::error::Error::from(std::io::Error::other("connection refused")))
    }

    const QUICK: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(2)];

    #[tokio::test]
    async fn keeps_trying_while_the_server_is_away() {
        let calls = Cell::new(0);
        let lifecycle = Lifecycle::default();
        let result = retry(QUICK, "test", Patience::Endless, &lifecycle, |again| {
            assert_eq!(again, calls.get() > 0);
            calls.set(calls.get() + 1);
            let outcome = if calls.get() < 20 { Err(unreachable()) } else { Ok(calls.get()) };
            std::future::ready(outcome)
        });
        assert_eq!(result.await.unwrap(), 20);
    }

    #[tokio::test]
    async fn gives_up_when_patience_is_exhausted() {
        let (calls, lifecycle) = (Cell::new(0), Lifecycle::default());
        let patience = Patience::Until(Duration::from_millis(50));
        let result = retry::<(), _>(QUICK, "test", patience, &lifecycle, |_| {
            calls.set(calls.get() + 1);
            std::future::ready(Err(unreachable()))
        });
        assert!(result.await.unwrap_err().to_string().contains("connection refused"));
        assert!(calls.get() > 1);
    }
}
