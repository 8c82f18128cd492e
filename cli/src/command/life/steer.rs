//! `disbatch pause`, `resume`, `close`, `open`, `drain` and `undrain`

use serde_json::{Value, json};

use crate::api::{Client, segment};
use crate::args::QueueAndReason;
use crate::command::life::advise;
use crate::output::print;

/// Lets none of a queue's tasks start.
pub async fn pause(client: &Client, which: &QueueAndReason) -> anyhow::Result<()> {
    // Without a reason, the one of an earlier time is taken away.
    set(client, &which.queue, &json!({ "paused": true, "reason": which.reason })).await?;
    print(&format!("Paused queue {}: none of its tasks is started; what runs goes on\n", which.queue))
}

/// Lets a queue's tasks start again.
pub async fn resume(client: &Client, queue: &str) -> anyhow::Result<()> {
    set(client, queue, &json!({ "paused": false })).await?;
    print(&format!("Resumed queue {queue}\n"))
}

/// Lets a queue accept no new tasks.
pub async fn close(client: &Client, which: &QueueAndReason) -> anyhow::Result<()> {
    set(client, &which.queue, &json!({ "accepting": false, "reason": which.reason })).await?;
    print(&format!("Closed queue {}: it accepts no new tasks; those that it has are run\n", which.queue))
}

/// Lets a queue accept new tasks again.
pub async fn open(client: &Client, queue: &str) -> anyhow::Result<()> {
    set(client, queue, &json!({ "accepting": true })).await?;
    print(&format!("Opened queue {queue}\n"))
}

/// Lets a node claim no more tasks. `interrupt`: what runs there goes on elsewhere, where its plugin can.
pub async fn drain(client: &Client, node: &str, interrupt: bool) -> anyhow::Result<()> {
    let mut change = json!({ "draining": true });
    if interrupt {
        change["interrupt"] = true.into();
    }
    set_node(client, node, &change).await?;
    let running = match interrupt {
        true => "what runs on it goes on elsewhere if its plugin can be interrupted, and here otherwise",
        false => "what runs on it goes on",
    };
    print(&format!("Node {node} claims no more tasks; {running}\n"))
}

/// Lets a node claim tasks again.
pub async fn undrain(client: &Client, node: &str) -> anyhow::Result<()> {
    set_node(client, node, &json!({ "draining": false })).await?;
    print(&format!("Node {node} claims tasks again\n"))
}

async fn set_node(client: &Client, node: &str, change: &Value) -> anyhow::Result<()> {
    client.post(&format!("/nodes/{}", segment(node)), change).await.map_err(advise)?;
    Ok(())
}

pub async fn set(client: &Client, queue: &str, fields: &Value) -> anyhow::Result<()> {
    client.post(&format!("/queues/{}", segment(queue)), fields).await.map_err(advise)?;
    Ok(())
}
