//! `POST /tasks`

mod from_collection;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::Document;
use disbatch_core::model::{QueueId, Selector, TaskId};
use serde_json::{Map, Value};

use crate::api::Answer;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{json, legacy};

/// Creates tasks in `queue` (a name or id): one for each object of `params`, or one for each document of
/// `collection` that `filter` finds, with `params` as the pattern.
///
/// # Errors
/// There is no such queue, the parameters are wrong, or the database cannot be reached.
pub async fn handle(state: Data<State>, params: Params) -> Answer {
    let queue = queue(&state, params.fields.get("queue")).await?;
    let names: Vec<&str> = params.fields.keys().map(String::as_str).collect();
    let ids = match names[..] {
        ["params", "queue"] => {
            let tasks = task_params(&params.fields["params"])?;
            state.store.submit_tasks(queue, tasks).await?.ids
        }
        ["collection", "filter", "params", "queue"] => {
            from_collection::submit(&state.store, queue, &params.fields).await?
        }
        _ => return Err(invalid()),
    };
    answer(&ids)
}

fn answer(ids: &[TaskId]) -> Answer {
    let result = legacy::insert_many_result(ids);
    if ids.is_empty() {
        let body = legacy::with(result, "error", "Unknown error");
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    Ok(json::ok(&result))
}

async fn queue(state: &State, value: Option<&Value>) -> Result<QueueId, HttpError> {
    let name = match value {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(queue_not_found()), // Nothing else names a queue.
    };
    let queue = state.store.find_queue(&Selector::parse(&name)).await?;
    queue.map(|queue| queue.id).ok_or_else(queue_not_found)
}

fn queue_not_found() -> HttpError {
    HttpError::bad_request("queue not found")
}

fn invalid() -> HttpError {
    HttpError::bad_request("invalid parameters passed")
}

fn task_params(value: &Value) -> Result<Vec<Document>, HttpError> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        object @ Value::Object(_) => std::slice::from_ref(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(invalid()),
    };
    let objects: Option<Vec<&Map<String, Value>>> = items.iter().map(Value::as_object).collect();
    let objects = objects
        .filter(|objects| !objects.is_empty())
        .ok_or_else(|| HttpError::bad_request("'params' must be a JSON array of task params objects"))?;
    if objects.iter().any(|object| object.is_empty()) {
        return Err(HttpError::bad_request(
            "'params' must be a JSON array of task params objects with key/value pairs",
        ));
    }
    objects.into_iter().map(document).collect()
}

/// An object of `params` for the database. The Perl driver refuses keys with a dot, and so do Perl clients
/// expect it.
fn document(object: &Map<String, Value>) -> Result<Document, HttpError> {
    check_keys(object)?;
    Ok(json::to_document(object))
}

fn check_keys(object: &Map<String, Value>) -> Result<(), HttpError> {
    for (key, value) in object {
        if key.is_empty() || key.contains(['.', '\0']) {
            return Err(HttpError::bad_request(format!(
                "'params' has the key {}: keys must not be empty or contain a dot",
                Value::from(key.as_str())
            )));
        }
        check_value(value)?;
    }
    Ok(())
}

fn check_value(value: &Value) -> Result<(), HttpError> {
    match value {
        Value::Object(object) => check_keys(object),
        Value::Array(items) => items.iter().try_for_each(check_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn params_are_objects_with_keys() {
        assert_eq!(task_params(&json!({"a": 1})).unwrap(), [doc! { "a": 1_i32 }]);
        assert_eq!(task_params(&json!([{"a": "x"}, {"$b": [{}]}])).unwrap().len(), 2);
        let message = |value: Value| task_params(&value).unwrap_err().to_string();
        assert_eq!(message(json!("x")), "invalid parameters passed");
        for wrong in [json!([]), json!([1, 2]), json!([{"a": 1}, []])] {
            assert_eq!(message(wrong), "'params' must be a JSON array of task params objects");
        }
        for empty in [json!({}), json!([{}])] {
            assert!(message(empty).ends_with("with key/value pairs"));
        }
        for key in [json!({"a.b": 1}), json!([{"a": [{"": 1}]}])] {
            assert!(message(key).ends_with("keys must not be empty or contain a dot"));
        }
    }
}
