//! `GET /tasks/query`

use std::collections::{HashMap, HashSet};

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::Document;
use disbatch_core::accounts::{Role, tasks_within};
use disbatch_core::model::TaskId;
use disbatch_core::observe::Chosen;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::gates;
use crate::json::{self, Dates};
use crate::openapi::{ChosenFields, ChosenTasks, ErrorBody, OfSearch};
use crate::params::Params;
use crate::query::field_list;
use crate::state::State;

/// So many tasks may be asked about at once.
const MOST: usize = 1_000;

/// The chosen fields of all of them may have so many bytes.
const MOST_BYTES: usize = 16 << 20;

/// Chosen fields of chosen tasks, in the order of the ids; null for a task that does not exist or is not for whoever asks. Archived
/// tasks are found too. `seen` is for `GET /tasks/{id}/wait`.
#[utoipa::path(
    get, path = "/tasks/query", tag = "tasks", operation_id = "queryTasks",
    params(ChosenFields),
    responses(
        (status = 200, description = "One for each id.", body = ChosenTasks),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    params.only(&[])?;
    let ids = ids(&params)?;
    let fields = field_list::chosen_or_status(&params)?;
    let mut filter = Document::new();
    if !who.is_everywhere(Role::Viewer) {
        let reach = who.reach(Role::Viewer);
        filter = tasks_within(filter, &state.store.queues_within(&reach).await?, &reach.tenants());
    }
    let found = state.store.chosen_fields_of(&ids, filter, &fields, MOST_BYTES).await;
    let mut found = found.map_err(HttpError::from_search)?.ok_or_else(too_much)?;
    let sight = gates::sight(&state, &who).await?;
    for task in found.values_mut() {
        sight.conceal(&state.store, &mut task.fields).await?;
    }
    Ok(json::ok(&ids.iter().map(|id| row(*id, &found)).collect()))
}

fn ids(params: &Params) -> Result<Vec<TaskId>, HttpError> {
    let wrong = || HttpError::bad_request(format!(".ids must be 1 to {MOST} ids, with commas between them"));
    let given = field_list::list(params.options.get("ids")).map_err(|()| wrong())?.ok_or_else(wrong)?;
    if given.len() > MOST {
        return Err(wrong());
    }
    let ids: Vec<TaskId> =
        given.iter().map(|id| id.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    // One that is given again is answered where it came first.
    let mut seen = HashSet::new();
    Ok(ids.into_iter().filter(|id| seen.insert(*id)).collect())
}

fn too_much() -> HttpError {
    let message =
        format!("the fields have more than {MOST_BYTES} bytes: ask for fewer tasks or fewer fields");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn row(id: TaskId, found: &HashMap<TaskId, Chosen>) -> Value {
    found.get(&id).map_or(Value::Null, |task| view(id, task))
}

/// Chosen fields of a task as clients see them.
pub fn view(id: TaskId, task: &Chosen) -> Value {
    json!({
        "id": id.to_string(),
        "fields": json::from_document(&task.fields, Dates::Text),
        "seen": task.seen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_a_list() {
        let id = "6b0003bb686c8275d8013333";
        let of = |ids: Value| {
            let options = json!({ "ids": ids }).as_object().unwrap().clone();
            ids_of(&Params { options, ..Params::default() })
        };
        let other = "6b0003bb686c8275d8013334";
        assert_eq!(of(json!(format!("{id},{other},{id}"))), Some(2), "each is answered once");
        assert_eq!(of(json!([id])), Some(1));
        for wrong in [json!(null), json!(""), json!("x"), json!([5]), json!(format!("{id},x"))] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(of(json!(vec![id; MOST + 1])), None);
    }

    fn ids_of(params: &Params) -> Option<usize> {
        ids(params).ok().map(|ids| ids.len())
    }
}
