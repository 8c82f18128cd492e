//! The deprecated routes of the web extension `Disbatch::Web::V3`, as Disbatch 3 had them. Most answers are
//! arrays that begin with 1, or with 0 and what is wrong. Some refusals have status 200: clients of that age
//! look at the array only.

use std::collections::BTreeSet;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Queue, QueueId, Selector, TaskId, date_time};
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{TaskOptions, TaskQuery};
use futures::{StreamExt, future, stream};
use serde_json::{Map, Value, json};

use crate::access::{Sight, Who};
use crate::api::{Answer, create_tasks};
use crate::error::HttpError;
use crate::json::{self, date_text};
use crate::openapi::{
    CreateTasks, CreateTasksFromQuery, DeleteQueue, JSON_OR_FORM, QueueAttribute, SearchTasks, StartQueue,
};
use crate::params::Params;
use crate::query::{SEARCH_TIME, Shape, check_forbidden};
use crate::rows::{self, TERSE};
use crate::state::State;
use crate::{arrays, changes, counts, legacy, query, values};

/// `[0, message]` with status 400.
fn refused(message: &str) -> HttpError {
    HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, message]))
}

/// `[0, message]` with status 200.
fn declined(message: &str) -> HttpResponse {
    json::ok(&json!([0, message]))
}

/// An error whose message alone is for the client, at the place where clients look for it.
fn in_array(error: HttpError) -> HttpError {
    match error.status() {
        status @ (StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN) => {
            HttpError::with_body(status, json!([0, error.message()]))
        }
        _ => error, // Its message is not for the client alone.
    }
}

/// The parameters `names`, if Perl takes all of them for true.
fn required<'a, const N: usize>(params: &'a Params, names: [&str; N]) -> Option<[&'a Value; N]> {
    let values = names.map(|name| params.fields.get(name).filter(|value| legacy::is_true(Some(value))));
    let given: Vec<&Value> = values.into_iter().flatten().collect();
    given.try_into().ok()
}

fn queue_id(value: &Value) -> Result<QueueId, String> {
    match value {
        Value::String(text) => text.parse().map_err(|error| format!("{error}")),
        other => Err(format!("{other} is not an id: expected 24 hexadecimal digits")),
    }
}

/// A value that may also be the text of its JSON.
fn parsed(name: &str, value: &Value) -> Result<Value, String> {
    match value {
        Value::String(text) => {
            crate::allowance::json(text).map_err(|error| format!("{name} is not JSON: {error}"))
        }
        value => Ok(value.clone()),
    }
}

/// An object that may also be the text of its JSON.
fn parsed_object(name: &str, value: &Value) -> Result<Map<String, Value>, String> {
    match parsed(name, value)? {
        Value::Object(map) => Ok(map),
        _ => Err(format!("{name} must be a JSON object")),
    }
}

/// The plugins that queues may be created with, and those of queues that there are, as Perl has them.
async fn plugins(state: &State) -> Result<BTreeSet<String>, StoreError> {
    let catalogue = state.catalogue().await?;
    let queues = state.store.list_queues().await?;
    let of_queues = queues.iter().filter_map(|queue| queue.plugin_name().ok().flatten());
    Ok(catalogue.names().iter().cloned().chain(of_queues.map(|plugin| plugin.to_string())).collect())
}

/// The names of the plugins that queues may be created with, as keys and as values.
#[utoipa::path(
    get, path = "/queue-prototypes-json", tag = "Disbatch::Web::V3", operation_id = "queuePrototypesJson",
    responses((status = 200, description = "The names.", body = Value)),
)]
pub async fn queue_prototypes(state: Data<State>) -> Answer {
    let plugins = plugins(&state).await?.into_iter().map(|plugin| (plugin.clone(), Value::from(plugin)));
    Ok(json::ok(&Value::Object(plugins.collect::<Map<_, _>>())))
}

