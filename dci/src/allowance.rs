//! What a request may cost: how long its body may be, and how much memory its body and all that is read from it may take.
//!
//! Until somebody is known, that is little. All requests together have a bound, one for those who are known and one for all
//! others, so that strangers cannot use up what is for people who have logged in.

pub mod answers;
pub mod weight;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::Data;
use disbatch_core::store::Attended;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connections::Place;
use crate::error::HttpError;
use crate::state::State;
use answers::Answers;
use weight::Weight;

const MIB: usize = 1024 * 1024;

/// What one request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body in bytes.
    pub body: usize,
    /// How many values JSON may have, or fields a form.
    values: usize,
    /// How deep JSON may be nested.
    depth: usize,
    /// How many bytes of memory the body and what is read from it may take.
    memory: usize,
}

/// Before it is known who asks.
const STRANGER: Limits = Limits { body: 64 * 1024, values: 100, depth: 8, memory: MIB };

/// Of somebody who is known. The memory is 4 x the longest body.
pub const KNOWN: Limits = Limits { body: 16 * MIB, values: usize::MAX, depth: 128, memory: 64 * MIB };

/// How many bytes the requests of strangers may take together.
const OF_STRANGERS: usize = 16 * MIB;

/// How many bytes the requests of those who are known may take together.
const OF_KNOWN: usize = 256 * MIB;

/// What all requests together have taken.
#[derive(Debug, Default)]
pub struct Budget {
    strangers: AtomicUsize,
    known: AtomicUsize,
    /// What their answers take is counted by itself.
    pub answers: Arc<Answers>,
}

/// What one request has taken. It is given back when the last of those ends who work on the request.
#[derive(Debug)]
pub struct Allowance {
    budget: Arc<Budget>,
    is_known: AtomicBool,
    taken: AtomicUsize,
    place: Option<Arc<Place>>,
}

tokio::task_local! {
    static ALLOWANCE: Arc<Allowance>;
}

/// Gives a request its allowance, that of a stranger for the time being.
pub async fn of_stranger(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let Some(state) = request.app_data::<Data<State>>() else { return next.call(request).await };
    let budget = Arc::clone(&state.budget);
    let place = request.request().conn_data::<Arc<Place>>().cloned();
    let allowance = Allowance { budget, is_known: AtomicBool::new(false), taken: AtomicUsize::new(0), place };
    let answer = Box::pin(ALLOWANCE.scope(Arc::new(allowance), next.call(request)));
    // If the client leaves, the answer is dropped.
    Attended::new(answer).await
}

/// It is known who sends the request that is being worked on. Called before anything of its body is read.
pub fn known() {
    let _no_request = ALLOWANCE.try_with(|allowance| {
        // What was taken so far was a stranger's.
        allowance.give_back(usize::MAX);
        allowance.is_known.store(true, Ordering::Relaxed);
    });
}

/// What the request that is being worked on has taken, for whoever goes on with it when it has been answered.
pub fn now() -> Option<Arc<Allowance>> {
    ALLOWANCE.try_with(Arc::clone).ok()
}

/// What the request that is being worked on may have.
pub fn limits() -> Limits {
    ALLOWANCE.try_with(|allowance| allowance.limits()).unwrap_or(KNOWN)
}

/// Takes memory for the request that is being worked on.
pub fn take(bytes: usize) -> Result<(), HttpError> {
    ALLOWANCE.try_with(|allowance| allowance.take(bytes)).unwrap_or(Ok(()))
}

pub fn give_back(bytes: usize) {
    let _no_request = ALLOWANCE.try_with(|allowance| allowance.give_back(bytes));
}

/// Takes the memory for what is read from a text of JSON or of a form.
pub fn take_for(weight: &Weight) -> Result<(), HttpError> {
    let limits = limits();
    if weight.values > limits.values {
        return Err(HttpError::bad_request(format!("there are more than {} values", limits.values)));
    }
    if weight.depth > limits.depth {
        return Err(HttpError::bad_request(format!("values are nested more than {} deep", limits.depth)));
    }
    take(weight.bytes)
}

/// Takes the memory for so many more copies of a value that came with a request than all values have.
pub fn take_for_copies<'a>(
    copies: usize,
    values: impl IntoIterator<Item = &'a Value>,
) -> Result<(), HttpError> {
    let bytes: usize = values.into_iter().map(weight::of_copy).sum();
    take(bytes.saturating_mul(copies))
}

/// Why a text of a request is not read as JSON.
#[derive(Debug)]
pub enum Unreadable {
    NoJson(serde_json::Error),
    /// It would take too much memory.
    TooMuch(HttpError),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson(error) => error.fmt(f),
            Self::TooMuch(error) => error.fmt(f),
        }
    }
}

