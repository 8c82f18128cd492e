//! `GET /tasks/find`

mod scan;
mod search;

use std::collections::HashMap;

use actix_web::web::Data;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::model::{Status, whole_number};
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::json::{self, Dates};
use crate::openapi::{ErrorBody, FoundTasks, OfSearch, TaskFind};
use crate::params::Params;
use crate::state::State;
use crate::ui::tasks::{MOST_BYTES, TOO_LARGE, params_of};
use crate::{bulk, ui};
use search::Search;

/// Tasks of all queues that the client may see, or of one, the newest first: by status, node, tags, time of the last change, and text in
/// their params. Archived tasks are not among them.
///
/// Status, node and tags are looked up in indexes. No index knows when tasks changed or what their params contain: for that, up to 5,000
/// tasks are read, for up to 2 s. `next` is null when all have been looked at; else more may be found `.after` it.
#[utoipa::path(
    get, path = "/tasks/find", tag = "tasks", operation_id = "findTasks",
    params(TaskFind),
    responses(
        (status = 200, description = "What was found.", body = FoundTasks),
        (status = 400, description = "A parameter is wrong, or there is no such queue.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let search = Search::of(&state, &who, &params).await?;
    let found = scan::find(&state.store, &search).await?;
    let names: HashMap<ObjectId, String> = ui::names::names(&search.queues);
    let tasks: Vec<Value> = found.tasks.iter().map(|task| view(task, &names)).collect();
    Ok(json::ok(&json!({
        "tasks": tasks,
        "looked_at": found.looked_at,
        "next": found.next.map(|id| id.to_string()),
    })))
}

/// A task as clients see it. Large params are left out.
fn view(task: &Document, names: &HashMap<ObjectId, String>) -> Value {
    let mut view = json::from_document(task, Dates::Text);
    let status = task.get("status").and_then(whole_number).map(Status::from_code);
    let queue = task.get_object_id("queue").ok();
    view.remove("parameters");
    view.insert("params".to_owned(), params_of(task).map_or(Value::Null, small));
    if let Some(id) = view.remove("_id") {
        view.insert("id".to_owned(), id);
    }
    view.insert("word".to_owned(), status.map(Status::word).into());
    view.insert("queue_name".to_owned(), queue.and_then(|id| names.get(&id).cloned()).into());
    bulk::plain_ids(Value::Object(view))
}

fn small(params: &Bson) -> Value {
    let value = json::from_bson(params, Dates::Text);
    let most = usize::try_from(MOST_BYTES).unwrap_or(usize::MAX);
    if json::compact(&value).len() > most { TOO_LARGE.into() } else { value }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn tasks_have_the_names_of_their_queues_and_words_for_their_statuses() {
        let (id, queue) = (ObjectId::from_bytes([1; 12]), ObjectId::from_bytes([2; 12]));
        let names = HashMap::from([(queue, "mail".to_owned())]);
        let task = doc! { "_id": id, "queue": queue, "status": 2_i64, "parameters": { "a": 1 } };
        let expected = json!({
            "id": id.to_hex(), "queue": queue.to_hex(), "queue_name": "mail", "status": 2, "word": "failed",
            "params": { "a": 1 },
        });
        assert_eq!(view(&task, &names), expected);
        let odd = view(&doc! { "_id": id, "status": "x", "params": { "a": "x".repeat(20_000) } }, &names);
        assert_eq!(
            (&odd["word"], &odd["queue_name"], &odd["params"]),
            (&Value::Null, &Value::Null, &json!(TOO_LARGE))
        );
    }
}