/// Sets the attribute `attr`, which can only be `threads`, of the queue `queueid` to `value`.
#[utoipa::path(
    post, path = "/set-queue-attr-json", tag = "Disbatch::Web::V3", operation_id = "setQueueAttrJson",
    request_body(content = QueueAttribute, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The result of the write, with `success`.", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn set_queue_attr(state: Data<State>, who: Who, params: Params) -> Answer {
    if params.fields.get("attr").and_then(Value::as_str) != Some("threads") {
        return Err(failed(json!({}), "Invalid attr".to_owned()));
    }
    let given = |name: &str| {
        let value = params.fields.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""));
        value.ok_or_else(|| failed(json!({}), format!("You must supply a {name}")))
    };
    let (value, id) = (given("value")?, given("queueid")?);
    if !legacy::is_non_negative_integer(value) {
        return Err(failed(json!({}), "threads must be a non-negative integer".to_owned()));
    }
    let id = queue_id(id).map_err(|message| failed(json!({}), message))?;
    let fields = doc! { "threads": json::to_bson(value) };
    let updated = changes::update_queue(&state, &who, Selector::Id(id.0), fields, Vec::new()).await?;
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        return Err(failed(result, format!("no queue '{id}'")));
    }
    Ok(json::ok(&legacy::with(result, "success", 1)))
}

fn failed(result: Value, message: String) -> HttpError {
    HttpError::with_body(StatusCode::BAD_REQUEST, failure(result, message))
}

/// The result of a write that came to nothing.
fn failure(result: Value, message: impl Into<Value>) -> Value {
    legacy::with(legacy::with(result, "error", message), "success", 0)
}

/// Creates a queue from `type` (its plugin) and `name`.
#[utoipa::path(
    post, path = "/start-queue-json", tag = "Disbatch::Web::V3", operation_id = "startQueueJson",
    request_body(content = StartQueue, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "`[1, id, result]`", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn start_queue(state: Data<State>, who: Who, params: Params) -> Answer {
    let [plugin, name] =
        required(&params, ["type", "name"]).ok_or_else(|| refused("type and name required"))?;
    let plugins = plugins(&state).await?;
    if !plugin.as_str().is_some_and(|plugin| plugins.contains(plugin)) {
        return Err(refused("unknown type"));
    }
    if !name.is_string() && !name.is_number() {
        return Err(refused("name must be a string"));
    }
    values::shown_as_written("name", name).map_err(|error| refused(&error.to_string()))?;
    let id = new_queue_id();
    let fields = doc! { "name": json::to_bson(name), "plugin": json::to_bson(plugin) };
    changes::create_queue(&state, &who, id, fields).await.map_err(|error| match error.write_failure() {
        Some(failure) if failure.is_duplicate_key() => {
            let result = legacy::with(legacy::duplicate(&failure, &Value::Null), "success", 0);
            HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, Value::Null, result]))
        }
        _ => error.into(),
    })?;
    let result = legacy::with(legacy::insert_one_result(id.0), "success", 1);
    Ok(json::ok(&json!([1, json::oid(id.0), result])))
}

/// Deletes the queue `id`. Its tasks stay.
#[utoipa::path(
    post, path = "/delete-queue-json", tag = "Disbatch::Web::V3", operation_id = "deleteQueueJson",
    request_body(content = DeleteQueue, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "`[1, result]`", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn delete_queue(state: Data<State>, who: Who, params: Params) -> Answer {
    let [id] = required(&params, ["id"]).ok_or_else(|| refused("id required"))?;
    let failed = |result: Value, message: String| {
        HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, failure(result, message)]))
    };
    let id = queue_id(id).map_err(|message| failed(json!({}), message))?;
    let deleted = changes::delete_queue(&state, &who, Selector::Id(id.0)).await?;
    let result = legacy::delete_result(deleted);
    if deleted == 0 {
        return Err(failed(result, format!("no queue '{id}'")));
    }
    Ok(json::ok(&json!([1, legacy::with(result, "success", 1)])))
}

