//! What the runner tells: the task as every plugin gets it, with the key `worker`, which is for the adapter alone.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::settings::Settings;

/// The key that is not the container's.
const WORKER: &str = "worker";

/// Where a task may bring what its container is like.
const CONFIG: &str = "/Container/Config";

/// The usual time between SIGTERM and SIGKILL.
const USUAL_GRACE: Duration = Duration::from_secs(10);

/// So much of that is left for what is to be done after the container.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// Longer times are cut, in seconds: a year.
const LONGEST: f64 = 365.0 * 24.0 * 60.0 * 60.0;

/// All that the runner tells.
pub struct Told {
    /// What the adapter is told.
    pub worker: Worker,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<Vec<u8>>,
    /// The task's id.
    pub task_id: String,
    /// The number of the attempt.
    pub attempt: u64,
    /// The node.
    pub node: String,
    /// What the task brings, where the manifest allows it to.
    pub brought: Option<Map<String, Value>>,
    /// How long the container has to end when it is to.
    pub grace: Duration,
}

/// What the adapter is told.
#[derive(Deserialize)]
pub struct Worker {
    /// What the manifest says.
    pub settings: Settings,
    /// What the node says.
    #[serde(default)]
    pub engine_config: Option<EngineConfig>,
    /// The named secrets of the plugin.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The variables that a program would find.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// The private folder of the task.
    pub work_dir: PathBuf,
    /// The database of the task.
    #[serde(default)]
    pub database: Option<String>,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    #[serde(default)]
    pub grace: Option<f64>,
}

/// What the node says of its container engine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EngineConfig {
    /// Its socket.
    pub socket: Option<String>,
}

impl fmt::Debug for Told {
    /// Shows nothing of parameters and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Told({}, attempt {})", self.task_id, self.attempt)
    }
}

impl Told {
    /// Reads the line.
    ///
    /// # Errors
    /// It is not from a runner that has this plugin's engine. Shows nothing of what is in it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: &str| format!("this is not the task of a container: {what}");
        // As it is: a number that was read and written again may be another one.
        let mut fields: BTreeMap<String, &RawValue> =
            serde_json::from_slice(line).map_err(|_| wrong("no JSON object is on standard input"))?;
        let worker = fields.remove(WORKER).ok_or_else(|| wrong("only runners start this program"))?;
        let worker: Worker =
            serde_json::from_str(worker.get()).map_err(|error| wrong(&place(WORKER, &error)))?;
        let mut task = Zeroizing::new(serde_json::to_vec(&fields).map_err(|error| error.to_string())?);
        task.push(b'\n');
        let variable = |name: &str| worker.variables.get(name).cloned().unwrap_or_default();
        let task_id = variable("DISBATCH_TASK_ID");
        if task_id.is_empty() || !task_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(wrong("it has no id"));
        }
        let brought = match fields.get("params") {
            Some(params) if worker.settings.config_from_params => brought(params)?,
            _ => None,
        };
        Ok(Self {
            task,
            task_id,
            attempt: variable("DISBATCH_ATTEMPT").parse().unwrap_or_default(),
            node: variable("DISBATCH_NODE"),
            brought,
            grace: grace(worker.grace),
            worker,
        })
    }
}

/// Where something is wrong, without what is there.
fn place(of: &str, error: &serde_json::Error) -> String {
    format!("{of} is wrong at column {} ({:?})", error.column(), error.classify())
}

/// How long a container has to end, if its adapter has so many seconds.
fn grace(seconds: Option<f64>) -> Duration {
    let given = seconds.filter(|seconds| *seconds >= 0.0);
    let whole = given.map_or(USUAL_GRACE, |seconds| Duration::from_secs_f64(seconds.min(LONGEST)));
    whole.saturating_sub(OWN_GRACE).max(whole / 2)
}

