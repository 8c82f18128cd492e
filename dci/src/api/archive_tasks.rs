//! `POST /tasks/archive`

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_wire::bulk::NewBulkAnswer;
use serde_json::{Map, Value, json};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ArchiveOld, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{bulk, changes, json};

/// Moves the tasks to the archive that have ended and have not changed for so many seconds, in the background: a bulk job that needs
/// no filter.
#[utoipa::path(
    post, path = "/tasks/archive", tag = "tasks", operation_id = "archiveTasks",
    request_body(content((ArchiveOld = "application/json"), (ArchiveOld = "application/x-www-form-urlencoded"))),
    responses(
        (
            status = 202, body = NewBulkAnswer,
            description = "The bulk job's id. Its progress is at `GET /bulk/{id}`.",
        ),
        (status = 400, description = "A parameter is wrong, or there is no such queue.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, params: Params) -> Answer {
    let wanted = bulk::request(&state, &as_bulk(&params)?, &request).await?;
    let id = changes::create_bulk(&state, wanted).await?.to_hex();
    Ok(json::made(StatusCode::ACCEPTED, &format!("/bulk/{id}"), &json!({ "id": id })))
}

/// The same wish in the words of a bulk job.
fn as_bulk(params: &Params) -> Result<Params, HttpError> {
    params.only(&["queue", "reason"])?;
    let age = params
        .options
        .get("older_than")
        .ok_or_else(|| HttpError::bad_request(".older_than must be given"))?;
    let field = |name: &str| params.fields.get(name).cloned();
    let filter = json!({ "queue": field("queue").unwrap_or_else(|| "*".into()), "older_than": age });
    let mut fields =
        Map::from_iter([("action".to_owned(), Value::from("archive")), ("filter".to_owned(), filter)]);
    fields.extend(field("reason").map(|reason| ("reason".to_owned(), reason)));
    Ok(Params { fields, options: Map::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: Value) -> Result<Value, String> {
        let params = Params::from_map(body.as_object().unwrap().clone());
        as_bulk(&params).map(|bulk| Value::Object(bulk.fields)).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_a_bulk_job_with_a_filter() {
        let expected = json!({ "action": "archive", "filter": { "queue": "*", "older_than": 86_400 } });
        assert_eq!(of(json!({ ".older_than": 86_400 })), Ok(expected));
        let expected = json!({
            "action": "archive", "filter": { "queue": "mail", "older_than": "60" }, "reason": "old",
        });
        assert_eq!(of(json!({ ".older_than": "60", "queue": "mail", "reason": "old" })), Ok(expected));
        assert_eq!(of(json!({ "queue": "mail" })).unwrap_err(), ".older_than must be given");
        assert_eq!(of(json!({ ".older_than": 1, "status": 1 })).unwrap_err(), "unknown param");
    }
}
