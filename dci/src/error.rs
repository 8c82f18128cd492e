//! The one HTTP error: JSON for programs, a page for people. Internal detail goes to the log only.

use std::fmt;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderName, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use disbatch_core::accounts::Role;
use disbatch_core::budget::{DOCUMENT, OverBudget};
use disbatch_core::gates::MOST_LINKS;
use disbatch_core::model::TaskId;
use disbatch_core::request::Invalid;
use disbatch_core::store::{StoreError, WriteFailure};
use disbatch_core::task::SubmitError;
use disbatch_core::tenants::{Busy, OverQuota};
use serde_json::{Value, json};

use crate::json;

/// Seconds after which a client may try again when the database was away.
const RETRY_SECONDS: u32 = 5;

/// What the body of a refusal has because of a rule of admission.
const REJECTED: &str = "rule";

/// A request that is not answered as hoped.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpError {
    status: StatusCode,
    body: Value,
    header: Option<(HeaderName, String)>,
    needs: Option<Role>,
}

impl HttpError {
    /// An error whose body has more than a message. `body` is an object with the key `error`.
    pub fn with_body(status: StatusCode, body: Value) -> Self {
        Self { status, body, header: None, needs: None }
    }

    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self::with_body(status, json!({ "error": message.into() }))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400 with the name of the parameter that is wrong.
    pub fn bad_param(message: &str, param: &str) -> Self {
        Self::with_body(StatusCode::BAD_REQUEST, json!({ "error": message, "param": param }))
    }

