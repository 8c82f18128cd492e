//! `POST /search-tasks-json`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, Document};
use disbatch_core::model::Moment;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::TaskQuery;
use futures::{StreamExt, future, stream};
use serde_json::{Map, Value, json};

use super::{declined, in_array, parsed_object, refused};
use crate::access::Sight;
use crate::api::Answer;
use crate::arrays;
use crate::counts;
use crate::error::HttpError;
use crate::json::{self, Dates, date_text};
use crate::legacy;
use crate::openapi::{OfWrite, SearchTasks};
use crate::params::Params;
use crate::query::{SEARCH_TIME, Shape, check_forbidden, legacy as query};
use crate::rows::{self, TERSE};
use crate::state::State;

/// Tasks of `queue` (an id) that `filter` finds, also by fields without an index; `id` in it is the task's id.
/// `limit` and `skip` say which of them, `count` asks for their number, `terse` leaves output out.
#[utoipa::path(
    post, path = "/search-tasks-json", tag = "Disbatch::Web::V3", operation_id = "searchTasksJson",
    request_body(content(
        (SearchTasks = "application/json"),
        (SearchTasks = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "An array of tasks, `[1, count]`, or `[0, message]`."),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, params: Params) -> Answer {
    // Nobody is to take all tasks for those of an array.
    arrays::refuse(&params).map_err(in_array)?;
    let filter = match params.fields.get("filter").filter(|filter| legacy::is_true(Some(filter))) {
        None => Map::new(),
        Some(filter) => match parsed_object("filter", filter) {
            Ok(filter) => filter,
            Err(_) => return Ok(declined("JSON object required for filter")),
        },
    };
    let (limit, skip) = (number(&params, "limit")?, number(&params, "skip")?);
    let is_on = |name: &str| legacy::is_true(params.fields.get(name));
    let filter = task_filter(filter, params.fields.get("queue"))?;
    if is_on("count") {
        let counted = match filter {
            Ok(filter) => {
                let query = TaskQuery { filter, max_time: Some(SEARCH_TIME), ..TaskQuery::default() };
                counts::of_search(&state.store, query).await.map_err(HttpError::from_search)
            }
            Err(error) => Err(error),
        };
        return match counted {
            Err(error) if error.status() == StatusCode::BAD_REQUEST => Ok(declined(error.message())),
            counted => Ok(json::ok(&json!([1, counted?]))),
        };
    }
    let Ok(filter) = filter else { return Ok(json::ok(&json!([]))) };
    let limit = i64::try_from(limit).ok().filter(|limit| *limit > 0);
    let query = TaskQuery { filter, limit, skip, max_time: Some(SEARCH_TIME), ..TaskQuery::default() };
    let found = state.store.stream_tasks(query).await;
    let first = match found {
        Ok(mut tasks) => tasks.next().await.map(|first| first.map(|first| (first, tasks))),
        Err(error) => Some(Err(error)),
    };
    let (first, tasks) = match first.transpose() {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(json::ok(&json!([]))),
        Err(error) => return unmade(error),
    };
    let (terse, details) = (is_on("terse"), params.is_on("details"));
    let view = move |task| {
        let state = state.clone();
        async move { view(&state.store, task, terse, details).await }
    };
    rows::respond(stream::once(future::ready(Ok(first))).chain(tasks), false, view).await
}

/// What is answered if the database does not make the search. One that takes too long has not found nothing.
fn unmade(error: StoreError) -> Answer {
    if error.is_out_of_time() {
        return Err(in_array(HttpError::from_search(error)));
    }
    match HttpError::from_search(error) {
        error if error.status() == StatusCode::BAD_REQUEST => Ok(json::ok(&json!([]))),
        error => Err(error),
    }
}

fn number(params: &Params, name: &str) -> Result<u64, HttpError> {
    match params.fields.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) if text.is_empty() => Ok(0),
        Some(value) => legacy::integer(value)
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| refused(&format!("{name} must be a non-negative integer"))),
    }
}

/// The filter, or within the result what is wrong with its operators.
fn task_filter(
    mut filter: Map<String, Value>,
    queue: Option<&Value>,
) -> Result<Result<Document, HttpError>, HttpError> {
    if let Some(queue) = queue.filter(|queue| legacy::is_true(Some(queue))) {
        filter.insert("queue".to_owned(), queue.clone());
    }
    check_forbidden(&filter).map_err(in_array)?;
    query::check_concealed(&filter).map_err(in_array)?;
    for key in ["queue", "id"] {
        match filter.get(key) {
            Some(Value::String(text)) => drop(query::id(text).map_err(in_array)?),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                return Err(refused(&format!("Bad OID passed: {value} is not an id")));
            }
            _ => {} // Operators are looked at with all others.
        }
    }
    if let Some(id) = filter.remove("id") {
        filter.insert("_id".to_owned(), id);
    }
    Ok(query::search_filter(&filter))
}

/// A task as clients of Disbatch 3 see it, who see all: times in whole seconds since 1970, and as text.
async fn view(store: &Store, task: Document, terse: bool, details: bool) -> Result<Value, StoreError> {
    let shape =
        Shape { count: false, single: false, full: true, terse, pretty: false, dates: Dates::Text, details };
    let times = ["ctime", "mtime"].map(|name| (name, task.get(name).cloned().unwrap_or(Bson::Null)));
    let mut shown = rows::view(store, task, shape, &Sight::All).await?;
    for (name, stored) in times {
        if let Some(at) = Moment(stored).get() {
            shown[name] = at.timestamp_millis().div_euclid(1000).into();
            shown[format!("{name}_str")] = date_text(at).into();
        }
    }
    if terse {
        shown["stdout"] = TERSE.into();
        shown["stderr"] = TERSE.into();
    }
    Ok(shown)
}
