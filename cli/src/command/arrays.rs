//! `disbatch array ..`

pub(super) mod show;
mod strip;

use std::process::ExitCode;

use disbatch_values::status::Status;
use reqwest::StatusCode;
use serde_json::Value;

use crate::api::{ApiError, Client, query};
use crate::args::{ArrayAct, ArrayCommand, ArrayFilter, BulkAction, ListingOptions};
use crate::command::life::{advise, carry_out, with_reason};
use crate::output::{Column, Cut, Screen, Table, list, plain, print};
use crate::status;

/// Does what the command asks for.
pub async fn run(
    client: &Client,
    command: ArrayCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        ArrayCommand::List(filter) => list_arrays(client, &filter, listing).await?,
        ArrayCommand::Show(shown) => show::run(client, &shown, listing).await?,
        ArrayCommand::Cancel(which) => return act(client, BulkAction::Cancel, &which).await,
        ArrayCommand::Retry(which) => return act(client, BulkAction::Retry, &which).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Has a bulk job do something with the tasks of an array.
async fn act(client: &Client, action: BulkAction, which: &ArrayAct) -> anyhow::Result<ExitCode> {
    let path = format!("/arrays/{}/{}", which.id, action.name());
    let body = with_reason(which.reason.as_deref());
    carry_out(client, (&path, Value::Object(body)), action, which.detach).await
}

/// The array with this id, where `error` says that there is no task with it. `None`: there is no such array, either.
pub(super) async fn in_place_of_task(
    client: &Client,
    id: &str,
    error: &ApiError,
) -> Result<Option<Value>, ApiError> {
    if error.status() != Some(StatusCode::NOT_FOUND) {
        return Ok(None);
    }
    match client.get(&format!("/arrays/{id}?.limit=1"), None).await {
        Ok(array) => Ok(Some(array)),
        Err(error) if error.status().is_some_and(|status| status.is_client_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an id stands for that is that of an array.
pub(super) fn what(array: &Value) -> String {
    format!("an array of {} tasks", plain(array.get("count")))
}

/// How its tasks have ended: `3 succeeded, 1 failed`; its state where nobody can count them.
pub(super) fn summary(array: &Value) -> String {
    let counts = array.get("counts").and_then(Value::as_array);
    let told = counts
        .into_iter()
        .flatten()
        .map(|count| format!("{} {}", plain(count.get("tasks")), status::of(count)));
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() { state(array) } else { told }
}

/// The status that tells how the whole array has ended: that of its first tasks that did not succeed.
pub(super) fn worst(array: &Value) -> i64 {
    if array.get("succeeded").and_then(Value::as_bool) == Some(true) {
        return Status::Succeeded.code();
    }
    let counts = array.get("counts").and_then(Value::as_array).into_iter().flatten();
    let statuses = counts.filter_map(|count| count.get("status").and_then(Value::as_i64));
    let mut bad: Vec<i64> = statuses.filter(|status| *status != Status::Succeeded.code()).collect();
    bad.sort_unstable_by_key(|status| (*status != Status::Failed.code(), *status));
    bad.first().copied().unwrap_or(Status::Failed.code())
}

/// How many of the tasks have ended: `70 of 100`. Where there are too many to be counted, nobody knows.
fn ended(array: &Value) -> String {
    let done = Some(plain(array.get("done"))).filter(|done| !done.is_empty());
    format!("{} of {}", done.as_deref().unwrap_or("?"), plain(array.get("count")))
}

/// Whether all have ended, and how.
fn state(array: &Value) -> String {
    let state = plain(array.get("state"));
    match array.get("succeeded").and_then(Value::as_bool) {
        Some(true) => format!("{state}, all succeeded"),
        Some(false) => format!("{state}, not all succeeded"),
        None => state,
    }
}

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |array| plain(array.get("id")), cut: Cut::Late },
        Column { title: "Queue", cell: |array| plain(array.get("queue")), cut: Cut::Late },
        Column { title: "Elements", cell: |array| plain(array.get("items")), cut: Cut::Early },
        Column { title: "Ended", cell: ended, cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Created (UTC)", cell: |array| plain(array.get("created")), cut: Cut::Never },
    ],
    noun: "arrays",
};

/// Prints the arrays that there are.
async fn list_arrays(client: &Client, filter: &ArrayFilter, options: &ListingOptions) -> anyhow::Result<()> {
    let arrays = client.get(&address(filter, options.limit), None).await.map_err(advise)?;
    print(&list(&arrays, options, |arrays| TABLE.render(arrays, Screen::of_stdout()))?)
}

fn address(filter: &ArrayFilter, limit: Option<i64>) -> String {
    let pairs = [
        ("queue", filter.queue.clone()),
        ("state", filter.state.clone()),
        (".before", filter.before.clone()),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/arrays{}", query(pairs))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_array_that_cannot_be_counted_has_no_number() {
        assert_eq!(ended(&json!({ "done": 70, "count": 100 })), "70 of 100");
        assert_eq!(ended(&json!({ "done": null, "count": 100_000 })), "? of 100000");
    }

    #[test]
    fn an_array_ends_as_its_tasks_do() {
        let array = |succeeded: Value, counts: Value| json!({ "state": "done", "succeeded": succeeded, "counts": counts });
        let mixed = array(
            json!(false),
            json!([{ "status": -5, "tasks": 1 }, { "status": 1, "tasks": 3 }, { "status": 2, "tasks": 2 }]),
        );
        assert_eq!((summary(&mixed).as_str(), worst(&mixed)), ("1 cancelled, 3 succeeded, 2 failed", 2));
        let good = array(json!(true), json!([{ "status": 1, "tasks": 3 }]));
        assert_eq!((summary(&good).as_str(), worst(&good)), ("3 succeeded", 1));
        let lost = array(json!(false), json!([{ "status": -6, "tasks": 1 }]));
        assert_eq!(worst(&lost), -6);
        let unknown = array(json!(false), Value::Null);
        assert_eq!((summary(&unknown).as_str(), worst(&unknown)), ("done, not all succeeded", 2));
    }

    #[test]
    fn how_an_array_ended_is_in_its_state() {
        assert_eq!(state(&json!({ "state": "open", "succeeded": null })), "open");
        assert_eq!(state(&json!({ "state": "done", "succeeded": true })), "done, all succeeded");
        assert_eq!(state(&json!({ "state": "done", "succeeded": false })), "done, not all succeeded");
    }

    #[test]
    fn arrays_are_lines() {
        let array = json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "done": 70, "state": "open", "succeeded": null,
            "created": "2026-11-20T08:24:27",
        });
        let text = TABLE.render(&[array], Screen::default());
        let line = "6b | 7c    | 0-99     | 70 of 100 | open  | 2026-11-20T08:24:27 | \n";
        assert!(text.contains(line) && text.ends_with("\n1 total arrays.\n"), "{text}");
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address() {
        assert_eq!(address(&ArrayFilter::default(), None), "/arrays");
        let filter =
            ArrayFilter { queue: Some("a b".into()), state: Some("open".into()), before: Some("6b".into()) };
        assert_eq!(address(&filter, Some(5)), "/arrays?queue=a%20b&state=open&.before=6b&.limit=5");
    }
}
