//! `disbatch set-queue QUEUE FIELD=VALUE ..`

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::api::Client;
use crate::args::seconds;
use crate::command::life::steer;
use crate::output::print;

/// Fields whose values are lengths of time.
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

/// Sets fields of a queue to JSON values.
pub async fn run(client: &Client, queue: &str, words: &[String]) -> anyhow::Result<()> {
    let fields = Value::Object(fields(words)?);
    steer::set(client, queue, &fields).await?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
