//! What the runner tells, as far as a job is about it.
//!
//! What the manifest of the plugin and the configuration of the node say, checked when they were read: keys that are not
//! known here are not looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use disbatch_adapter::{Line, seconds};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

pub type Worker = disbatch_adapter::Worker<Settings, EngineConfig>;

/// All that the runner tells.
pub struct JobInput {
    pub worker: Worker,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<String>,
    /// The secure parameters as JSON, if there are some.
    pub secure_params: Option<Zeroizing<String>>,
    pub task_id: String,
    /// The number of the step, of a task with several.
    pub step: Option<u64>,
    /// How long the task may run, if that is said.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for JobInput {
    /// Shows nothing of parameters and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobInput({}, attempt {})", self.task_id, self.worker.attempt())
    }
}

impl JobInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: String| format!("this is not the task of a job of Kubernetes: {what}");
        let line: Line<'_, Settings, EngineConfig> = Line::parse(line).map_err(wrong)?;
        let task = line.task().map_err(wrong)?;
        let has_secrets = !line.field::<Map<String, Value>>("secure_params").is_empty();
        let secure_params = line.raw("secure_params").filter(|_| has_secrets);
        let secure_params = secure_params.map(|raw| Zeroizing::new(raw.to_owned()));
        let worker = line.worker;
        Ok(Self {
            task,
            secure_params,
            // Names in a cluster have small letters.
            task_id: worker.task_id().to_ascii_lowercase(),
            step: worker.variable("DISBATCH_STEP").and_then(|number| number.parse().ok()),
            timeout: seconds(worker.timeout).filter(|timeout| !timeout.is_zero()),
            worker,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// What is told with these settings, this configuration of the node, and these fields of the task. Its queue gives it two
    /// hours, and a minute to end.
    pub fn told(settings: &Value, engine_config: &Value, task: &Value) -> JobInput {
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
        JobInput::parse(line.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_job_is_of_a_step_and_has_its_time() {
        let line = r#"{"worker":{"settings":{"image":"i"},"variables":{"DISBATCH_TASK_ID":"0A","DISBATCH_STEP":"2"},"timeout":30.0},
            "secure_params":{"p": "x"},"timeout":90}"#;
        let told = JobInput::parse(line.as_bytes()).unwrap();
        assert_eq!(told.task.as_str(), "{\"secure_params\":{\"p\": \"x\"},\"timeout\":90}\n");
        assert_eq!(told.secure_params.as_deref().map(String::as_str), Some(r#"{"p": "x"}"#));
        assert_eq!((told.task_id.as_str(), told.worker.attempt(), told.step), ("0a", 0, Some(2)));
        let times = (told.timeout, told.worker.grace());
        assert_eq!(times, (Some(Duration::from_secs(30)), Duration::from_secs(7)));
        assert!(!format!("{told:?}").contains('x'));
        assert!(
            JobInput::parse(b"{}").unwrap_err().starts_with("this is not the task of a job of Kubernetes: ")
        );
    }

    #[test]
    fn no_secure_parameters_are_none() {
        for none in [json!({}), json!({ "secure_params": {} }), json!({ "secure_params": null })] {
            assert!(told(&json!({}), &json!({}), &none).secure_params.is_none());
        }
    }
}

/// The section `kubernetes` of a manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The image. Empty: `pod` has it.
    pub image: String,
    /// In place of the image's entry point.
    pub command: Option<Vec<String>>,
    /// In place of the image's arguments.
    pub args: Option<Vec<String>>,
    pub env: BTreeMap<String, String>,
    pub namespace: Option<String>,
    /// What is merged over the pod that is made.
    pub pod: Option<Map<String, Value>>,
    /// The secret of the cluster with which images are fetched.
    pub image_pull_secret: Option<String>,
    pub service_account: Option<String>,
    /// Requests and limits of the container.
    pub resources: Option<Map<String, Value>>,
    /// After so many seconds the cluster removes a job that has ended and is still there.
    pub ttl: Option<u32>,
}

/// The key `engines.kubernetes` of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EngineConfig {
    /// How the cluster is reached. Looked for when unset.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of tasks whose plugin and tenant have none.
    pub namespace: Option<String>,
    pub tenant_namespaces: Option<TenantNamespaces>,
}

/// Which namespace a tenant has.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum TenantNamespaces {
    /// By the tenant's name, which stands in the place of `{tenant}`.
    Named(String),
    /// Each its own.
    Each(BTreeMap<String, String>),
}
