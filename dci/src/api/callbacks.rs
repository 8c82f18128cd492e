//! What web services say about the tasks that they work on. They show the token that they were given with the task, and need
//! no login. Each call starts the time anew in which the service has to be heard of.

use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Data, Path, Payload};
use bson::Bson;
use disbatch_core::budget;
use disbatch_core::callbacks::{Heard, MOST_AT_ONCE, MOST_CALLS, MOST_LOG, Report, Token};
use disbatch_core::model::{Status, TaskId};
use disbatch_core::store::Store;
use disbatch_wire::task_actions::CallbackDone;
use serde_json::Value;

use crate::access::address;
use crate::api::{Answer, task_actions};
use crate::error::HttpError;
use crate::openapi::{CallbackStatus, OfCallback};
use crate::params::{json_value, read_up_to};
use crate::state::State;
use crate::{allowance, changes, json};

/// The longest message in bytes.
const LONGEST_MESSAGE: usize = budget::SAID;

/// Adds the body to the standard output of a task that a web service works on, byte by byte: at most 1 MiB with a call, and
/// 256 MiB in all, in a million calls. An empty body only tells that the service is still at work.
#[utoipa::path(
    post, path = "/callbacks/{id}/log", tag = "callbacks", operation_id = "logOfService",
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "It was added.", body = CallbackDone), OfCallback),
)]
pub async fn log(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let (task, token) = caller_of_running(&state, &request, &id).await?;
    let bytes = read_up_to(body, MOST_AT_ONCE).await?;
    let log = move |store: Store| async move { store.callback_log(task, &token, bytes.to_vec()).await };
    answer(task, changes::by_service(&state, log).await?, "logged")
}

/// Keeps any JSON of at most 1 MiB for the next run of the task's schedule, or for the next attempt, in place of what was
/// kept before.
#[utoipa::path(
    post, path = "/callbacks/{id}/job_storage", tag = "callbacks", operation_id = "storageOfService",
    request_body = Value,
    responses((status = 200, description = "It is kept.", body = CallbackDone), OfCallback),
)]
pub async fn store(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let (task, token) = caller_of_running(&state, &request, &id).await?;
    let storage = json_value(&read_up_to(body, MOST_AT_ONCE).await?)?;
    let storage = within("the storage", json::to_bson(&storage), budget::STORAGE)?;
    let keep = move |store: Store| async move { store.callback_storage(task, &token, storage).await };
    answer(task, changes::by_service(&state, keep).await?, "stored")
}

/// Ends a task that a web service works on. `FINISHED` is the status 1, `FAILED` is 2 and may be tried again as its queue
/// wants it, `ABORTED` is -3; other positive numbers are the service's own. May be repeated when there was no answer.
#[utoipa::path(
    post, path = "/callbacks/{id}/status", tag = "callbacks", operation_id = "endOfService",
    request_body = CallbackStatus,
    responses((status = 200, description = "The task has ended.", body = CallbackDone), OfCallback),
)]
pub async fn end(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let ((task, token), _) = caller(&state, &request, &id).await?;
    let report = report(json_value(&read_up_to(body, MOST_AT_ONCE).await?)?)?;
    let end = move |store: Store| async move { store.callback_status(task, &token, report).await };
    answer(task, changes::by_service(&state, end).await?, "ended")
}

type Caller = (TaskId, Token);

/// Finds out which task a web service may call back for, before its body is read, and how the task stands.
async fn caller(state: &State, request: &HttpRequest, id: &str) -> Result<(Caller, Heard), HttpError> {
    let (id, token) = match id.split_once('-') {
        // Who shows nothing else must not come from everywhere.
        Some((id, token)) if is_near(request, state) => (id, Token::parse(token).map(Token::in_address)),
        Some((id, _)) => (id, None),
        None => (id, shown(request)),
    };
    let token = token.ok_or_else(unknown)?;
    let task = task_actions::task_id(id)?;
    let heard = state.store.callback_bearer(task, &token).await?;
    match heard {
        Heard::Done | Heard::Over => {
            allowance::known();
            Ok(((task, token), heard))
        }
        Heard::NoSuchTask | Heard::WrongToken | Heard::LogFull => Err(refusal(heard)),
    }
}

/// The same, if the task has not ended.
async fn caller_of_running(state: &State, request: &HttpRequest, id: &str) -> Result<Caller, HttpError> {
    let (caller, heard) = caller(state, request, id).await?;
    if heard == Heard::Done { Ok(caller) } else { Err(refusal(heard)) }
}

fn answer(task: TaskId, heard: Heard, outcome: &str) -> Answer {
    match heard {
        Heard::Done => json::of(&CallbackDone { id: task.to_string(), outcome: outcome.to_owned() }),
        Heard::Over | Heard::NoSuchTask | Heard::WrongToken | Heard::LogFull => Err(refusal(heard)),
    }
}

fn refusal(heard: Heard) -> HttpError {
    match heard {
        // Alike, so that nobody without a token finds out which tasks there are.
        Heard::NoSuchTask | Heard::WrongToken => unknown(),
        Heard::Over => HttpError::gone("the task has ended, or has been given to another run"),
        Heard::LogFull => HttpError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the log of a task may have {MOST_LOG} bytes and {MOST_CALLS} calls, and this one is full"
            ),
        ),
        Heard::Done => HttpError::internal("a callback was refused that is done"),
    }
}

fn unknown() -> HttpError {
    HttpError::unauthorized("this needs the header 'Authorization: Bearer TOKEN' with the token of the task")
}

