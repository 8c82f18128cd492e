//! Arrays: many tasks that were submitted as one.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::{Bson, Document, doc};
use disbatch_core::arrays::{Array, Counts};
use disbatch_core::bulk::{Action, Rerun};
use disbatch_core::model::whole_number;
use disbatch_wire::arrays::{self as wire, ArrayJob, ArraySearch, ElementRange, RerunArray};
use disbatch_wire::liberal::Set;
use disbatch_wire::task_actions::Reason;
use serde_json::Value;

use super::{Answer, redirect, task_actions};
use crate::access::Who;
use crate::changes::OfElements;
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::{accept, arrays, changes, json, values};

/// The id of the job, for browsers the page of the array.
fn answer(request: &HttpRequest, id: &str, done: Result<ArrayJob, HttpError>) -> Answer {
    if accept::wants_html(request) {
        return redirect::lead(done, &format!("/arrays/{id}"));
    }
    let job = done?;
    Ok(json::made(StatusCode::ACCEPTED, &format!("/bulk/{}", job.id), &json::value_of(&job)?))
}

async fn begin(
    state: &State,
    who: &Who,
    (id, params): (&str, &Params),
    action: Action,
) -> Result<ArrayJob, HttpError> {
    let Reason { reason } = params.given()?;
    let array = arrays::find(state, id).await?;
    let what = OfElements { action, reason: reason.text(), succeeded: false, rerun: None };
    Ok(ArrayJob { id: act_on(state, who, array, what).await?, left: None })
}

/// Returns the id of the job.
async fn act_on(state: &State, who: &Who, array: Array, what: OfElements) -> Result<String, HttpError> {
    let action = what.action;
    let job = Box::pin(changes::act_on_array(state, who, array, what)).await?;
    let nothing = || HttpError::conflict(format!("the array has no element to {}", action.as_str()));
    Ok(job.ok_or_else(nothing)?.to_hex())
}

/// The arrays of all queues that the client may see, the latest first.
#[utoipa::path(
    get, path = "/arrays", tag = "arrays", operation_id = "listArrays",
    params(ArraySearch),
    responses(
        (status = 200, description = "The arrays; a page if `Accept` asks for HTML.", body = Vec<wire::Array>, content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter is wrong."),
    ),
)]
pub async fn list(state: Data<State>, who: Who, params: Params) -> Answer {
    let (filter, limit) = arrays::filter(&state, &who, &params).await?;
    let found = state.store.list_arrays(&filter, limit).await?;
    json::of(&found.iter().map(|(array, counts)| arrays::view(array, counts.as_ref())).collect::<Vec<_>>())
}

/// One array: how many of its elements are in which status, the task that comes after them, and some of its elements.
#[utoipa::path(
    get, path = "/arrays/{id}", tag = "arrays", operation_id = "getArray",
    params(ElementRange),
    responses(
        (status = 200, description = "The array; a page if `Accept` asks for HTML.", body = wire::Array, content_type = JSON_OR_PAGE),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn get(state: Data<State>, id: Path<String>, params: Params) -> Answer {
    let (from, limit) = arrays::extent(&params)?;
    let array = arrays::find(&state, &id).await?;
    let only = [array.id];
    let counting = state.store.count_elements(&only);
    let (mut counted, elements) =
        futures::try_join!(counting, state.store.array_elements(&array, from, limit))?;
    let counts = counted.as_mut().map(|all| all.remove(&array.id).unwrap_or_default());
    let mut view = arrays::view(&array, counts.as_ref());
    if let (Some((id, _)), Some(last)) = (array.last, &mut view.r#final) {
        let task = state.store.find_task_fields(id, doc! { "status": 1 }).await?;
        last.status = Some(task.as_ref().and_then(|task| task.get("status")).and_then(whole_number));
    }
    view.elements = Some(elements.iter().map(arrays::of_element).collect());
    json::of(&view)
}

/// Cancels an array, in the background: elements that wait are cancelled, those that run are asked to end. The task that
/// comes after them is cancelled, too, unless it was to start however they end.
#[utoipa::path(
    post, path = "/arrays/{id}/cancel", tag = "arrays", operation_id = "cancelArray",
    request_body(content = Reason, content_type = JSON_OR_FORM),
    responses(
        (status = 202, description = "The id of the bulk job that does it.", body = ArrayJob),
        (status = 303, description = "To the array's page, if `Accept` asks for HTML."),
        (status = 409, description = "There is no element to do that to."),
    ),
)]
pub async fn cancel(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Params,
) -> Answer {
    answer(&request, &id, begin(&state, &who, (&id, &params), Action::Cancel).await)
}

/// Tries those elements of an array again, in the background, that have ended without success. The array is open
/// again. A task that was cancelled because they had failed comes after them once more.
#[utoipa::path(
    post, path = "/arrays/{id}/retry", tag = "arrays", operation_id = "retryArray",
    request_body(content = Reason, content_type = JSON_OR_FORM),
    responses(
        (status = 202, description = "The id of the bulk job that does it.", body = ArrayJob),
        (status = 303, description = "To the array's page, if `Accept` asks for HTML."),
        (status = 409, description = "There is no element to do that to."),
    ),
)]
pub async fn retry(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Params,
) -> Answer {
    answer(&request, &id, begin(&state, &who, (&id, &params), Action::Retry).await)
}

