//! Tasks: those that a search finds, and chosen fields of chosen ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use bson::Document;
use disbatch_core::accounts::{Role, tasks_within};
use disbatch_core::model::{Selector, TaskId};
use disbatch_core::observe::Chosen;
use disbatch_core::store::StoreError;
use futures::{Stream, StreamExt, future, stream};
use serde_json::{Map, Value, json};

use crate::access::{Sight, Who};
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ChosenFields, ChosenTasks, ErrorBody, OfSearch, TaskSearch, Tasks};
use crate::params::Params;
use crate::query::{Listing, Shape, field_list};
use crate::rows::view;
use crate::state::State;
use crate::{accept, counts, gates, json, rows, ui};

/// Tasks that match the parameters. The options `.limit`, `.skip`, `.count`, `.fields`, `.full`, `.terse`,
/// `.epoch`, `.archive` and `.pretty` say which of them, and how they are written.
///
/// The answer is an array; an object for `.limit=1`, and an empty object when nothing matches.
///
/// With `.order`, `.after` or `.before` the tasks come in the order of their ids, a page at a time, at the same cost
/// wherever the page is; the headers `Disbatch-After` and `Disbatch-Before` have the ids that the next and the
/// previous page begin at. Pages are for all tasks, those of a queue, of a queue and statuses, of a queue, statuses
/// and a node, and those with tags.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", operation_id = "listTasks",
    params(TaskSearch),
    responses(
        (
            status = 200, content((Tasks = "application/json"), (String = "text/html")),
            description = "What was found; a page if `Accept` asks for HTML.",
        ),
        (
            status = 400, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "A parameter is wrong or in no index, or everything was asked for.",
        ),
        OfSearch,
    ),
)]
pub async fn list(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::tasks::render(&state, &who, &params).await));
    }
    let params = named(&state, &who, params).await?;
    let indexes = state.store.task_index_fields().await?;
    let mut listing = Listing::parse(&params, &indexes, None, state.store.now())?;
    if !who.is_everywhere(Role::Viewer) {
        let reach = who.reach(Role::Viewer);
        listing.limit(&state.store.queues_within(&reach).await?, &reach)?;
    }
    let sight = gates::sight(&state, &who).await?;
    let Listing { query, shape, page } = listing;
    if shape.count {
        let count = counts::of_search(&state.store, query).await.map_err(HttpError::from_search)?;
        return Ok(one(&json!({ "count": count }), shape));
    }
    let Some(page) = page else {
        let tasks = state.store.stream_tasks(query).await.map_err(HttpError::from_search)?;
        return respond(state, tasks, shape, sight).await;
    };
    let found = state.store.find_page(&page).await.map_err(HttpError::from_search)?;
    let tasks = state.store.stream_page(&found.ids, query.filter, query.projection).await;
    let mut answer = respond(state, tasks.map_err(HttpError::from_search)?, shape, sight).await?;
    for (name, id) in
        [("disbatch-after", page.following(&found)), ("disbatch-before", page.preceding(&found))]
    {
        if let Some(id) = id.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
            answer.headers_mut().insert(HeaderName::from_static(name), id);
        }
    }
    Ok(answer)
}

/// The parameters with the id of the queue in the place of its name.
async fn named(state: &State, who: &Who, params: Params) -> Result<Params, HttpError> {
    let queue = params.fields.get("queue").and_then(Value::as_str).map(str::trim);
    let is_name = |queue: &str| !queue.is_empty() && matches!(Selector::parse(queue), Selector::Name(_));
    if !queue.is_some_and(is_name) {
        return Ok(params);
    }
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    Ok(ui::tasks::named(&params, &queues))
}

async fn respond(
    state: Data<State>,
    mut tasks: impl Stream<Item = Result<Document, StoreError>> + Unpin + 'static,
    shape: Shape,
    sight: Sight,
) -> Answer {
    let Some(first) = tasks.next().await else { return Ok(one(&Value::Object(Map::new()), shape)) };
    let first = first.map_err(HttpError::from_search)?;
    if shape.single {
        return Ok(one(&view(&state.store, first, shape, &sight).await?, shape));
    }
    let tasks = stream::once(future::ready(Ok(first))).chain(tasks);
    let sight = Arc::new(sight);
    let view = move |task| {
        let (state, sight) = (state.clone(), Arc::clone(&sight));
        async move { view(&state.store, task, shape, &sight).await }
    };
    rows::respond(tasks, shape.pretty, view).await
}

fn one(value: &Value, shape: Shape) -> HttpResponse {
    if shape.pretty { json::ok_pretty(value) } else { json::ok(value) }
}

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
pub async fn query(state: Data<State>, who: Who, params: Params) -> Answer {
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
    found.get(&id).map_or(Value::Null, |task| view_fields(id, task))
}

pub fn view_fields(id: TaskId, task: &Chosen) -> Value {
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
