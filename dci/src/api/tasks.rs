//! Tasks: those that a search finds, chosen fields of chosen ones, and those that are submitted to several queues at once.

use std::collections::HashSet;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Data;
use bson::Document;
use disbatch_core::accounts::{Role, tasks_within};
use disbatch_core::gates::MOST_AFTER;
use disbatch_core::model::{Selector, TaskId};
use disbatch_core::observe::Chosen;
use disbatch_core::store::StoreError;
use disbatch_wire::options::field_names;
use disbatch_wire::search::{ChosenFields, ChosenTask};
use disbatch_wire::task_actions::{BatchAnswer, BatchResult, NewBatch};
use futures::{Stream, StreamExt, future, stream};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::{Sight, Who};
use crate::api::{Answer, create_tasks};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ChosenTasks, JSON_OR_PAGE, TaskSearch, Tasks};
use crate::params::Params;
use crate::query::{self, Listing, Shape};
use crate::rows::view;
use crate::state::State;
use crate::{counts, gates, json, options, rows, ui};

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
        (status = 200, description = "What was found; a page if `Accept` asks for HTML.", body = Tasks, content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter is wrong or in no index, or everything was asked for.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>, who: Who, params: Params) -> Answer {
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
        return Ok(json::ok_as(&json!({ "count": count }), shape.pretty));
    }
    let Some(page) = page else {
        let tasks = state.store.stream_tasks(query).await.map_err(HttpError::from_search)?;
        return respond(state, tasks, shape, sight).await;
    };
    let found = state.store.find_page(&page).await.map_err(HttpError::from_search)?;
    let tasks = state.store.stream_page(&found.rows, query.filter, query.projection).await;
    let mut answer = respond(state, tasks.map_err(HttpError::from_search)?, shape, sight).await?;
    for (name, id) in [("disbatch-after", found.next), ("disbatch-before", found.previous)] {
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
    let Some(first) = tasks.next().await else { return Ok(json::ok_as(&json!({}), shape.pretty)) };
    let first = first.map_err(HttpError::from_search)?;
    if shape.single {
        return Ok(json::ok_as(&view(&state.store, first, shape, &sight).await?, shape.pretty));
    }
    let tasks = stream::once(future::ready(Ok(first))).chain(tasks);
    let sight = Arc::new(sight);
    let view = move |task| {
        let (state, sight) = (state.clone(), Arc::clone(&sight));
        async move { view(&state.store, task, shape, &sight).await }
    };
    rows::respond(tasks, shape.pretty, view).await
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
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn query(state: Data<State>, who: Who, params: Params) -> Answer {
    let ChosenFields { ids: given, fields } = params.search()?;
    let ids = ids(given.as_ref())?;
    let fields = query::chosen_fields_or_status(fields.as_ref())?;
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
    let chosen = |id: &TaskId| found.get(id).map(|task| view_fields(*id, task));
    json::of(&ids.iter().map(chosen).collect::<Vec<_>>())
}

fn ids(given: Option<&Value>) -> Result<Vec<TaskId>, HttpError> {
    let wrong = || HttpError::bad_request(format!(".ids must be 1 to {MOST} ids, with commas between them"));
    let given = query::text_list(given).map_err(|()| wrong())?.ok_or_else(wrong)?;
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

pub fn view_fields(id: TaskId, task: &Chosen) -> ChosenTask {
    ChosenTask {
        id: id.to_string(),
        fields: json::from_document(&task.fields, Dates::Text),
        seen: task.seen.clone(),
        changed: None,
        ended: None,
        live: None,
    }
}

/// So many entries may come at once.
const MOST_ENTRIES: usize = 1_000;

/// Submits tasks to several queues with one request, each entry as `POST /tasks` takes it. Each is answered by itself, in the same
/// order, by the id of its task or by an error; one that is refused keeps no other from being submitted. In `.after`, -1 stands
/// for the entry before, -2 for the one before that, and so on.
#[utoipa::path(
    post, path = "/tasks/batch", tag = "tasks", operation_id = "createTasksOfBatch",
    request_body = NewBatch,
    responses(
        (status = 200, description = "What became of each entry.", body = BatchAnswer),
        (status = 400, description = "It is no list of entries."),
    ),
)]
pub async fn create_batch(state: Data<State>, who: Who, params: Params) -> Answer {
    let mut made: Vec<Result<Vec<TaskId>, HttpError>> = Vec::new();
    let mut results = Vec::new();
    let mut broken: Option<HttpError> = None;
    for entry in entries(params)? {
        let of_list = entry.get("params").is_some_and(Value::is_array);
        let outcome = match &broken {
            // It would only take long to find out again.
            Some(error) => Err(error.clone()),
            None => submit_entry(&state, &who, entry, &made).await,
        };
        if let Err(error) = &outcome
            && error.is_of_server()
        {
            broken.get_or_insert_with(|| error.clone());
        }
        results.push(entry_answer(of_list, &outcome));
        made.push(outcome);
    }
    let submitted = made.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    json::of(&BatchAnswer { results, submitted, refused: made.len() as u64 - submitted })
}

