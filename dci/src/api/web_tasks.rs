//! The deprecated routes of the web extension `Disbatch::Web::Tasks`.

use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use disbatch_core::task::{TaskOptions, TaskQuery};
use futures::{StreamExt, future, stream};
use serde_json::{Map, Value, json};

use crate::access::{NamedQueue, Sight, Who};
use crate::api::{Answer, create_tasks};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{FromCollection, InsertManyResult, Search, TaskParams, Tasks};
use crate::params::{AnyJson, Params};
use crate::query::{self, SEARCH_TIME, Shape};
use crate::rows::view;
use crate::state::State;
use crate::{arrays, counts, json, legacy, rows};

/// Creates one task in the queue for each object of the array that is the body.
#[utoipa::path(
    post, path = "/tasks/{queue}", tag = "Disbatch::Web::Tasks", operation_id = "createTasksInQueue",
    request_body = TaskParams,
    responses(
        (status = 200, description = "Submitted.", body = InsertManyResult),
        (status = 400, description = "The body is wrong, or there is no such queue."),
    ),
)]
pub async fn create(state: Data<State>, who: Who, named: NamedQueue, body: AnyJson) -> Answer {
    let queue = create_tasks::open_queue(&state, &named.selector).await?;
    let tasks = create_tasks::task_params(params_of(body.0)?)?;
    let wishes = (TaskOptions::default(), None);
    create_tasks::answer(create_tasks::submit(&state, &who, &queue, tasks, wishes).await?)
}

/// The parameters of tasks: the list that is the body, or what Perl takes in its place, as `POST /tasks` does.
fn params_of(body: Value) -> Result<Value, HttpError> {
    match body {
        list @ Value::Array(_) => Ok(list),
        Value::Object(mut fields) if fields.len() == 1 => {
            fields.remove("params").ok_or_else(create_tasks::invalid)
        }
        _ => Err(create_tasks::invalid()), // Nothing else has them.
    }
}

/// Creates one task in the queue for each document of the collection that `filter` finds, with `params` as
/// the pattern.
#[utoipa::path(
    post, path = "/tasks/{queue}/{collection}", tag = "Disbatch::Web::Tasks", operation_id = "createTasksFromCollection",
    params(("collection" = String, Path, description = "The collection with one document for each task.")),
    request_body = FromCollection,
    responses(
        (status = 200, description = "Submitted.", body = InsertManyResult),
        (status = 400, description = "A parameter is wrong, there is no such queue, or no document was found."),
    ),
)]
pub async fn create_from_collection(
    state: Data<State>,
    who: Who,
    path: Path<(String, String)>,
    params: Params,
) -> Answer {
    params.refuse_options()?;
    let (queue, collection) = path.into_inner();
    let queue = create_tasks::open_queue(&state, &Selector::parse(&queue)).await?;
    let names: Vec<&str> = params.fields.keys().map(String::as_str).collect();
    if names != ["filter", "params"] {
        return Err(create_tasks::invalid());
    }
    let mut fields = params.fields;
    fields.insert("collection".to_owned(), collection.into());
    let wishes = (TaskOptions::default(), None);
    let ids = create_tasks::submit_from_collection(&state, &who, &queue, &fields, wishes).await?;
    create_tasks::answer(ids)
}

/// At most so many tasks are returned.
const MOST: i64 = 100;

/// Tasks that `filter` finds, also by fields without an index. `options` has `limit`, `skip` and `sort`;
/// `count`, `pretty` and `terse` are switches, and so is the option `.archive`: archived tasks too. Output is left out unless `terse` is off.
#[utoipa::path(
    post, path = "/tasks/search", tag = "Disbatch::Web::Tasks", operation_id = "searchTasks",
    request_body = Search,
    responses(
        (status = 200, description = "An array of tasks, or their number.", body = Tasks),
    ),
)]
pub async fn search(state: Data<State>, params: Params) -> Answer {
    // Nobody is to take all tasks for those of an array.
    arrays::refuse(&params)?;
    let (filter, options) = (object(&params, "filter")?, object(&params, "options")?);
    let mut query = task_query(&filter, &options)?;
    query.archive = params.is_on("archive");
    let is_on = |name: &str| legacy::is_true(params.fields.get(name));
    if is_on("count") {
        let count = counts::of_search(&state.store, query).await.map_err(HttpError::from_search)?;
        return Ok(json::ok(&json!({ "count": count })));
    }
    let shape = Shape {
        full: true,
        terse: !params.fields.contains_key("terse") || is_on("terse"),
        pretty: is_on("pretty"),
        dates: Dates::Epoch,
        details: params.is_on("details"),
        ..Shape::default()
    };
    let mut tasks = state.store.stream_tasks(query).await.map_err(HttpError::from_search)?;
    let Some(first) = tasks.next().await else { return Ok(json::ok_as(&json!([]), shape.pretty)) };
    let first = first.map_err(HttpError::from_search)?;
    let view = move |task| {
        let state = state.clone();
        // This is for those who see all.
        async move { view(&state.store, task, shape, &Sight::All).await }
    };
    rows::respond(stream::once(future::ready(Ok(first))).chain(tasks), shape.pretty, view).await
}

fn object(params: &Params, name: &str) -> Result<Map<String, Value>, HttpError> {
    match params.fields.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(HttpError::bad_request("filter and options must be name/value objects")),
    }
}

fn task_query(filter: &Map<String, Value>, options: &Map<String, Value>) -> Result<TaskQuery, HttpError> {
    let wrong = |name: &str| HttpError::bad_request(format!("'{name}' must be a non-negative integer"));
    let number = |name: &str| match options.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => legacy::integer(value).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| wrong(name)),
    };
    let limit = i64::try_from(number("limit")?).unwrap_or(i64::MAX);
    if limit > MOST {
        return Err(HttpError::bad_request(format!("limit cannot exceed {MOST}")));
    }
    Ok(TaskQuery {
        filter: query::search_filter(filter)?,
        limit: Some(if limit == 0 { MOST } else { limit }),
        skip: number("skip")?,
        projection: None,
        sort: query::sort(options.get("sort"))?,
        archive: false,
        max_time: Some(SEARCH_TIME),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_a_list_or_called_so() {
        for params in [json!([{ "a": 1 }]), json!([]), json!({ "a": 1 })] {
            assert_eq!(params_of(json!({ "params": params })).unwrap(), params);
        }
        assert_eq!(params_of(json!([{ "a": 1 }])).unwrap(), json!([{ "a": 1 }]));
        for wrong in [json!({}), json!({ "commands": "a" }), json!({ "params": [], "b": 1 }), json!("x")] {
            assert_eq!(params_of(wrong).unwrap_err().to_string(), "invalid parameters passed");
        }
    }

    #[test]
    fn no_more_than_a_hundred_tasks_are_returned() {
        let limit = |options: Value| {
            task_query(&Map::new(), options.as_object().unwrap()).map(|query| query.limit.unwrap())
        };
        assert_eq!(limit(json!({})).unwrap(), 100);
        assert_eq!(limit(json!({"limit": 0})).unwrap(), 100);
        assert_eq!(limit(json!({"limit": "7", "nosuch": 1})).unwrap(), 7);
        assert_eq!(limit(json!({"limit": 101})).unwrap_err().to_string(), "limit cannot exceed 100");
        for wrong in [json!({"limit": -1}), json!({"skip": "x"}), json!({"sort": 1}), json!({"limit": {}})] {
            assert_eq!(limit(wrong).unwrap_err().status(), 400);
        }
    }
}
