//! `POST /tasks`

pub mod fit;
pub mod options;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data};
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::arrays::NewArray;
use disbatch_core::metrics::labels::Refusal;
use disbatch_core::model::{Queue, QueueId, Selector, TaskId};
use disbatch_core::request::check_keys;
use disbatch_core::store::collections::{SourceError, TaskSource};
use disbatch_core::task::{Once, SubmitError, Submitted, TaskOptions};
use disbatch_traces::Submission;
use futures::stream;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{InsertManyResult, NewTasks};
use crate::params::{Params, no_object};
use crate::query::collection_filter;
use crate::state::State;
use crate::{arrays, changes, gates, json, legacy, measure};

/// The answer tells so many ids at once.
const AT_ONCE: usize = 1_000;

/// Creates tasks in `queue` (a name or id): one for each object of `params`, or one for each document of
/// `collection` that `filter` finds, with `params` as the pattern. Tasks without room for their whole life are refused with 413,
/// which names the `field` that is too large, its `bytes` and the `limit`.
#[utoipa::path(
    post, path = "/tasks", tag = "tasks", operation_id = "createTasks",
    params((
        "traceparent" = Option<String>, Header, example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        description = "The trace that the tasks belong to, with `tracestate` and `baggage` if there are any. One that cannot be used is ignored.",
    )),
    request_body = NewTasks,
    responses(
        (status = 200, description = "Submitted. With `.array` there is instead `array`, as `GET /arrays/{id}` has it, with its id.",
            body = InsertManyResult),
        (status = 400, description = "A parameter is wrong, there is no such queue, or no document was found."),
        (status = 409, description = "The queue accepts no tasks; a task with the same `.unique` key has not ended (`task` is its id); or \
            `.idempotency_key` was used for another request."),
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Result<Params, HttpError>) -> Answer {
    // To Perl a list is the parameters of tasks of no queue.
    let params = params.map_err(|error| if error == no_object() { queue_not_found() } else { error })?;
    if arrays::is_asked(&params) {
        return create_array(&state, &who, &params).await;
    }
    if redirect::is_form(&params) {
        return redirect::or_page(true, from_form(&state, &who, params).await);
    }
    answer(create(&state, &who, params).await?)
}

/// For a page's form: `params` is text that is JSON, and `{id}` in `.then` stands for the first new task.
async fn from_form(state: &State, who: &Who, mut params: Params) -> Answer {
    if let Some(Value::String(text)) = params.fields.get("params") {
        let value = crate::allowance::json(text);
        let value =
            value.map_err(|error| HttpError::bad_request(format!("'params' is not JSON: {error}")))?;
        params.fields.insert("params".to_owned(), value);
    }
    let fields = std::mem::take(&mut params.fields);
    let ids = create(state, who, Params { fields, options: params.options.clone() }).await?;
    if let (Some(id), Some(Value::String(then))) = (ids.first(), params.options.get_mut("then")) {
        *then = then.replace("{id}", &id.to_string());
    }
    redirect::answer(&params, answer(ids)?)
}

pub async fn create(state: &State, who: &Who, params: Params) -> Result<Vec<TaskId>, HttpError> {
    arrays::refuse(&params)?;
    let (queue, options, once) = prepared(state, who, &params).await?;
    // Nothing of it is kept while the tasks are written: it may be long.
    let Params { mut fields, .. } = params;
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    match names[..] {
        ["params", "queue"] => {
            // Steps have parameters of their own.
            let may_be_empty = !options.steps.is_empty();
            let tasks = checked_params(fields.remove("params").unwrap_or_default(), may_be_empty)?;
            submit(state, who, &queue, tasks, (options, once)).await
        }
        ["collection", "filter", "params", "queue"] => {
            submit_from_collection(state, who, &queue, &fields, (options, once)).await
        }
        _ => Err(invalid()),
    }
}

/// Why there are no new tasks where nothing is wrong.
const NOTHING: &str =
    "no tasks were made: 'params' is an empty list, or the filter finds no document of the collection";