fn brought(params: &RawValue) -> Result<Option<Map<String, Value>>, String> {
    let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    match params.pointer(CONFIG) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(config)) => Ok(Some(config.clone())),
        Some(_) => Err("params.Container.Config: expected an object".to_owned()),
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// What is told with these settings.
    pub fn told(settings: &Value, params: &Value) -> Told {
        let variables = json!({ "DISBATCH_TASK_ID": "0a", "DISBATCH_ATTEMPT": "3", "DISBATCH_NODE": "n1", "JOB_ID": "j" });
        let worker = json!({
            "name": "Boxed", "engine": "container", "settings": settings, "engine_config": {},
            "secrets": { "token": "horse" }, "variables": variables, "work_dir": "/tmp/disbatch-0a", "database": "d",
            "grace": 60.0,
        });
        let line = json!({ "_id": { "$oid": "0a" }, "params": params, "worker": worker }).to_string();
        Told::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn the_container_is_told_the_task_as_it_came_and_nothing_of_the_adapter() {
        let line = r#"{"worker":{"settings":{"image":"i"},"variables":{"DISBATCH_TASK_ID":"0a"},"work_dir":"/w"},
            "params":{"a":0.30000000000000004,"b":12345678901234567890123,"c":"\u00e9"},"secure_params":{"p":"x"}}"#;
        let told = Told::parse(line.as_bytes()).unwrap();
        let task = String::from_utf8(told.task.to_vec()).unwrap();
        let expected = r#"{"params":{"a":0.30000000000000004,"b":12345678901234567890123,"c":"\u00e9"},"secure_params":{"p":"x"}}"#;
        assert_eq!(task, format!("{expected}\n"));
        assert_eq!((told.task_id.as_str(), told.attempt, told.brought), ("0a", 0, None));
    }

    #[test]
    fn what_is_no_task_is_refused_and_not_shown() {
        for (line, expected) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"params":"horse"}"#, "only runners"),
            (r#"{"worker":{"settings":{},"work_dir":"/w","secrets":"horse"}}"#, "worker is wrong at column"),
            (r#"{"worker":{"settings":{},"work_dir":"/w","variables":{"horse":"x"}}}"#, "it has no id"),
            (
                r#"{"worker":{"settings":{},"work_dir":"/w","variables":{"DISBATCH_TASK_ID":"../horse"}}}"#,
                "it has no id",
            ),
        ] {
            let why = Told::parse(line.as_bytes()).unwrap_err();
            assert!(why.contains(expected) && !why.contains("horse"), "{why}");
        }
    }

    #[test]
    fn tasks_bring_what_their_container_is_like_only_where_they_may() {
        let params = json!({ "Container": { "Config": { "Image": "x" } } });
        assert_eq!(told(&json!({ "image": "i" }), &params).brought, None);
        let allowed = json!({ "config_from_params": true });
        assert_eq!(told(&allowed, &params).brought.unwrap()["Image"], "x");
        assert_eq!(told(&allowed, &json!({ "Container": {} })).brought, None);
        assert_eq!(told(&allowed, &json!("text")).brought, None);
    }

    #[test]
    fn how_long_there_is_to_end_and_which_database_it_is_comes_from_the_runner() {
        let told = told(&json!({ "image": "i" }), &json!({}));
        assert_eq!((told.grace, told.worker.database.as_deref()), (Duration::from_secs(57), Some("d")));
    }

    #[test]
    fn a_container_has_less_time_to_end_than_its_adapter() {
        let seconds = |given: Option<f64>| grace(given).as_secs_f64();
        assert_eq!([seconds(None), seconds(Some(60.0)), seconds(Some(3.0))], [7.0, 57.0, 1.5]);
        assert_eq!([seconds(Some(0.0)), seconds(Some(-1.0)), seconds(Some(f64::NAN))], [0.0, 7.0, 7.0]);
        assert_eq!(seconds(Some(f64::INFINITY)), LONGEST - 3.0);
    }
}
