//! The commands about a task's life, and those that steer queues and nodes.

mod act;
mod batch;
mod bulk;
mod bundle;
pub(super) mod connection;
mod events;
mod follow;
mod groups;
mod history;
mod locks;
mod run;
mod shadow;
mod show;
pub(super) mod steer;
mod wait;

use std::process::ExitCode;

use anyhow::anyhow;
use reqwest::StatusCode;
use serde_json::{Map, Value};

use crate::api::{ApiError, Client};
use crate::args::{BulkAction, LifeCommand, ListingOptions};
use crate::command::admission;
use act::Act;
pub(super) use bulk::{agreed, carry_out};

pub async fn run(
    client: &Client,
    command: LifeCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        LifeCommand::Run(options) => return run::run(client, *options).await,
        LifeCommand::Wait(options) => return wait::run(client, &options).await,
        LifeCommand::Logs(options) => follow::logs(client, &options).await?,
        LifeCommand::Bundle(options) => bundle::run(client, &options).await?,
        LifeCommand::Cancel(tasks) => return act::run(client, Act::Cancel, &tasks).await,
        LifeCommand::Retry(tasks) => return act::run(client, Act::Retry, &tasks).await,
        LifeCommand::Rerun(options) => return act::rerun(client, &options).await,
        LifeCommand::Answer(options) => act::answer(client, &options).await?,
        LifeCommand::Explain(which) => show::explain(client, &which, listing).await?,
        LifeCommand::Show(task) => show::run(client, &task.id, listing).await?,
        LifeCommand::Attempts(task) => history::attempts(client, &task.id, listing).await?,
        LifeCommand::History(task) => history::statuses(client, &task.id, listing).await?,
        LifeCommand::Bulk(options) => return bulk::run(client, options.action, &options.which).await,
        LifeCommand::Archive(options) if options.ids.is_empty() => {
            return bulk::run(client, BulkAction::Archive, &options.which).await;
        }
        LifeCommand::Archive(options) => return act::archive(client, &options.ids).await,
        LifeCommand::Events(options) => events::run(client, &options, listing).await?,
        LifeCommand::Locks(options) => locks::run(client, &options, listing).await?,
        LifeCommand::Graph(options) => locks::graph(client, &options, listing).await?,
        LifeCommand::Audit(options) => history::audit(client, *options, listing).await?,
        LifeCommand::Batch(options) => return batch::run(client, &options.file, listing).await,
        LifeCommand::SetTask(options) => return steer::set_task(client, &options).await,
        LifeCommand::BulkJobs { cancel } => bulk::jobs(client, cancel, listing).await?,
        LifeCommand::Pause(which) => steer::pause(client, &which).await?,
        LifeCommand::Resume(which) => steer::resume(client, &which.queue).await?,
        LifeCommand::Close(which) => steer::close(client, &which).await?,
        LifeCommand::Open(which) => steer::open(client, &which.queue).await?,
        LifeCommand::SetQueue { queue, fields } => steer::set_queue(client, &queue, &fields).await?,
        LifeCommand::Groups(options) => groups::run(client, &options, listing).await?,
        LifeCommand::At(options) => history::at(client, &options, listing).await?,
        LifeCommand::Shadow(options) => shadow::run(client, &options, listing).await?,
        LifeCommand::Drain(options) => admission::drain(client, &options).await?,
        LifeCommand::Undrain(what) => admission::undrain(client, &what).await?,
        LifeCommand::Admission => admission::run(client, listing).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong in the DCI's words, and what to do about it.
pub(super) fn advise(error: ApiError) -> anyhow::Error {
    let reason = error.reason();
    match error.status() {
        Some(StatusCode::NOT_FOUND) if reason.starts_with("nothing is at") => {
            anyhow!("{reason}: the DCI is older than this command")
        }
        // Neither a password nor a server that is away is the matter.
        Some(_) if error.is_about_tasks() => anyhow!("{reason}"),
        // The error itself says what to do.
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) => {
            error.into()
        }
        Some(status) if status.is_client_error() => anyhow!("{reason}"),
        _ => error.into(), // The address is what matters.
    }
}

/// A task with all that is known of it.
async fn details(client: &Client, id: &str) -> Result<Value, ApiError> {
    client.get(&format!("/tasks/{id}?.details=1"), None).await
}

/// A body that has `reason` if there is one.
pub(super) fn with_reason(reason: Option<&str>) -> Map<String, Value> {
    reason.map(|text| ("reason".to_owned(), text.into())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CredentialKind;

    fn refused(status: u16, body: &str) -> ApiError {
        let (status, shown) = (StatusCode::from_u16(status).unwrap(), CredentialKind::Nothing);
        ApiError::Refused { action: "getting", url: "http://h/x".into(), status, body: body.into(), shown }
    }

    #[test]
    fn errors_say_what_to_do() {
        for (error, text) in [
            (refused(409, r#"{"error":"the task has ended"}"#), "the task has ended"),
            (refused(400, r#"{"error":"unknown param","param":"a"}"#), "unknown param 'a'"),
            (refused(404, r#"{"error":"nothing is at /x"}"#), "older than this command"),
            (refused(401, "no"), "Give --token"),
            (refused(403, r#"{"error":"this needs the role operator"}"#), "disbatch user grant"),
            (refused(429, r#"{"error":"wait 3 s"}"#), "wait 3 s\"}\nPasswords"),
            (refused(500, r#"{"error":"internal"}"#), "Error getting http://h/x (500"),
        ] {
            assert!(advise(error).to_string().contains(text), "{text}");
        }
    }
}
