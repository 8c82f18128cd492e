//! `disbatch array ..`

mod list;
mod show;
mod strip;

use std::process::ExitCode;

use serde_json::Value;

use crate::api::Client;
use crate::args::{ArrayAct, ArrayCommand, BulkAction, ListingOptions};
use crate::command::life::{carry_out, with_reason};
use crate::output::plain;

/// Does what the command asks for.
///
/// # Errors
/// The DCI refuses it or cannot be reached, or the output cannot be written.
pub async fn run(
    client: &Client,
    command: ArrayCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        ArrayCommand::List(filter) => list::run(client, &filter, listing).await?,
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
    carry_out(client, (&path, body), action, which.detach).await
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
    fn how_an_array_ended_is_in_its_state() {
        assert_eq!(state(&json!({ "state": "open", "succeeded": null })), "open");
        assert_eq!(state(&json!({ "state": "done", "succeeded": true })), "done, all succeeded");
        assert_eq!(state(&json!({ "state": "done", "succeeded": false })), "done, not all succeeded");
    }
}
