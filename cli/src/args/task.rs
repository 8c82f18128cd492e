//! What may be asked for when tasks are created.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use disbatch_core::secrets::SecureParams;
use serde_json::{Map, Value};

use crate::args::{id, seconds, secure};

/// Options of new tasks. What is not given is left to the queue.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "New tasks")]
pub struct TaskOptions {
    /// Start after this time: 90, 90s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = seconds::parse, conflicts_with = "run_at")]
    pub delay: Option<Duration>,
    /// Do not start before: ISO 8601 or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub run_at: Option<String>,
    /// End an attempt that takes longer
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub timeout: Option<Duration>,
    /// End the task if it goes on beyond: ISO 8601 or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub deadline: Option<String>,
    /// Time for the plugin between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub grace: Option<Duration>,
    /// Try a task that fails so often at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Refuse the task while another with the same key waits or runs in the queue
    #[arg(long, value_name = "KEY")]
    pub unique: Option<String>,
    /// Create the tasks once, however often this request is repeated with the same key
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Give the plugin the JSON object in this file, which is encrypted and shown to nobody; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub secure_params_file: Option<PathBuf>,
    /// What that file has.
    #[arg(skip)]
    pub secure_params: Option<SecureParams>,
}

impl TaskOptions {
    /// The same with what is in the file of secure parameters. To be called once, as it may be standard input.
    ///
    /// # Errors
    /// The file cannot be read, or has no JSON object.
    pub fn with_file(mut self) -> anyhow::Result<Self> {
        if let Some(path) = &self.secure_params_file {
            self.secure_params = secure::read(path)?;
        }
        Ok(self)
    }

    /// The options as keys of the request, which start with a dot.
    pub fn fields(&self) -> Map<String, Value> {
        let time = |time: Option<Duration>| time.map(seconds::value);
        let when = |text: &Option<String>| text.as_deref().map(point);
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let all = [
            ("delay", time(self.delay)),
            ("run_at", when(&self.run_at)),
            ("timeout", time(self.timeout)),
            ("deadline", when(&self.deadline)),
            ("grace", time(self.grace)),
            ("max_attempts", self.max_attempts.map(Value::from)),
            ("unique", text(&self.unique)),
            ("idempotency_key", text(&self.idempotency_key)),
            ("secure_params", self.secure_params.as_ref().map(|params| params.value().clone())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((format!(".{name}"), value?))).collect()
    }
}

/// A point in time: seconds since 1970 as a number, anything else as text for the DCI to read.
fn point(text: &str) -> Value {
    match text.parse::<u64>() {
        Ok(seconds) => seconds.into(),
        Err(_) => text.into(),
    }
}

/// Tasks that something is done with.
#[derive(Debug, Clone, Args)]
pub struct Tasks {
    /// Ids of tasks
    #[arg(required = true, value_name = "ID", value_parser = id::parse)]
    pub ids: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// One task.
#[derive(Debug, Clone, Args)]
pub struct OneTask {
    /// The task's id
    #[arg(value_name = "ID", value_parser = id::parse)]
    pub id: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(TaskOptions::default().fields().is_empty());
        let options = TaskOptions {
            delay: Some(Duration::from_secs(300)),
            deadline: Some("1795163066".into()),
            run_at: Some("2026-11-20T08:24:27Z".into()),
            max_attempts: Some(3),
            ..TaskOptions::default()
        };
        let expected = json!({".delay": 300, ".deadline": 1_795_163_066, ".max_attempts": 3,
            ".run_at": "2026-11-20T08:24:27Z"});
        assert_eq!(Value::Object(options.fields()), expected);
    }
}
