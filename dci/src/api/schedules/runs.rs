//! `GET /schedules/:id/runs`

use actix_web::web::Data;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Moment, Status, whole_number};
use disbatch_core::task::TaskQuery;
use serde_json::{Value, json};

use crate::access::{NamedSchedule, Sight, Who};
use crate::api::Answer;
use crate::json::{self, date_text};
use crate::openapi::{ErrorBody, OfRead, RunsOfSchedule};
use crate::params::Params;
use crate::state::State;
use crate::{gates, schedules, values};

/// So many are told unless asked otherwise.
const USUAL: i64 = 50;

/// The runs of a schedule, the latest first, archived ones among them: its tasks, for which time each is, and what became of it. `.before` goes
/// on behind the last one of an answer, which `next` names.
#[utoipa::path(
    get, path = "/schedules/{id}/runs", tag = "schedules", operation_id = "runsOfSchedule",
    params(
        ("id" = String, Path, description = "Its id, or its name.", example = "nightly"),
        (".limit" = Option<i64>, Query, description = "At most so many, up to 1000; 50 by default."),
        (".before" = Option<String>, Query, description = "Those for times before this: ISO 8601, or seconds since 1970."),
    ),
    responses(
        (status = 200, description = "The runs.", body = RunsOfSchedule),
        (status = 400, description = "A parameter makes no sense.", body = ErrorBody),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    params.only(&[])?;
    let limit = schedules::limit(&params, USUAL)?;
    let before = params.options.get("before").filter(|value| !values::is_unset(value));
    let before = before.map(|value| schedules::moment(".before", value)).transpose()?;
    let schedule = schedules::find(&state, &named).await?;
    let mut time = doc! { "$exists": true };
    time.extend(before.map(|before| ("$lt".to_owned(), Bson::from(before))));
    let mut filter = doc! { "schedule": schedule.id, "scheduled_for": time };
    if let Sight::Only(queues) = gates::sight(&state, &who).await? {
        // It may have had another queue before.
        filter.insert("queue", doc! { "$in": queues.iter().map(|queue| queue.0).collect::<Vec<_>>() });
    }
    let fields = ["queue", "status", "scheduled_for", "started", "mtime", "node", "attempt", "asked_for"];
    let query = TaskQuery {
        filter,
        // One more, to know whether there are others.
        limit: Some(limit.saturating_add(1)),
        projection: Some(fields.iter().map(|field| ((*field).to_owned(), Bson::from(1))).collect()),
        sort: Some(doc! { "scheduled_for": -1 }),
        archive: true,
        ..TaskQuery::default()
    };
    let mut found = state.store.search_tasks(query).await?;
    let is_cut = found.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next = found.last().filter(|_| is_cut).map(|last| time_of(last, "scheduled_for"));
    let runs: Vec<Value> = found.iter().map(run).collect();
    Ok(json::ok(&json!({ "runs": runs, "next": next })))
}

/// A time with its milliseconds, so that it can be given back.
fn time_of(task: &Document, field: &str) -> Value {
    let at = task.get(field).and_then(|value| Moment(value.clone()).get());
    at.and_then(|at| at.try_to_rfc3339_string().ok()).map_or(Value::Null, Value::from)
}

fn run(task: &Document) -> Value {
    let shown = |field: &str| {
        let at = task.get(field).and_then(|value| Moment(value.clone()).get());
        at.and_then(date_text).map_or(Value::Null, Value::from)
    };
    let code = task.get("status").and_then(whole_number);
    let status = code.map(Status::from_code);
    json!({
        "task": task.get_object_id("_id").ok().map(|id| id.to_hex()),
        "for": time_of(task, "scheduled_for"),
        "status": code,
        "word": status.map(Status::word),
        "queue": task.get_object_id("queue").ok().map(|id| id.to_hex()),
        "node": task.get_str("node").ok(),
        "started": shown("started"),
        "ended": if status.is_some_and(Status::has_ended) { shown("mtime") } else { Value::Null },
        "asked_for": task.get_bool("asked_for").unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_run_is_told_with_its_time() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let id = ObjectId::from_bytes([7; 12]);
        let of = |status: i32| {
            run(
                &doc! { "_id": id, "queue": id, "status": status, "scheduled_for": at, "started": at, "mtime": at, "node": "vm" },
            )
        };
        let told = of(1);
        assert_eq!((&told["for"], &told["word"]), (&json!("2026-11-20T08:24:27.344Z"), &json!("succeeded")));
        assert_eq!((&told["ended"], &told["task"]), (&json!("2026-11-20T08:24:27"), &json!(id.to_hex())));
        assert_eq!(of(0)["ended"], Value::Null);
        assert_eq!(run(&doc! { "status": "odd" })["status"], Value::Null);
    }
}
