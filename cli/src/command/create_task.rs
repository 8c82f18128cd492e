//! `disbatch create-task QUEUE PARAM VALUE ..`

use serde_json::json;

use crate::api::Client;
use crate::command::{create_tasks, pairs, required};

/// Creates one task, whose parameters all are text.
///
/// # Errors
/// No queue is given, the words are no pairs, the DCI refuses the task, or it cannot be reached.
pub async fn run(client: &Client, queue: Option<String>, params: Vec<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let params = pairs(params)?;
    create_tasks::submit(client, &queue, &json!({ "queue": queue, "params": params })).await
}
