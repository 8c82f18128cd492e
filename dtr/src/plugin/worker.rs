//! What an adapter is told besides the task: what the plugin's manifest and the node's configuration say to it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use disbatch_core::callbacks::Token;
use disbatch_core::model::{Rules, TaskId};
use disbatch_core::plugin::Engine;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroize;

use super::Job;
use super::variables::{WORK_DIR, secret_variable, variables};

/// What is known of an adapter's work before there is a task.
#[derive(Clone)]
pub struct Adapter {
    pub engine: Engine,
    /// What the manifest says.
    pub settings: Value,
    /// What the node's configuration says.
    pub engine_config: Value,
    /// The database of the node's tasks: the same id may be in another one.
    pub database: String,
}

/// With what a web service calls back.
#[derive(Clone, Serialize)]
pub struct Callback {
    /// What it shows; none if its addresses say enough.
    token: Option<String>,
    url: String,
}

/// It, as the adapter reads it.
#[derive(Serialize)]
pub struct Worker<'a> {
    name: &'a str,
    engine: Engine,
    settings: &'a Value,
    engine_config: &'a Value,
    secrets: BTreeMap<&'a str, &'a str>,
    variables: BTreeMap<&'static str, String>,
    work_dir: Cow<'a, str>,
    database: &'a str,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    grace: f64,
    /// How many seconds the task may take, by the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<&'a Callback>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({}, not shown)", self.engine)
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback(not shown)")
    }
}

impl Callback {
    /// To the web server at `server`, about `task`.
    pub fn new(token: &Token, server: &str, task: TaskId) -> Self {
        let server = server.trim_end_matches('/');
        match token.is_in_address() {
            true => Self { token: None, url: format!("{server}/callbacks/{task}-{}", token.text()) },
            false => Self { token: Some(token.text().to_owned()), url: format!("{server}/callbacks/{task}") },
        }
    }
}

impl<'a> Worker<'a> {
    /// What the adapter of a job is told. `None`: it has none.
    pub fn of(job: &Job<'a>) -> Option<Self> {
        let adapter = job.about.adapter.as_ref()?;
        let mut variables: BTreeMap<_, _> =
            variables(job).into_iter().filter(|(name, _)| *name != WORK_DIR).collect();
        if let Some((name, mut value)) = secret_variable(job) {
            // As it is: a copy would not be overwritten. It is JSON, and that is text.
            let text = String::from_utf8(std::mem::take(&mut *value)).unwrap_or_default();
            variables.insert(name, text);
        }
        let rules = Rules::of(job.task, Some(job.queue));
        Some(Self {
            name: job.name.base(),
            engine: adapter.engine,
            settings: &adapter.settings,
            engine_config: &adapter.engine_config,
            secrets: job.about.secrets.by_name().collect(),
            variables,
            work_dir: job.folder.to_string_lossy(),
            database: &adapter.database,
            grace: rules.grace.as_secs_f64(),
            timeout: rules.timeout.map(|timeout| timeout.as_secs_f64()),
            callback: job.about.callback.as_ref(),
        })
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.variables.values_mut().for_each(Zeroize::zeroize);
    }
}
