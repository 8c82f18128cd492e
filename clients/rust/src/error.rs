//! What can go wrong, each with a code for programs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::task::Task;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that this library returns as an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refuses.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// There was no answer, or it broke off. What was asked for may have been done, unless `sent` is false.
    #[error("{message}")]
    Unreachable { message: String, sent: bool },
    /// The answer did not come in time. What was asked for may have been done.
    #[error("{0}")]
    RequestTimeout(String),
    /// What answers is no DCI, or says what this version does not understand.
    #[error("{0}")]
    Protocol(String),
    /// The server and this library do not fit.
    #[error("{0}")]
    Version(String),
    /// The task has not ended in time; it goes on. `task` is how it stood.
    #[error("{message}")]
    WaitTimeout { message: String, task: Value },
    /// The task has ended, and not with status 1.
    #[error("{message}")]
    TaskFailed { message: String, task: Box<Task> },
    /// What is given cannot be sent.
    #[error("{0}")]
    Invalid(String),
    /// A file on this machine cannot be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// An answer of the server that is an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{request}: {status} {message}")]
pub struct ApiError {
    /// Method and path of the request.
    pub request: String,
    pub status: u16,
    /// See the table in `docs/clients.md`.
    pub code: String,
    /// The words of the server.
    pub message: String,
    /// The whole answer.
    pub details: Map<String, Value>,
    /// What the server said of when to try again.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// What it is, as the table in `docs/clients.md` has it.
    pub fn code(&self) -> &str {
        match self {
            Self::Api(error) => &error.code,
            Self::Unreachable { .. } => "unreachable",
            Self::RequestTimeout(_) => "request_timeout",
            Self::Protocol(_) => "protocol",
            Self::Version(_) => "version",
            Self::WaitTimeout { .. } => "wait_timeout",
            Self::TaskFailed { .. } => "task_failed",
            Self::Invalid(_) => "invalid",
            Self::File { .. } => "file",
        }
    }

    /// The answer of the server, if it is one.
    pub fn as_api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None, // They come from here.
        }
    }

    /// The status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.as_api().map(|error| error.status)
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.into(), source }
    }
}

impl ApiError {
    pub(crate) fn new(request: &str, status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let details: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_duplicate = status == 400 && details.contains_key("MongoDB::DuplicateKeyError");
        let message = text("error").filter(|_| !is_duplicate).unwrap_or_else(|| match is_duplicate {
            true => "there is a queue with this name already".to_owned(),
            false => format!("the answer has status {status}"),
        });
        let code = text("code").unwrap_or_else(|| code(status, &details).to_owned());
        Self { request: request.to_owned(), status, code, message, details, retry_after }
    }
}

/// The code of an answer that names none.
fn code(status: u16, details: &Map<String, Value>) -> &'static str {
    let has_none = |result: &str, count: &str| {
        details.get(result).and_then(|result| result.get(count)).and_then(Value::as_u64) == Some(0)
    };
    match status {
        // What MongoDB's driver has said, as Perl's DCI hands it on.
        400 if details.contains_key("MongoDB::DuplicateKeyError") => "conflict",
        400 if has_none("MongoDB::UpdateResult", "matched_count") => "not_found",
        400 if has_none("MongoDB::DeleteResult", "deleted_count") => "not_found",
        429 if details.contains_key("limit") => "quota_exceeded",
        503 if details.contains_key("rule") => "rejected",
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "request_timeout",
        409 => "conflict",
        410 => "gone",
        413 => "too_large",
        416 => "range_not_satisfiable",
        421 => "misdirected",
        422 => "unprocessable",
        429 => "too_many_requests",
        503 => "unavailable",
        500.. => "server_error",
        _ => "error", // A status that the API does not have.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_code_and_words() {
        let of = |status: u16, body: &str| {
            let error = ApiError::new("GET /x", status, body.as_bytes(), None);
            (error.code, error.message)
        };
        let expect = |code: &str, message: &str| (code.to_owned(), message.to_owned());
        assert_eq!(of(404, r#"{"error":"no"}"#), expect("not_found", "no"));
        assert_eq!(of(500, "<h1>oh</h1>"), expect("server_error", "the answer has status 500"));
        assert_eq!(of(418, "[]"), expect("error", "the answer has status 418"));
        assert_eq!(of(409, r#"{"error":"no","code":"stale"}"#), expect("stale", "no"));
        assert_eq!(of(429, r#"{"error":"no","limit":"max_queued"}"#), expect("quota_exceeded", "no"));
        assert_eq!(of(503, r#"{"error":"no","rule":{}}"#), expect("rejected", "no"));
        let gone = r#"{"error":"no queue","MongoDB::DeleteResult":{"deleted_count":0}}"#;
        assert_eq!(of(400, gone), expect("not_found", "no queue"));
        let taken = r#"{"error":"E11000 ..","MongoDB::DuplicateKeyError":{}}"#;
        assert_eq!(of(400, taken), expect("conflict", "there is a queue with this name already"));
    }
}
