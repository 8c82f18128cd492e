//! What the runner tells, as far as a container is about it; with it what the manifest of the plugin says, checked when it was read.

use disbatch_adapter::sections::{Container, ContainerEngine};
use disbatch_adapter::{Line, Worker};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// Where a task may bring what its container is like.
const CONFIG: &str = "/Container/Config";

pub struct ContainerInput {
    pub worker: Worker<Container, ContainerEngine>,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<String>,
    /// What the task brings, where the manifest allows it to.
    pub brought: Option<Map<String, Value>>,
}

impl ContainerInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: String| format!("this is not the task of a container: {what}");
        let line: Line<'_, Container, ContainerEngine> = Line::parse(line).map_err(wrong)?;
        let task = line.task().map_err(wrong)?;
        let brought =
            if line.worker.settings.config_from_params { brought(&line.field("params"))? } else { None };
        Ok(Self { worker: line.worker, task, brought })
    }

    pub fn node(&self) -> &str {
        self.worker.variable("DISBATCH_NODE").unwrap_or_default()
    }
}

fn brought(params: &Value) -> Result<Option<Map<String, Value>>, String> {
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

    pub fn told(settings: &Value, params: &Value) -> ContainerInput {
        let variables = json!({ "DISBATCH_TASK_ID": "0a", "DISBATCH_ATTEMPT": "3", "DISBATCH_NODE": "n1", "JOB_ID": "j" });
        let worker = json!({
            "name": "Boxed", "engine": "container", "settings": settings, "engine_config": {},
            "secrets": { "token": "horse" }, "variables": variables, "work_dir": "/tmp/disbatch-0a", "database": "d",
            "grace": 60.0,
        });
        let line = json!({ "_id": { "$oid": "0a" }, "params": params, "worker": worker }).to_string();
        ContainerInput::parse(line.as_bytes()).unwrap()
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
        assert_eq!((told.worker.grace().as_secs(), told.worker.database.as_deref()), (57, Some("d")));
    }
}
