//! `GET /tasks/find`

mod search;

use std::collections::HashMap;
use std::time::Duration;

use actix_web::web::Data;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::model::{Status, TaskId, whole_number};
use disbatch_core::store::Store;
use disbatch_core::task::pages::{Order, PageQuery, Position};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ErrorBody, FoundTasks, OfSearch, TaskFind};
use crate::params::Params;
use crate::state::State;
use crate::ui::plain;
use crate::ui::tasks::{MOST_BYTES, TOO_LARGE, params_of};
use crate::{bulk, json, ui};
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
    let found = scan(&state.store, &search).await?;
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

/// At most so many tasks are looked at for what no index knows.
const LOOKED_AT: usize = 5_000;

/// So many of them are read at once.
const AT_ONCE: usize = 500;

/// Looking at them takes about so long at most.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct ScanResult {
    /// The newest first.
    pub tasks: Vec<Document>,
    pub looked_at: usize,
    /// Behind which task there may be more; nothing if all have been looked at.
    pub next: Option<TaskId>,
}

async fn scan(store: &Store, search: &Search) -> Result<ScanResult, HttpError> {
    let mut found = ScanResult::default();
    let began = Instant::now();
    let mut position = search.after.map_or(Position::First, Position::After);
    loop {
        let limit = if search.is_read { AT_ONCE } else { search.limit };
        let page = PageQuery { of: search.of.clone(), order: Order::Newest, position, limit };
        let page = store.find_page(&page).await.map_err(HttpError::from_search)?;
        let projection = Some(search.projection.clone());
        let tasks = store.stream_page(&page.ids, search.filter.clone(), projection).await;
        let mut tasks = tasks.map_err(HttpError::from_search)?;
        let last = page.ids.last().copied();
        while let Some(task) = tasks.try_next().await.map_err(HttpError::from_search)? {
            if !contains(&task, &search.text) {
                continue;
            }
            let id = task.get_object_id("_id").ok().map(TaskId);
            found.tasks.push(task);
            if found.tasks.len() >= search.limit {
                let place = page.ids.iter().position(|one| Some(*one) == id).unwrap_or(page.ids.len());
                found.looked_at += place + 1;
                found.next = id.filter(|_| page.more || id != last);
                return Ok(found);
            }
        }
        found.looked_at += page.ids.len();
        let Some(last) = last.filter(|_| page.more) else { return Ok(found) };
        if found.looked_at >= LOOKED_AT || began.elapsed() >= PATIENCE {
            found.next = Some(last);
            return Ok(found);
        }
        position = Position::After(last);
    }
}

fn contains(task: &Document, text: &str) -> bool {
    text.is_empty() || plain(params_of(task)).to_lowercase().contains(text)
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
