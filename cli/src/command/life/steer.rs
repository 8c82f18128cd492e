//! `disbatch pause`, `resume`, `close`, `open`, `drain`, `undrain`, `set-queue` and `set-task`

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Client, given, segment};
use crate::args::{QueueAndReason, SetTaskOptions, seconds};
use crate::command::life::act::each;
use crate::output::print;

pub async fn pause(client: &Client, which: &QueueAndReason) -> anyhow::Result<()> {
    // Without a reason, the one of an earlier time is taken away.
    set(client, &which.queue, &json!({ "paused": true, "reason": which.reason })).await?;
    print(&format!("Paused queue {}: none of its tasks is started; what runs goes on\n", which.queue))
}

pub async fn resume(client: &Client, queue: &str) -> anyhow::Result<()> {
    set(client, queue, &json!({ "paused": false })).await?;
    print(&format!("Resumed queue {queue}\n"))
}

pub async fn close(client: &Client, which: &QueueAndReason) -> anyhow::Result<()> {
    set(client, &which.queue, &json!({ "accepting": false, "reason": which.reason })).await?;
    print(&format!("Closed queue {}: it accepts no new tasks; those that it has are run\n", which.queue))
}

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

pub async fn undrain(client: &Client, node: &str) -> anyhow::Result<()> {
    set_node(client, node, &json!({ "draining": false })).await?;
    print(&format!("Node {node} claims tasks again\n"))
}

async fn set_node(client: &Client, node: &str, change: &Value) -> Result<(), ApiError> {
    client.post(&format!("/nodes/{}", segment(node)), change).await.map(drop)
}

async fn set(client: &Client, queue: &str, fields: &Value) -> Result<(), ApiError> {
    client.post(&format!("/queues/{}", segment(queue)), fields).await.map(drop)
}

const TIMES: &[&str] = &[
    "timeout",
    "grace",
    "unleased_limit",
    "half_life",
    "backoff.base",
    "backoff.max",
    "retention.archive_after",
    "retention.delete_after",
    "rate.per",
    "group_rate.per",
];

/// Fields whose values are text, also if it looks like a number: `1.10` is not `1.1`.
const TEXTS: &[&str] = &["version", "canary.version"];

pub async fn set_queue(client: &Client, queue: &str, words: &[String]) -> anyhow::Result<()> {
    let fields = Value::Object(fields(words)?);
    set(client, queue, &fields).await?;
    print(&format!("Updated queue {queue}: {fields}\n"))
}

fn fields(words: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for word in words {
        let (path, text) = word
            .split_once('=')
            .filter(|(path, _)| path.split('.').all(|name| !name.is_empty()))
            .with_context(|| format!("'{word}' sets no field: write field=value"))?;
        let value = value(path, text).map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        match path.split_once('.') {
            None => fields.insert(path.to_owned(), value),
            Some((outer, inner)) => {
                let object = fields.entry(outer).or_insert_with(|| Map::new().into());
                let Value::Object(object) = object else { bail!("'{outer}' is set twice") };
                object.insert(inner.to_owned(), value)
            }
        };
    }
    Ok(fields)
}

/// JSON if it is some, else text; a length of time in seconds.
fn value(path: &str, text: &str) -> Result<Value, String> {
    if TIMES.contains(&path) && text != "null" {
        return seconds::parse(text).map(seconds::value);
    }
    if TEXTS.contains(&path) && text != "null" {
        return Ok(text.trim_matches('"').into());
    }
    Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into()))
}

pub async fn set_task(client: &Client, options: &SetTaskOptions) -> anyhow::Result<ExitCode> {
    let reason = options.reason.clone().map(Value::from);
    let body = given([("reason", reason), ("priority", Some(options.priority.into()))]);
    each(&options.ids, async |id| {
        client.post(&format!("/tasks/{id}/priority"), &body).await?;
        Ok(format!("has the priority {}", options.priority))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> anyhow::Result<Value> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        fields(&words).map(Value::Object)
    }

    #[test]
    fn values_are_json_text_or_times() {
        let words = ["max_attempts=3", "on_orphan=requeue", "timeout=5m", "reason=null", "grace=null"];
        let expected =
            json!({"max_attempts": 3, "on_orphan": "requeue", "timeout": 300, "reason": null, "grace": null});
        assert_eq!(of(&words).unwrap(), expected);
        assert_eq!(of(&["version=1.10"]).unwrap(), json!({"version": "1.10"}), "it is no number");
        let words = ["version=\"2\"", "canary.version=1.20", "canary.share=0.05"];
        let expected = json!({"version": "2", "canary": {"version": "1.20", "share": 0.05}});
        assert_eq!(of(&words).unwrap(), expected);
        assert_eq!(of(&["version=null"]).unwrap(), json!({"version": null}));
        let words = ["retention.archive_after=7d", "retention.delete_after=30d", "backoff.factor=1.5"];
        let expected = json!({"retention": {"archive_after": 604_800, "delete_after": 2_592_000},
            "backoff": {"factor": 1.5}});
        assert_eq!(of(&words).unwrap(), expected);
        let words = ["policy=fair", "scheme=[2,1]", "weights.acme/ann=3", "half_life=2h"];
        let expected =
            json!({"policy": "fair", "scheme": [2, 1], "weights": {"acme/ann": 3}, "half_life": 7_200});
        assert_eq!(of(&words).unwrap(), expected);
        let words = ["rate.n=100", "rate.per=1h", "group_rate={\"n\":1,\"per\":5}"];
        let expected = json!({"rate": {"n": 100, "per": 3600}, "group_rate": {"n": 1, "per": 5}});
        assert_eq!(of(&words).unwrap(), expected);
    }

    #[test]
    fn what_sets_no_field_is_named() {
        for (words, text) in [
            (&["timeout"][..], "'timeout' sets no field"),
            (&["=1"], "'=1' sets no field"),
            (&["a..b=1"], "sets no field"),
            (&["timeout=soon"], "timeout: 'soon' is no length of time"),
            (&["backoff=1", "backoff.base=2"], "'backoff' is set twice"),
        ] {
            let error = of(words).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
