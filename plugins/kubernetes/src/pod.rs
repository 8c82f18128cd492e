//! What a manifest gives as `pod`: which forms it may have, and how it is merged over the pod that is made; the variables of a pod, and what
//! of them is in its secret. Pure.

use std::collections::BTreeMap;

use disbatch_adapter::{CONTROL_VARIABLE, Filled, fill};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::input::JobInput;

/// The name of the container that is the task, unless the manifest has another one.
pub const CONTAINER: &str = "task";

/// Lists whose elements are told apart by one of their keys. Others are taken as a whole.
const LISTS: [(&str, &str); 6] = [
    ("containers", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// What may be beside the part that counts, and says nothing.
const TITLES: [&str; 2] = ["apiVersion", "kind"];

/// The same as a template of a pod, with `metadata` and `spec`. It may be a pod, the specification of one, a template, or a job
/// with one.
pub fn template(given: Option<&Map<String, Value>>) -> Result<Value, String> {
    let Some(given) = given else { return Ok(json!({ "metadata": {}, "spec": {} })) };
    let of_job = given.get("spec").and_then(|spec| spec.get("template"));
    let template = if let Some(template) = of_job {
        only(given, "", &["metadata", "spec"])?;
        if let Some(spec) = given.get("spec").and_then(Value::as_object) {
            only(spec, "spec.", &["template"])?;
        }
        object(template, "spec.template")?
    } else if let Some(template) = given.get("template") {
        only(given, "", &["metadata", "template"])?;
        object(template, "template")?
    } else if given.contains_key("spec") || given.contains_key("metadata") {
        given.clone()
    } else {
        Map::from_iter([("spec".to_owned(), Value::Object(given.clone()))])
    };
    only(&template, "", &["metadata", "spec"])?;
    let part = |name: &str| template.get(name).map_or(Ok(Map::new()), |part| object(part, name));
    let (metadata, mut spec) = (part("metadata")?, part("spec")?);
    name_first(&mut spec)?;
    Ok(json!({ "metadata": metadata, "spec": spec }))
}

/// The name of the container that is the task: the first one, unless there is one with the usual name.
pub fn main_container(template: &Value) -> String {
    let names: Vec<&str> =
        containers(template).iter().filter_map(|container| container["name"].as_str()).collect();
    let name =
        if names.contains(&CONTAINER) { CONTAINER } else { names.first().copied().unwrap_or(CONTAINER) };
    name.to_owned()
}

pub fn containers(template: &Value) -> &[Value] {
    template.pointer("/spec/containers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Merges `over` over `base`: objects key by key, where null takes a key away; lists of things that have names by these; all
/// else as a whole.
pub fn merge(base: &mut Value, over: &Value) {
    merge_as("", base, over);
}

fn merge_as(key: &str, base: &mut Value, over: &Value) {
    let identity = LISTS.iter().find(|(list, _)| *list == key).map(|(_, identity)| *identity);
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(key);
                } else if let Some(below) = base.get_mut(key) {
                    merge_as(key, below, value);
                } else {
                    base.insert(key.clone(), value.clone());
                }
            }
        }
        (Value::Array(base), Value::Array(over)) if identity.is_some() => {
            let identity = identity.unwrap_or_default();
            for value in over {
                match base.iter_mut().find(|below| is_same(below, value, identity)) {
                    Some(below) => merge_as("", below, value),
                    None => base.push(value.clone()),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn is_same(one: &Value, other: &Value, identity: &str) -> bool {
    one[identity].is_string() && one[identity] == other[identity]
}

/// A container without a name that comes first is the task.
fn name_first(spec: &mut Map<String, Value>) -> Result<(), String> {
    let containers = match spec.get_mut("containers") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(containers)) => containers,
        Some(_) => return Err("kubernetes.pod: containers: expected a list".to_owned()),
    };
    if !containers.iter().all(Value::is_object) {
        return Err("kubernetes.pod: containers: expected a list of objects".to_owned());
    }
    if let Some(Value::Object(first)) = containers.first_mut() {
        first.entry("name").or_insert_with(|| CONTAINER.into());
    }
    Ok(())
}

fn object(value: &Value, of: &str) -> Result<Map<String, Value>, String> {
    value.as_object().cloned().ok_or_else(|| format!("kubernetes.pod: {of}: expected an object"))
}

/// What nobody would look at is a mistake.
fn only(object: &Map<String, Value>, of: &str, keys: &[&str]) -> Result<(), String> {
    let is_known = |key: &str| keys.contains(&key) || TITLES.contains(&key);
    match object.keys().find(|key| !is_known(key)) {
        Some(key) => Err(format!("kubernetes.pod: {of}{key} is not for a plugin to say, only the pod is")),
        None => Ok(()),
    }
}

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
    pub variables: Vec<Value>,
    pub secret: BTreeMap<String, String>,
}

/// Makes them. `of_pod`: the variables that the manifest gives to the container in `pod`. Of the same name, what a runner sets
/// comes before `env` of the manifest, and that before these.
pub fn environment(told: &JobInput, name: &str, of_pod: &[Value]) -> Result<Environment, String> {
    let given = given(told)?;
    let is_given = |variable: &&Value| variable["name"].as_str().is_some_and(|name| given.contains_key(name));
    let mut variables: Vec<Value> = of_pod.iter().filter(|variable| !is_given(variable)).cloned().collect();
    let mut secret = BTreeMap::from([(TASK_KEY.to_owned(), told.task.as_str().to_owned())]);
    for (number, (variable, Filled { text, is_secret })) in given.into_iter().enumerate() {
        if is_secret {
            let key = format!("variable-{number}");
            let from = json!({ "secretKeyRef": { "name": name, "key": key } });
            variables.push(json!({ "name": variable, "valueFrom": from }));
            secret.insert(key, text.to_string());
        } else {
            // Kubernetes would put the value of another variable in the place of `$(NAME)`.
            variables.push(json!({ "name": variable, "value": text.replace('$', "$$") }));
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

fn given(told: &JobInput) -> Result<BTreeMap<String, Filled>, String> {
    let plain = |text: &str| Filled { text: Zeroizing::new(text.to_owned()), is_secret: false };
    let mut given = BTreeMap::new();
    for (name, value) in &told.worker.settings.env {
        given.insert(name.clone(), fill(&format!("kubernetes.env.{name}"), value, &told.worker.secrets)?);
    }
    // Not those: they are about this node.
    let own = [CONTROL_VARIABLE, "DISBATCH_WORK_DIR", SECURE_PARAMS];
    for (name, value) in &told.worker.variables {
        if !own.contains(&name.as_str()) {
            given.insert(name.clone(), plain(value));
        }
    }
    // The file with the task has them in any case.
    if told.worker.secure_params_in_environment != Some(false) {
        let secure = match &told.secure_params {
            Some(params) => Filled { text: params.clone(), is_secret: true },
            None => plain(""),
        };
        given.insert(SECURE_PARAMS.to_owned(), secure);
    }
    given.insert("DISBATCH_TASK_FILE".to_owned(), plain(&format!("{FOLDER}/{TASK_KEY}")));
    given.insert("DISBATCH_CONTROL".to_owned(), plain(LAST_WORDS));
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::told;

    fn read(given: Value) -> Result<Value, String> {
        template(given.as_object())
    }

    #[test]
    fn a_pod_may_be_given_in_several_forms() {
        let spec = json!({ "containers": [{ "name": "task", "image": "i" }] });
        let expected = json!({ "metadata": {}, "spec": spec });
        for given in [
            json!({ "containers": [{ "image": "i" }] }),
            json!({ "spec": spec }),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec }),
            json!({ "template": { "spec": spec } }),
            json!({ "kind": "Job", "metadata": { "name": "x" }, "spec": { "template": { "spec": spec } } }),
        ] {
            assert_eq!(read(given.clone()).unwrap(), expected, "{given}");
        }
        let empty = json!({ "metadata": {}, "spec": {} });
        assert_eq!((template(None).unwrap(), read(json!({})).unwrap()), (empty.clone(), empty));
    }

    #[test]
    fn what_would_be_passed_over_is_refused() {
        for (given, expected) in [
            (json!({ "spec": { "template": {}, "completions": 2 } }), "kubernetes.pod: spec.completions"),
            (json!({ "spec": {}, "containers": [] }), "kubernetes.pod: containers is not"),
            (json!({ "template": 5 }), "kubernetes.pod: template: expected an object"),
            (json!({ "spec": { "containers": {} } }), "kubernetes.pod: containers: expected a list"),
            (json!({ "containers": [5] }), "kubernetes.pod: containers: expected a list of objects"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_task_is_the_first_container_or_the_one_that_is_called_so() {
        let main = |containers: Value| main_container(&read(json!({ "containers": containers })).unwrap());
        assert_eq!(main(json!([])), "task");
        assert_eq!(main(json!([{ "image": "i" }, { "name": "b" }])), "task");
        assert_eq!(main(json!([{ "name": "a" }, { "name": "b" }])), "a");
        assert_eq!(main(json!([{ "name": "a" }, { "name": "task" }])), "task");
    }

    #[test]
    fn lists_are_merged_by_name_and_null_takes_away() {
        let mut base = json!({
            "a": 1, "b": { "c": 2, "d": 3 },
            "containers": [{ "name": "task", "image": "i", "args": ["x", "y"], "env": [{ "name": "A", "value": "1" }] }],
        });
        let over = json!({
            "a": null, "b": { "c": [4] }, "e": {},
            "containers": [
                { "name": "side", "image": "s" },
                { "name": "task", "args": ["z"], "env": [{ "name": "A", "value": "2" }, { "name": "B" }] },
            ],
        });
        merge(&mut base, &over);
        let task = json!({
            "name": "task", "image": "i", "args": ["z"], "env": [{ "name": "A", "value": "2" }, { "name": "B" }],
        });
        assert_eq!(
            base,
            json!({
                "b": { "c": [4], "d": 3 }, "e": {}, "containers": [task, { "name": "side", "image": "s" }],
            })
        );
    }

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
    fn a_node_may_refuse_secure_parameters_in_variables() {
        let mut told = told(&json!({}), &json!({}), &json!({ "secure_params": { "password": "battery" } }));
        told.worker.secure_params_in_environment = Some(false);
        let environment = environment(&told, "s", &[]).unwrap();
        assert!(environment.variables.iter().all(|variable| variable["name"] != SECURE_PARAMS));
        assert_eq!(environment.secret.keys().collect::<Vec<_>>(), [TASK_KEY]);
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
