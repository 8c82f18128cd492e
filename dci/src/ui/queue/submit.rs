//! `POST /ui/queues/:id/tasks`: tasks from the forms of a queue's page, with or without script.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::arrays::{Array, NewArray};
use disbatch_core::metrics::labels::Refusal;
use disbatch_core::model::{Queue, TaskId};
use serde_json::{Map, Value, json};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, create_tasks, queues, redirect};
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::ui::schema::{Form, refused};
use crate::ui::zone;
use crate::{arrays, changes, json, measure};

/// Submits what a filled form says: `json`, which is an object, an array of objects, or an object on each line; or
/// else a field for each parameter of the plugin, named by its JSON Pointer. Options are those of `POST /tasks`, so that
/// `.array` makes one array. With `.preview` nothing is submitted, and the parameters are answered. With `.then` the task's
/// page is next.
#[utoipa::path(
    post, path = "/ui/queues/{id}/tasks", tag = "service", operation_id = "createTasksByForm",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({"/commands": "a"}),
    ),
    responses(
        (
            status = 200, description = "Submitted. Of an array there is its id, `array`, in place of `ids`.", body = Value,
            example = json!({
                "count": 1, "ids": ["6b0003bb686c8275d8013333"],
                "said": "Task 6b0003bb686c8275d8013333 is submitted.",
            }),
        ),
        (status = 303, description = "Submitted; its page, that of its array, or that of all tasks, is next."),
        (status = 400, description = "A field is wrong."),
        (status = 404, description = "There is no such queue."),
        (status = 409, description = "The queue accepts no tasks, or a `.unique` key is taken."),
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue, params: Params) -> Answer {
    let params = &zone::options(params, &["run_at", "deadline"])?;
    let queue = queues::find(&state, &named).await?;
    if params.is_on("preview") {
        let form = super::form_of(&*state.catalogue().await?, &queue).unwrap_or_default();
        return Ok(json::ok_pretty(&Value::Object(form.draft(&params.fields))));
    }
    if !queue.is_accepting() {
        return Err(create_tasks::accepts_nothing(&state, &queue));
    }
    let options = create_tasks::options::of(params, queue.id, &state.keys)?;
    create_tasks::check_upstream(&state, &who, queue.id, &options).await?;
    create_tasks::options::check_steps(&state, &who, &queue, &options.steps).await?;
    let options = create_tasks::options::with_tenant(options, params, &who, &queue)?;
    create_tasks::options::check_files(&who, options.files.as_ref(), options.tenant.as_deref())?;
    create_tasks::options::check_input(&state, &who, queue.id, &options).await?;
    if arrays::is_asked(params) {
        let own = arrays::key_of(params)?;
        let of_all = wanted(&state, &queue, params, Some(&own)).await?;
        let array = wanted_array(params, of_all)?;
        let (array, checked) = create_tasks::fit::check_array(&state, &queue, &options.steps, array).await?;
        checked
            .inspect_err(|_| measure::refused(state.store.metrics(), queue.id, Refusal::Schema))
            .map_err(create_tasks::fit::for_form)?;
        let made = changes::submit_array(&state, &who, queue.id, array, (options, None)).await?;
        return Ok(answer_of_array(&made.array, redirect::is_form(params)));
    }
    arrays::refuse(params)?;
    let tasks = create_tasks::task_params(Value::Array(wanted(&state, &queue, params, None).await?))?;
    let ids = create_tasks::submit(&state, &who, &queue, tasks, (options, None)).await;
    let ids = ids.map_err(create_tasks::fit::for_form)?;
    Ok(answer(&queue, &ids, redirect::is_form(params)))
}

/// The array that a form asks for, whose elements have these parameters besides their own.
fn wanted_array(params: &Params, of_all: Vec<Value>) -> Result<NewArray, HttpError> {
    let fields = Map::from_iter([("params".to_owned(), Value::Array(of_all))]);
    arrays::parse(&Params { fields, options: params.options.clone() })
}

