//! Where passwords are hashed: one after another, in a thread of its own, whatever becomes of the request. Each takes 19 MiB
//! of memory, which one thread uses again and again.

use std::sync::mpsc::{SyncSender, sync_channel};

use actix_web::http::StatusCode;
use tokio::sync::oneshot;

use crate::error::HttpError;

/// So many may wait.
const MOST: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// The thread, by its end of the queue.
#[derive(Debug)]
pub struct Bench(Option<SyncSender<Job>>);

impl Default for Bench {
    fn default() -> Self {
        let (sender, jobs) = sync_channel::<Job>(MOST);
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
        let mut others: Vec<_> = (0..MOST).map(|_| Box::pin(bench.work(|| true))).collect();
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
