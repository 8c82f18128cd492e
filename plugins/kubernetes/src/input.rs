//! What the runner tells, as far as a job is about it.
//!
//! What the manifest of the plugin and the configuration of the node say was checked when they were read.

use std::time::Duration;

use disbatch_adapter::sections::{Kubernetes, KubernetesEngine};
use disbatch_adapter::{Line, Worker, seconds};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

pub struct JobInput {
    pub worker: Worker<Kubernetes, KubernetesEngine>,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<String>,
    /// The secure parameters as JSON, if there are some.
    pub secure_params: Option<Zeroizing<String>>,
    pub task_id: String,
    /// The number of the step, of a task with several.
    pub step: Option<u64>,
    pub timeout: Option<Duration>,
}

impl JobInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: String| format!("this is not the task of a job of Kubernetes: {what}");
        let line: Line<'_, Kubernetes, KubernetesEngine> = Line::parse(line).map_err(wrong)?;
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
        let why = JobInput::parse(b"{}").err().unwrap();
        assert!(why.starts_with("this is not the task of a job of Kubernetes: "), "{why}");
    }

    #[test]
    fn no_secure_parameters_are_none() {
        for none in [json!({}), json!({ "secure_params": {} }), json!({ "secure_params": null })] {
            assert!(told(&json!({}), &json!({}), &none).secure_params.is_none());
        }
    }
}
