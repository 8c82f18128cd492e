//! `disbatch array ..`

pub(super) mod show;
mod strip;

use std::process::ExitCode;

use disbatch_values::status::Status;
use disbatch_wire::arrays::Array;
use reqwest::StatusCode;
use serde_json::Value;

use crate::api::{ApiError, Client, query, read};
use crate::args::{ArrayAct, ArrayCommand, ArrayFilter, BulkAction, ListingOptions};
use crate::command::life::{advise, carry_out, with_reason};
use crate::output::{Column, Cut, Table};
use crate::status;

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
) -> Result<Option<Array>, ApiError> {
    if error.status() != Some(StatusCode::NOT_FOUND) {
        return Ok(None);
    }
    match client.get(&format!("/arrays/{id}?.limit=1"), None).await {
        Ok(array) => Ok(read(array).ok()),
        Err(error) if error.status().is_some_and(|status| status.is_client_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an id stands for that is that of an array.
pub(super) fn what(array: &Array) -> String {
    format!("an array of {} tasks", array.count)
}

/// How its tasks have ended: `3 succeeded, 1 failed`; its state where nobody can count them.
pub(super) fn summary(array: &Array) -> String {
    let counts = array.counts.iter().flatten();
    let told = counts.map(|count| format!("{} {}", count.tasks, status::word(count.status)));
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() { state(array) } else { told }
}

/// The status that tells how the whole array has ended: that of its first tasks that did not succeed.
pub(super) fn worst(array: &Array) -> i64 {
    if array.succeeded == Some(true) {
        return Status::Succeeded.code();
    }
    let statuses = array.counts.iter().flatten().map(|count| count.status);
    let bad = statuses.filter(|status| *status != Status::Succeeded.code());
    bad.min_by_key(|status| (*status != Status::Failed.code(), *status)).unwrap_or(Status::Failed.code())
}

/// How many of the tasks have ended: `70 of 100`. Where there are too many to be counted, nobody knows.
fn ended(array: &Array) -> String {
    let done = array.done.map_or_else(|| "?".to_owned(), |done| done.to_string());
    format!("{done} of {}", array.count)
}

/// Whether all have ended, and how.
fn state(Array { state, succeeded, .. }: &Array) -> String {
    match succeeded {
        Some(true) => format!("{state}, all succeeded"),
        Some(false) => format!("{state}, not all succeeded"),
        None => state.clone(),
    }
}

/// The status of an element in a word.
pub(super) fn standing(status: Option<i64>) -> String {
    status.map_or_else(|| "not there".to_owned(), status::word)
}

const TABLE: Table<Array> = Table {
    columns: &[
        Column { title: "ID", cell: |a| a.id.clone(), cut: Cut::Late },
        Column { title: "Queue", cell: |a| a.queue.clone(), cut: Cut::Late },
        Column { title: "Elements", cell: |a| a.items.clone(), cut: Cut::Early },
        Column { title: "Ended", cell: ended, cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Created (UTC)", cell: |a| a.created.clone().unwrap_or_default(), cut: Cut::Never },
    ],
    noun: "arrays",
};

async fn list_arrays(client: &Client, filter: &ArrayFilter, options: &ListingOptions) -> anyhow::Result<()> {
    let arrays = client.get(&address(filter, options.limit), None).await.map_err(advise)?;
    TABLE.print(&arrays, options)
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
    use disbatch_wire::arrays::ArrayCount;
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn an_array_that_cannot_be_counted_has_no_number() {
        assert_eq!(ended(&Array { done: Some(70), count: 100, ..Array::default() }), "70 of 100");
        assert_eq!(ended(&Array { count: 100_000, ..Array::default() }), "? of 100000");
    }

    #[test]
    fn an_array_ends_as_its_tasks_do() {
        let array = |succeeded, counts: &[(i64, i64)]| {
            let count = |&(status, tasks): &(i64, i64)| ArrayCount { status, tasks, ..ArrayCount::default() };
            let counts = Some(counts.iter().map(count).collect());
            Array { state: "done".to_owned(), succeeded: Some(succeeded), counts, ..Array::default() }
        };
        let mixed = array(false, &[(-5, 1), (1, 3), (2, 2)]);
        assert_eq!((summary(&mixed).as_str(), worst(&mixed)), ("1 cancelled, 3 succeeded, 2 failed", 2));
        let good = array(true, &[(1, 3)]);
        assert_eq!((summary(&good).as_str(), worst(&good)), ("3 succeeded", 1));
        let lost = array(false, &[(-6, 1)]);
        assert_eq!(worst(&lost), -6);
        let unknown = Array { counts: None, ..array(false, &[]) };
        assert_eq!((summary(&unknown).as_str(), worst(&unknown)), ("done, not all succeeded", 2));
    }

    #[test]
    fn how_an_array_ended_is_in_its_state() {
        let of =
            |text: &str, succeeded| state(&Array { state: text.to_owned(), succeeded, ..Array::default() });
        assert_eq!(of("open", None), "open");
        assert_eq!(of("done", Some(true)), "done, all succeeded");
        assert_eq!(of("done", Some(false)), "done, not all succeeded");
    }

    #[test]
    fn arrays_are_lines() {
        let array = json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "inserted": 100, "key": "item", "done": 70, "state": "open",
            "succeeded": null, "created": "2026-11-20T08:24:27",
        });
        let text = TABLE.render(&[read(array).unwrap()], Screen::default());
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