    /// 400: tasks are named that there are not, or not for who asks.
    pub fn no_such_tasks(ids: &[TaskId]) -> Self {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        Self::bad_request(format!(".after names tasks that do not exist: {}", ids.join(", ")))
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub fn lacking(role: Role) -> Self {
        Self { needs: Some(role), ..Self::forbidden(format!("this needs the role {role}")) }
    }

    /// The role that is lacking, if it is nothing else.
    pub fn needs(&self) -> Option<Role> {
        self.needs
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 405: the address is right, what is to be done with it is not.
    pub fn method_not_allowed(method: &str, allow: &str) -> Self {
        let message = format!("{method} is not possible here, only {allow}");
        let header = Some((ALLOW, allow.to_owned()));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 403: somebody who may not know what there is may not use this name. Others may have it already, or not.
    pub fn name_not_allowed() -> Self {
        Self::forbidden("this name is not allowed: choose another")
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {limit} bytes"))
    }

    /// 429: there were too many wrong passwords, and the next may be tried after `wait`.
    pub fn too_many_attempts(wait: Duration) -> Self {
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        let message = format!("too many wrong passwords or tokens: wait {seconds} s");
        let header = Some((RETRY_AFTER, seconds.to_string()));
        Self { header, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// 500: a mistake of ours. `detail` is for the log.
    pub fn internal(detail: &str) -> Self {
        tracing::error!(detail, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error, see the server's log")
    }

    /// An error of a read whose filter came from the client: what the server says of it is for the client.
    pub fn from_search(error: StoreError) -> Self {
        if error.is_out_of_time() {
            return Self::bad_request(
                "the search takes too long: ask for fewer tasks, by fields that an index has",
            );
        }
        match error.write_failure() {
            Some(failure) if !error.is_transient() => {
                Self::bad_request(format!("MongoDB::DatabaseError: {}", failure.message))
            }
            _ => Self::from(error),
        }
    }

    /// What one may not see is as if it were not there: `absent` in place of any 404.
    pub fn hidden_as(self, absent: impl FnOnce() -> Self) -> Self {
        if self.status == StatusCode::NOT_FOUND { absent() } else { self }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the same will happen to whatever else is tried now: the database is away, or something is wrong here.
    pub fn is_of_server(&self) -> bool {
        self.status.is_server_error() && self.body.get(REJECTED).is_none()
    }

    pub fn body(&self) -> &Value {
        &self.body
    }

    pub fn message(&self) -> &str {
        self.body
            .get("error")
            .and_then(Value::as_str)
            .unwrap_or_else(|| self.status.canonical_reason().unwrap_or("error"))
    }

    pub fn json(&self) -> String {
        json::compact(&self.body)
    }

    /// A response with this status and the headers that go with it, to be given a body.
    pub fn response(&self) -> HttpResponseBuilder {
        let mut response = HttpResponse::build(self.status);
        if let Some((name, value)) = &self.header {
            response.insert_header((name.clone(), value.as_str()));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((RETRY_AFTER, RETRY_SECONDS));
        }
        response
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for HttpError {}

impl ResponseError for HttpError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        self.response().content_type(json::CONTENT_TYPE).body(self.json())
    }
}

impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            tracing::warn!(%error, "a request failed");
            let is_full = error.write_failure().as_ref().is_some_and(WriteFailure::is_out_of_cache);
            let why = if is_full { "the database's cache is full" } else { "the database cannot be reached" };
            return Self::unavailable(why);
        }
        if let StoreError::Refused { .. } = error {
            tracing::error!(%error, "a request failed");
            return Self::unavailable("the database refuses this server");
        }
        if let Some(failure) = error.write_failure().filter(WriteFailure::is_too_large) {
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, failure.message);
        }
        // The driver does not even send a document that is too large, and says so in words only.
        if let StoreError::Database(cause) = &error
            && cause.to_string().contains("document must be within")
        {
            let message = format!("the document would be larger than {DOCUMENT} bytes");
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        }
        tracing::error!(%error, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error, see the server's log")
    }
}

impl From<Invalid> for HttpError {
    fn from(invalid: Invalid) -> Self {
        Self::bad_request(invalid.to_string())
    }
}

impl From<SubmitError> for HttpError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Store(error) => error.into(),
            SubmitError::NotUnique { task } => {
                let message = "a task of this queue with the same .unique key has not ended";
                Self::with_body(StatusCode::CONFLICT, json!({ "error": message, "task": task.to_string() }))
            }
            SubmitError::UniqueForSeveral => {
                Self::bad_request(".unique is for one task, and this request has several")
            }
            SubmitError::AnotherRequest => Self::conflict(".idempotency_key was used for another request"),
            SubmitError::KeyTaken(_) => Self::conflict(error.to_string()),
            SubmitError::NoSuchTasks(ids) => Self::no_such_tasks(&ids),
            SubmitError::TooManyLinks => Self::bad_request(format!(
                ".after: the tasks of the request times those that each comes after are more than {MOST_LINKS}"
            )),
            SubmitError::ChainOfCollection => {
                Self::bad_request(".chain is for tasks of params, and not for those of a collection")
            }
            SubmitError::TooManyForKey(most) => {
                Self::bad_request(format!(".idempotency_key is for at most {most} tasks"))
            }
            SubmitError::Rejected { ref scope, .. } => {
                let rule = json!({ "scope": scope.kind(), "value": scope.value() });
                let body = json!({ "error": error.to_string(), REJECTED: rule });
                Self::with_body(StatusCode::SERVICE_UNAVAILABLE, body)
            }
            SubmitError::OverBudget(over) => over.into(),
            SubmitError::OverQuota(over) => over.into(),
            SubmitError::Busy(busy) => busy.into(),
        }
    }
}

impl From<Busy> for HttpError {
    fn from(busy: Busy) -> Self {
        Self::unavailable(busy.to_string())
    }
}

impl From<OverBudget> for HttpError {
    fn from(over: OverBudget) -> Self {
        let body = json!({
            "error": over.to_string(), "field": over.field, "bytes": over.bytes, "limit": over.limit,
        });
        Self::with_body(StatusCode::PAYLOAD_TOO_LARGE, body)
    }
}

impl From<OverQuota> for HttpError {
    fn from(over: OverQuota) -> Self {
        let limit = over.quota.as_str();
        let body =
            json!({ "error": over.to_string(), "tenant": over.tenant, "limit": limit, "most": over.most });
        Self::with_body(StatusCode::TOO_MANY_REQUESTS, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_json_with_the_headers_of_their_status() {
        let error = HttpError::method_not_allowed("PUT", "GET, HEAD");
        let response = error.error_response();
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers().get(ALLOW).unwrap(), "GET, HEAD");
        assert_eq!(error.to_string(), "PUT is not possible here, only GET, HEAD");
        let response = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "x").error_response();
        assert_eq!(response.headers().get(RETRY_AFTER).unwrap(), "5");
        let response = HttpError::too_many_attempts(Duration::from_millis(1_500)).error_response();
        assert_eq!(
            (response.status().as_u16(), response.headers().get(RETRY_AFTER).unwrap().as_bytes()),
            (429, &b"2"[..])
        );
    }

    #[test]
    fn a_full_cache_is_told_from_a_database_that_is_away() {
        let told = |error: mongodb::error::Error| {
            let error = HttpError::from(StoreError::from(error));
            (error.status(), error.to_string())
        };
        let full = bson::doc! { "code": 388, "errmsg": "transaction is too large" };
        let full = mongodb::error::ErrorKind::Write(mongodb::error::WriteFailure::WriteError(
            bson::deserialize_from_document(full).unwrap(),
        ));
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(told(full.into()), (unavailable, "the database's cache is full".to_owned()));
        let away = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(told(away.into()), (unavailable, "the database cannot be reached".to_owned()));
    }
}
