//! Bulk jobs: one thing that is done to many tasks, in the background.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::bulk::BulkCancelled;
use disbatch_core::paging::Position;
use disbatch_wire::bulk::{ArchiveOld, BulkJob, BulkLimit, NewBulk, NewBulkAnswer};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::{accept, bulk, changes, json, ui};

/// So many jobs unless told otherwise.
pub const DEFAULT_LIMIT: i64 = 20;

/// The bulk jobs, the latest first. A filter by ids has their number in place of the ids.
#[utoipa::path(
    get, path = "/bulk", tag = "bulk", operation_id = "listBulkJobs",
    params(BulkLimit),
    responses(
        (status = 200, description = "The jobs; a page if `Accept` asks for HTML.", body = Vec<BulkJob>, content_type = JSON_OR_PAGE),
        (status = 400, description = "`.limit` is wrong."),
    ),
)]
pub async fn list(state: Data<State>, params: Params) -> Answer {
    let jobs = state.store.list_bulk(Position::First, bulk::limit(&params, DEFAULT_LIMIT)?).await?;
    json::of(&jobs.iter().map(|job| bulk::view(job, false)).collect::<Vec<_>>())
}

/// One bulk job and how far it is: JSON, or a page.
#[utoipa::path(
    get, path = "/bulk/{id}", tag = "bulk", operation_id = "getBulkJob",
    responses(
        (status = 200, description = "The job; a page if `Accept` asks for HTML.", body = BulkJob, content_type = JSON_OR_PAGE),
        (status = 404, description = "There is no such job.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, id: Path<String>) -> Answer {
    json::of(&bulk::view(&bulk::find(&state, &id).await?, true))
}

/// Does one thing to many tasks, in the background: cancel, retry, archive or delete. Tasks that come later
/// are left alone. With the option `.preview`, only says how many tasks match; `null` if counting takes too long.
#[utoipa::path(
    post, path = "/bulk", tag = "bulk", operation_id = "createBulkJob",
    request_body(content = NewBulk, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "With `.preview`: how many tasks match; a page if `Accept` asks for HTML.", body = NewBulkAnswer,
            content_type = JSON_OR_PAGE),
        (status = 202, description = "The job's id. Its progress is at `GET /bulk/{id}`.", body = NewBulkAnswer),
        (status = 303, description = "To the job's page, if `Accept` asks for HTML."),
        (status = 400, description = "A parameter is wrong, or the filter is for everything.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn create(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    let html = accept::wants_html(&request);
    let wanted = match bulk::request(&state, &params, &request).await {
        Ok(wanted) => wanted,
        Err(error) if html => return Ok(ui::page(ui::bulk::refused(&state, &who, &params, &error).await)),
        Err(error) => return Err(error),
    };
    if params.is_on("preview") {
        let count = state.store.count_bulk(wanted.action, &wanted.filter).await?;
        if html {
            return Ok(ui::page(ui::bulk::confirm(&state, &params, &wanted, count).await));
        }
        return Ok(json::ok(&json!({ "count": count })));
    }
    let id = changes::create_bulk(&state, wanted).await?.to_hex();
    let place = format!("/bulk/{id}");
    if html {
        return Ok(redirect::see(&place));
    }
    Ok(json::made(StatusCode::ACCEPTED, &place, &json!({ "id": id })))
}

/// Stops a bulk job after the tasks that it is at. What it has done stays done.
#[utoipa::path(
    post, path = "/bulk/{id}/cancel", tag = "bulk", operation_id = "cancelBulkJob",
    responses(
        (status = 200, description = "Stopped.", body = Object, example = json!({"id": "6b0003bb686c8275d8014444", "state": "cancelled"})),
        (status = 303, description = "To the job's page, if `Accept` asks for HTML."),
        (status = 409, description = "It is over."),
    ),
)]
pub async fn cancel(request: HttpRequest, state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let cancelled = match changes::cancel_bulk(&state, &who, bulk::id_of(&id)?).await? {
        BulkCancelled::Cancelled => Ok(json!({ "id": *id, "state": "cancelled" })),
        BulkCancelled::NotRunning(ended) => {
            Err(HttpError::conflict(format!("the bulk job is over: its state is {}", ended.as_str())))
        }
        BulkCancelled::NoSuchJob => Err(bulk::not_found(&id)),
    };
    if accept::wants_html(&request) {
        return redirect::lead(cancelled, &format!("/bulk/{id}"));
    }
    Ok(json::ok(&cancelled?))
}

/// Moves the tasks to the archive that have ended and have not changed for so many seconds, in the background: a bulk job that needs
/// no filter.
#[utoipa::path(
    post, path = "/tasks/archive", tag = "tasks", operation_id = "archiveTasks",
    request_body(content = ArchiveOld, content_type = JSON_OR_FORM),
    responses(
        (status = 202, description = "The bulk job's id. Its progress is at `GET /bulk/{id}`.", body = NewBulkAnswer),
        (status = 400, description = "A parameter is wrong, or there is no such queue."),
    ),
)]
pub async fn archive(request: HttpRequest, state: Data<State>, params: Params) -> Answer {
    let wanted = bulk::request(&state, &as_bulk(&params)?, &request).await?;
    let id = changes::create_bulk(&state, wanted).await?.to_hex();
    Ok(json::made(StatusCode::ACCEPTED, &format!("/bulk/{id}"), &json!({ "id": id })))
}

/// The same wish in the words of a bulk job.
fn as_bulk(params: &Params) -> Result<Params, HttpError> {
    let ArchiveOld { older_than, queue, reason } = params.given()?;
    let filter = json!({ "queue": queue.unwrap_or_else(|| "*".into()), "older_than": older_than });
    let mut fields =
        Map::from_iter([("action".to_owned(), Value::from("archive")), ("filter".to_owned(), filter)]);
    fields.extend(reason.map(|reason| ("reason".to_owned(), reason)));
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