/// Sees to it that somebody may submit tasks as `params` says. Returns the queue, which accepts them, the options, and what makes the
/// submission one that may be repeated.
async fn prepared(
    state: &State,
    who: &Who,
    params: &Params,
) -> Result<(Queue, TaskOptions, Option<Once>), HttpError> {
    let queue = find_queue(state, params.fields.get("queue")).await?;
    if !who.sees(&queue) {
        return Err(queue_not_found());
    }
    who.check(Role::Submitter, &queue)?;
    if params.fields.contains_key("collection") && !who.is_everywhere(Role::Operator) {
        return Err(HttpError::forbidden("tasks for the documents of a collection need the role operator"));
    }
    let options = options::of(params, queue.id, &state.keys)?;
    let options = options::with_tenant(options, params, who, &queue)?;
    options::check_steps(state, who, &queue, &options.steps).await?;
    options::check_files(who, options.files.as_ref(), options.tenant.as_deref())?;
    let once = options::once(params, queue.id, &state.keys)?;
    let wants_a_look = !queue.is_accepting() || !options.after.is_empty() || options.files.is_some();
    if wants_a_look && !is_repetition(state, queue.id, once.as_ref()).await? {
        check_accepting(state, &queue)?;
        check_upstream(state, who, queue.id, &options).await?;
        options::check_input(state, who, queue.id, &options).await?;
    }
    Ok((queue, options, once))
}

/// Creates a task of `queue` for each of `tasks`, once if there is a key.
pub async fn submit(
    state: &State,
    who: &Who,
    queue: &Queue,
    tasks: Vec<Document>,
    (options, once): (TaskOptions, Option<Once>),
) -> Result<Vec<TaskId>, HttpError> {
    // What was submitted before is answered the same, whatever the schema is by now.
    let (tasks, checked) = fit::check(state, queue, &options.steps, tasks).await?;
    if checked.is_err() && !is_repetition(state, queue.id, once.as_ref()).await? {
        measure::refused(state.store.metrics(), queue.id, Refusal::Schema);
        return checked.map(|()| Vec::new());
    }
    let (store, id) = (state.store.clone(), queue.id);
    let submission = move |options: TaskOptions| async move {
        match &once {
            Some(once) => store.submit_tasks_once(id, tasks, &options, once).await,
            None => store.submit_tasks(id, tasks, &options).await,
        }
        .inspect_err(|error| measure::refused_by(store.metrics(), id, error))
    };
    send(state, who, queue, (options, None), submission).await
}

/// Submits tasks by what `submission` does with their options, and tells of it in traces, unless the same had been submitted before.
async fn send<E, F>(
    state: &State,
    who: &Who,
    queue: &Queue,
    (options, collection): (TaskOptions, Option<String>),
    submission: impl FnOnce(TaskOptions) -> F,
) -> Result<Vec<TaskId>, HttpError>
where
    E: Into<HttpError> + Send + 'static,
    F: Future<Output = Result<Submitted, E>> + Send + 'static,
{
    let begun = state.store.now();
    let sent = state.tracer.as_ref().map(|tracer| {
        let (place, context) = tracer.submission(who.trace.as_ref(), ObjectId::new().bytes());
        (tracer, place, context)
    });
    let trace = sent.as_ref().map(|(.., context)| context).or(who.trace.as_ref()).cloned();
    let options = TaskOptions { owner: who.name.clone(), trace, ..options };
    // It is large, and so would be whatever waits for it.
    let made = Box::pin(changes::submit(state, who, queue.id, collection, submission(options))).await;
    let is_repetition = made.as_ref().is_ok_and(|made| made.is_repetition);
    if let Some((tracer, place, _)) = sent.filter(|_| !is_repetition) {
        tracer.submitted(&Submission {
            place,
            request: who.trace.clone(),
            queue: queue.id,
            queue_name: &queue.display_name(),
            tasks: made.as_ref().map_or(&[][..], |made| &made.ids[..]),
            times: (begun, state.store.now()),
            failed: made.is_err(),
        });
    }
    made.map(|made| made.ids).map_err(Into::into)
}