fn entries(params: Params) -> Result<Vec<Map<String, Value>>, HttpError> {
    params.only(field_names::<NewBatch>())?;
    let entries = NewBatch::deserialize(params.fields).ok().map(|batch| batch.tasks);
    let entries = entries.filter(|entries| (1..=MOST_ENTRIES).contains(&entries.len()));
    let wrong = format!("tasks must be a JSON array of 1 to {MOST_ENTRIES} objects");
    entries.ok_or_else(|| HttpError::bad_request(wrong))
}

async fn submit_entry(
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
fn entry_answer(of_list: bool, outcome: &Result<Vec<TaskId>, HttpError>) -> BatchResult {
    let mut answer = BatchResult::default();
    match outcome.as_deref() {
        Ok([id]) if !of_list => answer.id = Some(id.to_string()),
        Ok(ids) => answer.ids = Some(ids.iter().map(ToString::to_string).collect()),
        Err(error) => {
            answer.error = Some(error.message().to_owned());
            answer.status = Some(error.status().as_u16());
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn ids_are_a_list() {
        let id = "6b0003bb686c8275d8013333";
        let of = |given: Value| ids(Some(&given)).ok().map(|ids| ids.len());
        let other = "6b0003bb686c8275d8013334";
        assert_eq!(of(json!(format!("{id},{other},{id}"))), Some(2), "each is answered once");
        assert_eq!(of(json!([id])), Some(1));
        for wrong in [json!(null), json!(""), json!("x"), json!([5]), json!(format!("{id},x"))] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(of(json!(vec![id; MOST + 1])), None);
    }

    fn id(number: u8) -> TaskId {
        TaskId(ObjectId::from_bytes([number; 12]))
    }

    fn with_earlier(after: Value) -> Result<Value, String> {
        let made = [Ok(vec![id(1)]), Err(HttpError::conflict("closed")), Ok(vec![id(2), id(3)])];
        let mut after = after;
        name_earlier(&mut after, &made).map(|()| after).map_err(|error| error.to_string())
    }

    #[test]
    fn entries_before_are_named_by_how_far_back_they_are() {
        let [first, second, third] = [1, 2, 3].map(|number| id(number).to_string());
        assert_eq!(with_earlier(json!([-3, -1])), Ok(json!([first, second, third])));
        assert_eq!(with_earlier(json!(-3)), Ok(json!([first])));
        assert_eq!(with_earlier(json!(["x", -3])), Ok(json!(["x", first])));
        assert_eq!(with_earlier(json!("a,b")), Ok(json!("a,b")));
        assert_eq!(with_earlier(json!([-2])).unwrap_err(), ".after: the entry at -2 was not submitted");
        assert_eq!(with_earlier(json!([-4])).unwrap_err(), ".after: there is no entry at -4");
        let again_and_again = with_earlier(json!(vec![-1; MOST_AFTER])).unwrap_err();
        assert_eq!(again_and_again, format!(".after must be 1 to {MOST_AFTER} ids of tasks"));
        assert!(with_earlier(json!([i64::MIN])).is_err());
        assert_eq!(with_earlier(json!([0, 5])), Ok(json!([0, 5])), "that is refused where all ids are");
    }

    #[test]
    fn entries_are_objects() {
        let of = |tasks: Value| {
            let fields = json!({ "tasks": tasks }).as_object().unwrap().clone();
            entries(Params { fields, ..Params::default() }).map(|entries| entries.len()).ok()
        };
        assert_eq!(of(json!([{}, { "queue": "q" }])), Some(2));
        for wrong in [json!([]), json!({}), json!([1]), json!("[]"), json!(vec![json!({}); MOST_ENTRIES + 1])]
        {
            assert_eq!(of(wrong.clone()), None);
        }
        let params =
            Params { fields: json!({ "queue": "q" }).as_object().unwrap().clone(), ..Params::default() };
        assert!(entries(params).is_err());
    }

    #[test]
    fn each_entry_is_answered_by_itself() {
        let answer =
            |of_list, outcome: Result<Vec<TaskId>, HttpError>| json!(entry_answer(of_list, &outcome));
        assert_eq!(answer(false, Ok(vec![id(1)])), json!({ "id": id(1).to_string() }));
        assert_eq!(answer(true, Ok(vec![id(1)])), json!({ "ids": [id(1).to_string()] }));
        let refused = answer(false, Err(HttpError::conflict("closed")));
        assert_eq!(refused, json!({ "error": "closed", "status": 409 }));
    }
}
