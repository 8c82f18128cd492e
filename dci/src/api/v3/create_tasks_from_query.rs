//! `POST /queue-create-tasks-from-query-json`

use actix_web::web::Data;
use disbatch_core::task::TaskOptions;
use serde_json::{Map, Value, json};

use super::create_tasks::find_queue;
use super::{declined, in_array, parsed_object, refused, required};
use crate::access::Who;
use crate::api::Answer;
use crate::api::create_tasks::from_collection;
use crate::json;
use crate::openapi::{CreateTasksFromQuery, OfWrite};
use crate::params::Params;
use crate::state::State;

/// Creates one task in the queue `queueid` (a name or id) for each document of `collection` that `jsonfilter`
/// finds, with `params` as the pattern.
#[utoipa::path(
    post, path = "/queue-create-tasks-from-query-json", tag = "Disbatch::Web::V3",
    operation_id = "queueCreateTasksFromQueryJson",
    request_body(content(
        (CreateTasksFromQuery = "application/json"),
        (CreateTasksFromQuery = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "`[1, number]`, or `[0, message]`."),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
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
    let ids = from_collection::submit(&state, &who, &queue, &fields, wishes).await.map_err(in_array)?;
    Ok(json::ok(&json!([1, ids.len()])))
}