/// Creates one task in the queue `queueid` (a name or id) for each object of the array `object`.
#[utoipa::path(
    post, path = "/queue-create-tasks-json", tag = "Disbatch::Web::V3", operation_id = "queueCreateTasksJson",
    request_body(content = CreateTasks, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "`[1, number, id.., result]`, or `[0, message]`.", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn create_tasks(state: Data<State>, who: Who, params: Params) -> Answer {
    params.refuse_options().map_err(in_array)?;
    let [queue, object] =
        required(&params, ["queueid", "object"]).ok_or_else(|| refused("queueid and object required"))?;
    let Some(queue) = find_queue(&state, queue).await? else { return Ok(declined("Queue not found")) };
    let object = match parsed("object", object) {
        Ok(object @ Value::Array(_)) => object,
        Ok(_) => return Ok(declined("object param must be a JSON array")),
        Err(message) => return Ok(declined(&message)),
    };
    if object == json!([]) {
        return answer(&[]);
    }
    let tasks = create_tasks::task_params(object).map_err(in_array)?;
    let wishes = (TaskOptions::default(), None);
    answer(&create_tasks::submit(&state, &who, &queue, tasks, wishes).await.map_err(in_array)?)
}

/// The queue of that name, or of that id, which need not exist: tasks may be created for a queue that is
/// gone, but not for one that accepts none.
pub async fn find_queue(state: &State, value: &Value) -> Result<Option<Queue>, HttpError> {
    let name = match value {
        Value::String(name) => name.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Ok(None), // Nothing else names a queue.
    };
    let selector = Selector::parse(&name);
    match (state.store.find_queue(&selector).await?, selector) {
        (Some(queue), _) if !queue.is_accepting() => {
            Err(in_array(create_tasks::accepts_nothing(state, &queue)))
        }
        (Some(queue), _) => Ok(Some(queue)),
        (None, Selector::Id(id)) => Ok(Some(Queue::without_document(QueueId(id)))),
        (None, Selector::Name(_)) => Ok(None),
    }
}

fn answer(ids: &[TaskId]) -> Answer {
    let result = legacy::insert_many_result(ids);
    let inserted = result["MongoDB::InsertManyResult"]["inserted"].as_array().cloned().unwrap_or_default();
    if ids.is_empty() {
        let body = json!([0, 0, failure(result, "Unknown error")]);
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    let head = [Value::from(1), Value::from(ids.len())];
    let tail = [legacy::with(result, "success", 1)];
    Ok(json::ok(&head.into_iter().chain(inserted).chain(tail).collect()))
}

/// Creates one task in the queue `queueid` (a name or id) for each document of `collection` that `jsonfilter`
/// finds, with `params` as the pattern.
#[utoipa::path(
    post, path = "/queue-create-tasks-from-query-json", tag = "Disbatch::Web::V3", operation_id = "queueCreateTasksFromQueryJson",
    request_body(content = CreateTasksFromQuery, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "`[1, number]`, or `[0, message]`.", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn create_tasks_from_query(state: Data<State>, who: Who, params: Params) -> Answer {
    params.refuse_options().map_err(in_array)?;
    let [queue, collection, filter, pattern] =
        required(&params, ["queueid", "collection", "jsonfilter", "params"])
            .ok_or_else(|| refused("queueid, collection, jsonfilter, and params required"))?;
    let Some(queue) = find_queue(&state, queue).await? else { return Ok(declined("Queue not found")) };
    let (filter, pattern) = match (parsed_object("jsonfilter", filter), parsed_object("params", pattern)) {
        (Ok(filter), Ok(pattern)) => (filter, pattern),
        (Err(message), _) | (_, Err(message)) => return Ok(declined(&message)),
    };
    let fields: Map<String, Value> = [
        ("collection".to_owned(), collection.clone()),
        ("filter".to_owned(), filter.into()),
        ("params".to_owned(), pattern.into()),
    ]
    .into_iter()
    .collect();
    let wishes = (TaskOptions::default(), None);
    let ids = create_tasks::submit_from_collection(&state, &who, &queue, &fields, wishes).await;
    let ids = ids.map_err(in_array)?;
    if ids.is_empty() {
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, 0])));
    }
    Ok(json::ok(&json!([1, ids.len()])))
}

