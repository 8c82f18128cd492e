//! What a request may cost: how long its body may be, and how much memory its body and all that is read from it may take.
//!
//! Until somebody is known, that is little. All requests together have a bound, one for those who are known and one for all
//! others, so that strangers cannot use up what is for people who have logged in.

pub mod answers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use actix_web::ResponseError;
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

const MIB: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body in bytes.
    pub body: usize,
    /// How many values JSON may have, or fields a form.
    values: usize,
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
    /// Why it was not given something that it asked for.
    refused: OnceLock<HttpError>,
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
    let Some(state) = request.app_data::<Data<State>>() else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    let budget = Arc::clone(&state.budget);
    let place = request.request().conn_data::<Arc<Place>>().cloned();
    let allowance = Arc::new(Allowance::of(budget, place));
    let answer = Box::pin(ALLOWANCE.scope(Arc::clone(&allowance), next.call(request)));
    // If the client leaves, the answer is dropped.
    let answer = Attended::new(answer).await?;
    // What there was no memory to read looks like something wrong to whoever reads it.
    Ok(match allowance.refused.get() {
        Some(refused) if answer.status() == StatusCode::BAD_REQUEST => {
            answer.into_response(refused.error_response()).map_into_right_body()
        }
        _ => answer.map_into_left_body(),
    })
}

/// It is known who sends the request that is being worked on, and with it whose the connection is. Called before anything of its body is
/// read.
pub fn known() {
    let _no_request = ALLOWANCE.try_with(|allowance| {
        // What was taken so far was a stranger's.
        allowance.give_back(usize::MAX);
        allowance.is_known.store(true, Ordering::Relaxed);
        if let Some(place) = &allowance.place {
            place.know();
        }
    });
}

/// What the request that is being worked on has taken, for whoever goes on with it when it has been answered.
pub fn now() -> Option<Arc<Allowance>> {
    ALLOWANCE.try_with(Arc::clone).ok()
}

pub fn limits() -> Limits {
    ALLOWANCE.try_with(|allowance| allowance.limits()).unwrap_or(KNOWN)
}

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
    let bytes: usize = values.into_iter().map(of_copy).sum();
    take(bytes.saturating_mul(copies))
}

/// Reads JSON that is text in a field of a request.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, HttpError> {
    let weight = Weight::of_json(text.as_bytes());
    take_for(&weight)?;
    serde_json::from_str(text).map_err(|error| {
        give_back(weight.bytes);
        HttpError::bad_request(error.to_string())
    })
}

impl Allowance {
    /// That of a stranger.
    fn of(budget: Arc<Budget>, place: Option<Arc<Place>>) -> Self {
        let (is_known, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { budget, is_known, taken, refused: OnceLock::new(), place }
    }

    /// Takes so many bytes, or remembers why it cannot.
    fn take(&self, bytes: usize) -> Result<(), HttpError> {
        self.try_take(bytes).inspect_err(|refused| {
            self.refused.get_or_init(|| refused.clone());
        })
    }

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

    fn try_take(&self, bytes: usize) -> Result<(), HttpError> {
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
            return Err(HttpError::unavailable(message));
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

/// How much memory it would take to read a text, without reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// How many values or fields there are, those within others too.
    pub values: usize,
    pub depth: usize,
    /// How many bytes of memory they would take: as values of JSON, then as documents, and as what is sent to the database.
    pub bytes: usize,
}

/// An object as a tree that has room for 11 keys, as a document, and what a task has besides its parameters.
const OBJECT: usize = 1_200;

/// A key and what it has, but for longer text.
const KEY: usize = 350;

/// An item of an array, but for longer text.
const ITEM: usize = 180;

/// A field of a form, while it is decoded and when it has been.
const FIELD: usize = 300;

/// The database's driver has all text thrice: a document, a copy of that which it may send again, and the message.
const TEXTS: usize = 3;

impl Weight {
    /// That of JSON. Of what is no JSON it is at least as much as a reader gets to know before it notices.
    pub fn of_json(text: &[u8]) -> Self {
        let (mut opened, mut objects, mut keys, mut commas) = (0_usize, 0_usize, 0_usize, 0_usize);
        let (mut depth, mut deepest) = (0_usize, 0_usize);
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => skip_text(&mut bytes),
                b'{' | b'[' => {
                    opened += 1;
                    objects += usize::from(*byte == b'{');
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b':' => keys += 1,
                b',' => commas += 1,
                _ => {} // Part of a number or a word, or space.
            }
        }
        // Each but the first of an object or array comes after a comma.
        let values = commas.saturating_add(opened).saturating_add(1);
        let items = values.saturating_sub(keys);
        let structure = [(objects, OBJECT), (keys, KEY), (items, ITEM), (text.len(), TEXTS)];
        let bytes = structure.iter().fold(0_usize, |sum, (count, each)| sum.saturating_add(count * each));
        Self { values, depth: deepest, bytes }
    }

    /// That of a form, or of the query string of an address.
    pub fn of_form(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        let values = text.iter().filter(|byte| **byte == b'&').count() + 1;
        Self { values, depth: 1, bytes: values * FIELD + text.len() * TEXTS }
    }
}

/// How many bytes one more copy of a value takes.
fn of_copy(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => ITEM / 2,
        Value::String(text) => ITEM / 2 + text.len(),
        Value::Array(items) => items.iter().fold(ITEM, |sum, item| sum + of_copy(item)),
        Value::Object(fields) => {
            fields.iter().fold(OBJECT / 2, |sum, (key, value)| sum + key.len() + KEY / 2 + of_copy(value))
        }
    }
}

fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {} // Part of the text.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(budget: &Arc<Budget>, is_known: bool) -> Allowance {
        let allowance = Allowance::of(Arc::clone(budget), None);
        allowance.is_known.store(is_known, Ordering::Relaxed);
        allowance
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

    fn of(text: &str) -> (usize, usize) {
        let weight = Weight::of_json(text.as_bytes());
        (weight.values, weight.depth)
    }

    #[test]
    fn values_and_depth_are_counted() {
        assert_eq!(of("1"), (1, 0));
        assert_eq!(of("[1, 2, [3]]"), (5, 2));
        assert_eq!(of(r#"{"a": {"b": [1, 2]}, "c": null}"#), (6, 3));
        assert_eq!(of(r#"["{[,:", "\"{", "\\"]"#), (4, 1), "what is text does not count");
        assert_eq!(of("]]]["), (2, 1), "what is no JSON is weighed, too");
        assert_eq!(of("\"\\"), (1, 0));
    }

    #[test]
    fn empty_objects_weigh_more_than_long_texts() {
        let objects = format!("[{}]", vec!["{\"\":0}"; 1_000].join(","));
        let text = format!("[\"{}\"]", "x".repeat(objects.len()));
        let [objects, text] = [objects, text].map(|text| Weight::of_json(text.as_bytes()).bytes);
        assert!(objects > 1_000_000 && text < 30_000, "{objects} {text}");
    }

    #[test]
    fn a_copy_has_all_text() {
        let text = "x".repeat(100_000);
        let value = serde_json::json!({ "a": [text, { "b": text }, 1, null] });
        assert!((200_000..203_000).contains(&of_copy(&value)), "{}", of_copy(&value));
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(Weight::of_form(b""), Weight::default());
        let weight = Weight::of_form(b"a=1&b&c=2");
        assert_eq!((weight.values, weight.bytes), (3, 927));
    }
}
