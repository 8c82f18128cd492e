//! One task: as it is, its earlier attempts, its output, and waiting for what becomes of it.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use bson::{Bson, Document, doc};
use disbatch_core::model::{Status, TaskId, whole_number};
use disbatch_core::observe::{Observed, Watched};
use disbatch_core::output::StreamName;
use disbatch_wire::bundles::BundleOptions;
use disbatch_wire::search::{OutputOptions, WaitOptions, Waited};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::{Sight, Who};
use crate::api::{Answer, task_actions, tasks};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{Attempt, JSON_OR_PAGE, OneTask, Output, OutputRange, Task, WaitAnswer};
use crate::params::{Lenient, Params};
use crate::query::{self, Shape};
use crate::state::State;
use crate::{bundle, gates, json, legacy, raw, rows, values};

/// One task, also if it is in the archive: JSON over many lines, or a page. The options `.full`, `.terse` and `.epoch` say how it is written;
/// with `.details`, JSON has also how it was run.
#[utoipa::path(
    get, path = "/tasks/{id}", tag = "tasks", operation_id = "getTask",
    params(OneTask),
    responses(
        (status = 200, description = "The task; a page if `Accept` asks for HTML.", body = Task, content_type = JSON_OR_PAGE),
        (status = 404, description = "There is no such task.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, who: Who, id: Path<String>, Lenient(params): Lenient) -> Answer {
    let shape = Shape::of(&params);
    let sight = gates::sight(&state, &who).await?;
    let _turn = state.budget.answers.turn().await?;
    Ok(match look_up(&state, &id).await {
        Ok(task) => json::ok_pretty(&rows::view(&state.store, task, shape, &sight).await?),
        Err(error) => {
            let body = json::pretty(&json!({ "error": error.message() }));
            error.response().content_type(json::CONTENT_TYPE).body(body)
        }
    })
}

/// The task, without the ids of others that who asks may not see.
pub async fn find(state: &State, who: &Who, id: &str) -> Result<Document, HttpError> {
    let mut task = look_up(state, id).await?;
    gates::sight(state, who).await?.conceal(&state.store, &mut task).await?;
    Ok(task)
}

async fn look_up(state: &State, id: &str) -> Result<Document, HttpError> {
    let task_id = task_actions::task_id(id)?;
    let task = state.store.find_task_anywhere(task_id).await?;
    let mut task = task.ok_or_else(|| task_actions::not_found(id))?;
    // Of others it is of no interest, and most have ended well.
    let may_be_aside = !task.contains_key("history") && !task.contains_key("archived");
    let waits = task.get("status").and_then(whole_number).is_some_and(|status| (-7..=0).contains(&status));
    if (may_be_aside || waits)
        && let Some(aside) = state.store.find_aside(task_id).await?
    {
        task.insert("aside", doc! { "at": aside.at, "reason": aside.reason });
    }
    Ok(task)
}

/// The earlier attempts of a task with what came out of each, the first one first. The last attempt is the task
/// itself. The options `.full`, `.terse`, `.epoch` and `.pretty` are those of `GET /tasks`.
#[utoipa::path(
    get, path = "/tasks/{id}/attempts", tag = "tasks", operation_id = "listAttempts",
    params(
        ("id" = String, Path, description = "The task's id."),
        (".full" = Option<bool>, Query, description = "With large output as text."),
        (".terse" = Option<bool>, Query, description = "Without output."),
        (".epoch" = Option<bool>, Query, description = "Times as seconds since 1970."),
        (".pretty" = Option<bool>, Query, description = "Over many lines."),
    ),
    responses((status = 200, description = "The attempts; none if it was tried once.", body = Vec<Attempt>)),
)]
pub async fn attempts(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let attempts = state.store.list_attempts(task_actions::task_id(&id)?).await?;
    if attempts.is_empty() {
        // Tells a task without attempts from one that is not there.
        find(&state, &who, &id).await?;
    }
    let sight = gates::sight(&state, &who).await?;
    let shape = Shape { details: true, ..Shape::of(&params) };
    let mut shown = Vec::new();
    for mut attempt in attempts {
        attempt.remove("_id");
        attempt.remove("task");
        shown.push(rows::view(&state.store, attempt, shape, &sight).await?);
    }
    let shown = Value::Array(shown);
    Ok(json::ok_as(&shown, shape.pretty))
}

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
        (status = 400, description = "An option is wrong."),
        (status = 404, description = "There is no such task, or it was deleted meanwhile."),
    ),
)]
pub async fn wait(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_actions::task_id(&id)?;
    let options = params.options::<WaitOptions>()?;
    let timeout = timeout(&options)?;
    let since = options.since.as_ref();
    if let Some(fields) = query::chosen_fields(options.fields.as_ref())? {
        let sight = gates::sight(&state, &who).await?;
        let since = since.map(|seen| values::text(".since", seen)).transpose()?;
        return wait_for_fields(&state, (task, &fields), since, timeout, &sight).await;
    }
    let wrong = || HttpError::bad_request("'.since' must be an integer");
    let since = since.map(|code| legacy::integer(code).ok_or_else(wrong)).transpose()?;
    let since = since.map(Status::from_code);
    let end = Instant::now() + timeout;
    let mut waiter = state.watch.wait_for(task, &state.store);
    loop {
        waiter.mark();
        let seen = state.store.observe_task(task).await?.ok_or_else(|| task_actions::not_found(&id))?;
        let changed = since.map_or_else(|| seen.task.status.has_ended(), |since| seen.task.status != since);
        let left = end.saturating_duration_since(Instant::now());
        if changed || left.is_zero() || !waiter.change(left).await {
            return json::of(&waited(&seen, changed));
        }
    }
}

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
            now.ok_or_else(|| task_actions::not_found(&task.to_string()))?;
        let changed = since.as_ref() != Some(&chosen.seen);
        let left = end.saturating_duration_since(Instant::now());
        if changed || left.is_zero() || !waiter.change(left).await {
            sight.conceal(&state.store, &mut chosen.fields).await?;
            let mut answer = tasks::view_fields(task, &chosen);
            (answer.changed, answer.ended) = (Some(changed), Some(ended));
            let bytes = |(stream, bytes): (StreamName, u64)| (stream.as_str().to_owned(), bytes);
            answer.live = (!live.is_empty()).then(|| live.into_iter().map(bytes).collect());
            return json::of(&answer);
        }
    }
}

