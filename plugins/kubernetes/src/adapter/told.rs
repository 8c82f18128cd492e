//! What the runner tells: the task as every plugin gets it, with keys that are for the adapter alone.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::settings::{EngineConfig, Settings};

/// The keys that are not the container's.
const WORKER: &str = "worker";
const CALLBACK: &str = "callback";

/// The usual time between SIGTERM and SIGKILL.
const USUAL_GRACE: Duration = Duration::from_secs(10);

/// So much of that is left for what is to be done after the pod.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// Longer times are cut, in seconds: a year.
const LONGEST: f64 = 365.0 * 24.0 * 60.0 * 60.0;

/// All that the runner tells.
pub struct Told {
    /// What the adapter is told.
    pub worker: Worker,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<String>,
    /// The secure parameters as JSON, if there are some.
    pub secure_params: Option<Zeroizing<String>>,
    /// The task's id.
    pub task_id: String,
    /// The number of the attempt.
    pub attempt: u64,
    /// The number of the step, of a task with several.
    pub step: Option<u64>,
    /// How long the task may run, if that is said.
    pub timeout: Option<Duration>,
    /// How long the pod has to end when it is to.
    pub grace: Duration,
}

/// What the adapter is told.
#[derive(Deserialize)]
pub struct Worker {
    /// The plugin.
    #[serde(default)]
    pub name: String,
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
    /// The database of the task.
    #[serde(default)]
    pub database: Option<String>,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    #[serde(default)]
    grace: Option<f64>,
    /// How many seconds the task may take, by the same.
    #[serde(default)]
    timeout: Option<f64>,
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
        let wrong = |what: &str| format!("this is not the task of a job of Kubernetes: {what}");
        // As it is: a number that was read and written again may be another one.
        let mut fields: BTreeMap<String, &RawValue> =
            serde_json::from_slice(line).map_err(|_| wrong("no JSON object is on standard input"))?;
        let worker = fields.remove(WORKER).ok_or_else(|| wrong("only runners start this program"))?;
        fields.remove(CALLBACK);
        let worker: Worker =
            serde_json::from_str(worker.get()).map_err(|error| wrong(&place(WORKER, &error)))?;
        let variable = |name: &str| worker.variables.get(name).map(String::as_str).unwrap_or_default();
        let task_id = variable("DISBATCH_TASK_ID").to_ascii_lowercase();
        if task_id.is_empty() || !task_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(wrong("it has no id"));
        }
        let task = serde_json::to_string(&fields).map_err(|error| error.to_string())?;
        Ok(Self {
            attempt: variable("DISBATCH_ATTEMPT").parse().unwrap_or_default(),
            step: variable("DISBATCH_STEP").parse().ok(),
            timeout: worker.timeout.filter(|seconds| *seconds > 0.0).and_then(duration),
            grace: grace(worker.grace),
            secure_params: fields.get("secure_params").and_then(|raw| secure(raw)),
            task: Zeroizing::new(task + "\n"),
            task_id,
            worker,
        })
    }

    /// One of the variables that tell about the task. `None`: it is not there, or empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.worker.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Where something is wrong, without what is there.
fn place(of: &str, error: &serde_json::Error) -> String {
    format!("{of} is wrong at column {} ({:?})", error.column(), error.classify())
}

/// The text of secure parameters. `None`: there are none.
fn secure(raw: &RawValue) -> Option<Zeroizing<String>> {
    let params: Value = serde_json::from_str(raw.get()).ok()?;
    let is_there = params.as_object().is_some_and(|params| !params.is_empty());
    is_there.then(|| Zeroizing::new(raw.get().to_owned()))
}

fn duration(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(LONGEST)))
}

/// How long a pod has to end, if its adapter has so many seconds.
fn grace(seconds: Option<f64>) -> Duration {
    let whole = seconds.and_then(duration).unwrap_or(USUAL_GRACE);
    whole.saturating_sub(OWN_GRACE).max(whole / 2)
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// What is told with these settings, this configuration of the node, and these fields of the task. Its queue gives it two
    /// hours, and a minute to end.
    pub fn told(settings: &Value, engine_config: &Value, task: &Value) -> Told {
        let variables = json!({
            "DISBATCH_TASK_ID": "0a", "DISBATCH_ATTEMPT": "3", "DISBATCH_NODE": "n1", "JOB_ID": "j", "TENANT_ID": "",
        });
        let worker = json!({
            "name": "My::Pod", "engine": "kubernetes", "settings": settings, "engine_config": engine_config,
            "secrets": { "token": "horse" }, "variables": variables, "work_dir": "/tmp/disbatch-0a", "database": "d",
            "grace": 60.0, "timeout": 7200.0,
        });
        let mut line = json!({ "_id": { "$oid": "0a" }, "worker": worker });
        for (key, value) in task.as_object().unwrap() {
            line[key] = value.clone();
        }
        Told::parse(line.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_container_is_told_the_task_as_it_came_and_nothing_of_the_adapter() {
        let line = r#"{"worker":{"settings":{"image":"i"},"variables":{"DISBATCH_TASK_ID":"0A","DISBATCH_STEP":"2"},"timeout":30.0},
            "params":{"a":0.30000000000000004,"b":12345678901234567890123},"secure_params":{"p": "x"},"timeout":90}"#;
        let told = Told::parse(line.as_bytes()).unwrap();
        let params = r#""params":{"a":0.30000000000000004,"b":12345678901234567890123}"#;
        assert_eq!(
            told.task.as_str(),
            format!("{{{params},\"secure_params\":{{\"p\": \"x\"}},\"timeout\":90}}\n")
        );
        assert_eq!(told.secure_params.as_deref().map(String::as_str), Some(r#"{"p": "x"}"#));
        assert_eq!((told.task_id.as_str(), told.attempt, told.step), ("0a", 0, Some(2)));
        assert_eq!((told.timeout, told.grace), (Some(Duration::from_secs(30)), Duration::from_secs(7)));
        assert!(!format!("{told:?}").contains('x'));
    }

    #[test]
    fn no_secure_parameters_are_none() {
        for none in [json!({}), json!({ "secure_params": {} }), json!({ "secure_params": null })] {
            assert!(told(&json!({}), &json!({}), &none).secure_params.is_none());
        }
    }

    #[test]
    fn what_is_no_task_is_refused_and_not_shown() {
        for (line, expected) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"params":"horse"}"#, "only runners"),
            (r#"{"worker":{"settings":{},"secrets":"horse"}}"#, "worker is wrong at column"),
            (r#"{"worker":{"settings":{},"variables":{"horse":"x"}}}"#, "it has no id"),
            (r#"{"worker":{"settings":{},"variables":{"DISBATCH_TASK_ID":"../horse"}}}"#, "it has no id"),
        ] {
            let why = Told::parse(line.as_bytes()).unwrap_err();
            assert!(why.contains(expected) && !why.contains("horse"), "{why}");
        }
    }

    #[test]
    fn a_pod_has_less_time_to_end_than_its_adapter() {
        let seconds = |given: Option<f64>| grace(given).as_secs_f64();
        assert_eq!([seconds(None), seconds(Some(60.0)), seconds(Some(4.0))], [7.0, 57.0, 2.0]);
        assert_eq!([seconds(Some(0.0)), seconds(Some(-1.0)), seconds(Some(f64::NAN))], [0.0, 7.0, 7.0]);
        assert_eq!(seconds(Some(f64::INFINITY)), LONGEST - 3.0);
    }
}