/// Reads JSON that is text in a field of a request.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    let weight = Weight::of_json(text.as_bytes());
    take_for(&weight).map_err(Unreadable::TooMuch)?;
    serde_json::from_str(text).map_err(|error| {
        give_back(weight.bytes);
        Unreadable::NoJson(error)
    })
}

impl Allowance {
    fn limits(&self) -> Limits {
        if self.is_known.load(Ordering::Relaxed) { KNOWN } else { STRANGER }
    }

    fn pool(&self) -> (&AtomicUsize, usize) {
        if self.is_known.load(Ordering::Relaxed) {
            (&self.budget.known, OF_KNOWN)
        } else {
            (&self.budget.strangers, OF_STRANGERS)
        }
    }

    fn take(&self, bytes: usize) -> Result<(), HttpError> {
        let most = self.limits().memory;
        if self.taken.load(Ordering::Relaxed).saturating_add(bytes) > most {
            let message = format!(
                "what this request has would take more than {} MiB of memory: send less at once, as several requests or \
                 in a file set",
                most / MIB
            );
            return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let (pool, most) = self.pool();
        let added = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        let taken = pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        if taken.is_err() {
            tracing::warn!(bytes, most, "requests take too much memory together, one is answered with 503");
            let message = "the requests that this server works on take too much memory together: try again";
            return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        let left = |taken: usize| Some(taken.saturating_sub(bytes));
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).unwrap_or_default();
        self.pool().0.fetch_sub(bytes.min(before), Ordering::Relaxed);
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.give_back(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(budget: &Arc<Budget>, is_known: bool) -> Allowance {
        Allowance {
            budget: Arc::clone(budget),
            is_known: AtomicBool::new(is_known),
            taken: AtomicUsize::new(0),
            place: None,
        }
    }

    fn taken(budget: &Budget) -> (usize, usize) {
        (budget.strangers.load(Ordering::Relaxed), budget.known.load(Ordering::Relaxed))
    }

    fn status(taken: Result<(), HttpError>) -> u16 {
        taken.map_or_else(|error| error.status().as_u16(), |()| 200)
    }

    #[test]
    fn each_request_has_a_bound_and_all_together() {
        let budget = Arc::default();
        let mut requests: Vec<Allowance> = Vec::new();
        for _ in 0..4 {
            let request = allowance(&budget, true);
            assert_eq!(status(request.take(60 * MIB)), 200);
            assert_eq!(status(request.take(5 * MIB)), 413, "more than one may take");
            assert_eq!(status(request.take(4 * MIB)), 200);
            requests.push(request);
        }
        assert_eq!(taken(&budget), (0, OF_KNOWN));
        assert_eq!(status(allowance(&budget, true).take(1)), 503);
        assert_eq!(status(allowance(&budget, false).take(MIB)), 200, "strangers have their own");
        requests[0].give_back(MIB);
        assert_eq!(status(allowance(&budget, true).take(MIB)), 200);
        drop(requests);
        assert_eq!(taken(&budget), (0, 0), "all of it is given back");
    }

    #[test]
    fn strangers_leave_what_is_for_others() {
        let budget = Arc::default();
        let crowd: Vec<Allowance> = (0..16).map(|_| allowance(&budget, false)).collect();
        assert!(crowd.iter().all(|stranger| status(stranger.take(MIB)) == 200));
        assert_eq!(status(allowance(&budget, false).take(1)), 503);
        assert_eq!(status(crowd[0].take(1)), 413);
        assert_eq!(status(allowance(&budget, true).take(64 * MIB)), 200);
    }

    #[tokio::test]
    async fn it_counts_what_is_read_from_text() {
        let budget = Arc::default();
        let stranger = Arc::new(allowance(&budget, false));
        ALLOWANCE
            .scope(Arc::clone(&stranger), async {
                assert_eq!(json::<Value>("{\"a\": [1, 2]}").unwrap()["a"][1], 2);
                assert!(taken(&budget).0 > 100, "{:?}", taken(&budget));
                assert!(json::<Value>("{").unwrap_err().to_string().starts_with("EOF"));
                let deep = "[".repeat(9) + &"]".repeat(9);
                assert_eq!(
                    json::<Value>(&deep).unwrap_err().to_string(),
                    "values are nested more than 8 deep"
                );
                let many = format!("[{}0]", "0,".repeat(100));
                assert_eq!(json::<Value>(&many).unwrap_err().to_string(), "there are more than 100 values");
                known();
                assert_eq!(limits(), KNOWN);
                assert!(json::<Value>(&many).is_ok() && json::<Value>(&deep).is_ok());
            })
            .await;
    }
}
