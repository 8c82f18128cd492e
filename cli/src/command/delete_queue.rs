//! `disbatch delete-queue QUEUE`

use crate::api::{Client, segment};
use crate::command::required;
use crate::output::print;

/// Deletes a queue.
pub async fn run(client: &Client, queue: Option<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    client.delete(&format!("/queues/{}", segment(&queue))).await?;
    print(&format!("Deleted queue {queue}\n"))
}
