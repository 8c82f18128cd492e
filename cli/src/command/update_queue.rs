//! `disbatch update-queue QUEUE FIELD VALUE ..`

use crate::api::{Client, segment};
use crate::command::{pairs, required};
use crate::output::print;

/// Changes fields of a queue. They travel as a form, so that every value is text.
pub async fn run(client: &Client, queue: Option<String>, fields: Vec<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let fields = pairs(fields)?;
    client.post_form(&format!("/queues/{}", segment(&queue)), &fields).await?;
    print(&format!("Updated queue {queue}: {}\n", serde_json::to_string(&fields)?))
}
