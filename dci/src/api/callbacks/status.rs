//! `POST /callbacks/:id/status`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path, Payload};
use disbatch_core::budget;
use disbatch_core::callbacks::{MOST_AT_ONCE, Report};
use disbatch_core::model::Status;
use serde_json::{Map, Value};

use super::{answer, caller, json_of, within};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{CallbackDone, CallbackStatus, OfCallback};
use crate::params::read_up_to;
use crate::state::State;
use crate::{changes, json};

/// The longest message in bytes.
const LONGEST_MESSAGE: usize = budget::SAID;

/// Ends a task that a web service works on. `FINISHED` is the status 1, `FAILED` is 2 and may be tried again as its queue
/// wants it, `ABORTED` is -3; other positive numbers are the service's own. May be repeated when there was no answer.
#[utoipa::path(
    post, path = "/callbacks/{id}/status", tag = "callbacks", operation_id = "endOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = CallbackStatus, content_type = "application/json"),
    responses((status = 200, description = "The task has ended.", body = CallbackDone), OfCallback),
)]
pub async fn handle(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let (caller, _) = caller(&state, &request, &id).await?;
    let report = report(json_of(&read_up_to(body, MOST_AT_ONCE).await?)?)?;
    let heard = changes::end_by_service(&state, caller.clone(), report).await?;
    answer(heard, &caller, "ended")
}

/// The same as `POST`, for services that can do nothing else.
#[utoipa::path(
    put, path = "/callbacks/{id}/status", tag = "callbacks", operation_id = "putEndOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = CallbackStatus, content_type = "application/json"),
    responses((status = 200, description = "The task has ended.", body = CallbackDone), OfCallback),
)]
pub async fn put(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    handle(state, request, id, body).await
}

/// What a service says of the end.
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
    no_more(&fields)?;
    Ok(Report { status, message, result })
}

fn no_more(fields: &Map<String, Value>) -> Result<(), HttpError> {
    match fields.keys().next() {
        Some(unknown) => Err(HttpError::bad_param("unknown param", unknown)),
        None => Ok(()),
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
    use bson::doc;
    use serde_json::json;

    use super::*;

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
