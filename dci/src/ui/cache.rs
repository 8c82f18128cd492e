//! What takes some reading to find out, and is the same for all who ask within some seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// Finding it out takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// A value that is kept for a while.
#[derive(Debug)]
pub struct Kept<T> {
    value: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { value: Mutex::default() }
    }
}

impl<T> Kept<T> {
    /// The value as it was found out last, unless that was more than `least` ago, or longer if it takes long. Whoever comes
    /// while it is found out waits for the same.
    pub async fn get<E>(
        &self,
        least: Duration,
        find: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let mut kept = self.value.lock().await;
        if let Some((until, value)) = &*kept
            && Instant::now() < *until
        {
            return Ok(Arc::clone(value));
        }
        let began = Instant::now();
        let value = Arc::new(find.await?);
        *kept = Some((Instant::now() + least.max(began.elapsed() * SHARE), Arc::clone(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_is_found_out_once_for_a_while_and_failures_are_not_kept() {
        let kept = Kept::default();
        let long = Duration::from_secs(60);
        assert_eq!(kept.get(long, async { Err::<u8, _>("away") }).await, Err("away"));
        for next in 1..4 {
            assert_eq!(*kept.get(long, async { Ok::<_, &str>(next) }).await.unwrap(), 1);
        }
        let brief = Kept::default();
        for next in 1..4 {
            assert_eq!(*brief.get(Duration::ZERO, async { Ok::<_, &str>(next) }).await.unwrap(), next);
            // However short it was, it is kept for a multiple of the time that it took.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