const ELEMENTS: [&str; 2] = ["failed", "all"];

/// Runs elements of an array again that have ended, in the background: those without success, or with `elements` all of them. With
/// `downstream`, what comes after them waits for them again, as it does where one task is run again: as soon as all of them are queued. With `params` they
/// have others from now on, save for what each of them is for. Elements that have not ended are left alone. The same request answers with the same job as long as
/// that runs.
#[utoipa::path(
    post, path = "/arrays/{id}/rerun", tag = "arrays", operation_id = "rerunArray",
    request_body(content = RerunArray, content_type = JSON_OR_FORM),
    responses(
        (status = 202, description = "The id of the bulk job that does it.", body = ArrayJob),
        (status = 303, description = "To the array's page, if `Accept` asks for HTML."),
        (status = 400, description = "A parameter is wrong, or the params do not fit the plugin's schema."),
        (status = 409, description = "There is no element to do that to; another job tries elements again; or some that come after them \
            run or are about to (`tasks` has their ids, ten at most), or are too many."),
    ),
)]
pub async fn rerun(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Params,
) -> Answer {
    answer(&request, &id, begin_rerun(&state, &who, &id, &params).await)
}

async fn begin_rerun(state: &State, who: &Who, id: &str, params: &Params) -> Result<ArrayJob, HttpError> {
    let RerunArray { elements: Set(which), downstream, params: Set(with), reason } = params.given()?;
    let downstream = task_actions::downstream(downstream)?;
    let which = which.map(|word| values::word("elements", &word, &ELEMENTS)).transpose()?;
    let succeeded = which == Some("all");
    let array = arrays::find(state, id).await?;
    let with = match &with {
        Some(value) => Some(new_params(state, who, &array, value).await?),
        None => None,
    };
    let mut what = OfElements { action: Action::Retry, reason: reason.text(), succeeded, rerun: None };
    let filter = what.filter(&array);
    let again = filter.query(Action::Retry, "$$NOW".into());
    let plan = state.store.plan_array_rerun(&array, again, downstream).await?;
    let queues = task_actions::check(state, who, &plan).await?;
    let rerun = Rerun { downstream, queues, params: with };
    let counts = state.store.count_elements(&[array.id]).await?;
    let live = |counts: &Counts| counts.values().sum::<i64>() - arrays::ended(counts);
    let left = Some(counts.map(|counts| counts.get(&array.id).map_or(0, live)));
    if let Some(job) = state.store.find_bulk_of_array(array.id).await? {
        if job.filter == filter.document() && job.rerun.as_ref().is_some_and(|own| is_like(own, &rerun)) {
            return Ok(ArrayJob { id: job.id.to_hex(), left });
        }
        let why = format!("the bulk job {} is still at trying elements again", job.id);
        return Err(HttpError::conflict(why));
    }
    what.rerun = Some(rerun);
    Ok(ArrayJob { id: act_on(state, who, array, what).await?, left })
}

/// Which queues have something to be reset changes while that goes on.
fn is_like(one: &Rerun, other: &Rerun) -> bool {
    (one.downstream, &one.params) == (other.downstream, &other.params)
}

/// Other parameters for elements, as those of one of them are checked: but for what each is for they have the same.
async fn new_params(
    state: &State,
    who: &Who,
    array: &Array,
    value: &Value,
) -> Result<(String, Document), HttpError> {
    let nothing = || HttpError::conflict("the array has no element to retry");
    let first = state.store.array_elements(array, 0, 1).await?.into_iter().next().ok_or_else(nothing)?;
    let task = state.store.find_task(first.id).await?.ok_or_else(nothing)?;
    let mut params = values::object(value).into_owned();
    if let Value::Object(params) = &mut params {
        if params.contains_key(&array.key) {
            let why =
                format!("params must not have '{}': what each element is for stays what it is", array.key);
            return Err(HttpError::bad_request(why));
        }
        let item = first.value.unwrap_or(Bson::Null).into_relaxed_extjson();
        params.insert(array.key.clone(), item);
    }
    let mut params = task_actions::new_params(state, who, &task, &params).await?;
    params.remove(&array.key);
    Ok((array.key.clone(), params))
}

#[cfg(test)]
mod tests {
    use disbatch_core::task::rerun::Downstream;

    use super::*;

    #[test]
    fn the_same_again_is_told_by_what_is_wanted() {
        let of = |downstream, params| Rerun { downstream, params, queues: vec![] };
        let with = || Some(("item".to_owned(), doc! { "a": 1 }));
        assert!(is_like(&of(Downstream::All, with()), &of(Downstream::All, with())));
        assert!(!is_like(&of(Downstream::All, with()), &of(Downstream::All, None)));
        assert!(!is_like(&of(Downstream::All, None), &of(Downstream::Failed, None)));
    }
}
