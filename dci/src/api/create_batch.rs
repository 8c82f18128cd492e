//! `POST /tasks/batch`

use actix_web::web::Data;
use disbatch_core::gates::MOST_AFTER;
use disbatch_core::model::TaskId;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, create_tasks};
use crate::error::HttpError;
use crate::openapi::{BatchAnswer, ErrorBody, NewBatch, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{json, options};

/// So many entries may come at once.
const MOST: usize = 1_000;

/// Submits tasks to several queues with one request, each entry as `POST /tasks` takes it. Each is answered by itself, in the same
/// order, by the id of its task or by an error; one that is refused keeps no other from being submitted. In `.after`, -1 stands
/// for the entry before, -2 for the one before that, and so on.
#[utoipa::path(
    post, path = "/tasks/batch", tag = "tasks", operation_id = "createTasksOfBatch",
    request_body(content((NewBatch = "application/json"))),
    responses(
        (status = 200, description = "What became of each entry.", body = BatchAnswer),
        (status = 400, description = "It is no list of entries.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let mut made: Vec<Result<Vec<TaskId>, HttpError>> = Vec::new();
    let mut answers = Vec::new();
    let mut broken: Option<HttpError> = None;
    for entry in entries(params)? {
        let of_list = entry.get("params").is_some_and(Value::is_array);
        let outcome = match &broken {
            // It would only take long to find out again.
            Some(error) => Err(error.clone()),
            None => submit(&state, &who, entry, &made).await,
        };
        if let Err(error) = &outcome
            && error.is_of_server()
        {
            broken.get_or_insert_with(|| error.clone());
        }
        answers.push(answer(of_list, &outcome));
        made.push(outcome);
    }
    let submitted = made.iter().filter(|outcome| outcome.is_ok()).count();
    Ok(json::ok(&json!({ "results": answers, "submitted": submitted, "refused": made.len() - submitted })))
}

fn entries(mut params: Params) -> Result<Vec<Map<String, Value>>, HttpError> {
    params.only(&["tasks"])?;
    let wrong = || HttpError::bad_request(format!("tasks must be a JSON array of 1 to {MOST} objects"));
    let Some(Value::Array(given)) = params.fields.remove("tasks") else { return Err(wrong()) };
    let object = |entry| if let Value::Object(entry) = entry { Some(entry) } else { None };
    let entries: Option<Vec<Map<String, Value>>> = given.into_iter().map(object).collect();
    entries.filter(|entries| (1..=MOST).contains(&entries.len())).ok_or_else(wrong)
}

async fn submit(
    state: &State,
    who: &Who,
    entry: Map<String, Value>,
    made: &[Result<Vec<TaskId>, HttpError>],
) -> Result<Vec<TaskId>, HttpError> {
    if entry.contains_key("collection") {
        return Err(HttpError::bad_request("an entry of a batch has its own params, and no collection"));
    }
    let mut params = Params::from_map(entry);
    options::check_task(&params)?;
    if let Some(after) = params.options.get_mut("after") {
        name_earlier(after, made)?;
    }
    let ids = create_tasks::create(state, who, params).await?;
    if ids.is_empty() { Err(HttpError::bad_request("params has no task")) } else { Ok(ids) }
}

/// Puts the ids of earlier entries into the place of numbers below 0.
fn name_earlier(after: &mut Value, made: &[Result<Vec<TaskId>, HttpError>]) -> Result<(), HttpError> {
    let Value::Array(items) = after else {
        if after.is_i64() {
            *after = Value::Array(vec![after.take()]);
            return name_earlier(after, made);
        }
        return Ok(());
    };
    let mut named = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        let Some(back) = item.as_i64().filter(|back| *back < 0) else {
            named.push(item);
            continue;
        };
        let back = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
        let earlier = made.len().checked_sub(back).and_then(|at| made.get(at));
        match earlier {
            // The entry may be one of very many tasks, and may be named again and again.
            Some(Ok(ids)) if named.len().saturating_add(ids.len()) > MOST_AFTER => {
                return Err(HttpError::bad_request(format!(".after must be 1 to {MOST_AFTER} ids of tasks")));
            }
            Some(Ok(ids)) => named.extend(ids.iter().map(|id| Value::from(id.to_string()))),
            Some(Err(_)) => {
                return Err(HttpError::conflict(format!(".after: the entry at -{back} was not submitted")));
            }
            None => return Err(HttpError::bad_request(format!(".after: there is no entry at -{back}"))),
        }
    }
    *items = named;
    Ok(())
}

/// What became of an entry: one id, or several if its params were a list, or an error with its status.
fn answer(of_list: bool, outcome: &Result<Vec<TaskId>, HttpError>) -> Value {
    match outcome {
        Ok(ids) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            match ids.as_slice() {
                [id] if !of_list => json!({ "id": id }),
                _ => json!({ "ids": ids }),
            }
        }
        Err(error) => json!({ "error": error.message(), "status": error.status().as_u16() }),
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn id(number: u8) -> TaskId {
        TaskId(ObjectId::from_bytes([number; 12]))
    }

    fn named(after: Value) -> Result<Value, String> {
        let made = [Ok(vec![id(1)]), Err(HttpError::conflict("closed")), Ok(vec![id(2), id(3)])];
        let mut after = after;
        name_earlier(&mut after, &made).map(|()| after).map_err(|error| error.to_string())
    }

    #[test]
    fn entries_before_are_named_by_how_far_back_they_are() {
        let [first, second, third] = [1, 2, 3].map(|number| id(number).to_string());
        assert_eq!(named(json!([-3, -1])), Ok(json!([first, second, third])));
        assert_eq!(named(json!(-3)), Ok(json!([first])));
        assert_eq!(named(json!(["x", -3])), Ok(json!(["x", first])));
        assert_eq!(named(json!("a,b")), Ok(json!("a,b")));
        assert_eq!(named(json!([-2])).unwrap_err(), ".after: the entry at -2 was not submitted");
        assert_eq!(named(json!([-4])).unwrap_err(), ".after: there is no entry at -4");
        let again_and_again = named(json!(vec![-1; MOST_AFTER])).unwrap_err();
        assert_eq!(again_and_again, format!(".after must be 1 to {MOST_AFTER} ids of tasks"));
        assert!(named(json!([i64::MIN])).is_err());
        assert_eq!(named(json!([0, 5])), Ok(json!([0, 5])), "that is refused where all ids are");
    }

    #[test]
    fn entries_are_objects() {
        let of = |tasks: Value| {
            let fields = json!({ "tasks": tasks }).as_object().unwrap().clone();
            entries(Params { fields, ..Params::default() }).map(|entries| entries.len()).ok()
        };
        assert_eq!(of(json!([{}, { "queue": "q" }])), Some(2));
        for wrong in [json!([]), json!({}), json!([1]), json!("[]"), json!(vec![json!({}); MOST + 1])] {
            assert_eq!(of(wrong.clone()), None);
        }
        let params =
            Params { fields: json!({ "queue": "q" }).as_object().unwrap().clone(), ..Params::default() };
        assert!(entries(params).is_err());
    }

    #[test]
    fn each_entry_is_answered_by_itself() {
        assert_eq!(answer(false, &Ok(vec![id(1)])), json!({ "id": id(1).to_string() }));
        assert_eq!(answer(true, &Ok(vec![id(1)])), json!({ "ids": [id(1).to_string()] }));
        let refused = answer(false, &Err(HttpError::conflict("closed")));
        assert_eq!(refused, json!({ "error": "closed", "status": 409 }));
    }
}
