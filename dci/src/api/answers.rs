//! `POST /tasks/:id/answer` and `POST /tasks/:id/answer/link`: what a task has asked a person is answered.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::{Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::callbacks::Token;
use disbatch_core::model::{Selector, Status, Task, TaskId};
use disbatch_core::schema;
use disbatch_core::task::question::{ANSWER, Awaiting, Replied};
use disbatch_wire::task_actions::{AnswerLink, AnswerResult, NewAnswer};
use serde_json::{Map, Value, json};

use crate::access::{Via, Who};
use crate::api::{Answer, redirect, task_actions};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::JSON_OR_FORM;
use crate::params::Params;
use crate::state::State;
use crate::ui::schema::{Form, refused};
use crate::{changes, json, ui};

/// Answers what a task has asked. The task is queued again, and its next attempt gets the answer. Who may is what the question says: operators of the
/// queue, or whom it names. Of several answers the first one is taken, and the others are told of it.
#[utoipa::path(
    post, path = "/tasks/{id}/answer", tag = "tasks", operation_id = "answerTask",
    request_body(content = NewAnswer, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Stored, and the task goes on.", body = AnswerResult),
        (status = 400, description = "The answer does not fit the form; `fields` says what is wrong, by JSON Pointers."),
        (status = 409, description = "It waits for no answer: `answer` is the one that it has, if it has one."),
    ),
)]
pub async fn answer(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let (task, awaiting) = awaiting(&state, task_actions::task_id(&id)?).await?;
    check(&state, &who, &task, &awaiting).await?;
    let value = value(&awaiting, &params)?;
    let replied = changes::answer_task(&state, &who, &task, (awaiting, value)).await?;
    redirect::reply(&params, &result(task.id, replied)?)
}

/// Makes a link by which whoever has it can answer this one question without a login, until its deadline, or for a week if it has none. For
/// those who may answer themselves.
#[utoipa::path(
    post, path = "/tasks/{id}/answer/link", tag = "tasks", operation_id = "linkToAnswer",
    responses(
        (status = 200, description = "The link, which is shown once.", body = AnswerLink),
        (status = 400, description = "There is something in the body, which takes nothing."),
        (status = 409, description = "It waits for no answer."),
    ),
)]
pub async fn link(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let (task, awaiting) = awaiting(&state, task_actions::task_id(&id)?).await?;
    check(&state, &who, &task, &awaiting).await?;
    params.only(&[])?;
    let token = Token::new().map_err(|error| HttpError::internal(&error.to_string()))?.in_address();
    let path = format!("/answers/{}-{}", task.id, token.text());
    let until = changes::link_to_answer(&state, &who, &task, (awaiting, token)).await?;
    let until = until.ok_or_else(|| not_awaited(Status::Deferred, None))?;
    let until = json::date_text(until).unwrap_or_default();
    let link = AnswerLink { id: task.id.to_string(), path, until };
    if redirect::is_form(&params) { ui::answers::made(&link) } else { json::of(&link) }
}

pub async fn awaiting(state: &State, id: TaskId) -> Result<(Task, Awaiting), HttpError> {
    if let Some(task) = state.store.find_task(id).await?
        && let Some(awaiting) = Awaiting::of(&task)
    {
        return Ok((task, awaiting));
    }
    let found = state.store.find_task_fields(id, doc! { "status": 1, ANSWER: 1 }).await?;
    let task = found.ok_or_else(|| task_actions::not_found(&id.to_string()))?;
    let status = Status::stored(&task).unwrap_or(Status::Running);
    Err(not_awaited(status, task.get_document(ANSWER).ok()))
}

/// Whether somebody may answer. Whoever may, can also see the task. A token that may only read does not answer in the name of its user.
async fn check(state: &State, who: &Who, task: &Task, awaiting: &Awaiting) -> Result<(), HttpError> {
    let role = role(state, who, task).await?;
    let only_reads = matches!(who.via, Via::Token { .. }) && role < Some(Role::Submitter);
    let user = who.name.as_deref().filter(|_| !only_reads);
    if who.via == Via::OpenDoor || awaiting.may_be_answered_by(user, role) {
        return Ok(());
    }
    Err(HttpError::forbidden(format!("this is to be answered by {}", awaiting.who_in_words())))
}

async fn role(state: &State, who: &Who, task: &Task) -> Result<Option<Role>, HttpError> {
    let tenant = task.rest.get_str("tenant").ok();
    let queue = state.store.find_queue(&Selector::Id(task.queue.0)).await?;
    Ok(match queue {
        Some(queue) => who.rights.on_task((queue.id, queue.tenant()), tenant),
        None => who.rights.everywhere(),
    })
}

