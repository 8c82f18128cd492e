//! What the runner tells: the task as every plugin gets it, and the key `worker` for this program.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
pub struct RequestInput {
    #[serde(rename = "_id", default)]
    id: Value,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    parameters: Value,
    /// What is not to be shown, if there is any.
    #[serde(default)]
    pub secure_params: Option<Map<String, Value>>,
    #[serde(default)]
    storage: Value,
    /// What is for this program.
    pub worker: Worker,
    #[serde(default)]
    callback: Option<Callback>,
}

/// What this program is told.
#[derive(Deserialize)]
pub struct Worker {
    /// What the manifest says.
    #[serde(default)]
    pub settings: Settings,
    #[serde(default)]
    engine_config: Option<EngineConfig>,
    /// The named secrets of the plugin.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    callback: Option<Callback>,
}

/// The key `http` of the manifest.
#[derive(Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Where the service is.
    pub url: Option<String>,
    /// What it is asked with besides.
    pub headers: BTreeMap<String, String>,
    /// How often it is asked again where it cannot be reached.
    pub connect_retries: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { url: None, headers: BTreeMap::new(), connect_retries: 5 }
    }
}

/// The key `engines.http` of the configuration.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EngineConfig {
    allow: Option<Vec<String>>,
}

/// How the service calls back.
#[derive(Clone, Deserialize)]
pub struct Callback {
    /// What it shows; null if its addresses say enough.
    pub token: Option<String>,
    /// Where it says things about the task.
    pub url: String,
}

impl RequestInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("this is not the task of a web service: wrong at line {line}, column {column}")
        })
    }

    /// The hosts that may be asked on this node. Without such a list those that plugins name, and none that tasks name.
    pub fn allowed(&self) -> Option<&[String]> {
        self.worker.engine_config.as_ref()?.allow.as_deref()
    }

    /// The task's parameters, null if it has none.
    pub fn params(&self) -> &Value {
        // Tasks from before Disbatch 4 have the older name.
        if self.params.is_null() { &self.parameters } else { &self.params }
    }

    /// One of the variables that tell about the task. `None`: it is not there, or empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.worker.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn id(&self) -> Option<&str> {
        self.variable("RUN_ID").or_else(|| self.id.get("$oid").and_then(Value::as_str))
    }

    /// What an earlier run has stored.
    pub fn storage(&self) -> Value {
        if !self.storage.is_null() {
            return self.storage.clone();
        }
        let text = self.variable("JOB_STORAGE").unwrap_or("null");
        serde_json::from_str(text).unwrap_or_default()
    }

    /// How the service calls back.
    pub fn callback(&self) -> Result<&Callback, String> {
        self.callback.as_ref().or(self.worker.callback.as_ref()).ok_or_else(|| {
            "the web service could not call back: engines.http.callback_url of this node's configuration is not set"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(task: &Value) -> RequestInput {
        RequestInput::parse(&task.to_string()).unwrap()
    }

    #[test]
    fn what_is_left_out_is_not_there() {
        let bare = told(&json!({ "_id": { "$oid": "a" }, "worker": {} }));
        assert_eq!((bare.id(), bare.params(), bare.storage()), (Some("a"), &Value::Null, Value::Null));
        assert_eq!(bare.worker.settings.connect_retries, 5);
        assert!(bare.callback().err().unwrap().contains("engines.http.callback_url"));
    }

    #[test]
    fn variables_and_fields_are_found_where_they_are() {
        let variables = json!({ "RUN_ID": "r", "TENANT_ID": "", "JOB_STORAGE": "{\"n\":1}" });
        let callback = json!({ "token": "t", "url": "https://dci.example/callbacks/r" });
        let told = told(&json!({
            "_id": { "$oid": "a" }, "parameters": { "x": 1 }, "worker": { "variables": variables },
            "callback": callback,
        }));
        assert_eq!((told.id(), told.variable("TENANT_ID")), (Some("r"), None));
        assert_eq!((told.params(), told.storage()), (&json!({ "x": 1 }), json!({ "n": 1 })));
        assert_eq!(told.callback().unwrap().token.as_deref(), Some("t"));
    }

    #[test]
    fn what_is_no_task_is_refused_without_showing_it() {
        let error = RequestInput::parse(r#"{"worker":{"secrets":{"A":5,"B":"horse"}}}"#).err().unwrap();
        assert!(error.starts_with("this is not the task of a web service") && !error.contains("horse"));
    }
}
