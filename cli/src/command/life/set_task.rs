//! `disbatch set-task ID .. --priority N`

use std::process::ExitCode;

use crate::api::Client;
use crate::args::SetTaskOptions;
use crate::command::life::act::each;
use crate::command::life::with_reason;

/// Gives tasks that wait another priority, one after the other.
pub async fn run(client: &Client, options: &SetTaskOptions) -> anyhow::Result<ExitCode> {
    let mut body = with_reason(options.reason.as_deref());
    body.insert("priority".to_owned(), options.priority.into());
    let body = serde_json::Value::Object(body);
    each(&options.ids, async |id| {
        client.post(&format!("/tasks/{id}/priority"), &body).await?;
        Ok(format!("has the priority {}", options.priority))
    })
    .await
}
