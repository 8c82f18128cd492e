//! Waits until the DCI answers and the DEN is at work.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use disbatch_cli::api::{ApiError, Client};
use reqwest::StatusCode;
use serde_json::Value;

const INTERVAL: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(30);

/// When each node was last seen.
#[derive(Debug, Default, PartialEq)]
pub struct Heartbeats(HashMap<String, Value>);

/// Waits until the DCI answers. The heartbeats that it knows are those of before.
pub async fn dci(client: &Client) -> anyhow::Result<Heartbeats> {
    let mut interval = tokio::time::interval(INTERVAL);
    let start = Instant::now();
    loop {
        interval.tick().await;
        match heartbeats(client).await {
            Ok(heartbeats) => return Ok(heartbeats),
            // It answers, and will not change its mind: the database of this folder has users.
            Err(error @ ApiError::Refused { status: StatusCode::UNAUTHORIZED, .. }) => {
                return Err(error.into());
            }
            Err(error) if start.elapsed() > DEADLINE => bail!("dci does not get ready: {error}"),
            Err(_) => {} // Not yet.
        }
    }
}

/// Waits until some node has a heartbeat that is not among those of before.
pub async fn den(client: &Client, before: &Heartbeats) -> anyhow::Result<()> {
    let mut interval = tokio::time::interval(INTERVAL);
    let start = Instant::now();
    loop {
        interval.tick().await;
        if is_newer(&heartbeats(client).await?, before) {
            return Ok(());
        }
        if start.elapsed() > DEADLINE {
            bail!("den does not get ready: there is no heartbeat of it after {} s", DEADLINE.as_secs());
        }
    }
}

async fn heartbeats(client: &Client) -> Result<Heartbeats, ApiError> {
    Ok(parse(&client.get("/nodes", None).await?))
}

fn parse(nodes: &Value) -> Heartbeats {
    let nodes = nodes.as_array().into_iter().flatten();
    Heartbeats(
        nodes
            .filter_map(|node| Some((node["node"].as_str()?.to_owned(), node["timestamp"].clone())))
            .collect(),
    )
}

fn is_newer(now: &Heartbeats, before: &Heartbeats) -> bool {
    now.0.iter().any(|(node, timestamp)| !timestamp.is_null() && before.0.get(node) != Some(timestamp))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_heartbeat_of_the_run_before_does_not_count() {
        let before = parse(&json!([{ "node": "vm", "timestamp": 5 }, { "node": "old" }]));
        assert!(!is_newer(&before, &before));
        assert!(!is_newer(&parse(&json!([])), &before));
        assert!(is_newer(&parse(&json!([{ "node": "vm", "timestamp": 6 }])), &before));
        assert!(is_newer(&parse(&json!([{ "node": "new", "timestamp": 5 }])), &Heartbeats::default()));
    }
}
