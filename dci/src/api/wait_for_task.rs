//! `GET /tasks/:id/wait`

use std::time::Duration;

use actix_web::web::{Data, Path};
use bson::{Bson, Document};
use disbatch_core::model::{Status, TaskId};
use disbatch_core::observe::{Observed, Watched};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::{Sight, Who};
use crate::api::{Answer, query_tasks, task_action};
use crate::error::HttpError;
use crate::gates;
use crate::json::{self, Dates};
use crate::openapi::{ErrorBody, OfSearch, WaitAnswer, WaitOptions};
use crate::params::Params;
use crate::query::field_list;
use crate::state::State;
use crate::values;

/// Seconds to wait unless asked otherwise.
const TIMEOUT: i64 = 60;

/// The most seconds to wait.
const LONGEST: i64 = 600;

/// Waits until a task has ended, or with `.since` until its status is another one, and tells where it stands.
///
/// With `.fields`: waits until one of these fields is not what it was when `.since` was told as `seen`, here or by
/// `GET /tasks/query` with the same fields, and tells the fields and the next `seen`. No change in between is missed; of several
/// the last one is told. Without `.since` the answer comes at once. With `stdout` or `stderr` among the fields, output that comes
/// while the task runs is a change, too: `live` tells how many bytes there are, which `GET /tasks/{id}/stdout` has.
///
/// The answer comes at the timeout at the latest; `changed` tells whether what was waited for has happened. It may
/// come earlier if this server stops.
#[utoipa::path(
    get, path = "/tasks/{id}/wait", tag = "tasks", operation_id = "waitForTask",
    params(("id" = String, Path, description = "The task's id."), WaitOptions),
    responses(
        (status = 200, description = "Where it stands, or with `.fields` these.", body = WaitAnswer),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task, or it was deleted meanwhile.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let not_found = || HttpError::not_found(format!("no task with id {id}"));
    let task: TaskId = id.parse().map_err(|_| not_found())?;
    let timeout = timeout(&params)?;
    if let Some(fields) = field_list::chosen(&params)? {
        let sight = gates::sight(&state, &who).await?;
        return wait_for_fields(&state, (task, &fields), since(&params)?, timeout, &sight).await;
    }
    let since = params.integer("since")?.map(Status::from_code);
    let end = Instant::now() + timeout;
    let mut waiter = state.watch.wait_for(task, &state.store);
    loop {
        waiter.mark();
        let seen = state.store.observe_task(task).await?.ok_or_else(not_found)?;
        let changed = since.map_or_else(|| seen.task.status.has_ended(), |since| seen.task.status != since);
        let left = end.saturating_duration_since(Instant::now());
        if changed || left.is_zero() || !waiter.change(left).await {
            return Ok(json::ok(&waited(&seen, changed)));
        }
    }
}

/// Waits until fields of a task are not what they were.
async fn wait_for_fields(
    state: &State,
    (task, fields): (TaskId, &Document),
    since: Option<String>,
    timeout: Duration,
    sight: &Sight,
) -> Answer {
    let end = Instant::now() + timeout;
    let mut waiter = state.watch.wait_for(task, &state.store);
    loop {
        waiter.mark();
        let now = state.store.watch_fields(task, fields).await.map_err(HttpError::from_search)?;
        let Watched { mut chosen, ended, live } =
            now.ok_or_else(|| task_action::not_found(&task.to_string()))?;
        let changed = since.as_ref() != Some(&chosen.seen);
        let left = end.saturating_duration_since(Instant::now());
        if changed || left.is_zero() || !waiter.change(left).await {
            sight.conceal(&state.store, &mut chosen.fields).await?;
            let mut answer = query_tasks::view(task, &chosen);
            answer["changed"] = changed.into();
            answer["ended"] = ended.into();
            if !live.is_empty() {
                let live = live.into_iter().map(|(stream, bytes)| (stream.as_str().to_owned(), bytes.into()));
                answer["live"] = Value::Object(live.collect());
            }
            return Ok(json::ok(&answer));
        }
    }
}

/// What fields were when they were last seen.
fn since(params: &Params) -> Result<Option<String>, HttpError> {
    let given = params.options.get("since").filter(|value| !values::is_unset(value));
    Ok(given.map(|value| values::text(".since", value)).transpose()?)
}

fn timeout(params: &Params) -> Result<Duration, HttpError> {
    let seconds = params.integer("timeout")?.unwrap_or(TIMEOUT);
    let seconds = u64::try_from(seconds).ok().filter(|_| seconds <= LONGEST);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| HttpError::bad_request(format!("'.timeout' must be within 0 to {LONGEST} seconds")))
}

fn waited(seen: &Observed, changed: bool) -> Value {
    let task = &seen.task;
    let mtime = task.mtime.as_ref().map_or(&Bson::Null, |mtime| &mtime.0);
    json!({
        "id": task.id.to_string(),
        "queue": task.queue.to_string(),
        "status": task.status.code(),
        "word": task.status.word(),
        "ended": task.status.has_ended(),
        "changed": changed,
        "progress": seen.progress().map(|progress| json::from_document(progress, Dates::Text)),
        "mtime": json::from_bson(mtime, Dates::Text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_bounded() {
        let with = |seconds: Value| {
            let options = json!({ "timeout": seconds }).as_object().cloned().unwrap();
            timeout(&Params { options, ..Params::default() })
        };
        assert_eq!(timeout(&Params::default()), Ok(Duration::from_secs(60)));
        assert_eq!(with(json!("0")), Ok(Duration::ZERO));
        assert_eq!(with(json!(600)), Ok(Duration::from_secs(600)));
        for wrong in [json!(-1), json!(601), json!("soon"), json!(i64::MIN)] {
            assert_eq!(with(wrong).unwrap_err().status(), 400);
        }
    }
}