/// What is given as the answer, if it fits: `value`, or a field for each of the form, named by its JSON Pointer.
pub fn value(awaiting: &Awaiting, params: &Params) -> Result<Map<String, Value>, HttpError> {
    let value = if redirect::is_form(params) || params.fields.keys().any(|name| name.starts_with('/')) {
        form_of(awaiting).read(&params.fields).map_err(|problems| refused(&problems))?
    } else {
        match params.given::<NewAnswer>()?.value {
            Some(Value::Object(value)) => value,
            Some(_) => return Err(HttpError::bad_param("'value' must be an object", "value")),
            None => return Err(HttpError::bad_param("missing param", "value")),
        }
    };
    awaiting.check(&value).map_err(|problems| refused(&problems))?;
    Ok(value)
}

pub fn form_of(awaiting: &Awaiting) -> Form {
    Form::of(&schema::as_plugins_get(&awaiting.form))
}

pub fn result(id: TaskId, replied: Replied) -> Result<AnswerResult, HttpError> {
    match replied {
        Replied::Stored(status) => Ok(AnswerResult { id: id.to_string(), status: status.code() }),
        Replied::NotAwaited(status, answer) => Err(not_awaited(status, answer.as_ref())),
        Replied::NoSuchTask => Err(task_actions::not_found(&id.to_string())),
    }
}

fn not_awaited(status: Status, answer: Option<&Document>) -> HttpError {
    let answer = answer.map(|answer| json::from_document(answer, Dates::Text));
    let by = answer.as_ref().and_then(|answer| answer.get("by")?.as_str().map(str::to_owned));
    let error = match (&by, status) {
        (Some(by), _) => format!("it has been answered by {by}"),
        (None, Status::Deferred) => {
            "the question of the task has passed its deadline, or has changed".to_owned()
        }
        (None, _) => task_actions::wrong_state(status, "waits for no answer").message().to_owned(),
    };
    let mut body = json!({ "error": error });
    if let Some(answer) = answer {
        body["answer"] = answer.into();
    }
    HttpError::with_body(StatusCode::CONFLICT, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaiting_with(form: Document) -> Awaiting {
        let task = doc! {
            "_id": bson::oid::ObjectId::new(), "queue": bson::oid::ObjectId::new(), "status": -7,
            "awaiting": { "title": "t", "form": form, "attempt": 1 },
        };
        Awaiting::of(&bson::deserialize_from_document(task).unwrap()).unwrap()
    }

    #[test]
    fn an_answer_is_json_or_a_form_and_what_is_wrong_is_named() {
        let form = doc! { "properties": { "go": { "type": "boolean" }, "n": { "type": "integer" } }, "required": ["go"] };
        let awaiting = awaiting_with(form);
        let of = |fields: Value| {
            let fields = fields.as_object().unwrap().clone();
            value(&awaiting, &Params { fields, ..Params::default() })
        };
        let go = json!({ "go": true, "n": 3 }).as_object().unwrap().clone();
        assert_eq!(of(json!({ "value": { "go": true, "n": 3 } })).unwrap(), go);
        assert_eq!(of(json!({ "/go": "true", "/n": "3" })).unwrap(), go);
        for (fields, named) in [
            (json!({}), "value"),
            (json!({ "value": 5 }), "value"),
            (json!({ "value": {}, "more": 1 }), "more"),
            (json!({ "value": { "go": "yes" } }), "go "),
            (json!({ "/n": "3" }), "go "),
            (json!({ "/go": "true", "/n": "x" }), "n "),
        ] {
            let error = of(fields.clone()).unwrap_err();
            assert_eq!(error.status(), 400, "{fields}");
            assert!(error.json().contains(named), "{fields}: {}", error.json());
        }
    }

    #[test]
    fn who_comes_second_sees_the_first_answer() {
        let answer = doc! { "value": { "go": true }, "by": "ann from 10.0.0.1", "attempt": 1 };
        let error = not_awaited(Status::Queued, Some(&answer));
        assert_eq!(
            (error.status().as_u16(), error.message()),
            (409, "it has been answered by ann from 10.0.0.1")
        );
        assert_eq!(error.body()["answer"]["value"], json!({ "go": true }));
        assert!(not_awaited(Status::Running, None).message().contains("waits for no answer"));
    }
}
