//! Earlier attempts of tasks, and the failures that whole kinds of operations have in common. These types only describe.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::{RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

/// An earlier attempt of a task, and what came out of it. What is not known is missing.
#[derive(ToSchema)]
#[schema(example = json!({
    "attempt": 1, "status": 2, "node": "worker1", "started": "2026-11-20T08:24:27",
    "ended": "2026-11-20T08:24:29", "stdout": "half\n", "stderr": null, "complete": true,
}))]
pub struct Attempt {
    /// Counted from 1.
    attempt: i64,
    /// How it ended.
    status: i64,
    node: Option<Value>,
    started: Option<Value>,
    ended: Option<Value>,
    /// Text, null, or the id of a file in `GridFS`.
    stdout: Option<Value>,
    stderr: Option<Value>,
    /// Whether all of its output is stored.
    complete: Option<bool>,
    /// Why it failed, in a line: the last one of its standard error, or what ended it.
    error: Option<String>,
    /// How its plugin ended. `output` has when the pieces of its output came, if that took a second or more: `since`, and for `stdout` and
    /// `stderr` milliseconds since then and the offset of the first byte of each, one after the other.
    exit: Option<Value>,
    /// The version of its plugin that ran it, where its queue pinned one, or tried one.
    plugin_version: Option<String>,
    /// How far its steps were, if the task has some.
    steps: Option<Vec<Value>>,
    /// The plugin's structured result.
    result: Option<Value>,
    /// Why it ended so.
    note: Option<String>,
}

type Responses = BTreeMap<String, RefOr<Response>>;

/// Of an operation that is for everybody, whoever they are.
pub enum OfAnybody {}

impl IntoResponses for OfAnybody {
    fn responses() -> Responses {
        [failure(405, "This address does not have this method; `Allow` tells which it has.")].into()
    }
}

/// Of an operation that answers without the database, once it is known who asks.
pub enum OfFixed {}

impl IntoResponses for OfFixed {
    fn responses() -> Responses {
        with_those_of::<OfAnybody>([
            failure(
                401,
                "It is not known who asks. Browsers that ask for a page are led to `/login` instead.",
            ),
            failure(403, "Who asks may not do this."),
            failure(
                429,
                "There were too many wrong passwords or tokens; `Retry-After` tells when the next may be tried.",
            ),
        ])
    }
}

/// Of an operation that reads.
pub enum OfRead {}

impl IntoResponses for OfRead {
    fn responses() -> Responses {
        with_those_of::<OfFixed>([failure(503, AWAY)])
    }
}

/// Of an operation that reads and takes parameters in a body.
pub enum OfSearch {}

impl IntoResponses for OfSearch {
    fn responses() -> Responses {
        with_those_of::<OfRead>([failure(
            413,
            "The body is longer than 16 MiB, or what it has would take more than 64 MiB of memory.",
        )])
    }
}

/// Of an operation that changes something.
pub enum OfWrite {}

impl IntoResponses for OfWrite {
    fn responses() -> Responses {
        with_those_of::<OfSearch>([failure(
            403,
            "Who asks may not do this, or a browser says that a page of another site makes the request.",
        )])
    }
}

/// Of what a web service says about its task.
pub enum OfCallback {}

impl IntoResponses for OfCallback {
    fn responses() -> Responses {
        with_those_of::<OfAnybody>([
            failure(400, "The body makes no sense."),
            failure(401, "The token is not that of the task, or there is no such task."),
            failure(403, "A browser says that a page of another site makes the request."),
            failure(404, "This is no id of a task."),
            failure(408, "The body did not come in time."),
            failure(410, "The task has ended, or another attempt of it is on its way."),
            failure(413, "The body is longer than 1 MiB, or the log of the task is as long as it may be."),
            failure(503, AWAY),
        ])
    }
}

const AWAY: &str = "The database cannot be reached; `Retry-After` tells when to try again.";

/// The failures of `T` and these, which may take the place of some.
fn with_those_of<T: IntoResponses>(these: impl IntoIterator<Item = (String, RefOr<Response>)>) -> Responses {
    T::responses().into_iter().chain(these).collect()
}

fn failure(status: u16, description: &str) -> (String, RefOr<Response>) {
    (status.to_string(), Response::new(description).into())
}
