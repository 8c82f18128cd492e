//! `POST /arrays/:id/rerun`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use bson::{Bson, Document, doc};
use disbatch_core::arrays::{Array, Counts};
use disbatch_core::bulk::{Action, Rerun};
use serde_json::{Value, json};

use super::{act_on, answer};
use crate::access::Who;
use crate::api::{Answer, rerun_task, task_action};
use crate::arrays;
use crate::changes::OfElements;
use crate::error::HttpError;
use crate::openapi::{ArrayJob, ErrorBody, OfWrite, RerunArray};
use crate::params::Params;
use crate::state::State;
use crate::values;

/// Which elements.
const ELEMENTS: [&str; 2] = ["failed", "all"];

/// Runs elements of an array again that have ended, in the background: those without success, or with `elements` all of them. With
/// `downstream`, what comes after them waits for them again, as it does where one task is run again: as soon as all of them are queued. With `params` they
/// have others from now on, save for what each of them is for. Elements that have not ended are left alone. The same request answers with the same job as long as
/// that runs.
#[utoipa::path(
    post, path = "/arrays/{id}/rerun", tag = "arrays", operation_id = "rerunArray",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content((RerunArray = "application/json"), (RerunArray = "application/x-www-form-urlencoded"))),
    responses(
        (status = 202, description = "The id of the bulk job that does it.", body = ArrayJob),
        (status = 303, description = "To the array's page, if `Accept` asks for HTML."),
        (status = 400, description = "A parameter is wrong, or the params do not fit the plugin's schema.", body = ErrorBody),
        (status = 404, description = "There is no such array.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "There is no element to do that to; another job tries elements again; or some that come after them run or are about to \
                (`tasks` has their ids, ten at most), or are too many.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Params,
) -> Answer {
    answer(&request, &id, begin(&state, &who, &id, &params).await)
}

/// Returns the id of the job, and how many elements are left alone.
async fn begin(state: &State, who: &Who, id: &str, params: &Params) -> Result<Value, HttpError> {
    let reason = task_action::reason_beside(params, &["downstream", "elements", "params"])?;
    let downstream = rerun_task::downstream(params)?;
    let given = |name: &str| params.fields.get(name).filter(|value| !values::is_unset(value));
    let which = given("elements").map(|word| values::word("elements", word, &ELEMENTS)).transpose()?;
    let succeeded = which == Some("all");
    let array = arrays::find(state, id).await?;
    let with = match given("params") {
        Some(value) => Some(new_params(state, &array, value).await?),
        None => None,
    };
    let mut what = OfElements { action: Action::Retry, reason, succeeded, rerun: None };
    let filter = what.filter(&array);
    let again = filter.query(Action::Retry, "$$NOW".into());
    let plan = state.store.plan_array_rerun(&array, again, downstream).await?;
    let queues = rerun_task::check(state, who, &plan).await?;
    let rerun = Rerun { downstream, queues, params: with };
    let counts = state.store.count_elements(&[array.id]).await?;
    let live = |counts: &Counts| counts.values().sum::<i64>() - arrays::ended(counts);
    let left = counts.map(|counts| counts.get(&array.id).map_or(0, live));
    if let Some(job) = state.store.find_bulk_of_array(array.id).await? {
        if job.filter == filter.document() && job.rerun.as_ref().is_some_and(|own| is_like(own, &rerun)) {
            return Ok(json!({ "id": job.id.to_hex(), "left": left }));
        }
        let why = format!("the bulk job {} is still at trying elements again", job.id);
        return Err(HttpError::conflict(why));
    }
    what.rerun = Some(rerun);
    let job = act_on(state, who, array, what).await?;
    Ok(json!({ "id": job, "left": left }))
}

/// Which queues have something to be reset changes while that goes on.
fn is_like(one: &Rerun, other: &Rerun) -> bool {
    (one.downstream, &one.params) == (other.downstream, &other.params)
}

/// Other parameters for elements, as those of one of them are checked: but for what each is for they have the same.
async fn new_params(state: &State, array: &Array, value: &Value) -> Result<(String, Document), HttpError> {
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
    let mut params = rerun_task::new_params(state, &task, &params).await?;
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