/// Whether a request is known to come from this host or a private network.
fn is_near(request: &HttpRequest, state: &State) -> bool {
    let proxy = state.access.proxy.as_ref();
    !address::is_passed_on(request, proxy) && address::of(request, proxy).is_some_and(is_private)
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn shown(request: &HttpRequest) -> Option<Token> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { Token::parse(token.trim()) } else { None }
}

/// A value that takes at most so many bytes in a task. `what` it is, for the message.
fn within<T: Into<Bson> + Clone>(what: &'static str, value: T, limit: usize) -> Result<T, HttpError> {
    let bytes = budget::size_of_field("", &value.clone().into());
    if bytes <= limit {
        return Ok(value);
    }
    let message = format!("{what} takes {bytes} bytes as BSON, and may take {limit}");
    Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message))
}

fn report(body: Value) -> Result<Report, HttpError> {
    let Value::Object(mut fields) = body else {
        return Err(HttpError::bad_request("the body must be a JSON object"));
    };
    let wrong = |message: &str, param: &str| Err(HttpError::bad_param(message, param));
    let Some(status) = fields.remove("status") else { return wrong("missing param", "status") };
    let Some(status) = status_of(&status) else {
        return wrong("'status' must be FINISHED, FAILED, ABORTED, or a positive integer", "status");
    };
    let message = match fields.remove("message") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.len() <= LONGEST_MESSAGE => Some(text),
        Some(Value::String(_)) => return wrong("'message' is longer than 64 KiB", "message"),
        Some(_) => return wrong("'message' must be text", "message"),
    };
    let result = match fields.remove("result") {
        None | Some(Value::Null) => None,
        Some(Value::Object(result)) => Some(within("result", json::to_document(&result), budget::RESULT)?),
        Some(_) => return wrong("'result' must be an object", "result"),
    };
    match fields.keys().next() {
        Some(unknown) => wrong("unknown param", unknown),
        None => Ok(Report { status, message, result }),
    }
}

fn status_of(value: &Value) -> Option<Status> {
    match value {
        Value::String(word) => match word.as_str() {
            "FINISHED" => Some(Status::Succeeded),
            "FAILED" => Some(Status::Failed),
            "ABORTED" => Some(Status::Terminated),
            _ => None,
        },
        Value::Number(number) => number.as_i64().filter(|code| *code >= 1).map(Status::from_code),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use bson::doc;
    use serde_json::json;

    use super::*;

    fn with(value: &str) -> Option<Token> {
        shown(&TestRequest::post().insert_header((AUTHORIZATION, value)).to_http_request())
    }

    #[test]
    fn only_a_bearer_of_a_token_is_let_in() {
        let token = "0a".repeat(32);
        for right in [format!("Bearer {token}"), format!("bearer  {token}")] {
            assert_eq!(with(&right).map(|token| token.text().to_owned()), Some(token.clone()), "{right}");
        }
        for wrong in
            ["", "Bearer", "Bearer x", &token, &format!("Basic {token}"), &format!("Bearer {token}0")]
        {
            assert!(with(wrong).is_none(), "{wrong}");
        }
        assert!(shown(&TestRequest::post().to_http_request()).is_none());
    }

    #[test]
    fn only_private_networks_are_near() {
        for near in
            ["127.0.0.1", "10.9.8.7", "172.31.0.1", "192.168.1.1", "169.254.1.1", "::1", "fd00::1", "fe80::1"]
        {
            assert!(is_private(near.parse().unwrap()), "{near}");
        }
        for far in ["8.8.8.8", "172.32.0.1", "100.64.0.1", "0.0.0.0", "2001:db8::1", "::"] {
            assert!(!is_private(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn each_refusal_has_its_status() {
        let of = |heard| refusal(heard).status().as_u16();
        let all = [Heard::NoSuchTask, Heard::WrongToken, Heard::Over, Heard::LogFull];
        assert_eq!(all.map(of), [401, 401, 410, 413]);
        assert_eq!(refusal(Heard::NoSuchTask), refusal(Heard::WrongToken));
    }

    #[test]
    fn words_and_positive_numbers_are_statuses() {
        let of = |status: Value| report(json!({ "status": status })).map(|report| report.status.code());
        assert_eq!(of(json!("FINISHED")), Ok(1));
        assert_eq!(of(json!("FAILED")), Ok(2));
        assert_eq!(of(json!("ABORTED")), Ok(-3));
        assert_eq!(
            (of(json!(1)), of(json!(7)), of(json!(5_000_000_000_i64))),
            (Ok(1), Ok(7), Ok(5_000_000_000))
        );
        for wrong in [json!("finished"), json!(0), json!(-3), json!(1.5), json!(null), json!("1"), json!([1])]
        {
            assert_eq!(of(wrong.clone()).unwrap_err().status(), 400, "{wrong}");
        }
    }

    #[test]
    fn a_report_has_what_was_said_and_nothing_unknown() {
        let full =
            report(json!({ "status": "FAILED", "message": "no disk", "result": { "rows": 3 } })).unwrap();
        let result = Some(doc! { "rows": 3 });
        assert_eq!(full, Report { status: Status::Failed, message: Some("no disk".to_owned()), result });
        for (wrong, message) in [
            (json!({}), "missing param"),
            (json!([]), "the body must be a JSON object"),
            (json!({ "status": 1, "message": 5 }), "'message' must be text"),
            (json!({ "status": 1, "message": "x".repeat(65_537) }), "'message' is longer than 64 KiB"),
            (json!({ "status": 1, "result": [] }), "'result' must be an object"),
            (json!({ "status": 1, "state": "x" }), "unknown param"),
        ] {
            assert_eq!(report(wrong).unwrap_err().to_string(), message);
        }
    }
}
