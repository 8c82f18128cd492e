//! A connection that may be lost for a while.

use std::cell::Cell;
use std::time::Duration;

use serde_json::Value;

use crate::api::{ApiError, Client};
use crate::output::say;

/// The pause after the first failure. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How much later than it was asked to, the DCI may answer.
const LATE: Duration = Duration::from_secs(30);

/// A connection that several requests share. Only the first of them must be answered: the DCI may be started again.
#[derive(Debug)]
pub struct Connection<'a> {
    pub client: &'a Client,
    /// Whether an address that takes connections is enough for the first one.
    patient: bool,
    reached: Cell<bool>,
    lost: Cell<bool>,
}

/// How long to pause after the next failure.
#[derive(Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl<'a> Connection<'a> {
    /// A connection on which nothing has been answered yet.
    pub fn new(client: &'a Client) -> Self {
        Self { client, patient: false, reached: Cell::new(false), lost: Cell::new(false) }
    }

    /// The same for what waits long: it is enough that there is a server, also if it does not answer the first request, or has
    /// no database just then.
    pub fn patient(client: &'a Client) -> Self {
        Self { patient: true, ..Self::new(client) }
    }

    /// Sends a request until it is answered.
    pub async fn persist<T>(&self, request: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, ApiError> {
        let mut pause = Pause::default();
        loop {
            match request().await {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(error) => self.pause(error, &mut pause).await?,
            }
        }
    }

    pub fn answered(&self) {
        self.reached.set(true);
        if self.lost.replace(false) {
            eprintln!("disbatch: the connection is back");
        }
    }

    /// Waits until it is time to try again.
    pub async fn pause(&self, error: ApiError, pause: &mut Pause) -> Result<(), ApiError> {
        let reached = self.reached.get() || (self.patient && error.has_reached());
        if !reached || !error.is_transient() {
            return Err(error);
        }
        if !self.lost.replace(true) {
            say(&format!("disbatch: {error}\ndisbatch: trying again until it is back"));
        }
        tokio::time::sleep(pause.0).await;
        pause.0 = (pause.0 * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Where the task stands when its status is another one than `since`, or after `time`. Without `since`: when it has
    /// ended.
    pub async fn state(&self, id: &str, since: Option<i64>, time: Duration) -> Result<Value, ApiError> {
        let seconds = time.as_millis().div_ceil(1_000);
        let since = since.map(|status| format!("&.since={status}")).unwrap_or_default();
        let path = format!("/tasks/{id}/wait?.timeout={seconds}{since}");
        self.persist(async || self.client.get_within(&path, time + LATE).await).await
    }
}