fn timeout(options: &WaitOptions) -> Result<Duration, HttpError> {
    let seconds = options.timeout.unwrap_or(TIMEOUT);
    let seconds = u64::try_from(seconds).ok().filter(|_| seconds <= LONGEST);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| HttpError::bad_request(format!("'.timeout' must be within 0 to {LONGEST} seconds")))
}

fn waited(seen: &Observed, changed: bool) -> Waited {
    let task = &seen.task;
    let mtime = task.mtime.as_ref().unwrap_or(&Bson::Null);
    let progress = seen.progress().map(|progress| json::from_document(progress, Dates::Text));
    Waited {
        id: task.id.to_string(),
        queue: task.queue.to_string(),
        status: task.status.code(),
        word: task.status.word().to_owned(),
        ended: task.status.has_ended(),
        changed,
        progress: progress.map(Value::Object),
        mtime: json::from_bson(mtime, Dates::Text),
    }
}

/// What a task has written to standard output, byte for byte: while it runs, what is there of it so far.
///
/// Of a running task the newest 8 MiB are kept. Where some is missing, a line says `[n bytes not kept]`; there is
/// none in a range, which ends before the gap. The stored output has it all.
///
/// With `.follow`, the answer goes on until the attempt is over. It breaks off if this server stops, and does
/// not honour `Range`.
#[utoipa::path(
    get, path = "/tasks/{id}/stdout", tag = "tasks", operation_id = "getStdout",
    params(("id" = String, Path, description = "The task's id."), OutputOptions, OutputRange),
    responses(Output),
)]
pub async fn stdout(request: HttpRequest, state: Data<State>, id: Path<String>, params: Params) -> Answer {
    raw::respond(&request, state, &id, &params, StreamName::Stdout).await
}

/// What a task has written to standard error, as `GET /tasks/{id}/stdout` has standard output.
#[utoipa::path(
    get, path = "/tasks/{id}/stderr", tag = "tasks", operation_id = "getStderr",
    params(("id" = String, Path, description = "The task's id."), OutputOptions, OutputRange),
    responses(Output),
)]
pub async fn stderr(request: HttpRequest, state: Data<State>, id: Path<String>, params: Params) -> Answer {
    raw::respond(&request, state, &id, &params, StreamName::Stderr).await
}

/// All that is known of an attempt that is over, to run it again elsewhere: a tar archive with `bundle.json`, `stdin.json`, `recording.json` if the
/// attempt was recorded, `stdout` and `stderr`. The schemas of the JSON files are in `contract/bundle.schema.json`. What is secret is not in it.
#[utoipa::path(
    get, path = "/tasks/{id}/bundle", tag = "tasks", operation_id = "getBundle",
    params(("id" = String, Path, description = "The task's id."), BundleOptions),
    responses(
        (status = 200, description = "The archive.", body = String, content_type = "application/x-tar"),
        (status = 400, description = "The option is wrong."),
        (status = 404, description = "There is no such task, or no such attempt."),
        (status = 409, description = "The attempt is not over."),
    ),
)]
pub async fn bundle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let _turn = state.budget.answers.turn().await?;
    let BundleOptions { attempt } = params.options()?;
    bundle::respond(&state, &who, &id, attempt).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_bounded() {
        let with = |seconds: Value| {
            let options = json!({ "timeout": seconds }).as_object().cloned().unwrap();
            let params = Params { options, ..Params::default() };
            params.options::<WaitOptions>().and_then(|options| timeout(&options))
        };
        assert_eq!(timeout(&WaitOptions::default()), Ok(Duration::from_secs(60)));
        assert_eq!(with(json!("0")), Ok(Duration::ZERO));
        assert_eq!(with(json!(600)), Ok(Duration::from_secs(600)));
        for wrong in [json!(-1), json!(601), json!("soon"), json!(i64::MIN)] {
            assert_eq!(with(wrong).unwrap_err().status(), 400);
        }
    }
}
