//! `PUT /workers/:name`

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use actix_web::web::{Data, Path};
use disbatch_core::workers::{SetWorker, WorkerUpdated};

use crate::access::Who;
use crate::api::{Answer, then, workers};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite, WorkerDefinition};
use crate::params::Params;
use crate::schedules::revision;
use crate::state::State;
use crate::{changes, json, ui};

/// Gives a worker this definition, and nothing of the one that it had; makes it if there is none. With the option `.rev`, only
/// if there is one that still has this revision. Tasks that run go on as they began.
#[utoipa::path(
    put, path = "/workers/{name}", tag = "workers", operation_id = "putWorker",
    params(("name" = String, Path, description = "The plugin's name.", example = "My::Report")),
    request_body(content(
        (WorkerDefinition = "application/json"),
        (WorkerDefinition = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Stored.", body = openapi::Worker),
        (status = 201, description = "Made.", body = openapi::Worker),
        (status = 400, description = "The definition is wrong.", body = ErrorBody),
        (status = 404, description = "With `.rev`: there is no such worker.", body = ErrorBody),
        (
            status = 409, description = "It has another revision (`rev`), and is not changed.",
            body = ErrorBody,
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    then::or_page(then::is_form(&params), put(&state, &who, &name, &params).await)
}

/// Stores the definition that the request has.
pub async fn put(state: &State, who: &Who, name: &str, params: &Params) -> Answer {
    let new = workers::read(Some(name), params)?;
    workers::check_names(state, std::slice::from_ref(&new)).await?;
    let is_new = match revision(params)? {
        None => match changes::set_worker(state, who, new).await? {
            SetWorker::Created(_) => true,
            SetWorker::Updated(_) | SetWorker::Unchanged => false,
            SetWorker::Changed { rev } => return Err(workers::changed_meanwhile(rev)),
        },
        Some(rev) => match changes::update_worker(state, who, new, rev).await? {
            WorkerUpdated::Updated(_) => false,
            WorkerUpdated::Changed { rev } => return Err(workers::changed_meanwhile(rev)),
            WorkerUpdated::NoSuchWorker => return Err(workers::not_found(name)),
        },
    };
    let body = told(state, who, name).await?;
    let answer = if is_new {
        HttpResponse::Created()
            .insert_header((LOCATION, ui::workers::place(&workers::named(name)?)))
            .content_type(json::CONTENT_TYPE)
            .body(body)
    } else {
        HttpResponse::Ok().content_type(json::CONTENT_TYPE).body(body)
    };
    then::answer(params, answer)
}

async fn told(state: &State, who: &Who, name: &str) -> Result<String, HttpError> {
    Ok(json::compact(&workers::view(&workers::find(state, name).await?, who)))
}