/// Tasks of `queue` (an id) that `filter` finds, also by fields without an index; `id` in it is the task's id.
/// `limit` and `skip` say which of them, `count` asks for their number, `terse` leaves output out.
#[utoipa::path(
    post, path = "/search-tasks-json", tag = "Disbatch::Web::V3", operation_id = "searchTasksJson",
    request_body(content = SearchTasks, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "An array of tasks, `[1, count]`, or `[0, message]`.", body = Value),
        (status = 400, description = "`[0, message]`, or the result of the write with `error`.", body = Value),
    ),
)]
pub async fn search_tasks(state: Data<State>, params: Params) -> Answer {
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
    if let Some(wrong) = wrong_id(params.fields.get("queue"), &filter) {
        return Ok(declined(&wrong));
    }
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

/// What is wrong with the ids of a search, in Perl's words. Operators are looked at with all others.
fn wrong_id(queue: Option<&Value>, filter: &Map<String, Value>) -> Option<String> {
    let given = [queue, filter.get("id")].into_iter().flatten();
    let mut texts = given.filter(|value| legacy::is_true(Some(value))).filter_map(|value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    });
    let wrong = texts.find(|text| text.parse::<TaskId>().is_err())?;
    Some(format!("Value '{wrong}' is not a valid OID"))
}

/// The filter, or within the result what is wrong with its operators and ids.
fn task_filter(
    mut filter: Map<String, Value>,
    queue: Option<&Value>,
) -> Result<Result<Document, HttpError>, HttpError> {
    if let Some(queue) = queue.filter(|queue| legacy::is_true(Some(queue))) {
        filter.insert("queue".to_owned(), queue.clone());
    }
    check_forbidden(&filter).map_err(in_array)?;
    query::check_concealed(&filter).map_err(in_array)?;
    // Clients that send forms have text where there is a number.
    if let Some(status @ Value::String(_)) = filter.get_mut("status")
        && let Some(number) = legacy::integer(status)
    {
        *status = number.into();
    }
    if let Some(id) = filter.remove("id") {
        filter.insert("_id".to_owned(), id);
    }
    Ok(query::search_filter(&filter))
}

/// A task as clients of Disbatch 3 see it, who see all: times in whole seconds since 1970, and as text.
async fn view(store: &Store, task: Document, terse: bool, details: bool) -> Result<Value, StoreError> {
    let shape = Shape { full: true, terse, details, ..Shape::default() };
    let times = ["ctime", "mtime"].map(|name| (name, task.get(name).cloned().unwrap_or(Bson::Null)));
    let mut shown = rows::view(store, task, shape, &Sight::All).await?;
    for (name, stored) in times {
        if let Some(at) = date_time(&stored) {
            shown[name] = at.timestamp_millis().div_euclid(1000).into();
            shown[format!("{name}_str")] = date_text(at).into();
        }
    }
    for stream in ["stdout", "stderr"] {
        // What is in GridFS keeps its id.
        if terse && !shown[stream]["$oid"].is_string() {
            shown[stream] = TERSE.into();
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    #[test]
    fn ids_of_a_search_are_ids() {
        let wrong = |queue: Value, filter: Value| wrong_id(Some(&queue), filter.as_object().unwrap());
        let said = |text: &str| Some(format!("Value '{text}' is not a valid OID"));
        assert_eq!(wrong(json!("zzz"), json!({})), said("zzz"));
        assert_eq!(wrong(json!(ID), json!({ "id": 5 })), said("5"));
        for queue in [json!(ID), json!(""), json!("0"), json!(null), json!({ "$in": ["zzz"] })] {
            assert_eq!(wrong(queue, json!({ "id": ID, "queue": "zzz" })), None);
        }
    }

    #[test]
    fn a_status_may_be_text() {
        let filter = |status: Value| {
            let filter = json!({ "status": status });
            task_filter(filter.as_object().unwrap().clone(), None).unwrap().unwrap()
        };
        assert_eq!(filter(json!("-2")), doc! { "status": -2_i32 });
        assert_eq!(filter(json!({ "$lt": 0 })), doc! { "status": { "$lt": 0_i32 } });
    }
}
