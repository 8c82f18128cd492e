//! `POST /ui/queues/:id/tasks`: tasks from the forms of a queue's page, with or without script.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::web::Data;
use disbatch_core::model::{Queue, TaskId};
use serde_json::{Map, Value, json};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, create_tasks, get_queue, then};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::ui::schema::Problem;

/// Submits what a filled form says: `json`, which is an object, an array of objects, or an object on each line; or
/// else a field for each parameter of the plugin, named by its JSON Pointer. Options are those of `POST /tasks`. With
/// `.preview` nothing is submitted, and the parameters are answered. With `.then` the task's page is next.
///
/// # Errors
/// A field is wrong (`fields` says which), the queue accepts no tasks, or the database cannot be reached.
#[utoipa::path(
    post, path = "/ui/queues/{id}/tasks", tag = "service", operation_id = "createTasksByForm",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({"/commands": "a"}),
    ),
    responses(
        (
            status = 200, description = "Submitted.", body = Value,
            example = json!({
                "count": 1, "ids": ["6b0003bb686c8275d8013333"],
                "said": "Task 6b0003bb686c8275d8013333 is submitted.",
            }),
        ),
        (status = 303, description = "Submitted; its page, or that of all tasks, is next."),
        (status = 400, description = "A field is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        (status = 409, description = "The queue accepts no tasks, or a `.unique` key is taken.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue, params: Params) -> Answer {
    then::or_page(then::is_form(&params), submit(&state, &who, &named, &params).await)
}

async fn submit(state: &State, who: &Who, named: &NamedQueue, params: &Params) -> Answer {
    let queue = get_queue::find(state, named).await?;
    if params.is_on("preview") {
        let form = super::form_of(state, &queue).unwrap_or_default();
        return Ok(json::ok_pretty(&Value::Object(form.draft(&params.fields))));
    }
    if !queue.is_accepting() {
        return Err(create_tasks::accepts_nothing(&queue));
    }
    let options = create_tasks::options::of(params, queue.id, &state.keys)?;
    let tasks = create_tasks::task_params(&Value::Array(wanted(state, &queue, params)?))?;
    let ids = create_tasks::submit(state, who, queue.id, tasks, (options, None)).await?;
    Ok(answer(&queue, &ids, then::is_form(params)))
}

/// The parameters of each task.
fn wanted(state: &State, queue: &Queue, params: &Params) -> Result<Vec<Value>, HttpError> {
    match params.fields.get("json") {
        Some(Value::String(text)) => of_text(text),
        Some(_) => Err(HttpError::bad_request("json must be given once, as text")),
        None => {
            let form = super::form_of(state, queue).ok_or_else(|| {
                HttpError::bad_request(
                    "the parameters of the queue's plugin are not known here: give them as JSON",
                )
            })?;
            Ok(vec![Value::Object(form.read(&params.fields).map_err(|problems| refused(&problems))?)])
        }
    }
}

/// One JSON value, or one on each line.
fn of_text(text: &str) -> Result<Vec<Value>, HttpError> {
    match serde_json::from_str(text) {
        Ok(Value::Array(items)) => return Ok(items),
        Ok(value) => return Ok(vec![value]),
        Err(error) if text.trim().lines().count() < 2 => {
            return Err(HttpError::bad_request(format!("this is not JSON: {error}")));
        }
        Err(_) => {} // It may be one on each line.
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let value = |(at, line): (usize, &str)| {
        let wrong = |error| {
            format!(
                "this is neither one JSON value nor one on each line: line {} is not JSON: {error}",
                at + 1
            )
        };
        serde_json::from_str(line).map_err(|error: serde_json::Error| HttpError::bad_request(wrong(error)))
    };
    lines.map(value).collect()
}

/// What is wrong with which fields, for people and for the page's script.
fn refused(problems: &[Problem]) -> HttpError {
    let told: Vec<String> =
        problems.iter().map(|one| format!("{} {}", one.pointer.trim_start_matches('/'), one.text)).collect();
    let fields: Map<String, Value> =
        problems.iter().map(|one| (one.pointer.clone(), Value::from(one.text.as_str()))).collect();
    HttpError::with_body(StatusCode::BAD_REQUEST, json!({ "error": told.join("; "), "fields": fields }))
}

fn answer(queue: &Queue, ids: &[TaskId], is_form: bool) -> HttpResponse {
    if is_form {
        let next = match ids {
            [id] => format!("/tasks/{id}"),
            _ => format!("/tasks?queue={}", queue.id),
        };
        return HttpResponse::SeeOther().insert_header((LOCATION, next)).finish();
    }
    let said = match ids {
        [id] => format!("Task {id} is submitted."),
        _ => format!("{} tasks are submitted.", ids.len()),
    };
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    json::ok(&json!({ "count": ids.len(), "ids": ids, "said": said }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_value_a_list_or_one_on_each_line() {
        let of = |text: &str| of_text(text).map_err(|error| error.to_string());
        assert_eq!(of("{\n\"a\": 1\n}").unwrap(), [json!({"a": 1})]);
        assert_eq!(of("[{\"a\":1},{\"b\":2}]").unwrap(), [json!({"a": 1}), json!({"b": 2})]);
        assert_eq!(of("{\"a\":1}\r\n\r\n {\"b\":2}\n").unwrap(), [json!({"a": 1}), json!({"b": 2})]);
        assert!(of("").unwrap_err().starts_with("this is not JSON: "));
        let wrong = of("{\"a\":1}\n\n{\"b\":\n").unwrap_err();
        assert!(wrong.contains("line 3 is not JSON: EOF"), "{wrong}");
    }

    #[test]
    fn what_is_wrong_is_said_for_people_and_by_field() {
        let problem = |pointer: &str| Problem { pointer: pointer.into(), text: "must be given".into() };
        let error = refused(&[problem("/to/city"), problem("/name")]);
        assert_eq!(error.to_string(), "to/city must be given; name must be given");
        assert!(error.json().contains("\"/to/city\":\"must be given\""), "{}", error.json());
    }

    #[test]
    fn the_answer_leads_to_what_was_made() {
        let queue: Queue = bson::deserialize_from_document(bson::doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap(),
        })
        .unwrap();
        let id: TaskId = "6b0003bb686c8275d8013333".parse().unwrap();
        let next = |ids: &[TaskId]| {
            let answer = answer(&queue, ids, true);
            answer.headers().get(LOCATION).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(next(&[id]), "/tasks/6b0003bb686c8275d8013333");
        assert_eq!(next(&[id, id]), "/tasks?queue=6b0003bb686c8275d70dc2f1");
        assert_eq!(answer(&queue, &[id], false).status(), 200);
    }
}