/// The parameters of each task. The parameter `own` need not be among them.
async fn wanted(
    state: &State,
    queue: &Queue,
    params: &Params,
    own: Option<&str>,
) -> Result<Vec<Value>, HttpError> {
    match params.fields.get("json") {
        Some(Value::String(text)) => of_text(text),
        Some(_) => Err(HttpError::bad_request("json must be given once, as text")),
        None => {
            let form = super::form_of(&*state.catalogue().await?, queue).ok_or_else(|| {
                HttpError::bad_request(
                    "the parameters of the queue's plugin are not known here: give them as JSON",
                )
            })?;
            let form = own.into_iter().fold(form, Form::without_need_of);
            Ok(vec![Value::Object(form.read(&params.fields).map_err(|problems| refused(&problems))?)])
        }
    }
}

fn of_text(text: &str) -> Result<Vec<Value>, HttpError> {
    match crate::allowance::json(text) {
        Ok(Value::Array(items)) => return Ok(items),
        Ok(value) => return Ok(vec![value]),
        Err(error) if error.status() != StatusCode::BAD_REQUEST => return Err(error),
        Err(error) if text.trim().lines().count() < 2 => {
            return Err(HttpError::bad_request(format!("this is not JSON: {error}")));
        }
        Err(_) => {} // It may be one on each line.
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let value = |(at, line): (usize, &str)| {
        let number = at + 1;
        crate::allowance::json(line).map_err(|error| {
            HttpError::bad_request(format!(
                "this is neither one JSON value nor one on each line: line {number} is not JSON: {error}"
            ))
        })
    };
    lines.map(value).collect()
}

fn answer(queue: &Queue, ids: &[TaskId], is_form: bool) -> HttpResponse {
    if is_form {
        let next = match ids {
            [id] => format!("/tasks/{id}"),
            _ => format!("/tasks?queue={}", queue.id),
        };
        return redirect::see(&next);
    }
    let said = match ids {
        [id] => format!("Task {id} is submitted."),
        _ => format!("{} tasks are submitted.", ids.len()),
    };
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    json::ok(&json!({ "count": ids.len(), "ids": ids, "said": said }))
}

fn answer_of_array(array: &Array, is_form: bool) -> HttpResponse {
    let (id, count) = (array.id.to_string(), array.count);
    if is_form {
        return redirect::see(&format!("/arrays/{id}"));
    }
    let elements = if count == 1 { "1 element".to_owned() } else { format!("{count} elements") };
    let said = format!("Array {id} of {elements} is submitted.");
    json::ok(&json!({ "array": id, "count": count, "said": said }))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::LOCATION;
    use disbatch_core::schema::Problem;

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
    fn an_array_has_the_parameters_of_the_form_and_one_of_its_own() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let with = |fields, options| Params { fields: map(fields), options: map(options) };
        let params = |options| with(json!({ "/to": "you" }), options);
        let form = Form::of(&json!({
            "properties": { "to": { "type": "string" }, "page": { "type": "integer" } }, "required": ["to", "page"],
        }));
        let read = |params: &Params| {
            let own = arrays::key_of(params)?;
            let read = form.clone().without_need_of(&own).read(&params.fields);
            let of_all = Value::Object(read.map_err(|problems| refused(&problems))?);
            wanted_array(params, vec![of_all])
        };
        let array = read(&params(json!({ "array": "1-9%3", "array_key": "page", "array_cap": "" }))).unwrap();
        assert_eq!((array.items.count(), array.cap, array.key.as_str()), (9, Some(3), "page"));
        assert_eq!(array.params, bson::doc! { "to": "you" });
        let missing = read(&params(json!({ "array": "1-9" }))).unwrap_err().to_string();
        assert_eq!(missing, "page must be given", "each has an item, and no page");
        let given = json!({ "/to": "you", "/page": "3" });
        let twice = read(&with(given, json!({ "array": "1-9", "array_key": "to" }))).unwrap_err().to_string();
        assert!(twice.starts_with("'params' has the key to itself"), "{twice}");
        let several = wanted_array(&params(json!({ "array": "1-9" })), vec![json!({}), json!({})]);
        assert!(several.unwrap_err().to_string().starts_with("'params' must be a JSON object"));
        let wrong = wanted_array(&params(json!({ "array": "x" })), vec![json!({})]).unwrap_err();
        assert!(wrong.to_string().starts_with(".array: "), "{wrong}");
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
