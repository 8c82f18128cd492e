//! The variables of a pod, and what of them is in its secret. Pure.

use std::collections::{BTreeMap, BTreeSet};

use disbatch_adapter::{CONTROL_VARIABLE, fill};
use serde_json::{Value, json};

use super::input::JobInput;

/// The variable with secure parameters.
const SECURE_PARAMS: &str = "JOB_SECURE_PARAMS";

/// The key of the pod's secret with the task.
pub const TASK_KEY: &str = "task.json";

/// Where the pod finds it.
pub const FOLDER: &str = "/var/run/disbatch";

/// Where Kubernetes reads what a container says last.
pub const LAST_WORDS: &str = "/dev/termination-log";

/// The most that a secret holds. The keys take a little of what Kubernetes allows, which is 1 MiB.
const LARGEST: usize = 1000 * 1024;

#[derive(Debug, Default)]
pub struct Environment {
    /// The variables, as a container of Kubernetes has them.
    pub variables: Vec<Value>,
    pub secret: BTreeMap<String, String>,
}

/// A value of a variable.
enum Given {
    Plain(String),
    Secret(String),
}

/// Makes them. `of_pod`: the variables that the manifest gives to the container in `pod`. Of the same name, what a runner sets
/// comes before `env` of the manifest, and that before these.
pub fn environment(told: &JobInput, name: &str, of_pod: &[Value]) -> Result<Environment, String> {
    let given = given(told)?;
    let is_given = |variable: &&Value| variable["name"].as_str().is_some_and(|name| given.contains_key(name));
    let mut variables: Vec<Value> = of_pod.iter().filter(|variable| !is_given(variable)).cloned().collect();
    let mut secret = BTreeMap::from([(TASK_KEY.to_owned(), told.task.as_str().to_owned())]);
    for (number, (variable, value)) in given.into_iter().enumerate() {
        match value {
            Given::Plain(text) => variables.push(json!({ "name": variable, "value": literal(&text) })),
            Given::Secret(text) => {
                let key = format!("variable-{number}");
                let from = json!({ "secretKeyRef": { "name": name, "key": key } });
                variables.push(json!({ "name": variable, "valueFrom": from }));
                secret.insert(key, text);
            }
        }
    }
    let size: usize = secret.values().map(String::len).sum();
    if size > LARGEST {
        return Err(format!(
            "the task has {size} bytes with its secrets, and a secret of Kubernetes holds at most {LARGEST}"
        ));
    }
    Ok(Environment { variables, secret })
}

fn given(told: &JobInput) -> Result<BTreeMap<String, Given>, String> {
    let mut given = BTreeMap::new();
    for (name, value) in &told.worker.settings.env {
        let filled = fill(&format!("kubernetes.env.{name}"), value, &told.worker.secrets)?;
        let text = filled.text.to_string();
        given.insert(name.clone(), if filled.is_secret { Given::Secret(text) } else { Given::Plain(text) });
    }
    // Not those: they are about this node.
    let own: BTreeSet<&str> = [CONTROL_VARIABLE, "DISBATCH_WORK_DIR", SECURE_PARAMS].into();
    for (name, value) in &told.worker.variables {
        if !own.contains(name.as_str()) {
            given.insert(name.clone(), Given::Plain(value.clone()));
        }
    }
    let secure = match &told.secure_params {
        Some(params) => Given::Secret(params.as_str().to_owned()),
        None => Given::Plain(String::new()),
    };
    given.insert(SECURE_PARAMS.to_owned(), secure);
    given.insert("DISBATCH_TASK_FILE".to_owned(), Given::Plain(format!("{FOLDER}/{TASK_KEY}")));
    given.insert("DISBATCH_CONTROL".to_owned(), Given::Plain(LAST_WORDS.to_owned()));
    Ok(given)
}

/// Kubernetes would put the value of another variable in the place of `$(NAME)`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::super::input::tests::told;
    use super::*;

    fn of(settings: Value, task: Value, of_pod: &[Value]) -> Result<Environment, String> {
        environment(&told(&settings, &json!({}), &task), "s", of_pod)
    }

    fn variable<'a>(environment: &'a Environment, name: &str) -> &'a Value {
        let found: Vec<&Value> =
            environment.variables.iter().filter(|variable| variable["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]
    }

    #[test]
    fn a_pod_finds_the_variables_of_its_task_and_its_own() {
        let settings = json!({ "env": { "A": "1", "JOB_ID": "x" } });
        let of_pod = [
            json!({ "name": "A", "value": "0" }),
            json!({ "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }),
        ];
        let environment = of(settings, json!({}), &of_pod).unwrap();
        assert_eq!(environment.variables[0], of_pod[1]);
        for (name, value) in [
            ("A", "1"),
            ("JOB_ID", "j"),
            ("DISBATCH_ATTEMPT", "3"),
            ("TENANT_ID", ""),
            ("JOB_SECURE_PARAMS", ""),
            ("DISBATCH_CONTROL", LAST_WORDS),
            ("DISBATCH_TASK_FILE", "/var/run/disbatch/task.json"),
        ] {
            assert_eq!(variable(&environment, name), &json!({ "name": name, "value": value }));
        }
        assert_eq!(environment.secret.keys().collect::<Vec<_>>(), [TASK_KEY]);
    }

    #[test]
    fn what_is_secret_is_in_the_secret_alone() {
        let settings = json!({ "env": { "A": "x{{secret:token}}y{{ secret:token }}{{secret: token }}" } });
        let task = json!({ "secure_params": { "password": "battery" } });
        let environment = of(settings, task, &[]).unwrap();
        let shown = serde_json::to_string(&environment.variables).unwrap();
        assert!(!shown.contains("horse") && !shown.contains("battery"), "{shown}");
        let secret = |name: &str| {
            let from = &variable(&environment, name)["valueFrom"]["secretKeyRef"];
            assert_eq!(from["name"], "s");
            environment.secret[from["key"].as_str().unwrap()].as_str()
        };
        assert_eq!(secret("A"), "xhorsey{{ secret:token }}horse");
        assert_eq!(secret("JOB_SECURE_PARAMS"), r#"{"password":"battery"}"#);
        assert!(environment.secret[TASK_KEY].contains("battery"));
    }

    #[test]
    fn nothing_stands_for_anything_else() {
        let environment = of(json!({ "env": { "A": "$(JOB_ID) $$ $" } }), json!({}), &[]).unwrap();
        assert_eq!(variable(&environment, "A")["value"], "$$(JOB_ID) $$$$ $$");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = |settings: Value, task: Value| of(settings, task, &[]).unwrap_err();
        let missing = error(json!({ "env": { "A": "{{secret:other}}" } }), json!({}));
        assert_eq!(missing, "kubernetes.env.A: the plugin has no secret 'other' here");
        let open = error(json!({ "env": { "A": "{{secret:x" } }), json!({}));
        assert_eq!(open, "kubernetes.env.A: {{secret: without }}");
        let long = error(json!({}), json!({ "params": "x".repeat(LARGEST) }));
        assert!(long.contains("a secret of Kubernetes holds at most"), "{long}");
    }
}