pub fn answer(ids: Vec<TaskId>) -> Answer {
    if ids.is_empty() {
        let body = legacy::with(legacy::insert_many_result(&ids), "error", NOTHING);
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    if ids.len() <= AT_ONCE {
        return Ok(json::ok(&legacy::insert_many_result(&ids)));
    }
    Ok(HttpResponse::Ok().content_type(json::CONTENT_TYPE).streaming(stream::iter(parts(ids))))
}

/// The answer for many tasks, made a part at a time: as one text, a million of them would take 60 MB.
fn parts(ids: Vec<TaskId>) -> impl Iterator<Item = Result<Bytes, HttpError>> {
    let frame = json::compact(&legacy::insert_many_result(&[]));
    let (head, tail) = frame.split_once("\"inserted\":[]").unwrap_or_default();
    let (head, tail) = (format!("{head}\"inserted\":["), format!("]{tail}"));
    let count = ids.len();
    let part = move |start: usize| {
        let of_part = ids.iter().enumerate().skip(start).take(AT_ONCE);
        let items = of_part.map(|(index, id)| {
            let comma = if index == 0 { "" } else { "," };
            format!("{comma}{{\"_id\":{{\"$oid\":\"{id}\"}},\"index\":{index}}}")
        });
        items.collect::<String>()
    };
    let items = (0..count).step_by(AT_ONCE).map(part);
    std::iter::once(head).chain(items).chain([tail]).map(|part| Ok(Bytes::from(part)))
}

/// What was submitted before is answered the same, whatever the queue accepts now.
pub async fn is_repetition(state: &State, queue: QueueId, once: Option<&Once>) -> Result<bool, HttpError> {
    match once {
        Some(once) => Ok(state.store.has_submission(queue, once).await?),
        None => Ok(false),
    }
}

/// A queue that an operator has closed refuses what is submitted.
pub fn accepts_nothing(state: &State, queue: &Queue) -> HttpError {
    measure::refused(state.store.metrics(), queue.id, Refusal::Closed);
    let reason = queue.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    HttpError::conflict(format!("queue {} accepts no tasks{reason}", queue.display_name()))
}

pub fn check_accepting(state: &State, queue: &Queue) -> Result<(), HttpError> {
    if queue.is_accepting() { Ok(()) } else { Err(accepts_nothing(state, queue)) }
}

/// The queue that an address names, if it accepts tasks.
pub async fn open_queue(state: &State, selector: &Selector) -> Result<Queue, HttpError> {
    let queue = state.store.find_queue(selector).await?.ok_or_else(queue_not_found)?;
    check_accepting(state, &queue)?;
    Ok(queue)
}

/// The queue that `value` names, by name or id.
pub async fn find_queue(state: &State, value: Option<&Value>) -> Result<Queue, HttpError> {
    let name = match value {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(queue_not_found()), // Nothing else names a queue.
    };
    let queue = state.store.find_queue(&Selector::parse(&name)).await?;
    queue.ok_or_else(queue_not_found)
}

/// There is no such queue, or it is not for whoever asks.
pub fn queue_not_found() -> HttpError {
    HttpError::bad_request("queue not found")
}

/// Parameters that are none of the known combinations.
pub fn invalid() -> HttpError {
    HttpError::bad_request("invalid parameters passed")
}

fn not_an_array() -> HttpError {
    HttpError::bad_request("'params' must be a JSON array of task params objects")
}

/// The parameters of tasks, from an array of objects or one object.
pub fn task_params(value: Value) -> Result<Vec<Document>, HttpError> {
    checked_params(value, false)
}

pub fn checked_params(value: Value, may_be_empty: bool) -> Result<Vec<Document>, HttpError> {
    let items = match value {
        Value::Array(items) => items,
        object @ Value::Object(_) => vec![object],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(invalid()),
    };
    if items.is_empty() || !items.iter().all(Value::is_object) {
        return Err(not_an_array());
    }
    if !may_be_empty && items.iter().filter_map(Value::as_object).any(Map::is_empty) {
        return Err(HttpError::bad_request(
            "'params' must be a JSON array of task params objects with key/value pairs",
        ));
    }
    let document = |item: Value| match item {
        Value::Object(object) => document(object),
        _ => Err(not_an_array()), // There are none, as was seen.
    };
    items.into_iter().map(document).collect()
}

fn document(object: Map<String, Value>) -> Result<Document, HttpError> {
    check_keys(&object)?;
    Ok(json::into_document(object))
}

pub async fn create_array(state: &State, who: &Who, params: &Params) -> Answer {
    if let Some(param) = params.unknown(&["queue", "params"]) {
        let message = "with .array there are only 'queue' and 'params'";
        return Err(if param == "collection" { HttpError::bad_request(message) } else { invalid() });
    }
    let array: NewArray = arrays::parse(params)?;
    let (queue, options, once) = prepared(state, who, params).await?;
    let (array, checked) = fit::check_array(state, &queue, &options.steps, array).await?;
    if let Err(error) = checked
        && !is_repetition(state, queue.id, once.as_ref()).await?
    {
        measure::refused(state.store.metrics(), queue.id, Refusal::Schema);
        return Err(error);
    }
    let made = changes::submit_array(state, who, queue.id, array, (options, once)).await?;
    let body: Value = json!({ "array": arrays::view(&made.array, None) });
    Ok(json::ok(&body))
}

/// Sees to it that there are all tasks that new ones are to come after, and that who asks may see them: those of other
/// queues are as if there were none.
pub async fn check_upstream(
    state: &State,
    who: &Who,
    queue: QueueId,
    options: &TaskOptions,
) -> Result<(), HttpError> {
    if options.after.is_empty() {
        return Ok(());
    }
    let known = state.store.queues_of_tasks(&options.after).await?;
    let sight = gates::sight(state, who).await?;
    let is_missing = |task: &&TaskId| !known.get(*task).is_some_and(|queue| sight.sees(*queue));
    let missing: Vec<TaskId> = options.after.iter().filter(is_missing).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    measure::refused(state.store.metrics(), queue, Refusal::Invalid);
    Err(HttpError::no_such_tasks(&missing))
}

/// How a value of `params` names a field of the document.
const PLACEHOLDER: &str = "document.";

/// Submits one task for each document of a collection: `document.a.b` in a value of `params` stands for the document's field `a.b`.
pub async fn submit_from_collection(
    state: &State,
    who: &Who,
    queue: &Queue,
    fields: &Map<String, Value>,
    (options, once): (TaskOptions, Option<Once>),
) -> Result<Vec<TaskId>, HttpError> {
    let (filter, pattern, name) = parts_of_source(fields)?;
    let source = TaskSource::named(name).map_err(|error| match error {
        SourceError::Ours(_) => HttpError::forbidden(error.to_string()),
        SourceError::Name(_) => invalid(), // As Perl says it.
    })?;
    check_keys(pattern)?;
    if let Some(hidden) = source.hidden() {
        check_hidden(hidden, &[&fields["filter"], &fields["params"]])?;
    }
    let filter = collection_filter(filter)?;
    let pattern = json::to_document(pattern);
    if let Some(fit) = fit::of(state, queue, &options.steps).await?
        && !is_repetition(state, queue.id, once.as_ref()).await?
    {
        let mut stream = fit::Stream::new(fit);
        let mut checked = Ok(());
        let mut goes_on = |document: &Document| {
            checked = stream.check(&fill(&pattern, document));
            checked.is_ok()
        };
        let looked = state.store.look_at_source(&source, filter.clone(), &mut goes_on).await;
        looked.map_err(HttpError::from_search)?;
        checked.inspect_err(|_| measure::refused(state.store.metrics(), queue.id, Refusal::Schema))?;
    }
    let (store, id) = (state.store.clone(), queue.id);
    let submission = move |options: TaskOptions| async move {
        let params = |document: &Document| fill(&pattern, document);
        let submitted = match &once {
            Some(once) => {
                let from = (&source, filter);
                store.submit_tasks_for_once(id, from, &params, &options, once).await
            }
            None => store.submit_tasks_for(id, &source, filter, &params, &options).await,
        };
        let submitted = submitted.inspect_err(|error| measure::refused_by(store.metrics(), id, error));
        submitted.map_err(|error| match error {
            SubmitError::Store(error) => HttpError::from_search(error),
            other => other.into(), // It says what is wrong with the request.
        })
    };
    send(state, who, queue, (options, Some(name.clone())), submission).await
}

type Fields = Map<String, Value>;

/// Filter, pattern and collection, looked at in Perl's order and refused in its words.
fn parts_of_source(fields: &Fields) -> Result<(&Fields, &Fields, &String), HttpError> {
    let Some(Value::Object(pattern)) = fields.get("params") else { return Err(invalid()) };
    let Some(Value::Object(filter)) = fields.get("filter") else {
        return Err(HttpError::bad_request("'filter' must be a JSON object"));
    };
    match fields.get("collection").filter(|name| legacy::is_true(Some(name))) {
        Some(Value::String(name)) => Ok((filter, pattern, name)),
        _ => Err(HttpError::bad_request("'collection' required and must be a scalar (string)'")),
    }
}

/// What plugins alone are to see is not copied, although it is encrypted, nor looked for.
fn check_hidden(field: &str, given: &[&Value]) -> Result<(), HttpError> {
    if given.iter().any(|value| value.to_string().contains(field)) {
        return Err(HttpError::bad_request(format!("'{field}' of a task is for plugins only")));
    }
    Ok(())
}

fn fill(pattern: &Document, document: &Document) -> Document {
    let value = |value: &Bson| match value.as_str().and_then(|text| text.strip_prefix(PLACEHOLDER)) {
        Some(path) => lookup(document, path),
        None => value.clone(),
    };
    pattern.iter().map(|(key, pattern)| (key.clone(), value(pattern))).collect()
}

fn lookup(document: &Document, path: &str) -> Bson {
    let found = match path.split_once('.') {
        None => document.get(path).cloned(),
        Some((first, rest)) => document.get_document(first).ok().map(|inner| lookup(inner, rest)),
    };
    found.unwrap_or(Bson::Null)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn long_answers_are_the_same_in_parts() {
        let ids: Vec<TaskId> = (0..2_500).map(|_| TaskId(bson::oid::ObjectId::new())).collect();
        let whole = json::compact(&legacy::insert_many_result(&ids));
        let parts: Vec<Bytes> = parts(ids).map(Result::unwrap).collect();
        assert_eq!((parts.len(), String::from_utf8(parts.concat()).unwrap()), (5, whole));
    }

    #[test]
    fn params_are_objects_with_keys() {
        assert_eq!(task_params(json!({"a": 1})).unwrap(), [doc! { "a": 1_i32 }]);
        assert_eq!(task_params(json!([{"a": "x"}, {"$b": [{}]}])).unwrap().len(), 2);
        let message = |value: Value| task_params(value).unwrap_err().to_string();
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

    #[test]
    fn what_tasks_are_made_of_is_refused_in_perls_words() {
        let message = |fields: Value| match parts_of_source(fields.as_object().unwrap()) {
            Ok((_, _, name)) => name.clone(),
            Err(error) => error.to_string(),
        };
        let collection = "'collection' required and must be a scalar (string)'";
        for (fields, words) in [
            (json!({ "collection": "users", "filter": {}, "params": {} }), "users"),
            (json!({ "collection": "", "filter": [], "params": [{}] }), "invalid parameters passed"),
            (json!({ "collection": "", "filter": [], "params": {} }), "'filter' must be a JSON object"),
            (json!({ "collection": "", "filter": {}, "params": {} }), collection),
            (json!({ "collection": ["users"], "filter": {}, "params": {} }), collection),
        ] {
            assert_eq!(message(fields), words);
        }
    }

    #[test]
    fn placeholders_are_filled_from_the_document() {
        let pattern = doc! { "user": "document.username", "lit": "x", "deep": "document.deep.k",
        "missing": "document.nope", "nested": { "b": "document.username" } };
        let document = doc! { "username": "foo", "deep": { "k": 5 } };
        assert_eq!(
            fill(&pattern, &document),
            doc! { "user": "foo", "lit": "x", "deep": 5, "missing": null,
            "nested": { "b": "document.username" } }
        );
    }
}
