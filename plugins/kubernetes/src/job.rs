//! What the cluster is asked to make: a job with its pod, and the secret that the pod needs; what these are called, what they are known by,
//! and in which namespace they are. Pure.

use std::collections::BTreeMap;

use disbatch_adapter::sections::TenantNamespaces;
use disbatch_adapter::without_nulls;
use serde_json::{Value, json};

use super::input::JobInput;
use super::pod::{self, Environment, FOLDER, TASK_KEY};

/// After so many seconds the cluster removes a job that has ended and is still there, unless the manifest says otherwise.
const USUAL_TTL: u32 = 60 * 60;

/// So many seconds more than its task a job may run. It is there for those that nobody looks after any more.
const MARGIN: u64 = 60;

const VOLUME: &str = "disbatch";

/// The only way in which the pod of a task is started: once.
const RESTART: &str = "Never";

pub struct Wanted {
    /// The name of the job, and of the secret.
    pub name: String,
    /// The namespace, if it is not that of the kubeconfig.
    pub namespace: Option<String>,
    /// What finds all jobs of the task.
    pub selector: String,
    pub attempt: u64,
    /// The number of the step, of a task with several.
    pub step: Option<u64>,
    /// The job, which does not begin yet.
    pub job: Value,
    secret: BTreeMap<String, String>,
    labels: BTreeMap<&'static str, String>,
}

impl Wanted {
    pub fn new(told: &JobInput) -> Result<Self, String> {
        let name = job_name(told);
        let labels = labels(told);
        let (template, environment) = template(told, &name, &labels)?;
        let settings = &told.worker.settings;
        let mut spec = json!({
            // It begins when it is certain that there is no other one for the task.
            "suspend": true,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": settings.ttl.unwrap_or(USUAL_TTL),
            "template": template,
        });
        if let Some(timeout) = told.timeout {
            let whole = timeout.as_secs() + told.worker.grace().as_secs() + MARGIN;
            spec["activeDeadlineSeconds"] = whole.into();
        }
        let metadata = json!({ "name": name, "labels": labels });
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
        Ok(Self {
            namespace: namespace(told)?,
            selector: selector_of_task(told),
            attempt: told.worker.attempt(),
            step: told.step,
            secret: environment.secret,
            name,
            job,
            labels,
        })
    }

    pub fn secret(&self, uid: &str) -> Value {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": uid });
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.name, "labels": self.labels, "ownerReferences": [owner] },
            "type": "Opaque",
            "immutable": true,
            "stringData": self.secret,
        })
    }

    pub fn database(&self) -> &str {
        self.labels.get(DATABASE).map(String::as_str).unwrap_or_default()
    }

    pub fn container(&self) -> String {
        pod::main_container(&self.job["spec"]["template"])
    }

    pub fn memory(&self) -> Option<&str> {
        let container = self.container();
        let found =
            pod::containers(&self.job["spec"]["template"]).iter().find(|found| found["name"] == container);
        found?.pointer("/resources/limits/memory")?.as_str()
    }
}

fn template(
    told: &JobInput,
    name: &str,
    labels: &BTreeMap<&'static str, String>,
) -> Result<(Value, Environment), String> {
    let given = pod::template(told.worker.settings.pod.as_ref())?;
    let main = pod::main_container(&given);
    let mut template = made(told, name, &main);
    pod::merge(&mut template, &given);
    // Without them it would not be found.
    pod::merge(&mut template, &json!({ "metadata": { "labels": labels } }));
    if template["spec"]["restartPolicy"] != RESTART {
        return Err(format!("kubernetes.pod: restartPolicy: it can only be {RESTART}"));
    }
    let containers = template.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    let container =
        containers.and_then(|all| all.iter_mut().find(|container| container["name"] == main.as_str()));
    let container = container.ok_or_else(|| format!("kubernetes.pod: there is no container '{main}'"))?;
    if container["image"].as_str().is_none_or(str::is_empty) {
        return Err(format!("kubernetes.image must be given, as the container '{main}' has none"));
    }
    let own = container["env"].as_array().cloned().unwrap_or_default();
    let environment = pod::environment(told, name, &own)?;
    container["env"] = environment.variables.clone().into();
    Ok((template, environment))
}

/// What is made where the manifest says nothing else in `pod`.
fn made(told: &JobInput, name: &str, main: &str) -> Value {
    let settings = &told.worker.settings;
    let container = without_nulls(json!({
        "name": main,
        "image": Some(&settings.image).filter(|image| !image.is_empty()),
        "command": settings.command,
        "args": settings.args,
        "resources": settings.resources,
        "terminationMessagePath": pod::LAST_WORDS,
        "volumeMounts": [{ "name": VOLUME, "mountPath": FOLDER, "readOnly": true }],
    }));
    let items = json!([{ "key": TASK_KEY, "path": TASK_KEY }]);
    let spec = without_nulls(json!({
        "restartPolicy": RESTART,
        // Who has no account of its own needs none.
        "automountServiceAccountToken": settings.service_account.is_some(),
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": settings.image_pull_secret.as_ref().map(|name| json!([{ "name": name }])),
        // Else every service of the namespace would be in its variables.
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": told.worker.grace().as_secs().max(1),
        "containers": [container],
        "volumes": [{ "name": VOLUME, "secret": { "secretName": name, "defaultMode": 0o444, "items": items } }],
    }));
    json!({ "metadata": {}, "spec": spec })
}

const TASK: &str = "disbatch.task";
pub const ATTEMPT: &str = "disbatch.attempt";
/// The number of the step, of a task with several.
pub const STEP: &str = "disbatch.step";
const NODE: &str = "disbatch.node";
/// The database of the task, if that is known.
pub const DATABASE: &str = "disbatch.database";
const PLUGIN: &str = "disbatch.plugin";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The longest name of a namespace, and the longest value of a label.
const LONGEST_NAME: usize = 63;

const TENANT: &str = "TENANT_ID";

const PLACE: &str = "{tenant}";

/// The name of the job of this attempt, and of its secret. A step has one of its own.
fn job_name(told: &JobInput) -> String {
    let name = format!("disbatch-{}-{}", told.task_id, told.worker.attempt());
    told.step.map_or(name.clone(), |step| format!("{name}-{step}"))
}

fn labels(told: &JobInput) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::from([
        (MANAGED_BY, "disbatch".to_owned()),
        (TASK, told.task_id.clone()),
        (ATTEMPT, told.worker.attempt().to_string()),
        (NODE, label_value(told.worker.variable("DISBATCH_NODE").unwrap_or_default())),
        (PLUGIN, label_value(&told.worker.name)),
    ]);
    if let Some(step) = told.step {
        labels.insert(STEP, step.to_string());
    }
    if let Some(database) = &told.worker.database {
        labels.insert(DATABASE, label_value(database));
    }
    labels
}

fn selector_of_task(told: &JobInput) -> String {
    let of_task = format!("{TASK}={}", told.task_id);
    match &told.worker.database {
        Some(database) => format!("{of_task},{DATABASE}={}", label_value(database)),
        None => of_task,
    }
}

/// What looks like `text` and can be the value of a label.
fn label_value(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '.' };
    let text: String = text.chars().take(LONGEST_NAME).map(legal).collect();
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The namespace: that of the plugin, else that of the tenant, else that of the node. `None`: that of the kubeconfig.
fn namespace(told: &JobInput) -> Result<Option<String>, String> {
    let of_node = told.worker.engine_config.clone().unwrap_or_default();
    if let Some(own) = &told.worker.settings.namespace {
        return checked("kubernetes.namespace of the plugin", own.clone()).map(Some);
    }
    let of_tenant = match (told.worker.variable(TENANT), &of_node.tenant_namespaces) {
        (Some(tenant), Some(TenantNamespaces::Named(template))) => Some(template.replace(PLACE, tenant)),
        (Some(tenant), Some(TenantNamespaces::Each(each))) => each.get(tenant).cloned(),
        _ => None,
    };
    if let Some(of_tenant) = of_tenant {
        return checked("engines.kubernetes.tenant_namespaces", of_tenant).map(Some);
    }
    of_node.namespace.map(|name| checked("engines.kubernetes.namespace", name)).transpose()
}

/// Another spelling of a tenant's name might be that of another tenant, so nothing is made to fit.
fn checked(of: &str, name: String) -> Result<String, String> {
    let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.bytes().all(is_legal)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_name {
        return Ok(name);
    }
    Err(format!(
        "{of}: {name:?} cannot be a namespace, which has small letters, digits and hyphens, and at most {LONGEST_NAME} of them"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::input::tests::told;

    fn wanted(settings: Value, task: Value) -> Result<Wanted, String> {
        Wanted::new(&told(&settings, &json!({}), &task))
    }

    #[test]
    fn a_plain_image_becomes_a_job_that_waits() {
        let wanted = wanted(json!({ "image": "busybox", "args": ["true"] }), json!({})).unwrap();
        let spec = &wanted.job["spec"];
        assert_eq!((&spec["suspend"], &spec["backoffLimit"]), (&json!(true), &json!(0)));
        assert_eq!(
            (&spec["ttlSecondsAfterFinished"], &spec["activeDeadlineSeconds"]),
            (&json!(3600), &json!(7200 + 57 + 60))
        );
        let pod = &spec["template"]["spec"];
        assert_eq!(
            (&pod["restartPolicy"], &pod["terminationGracePeriodSeconds"]),
            (&json!("Never"), &json!(57))
        );
        assert_eq!(pod["automountServiceAccountToken"], json!(false));
        let container = &pod["containers"][0];
        assert_eq!((&container["name"], &container["image"]), (&json!("task"), &json!("busybox")));
        assert_eq!((&container["args"], container.get("command")), (&json!(["true"]), None));
        assert_eq!(spec["template"]["metadata"]["labels"]["disbatch.task"], "0a");
        assert_eq!((wanted.name.as_str(), wanted.container().as_str()), ("disbatch-0a-3", "task"));
        assert_eq!(wanted.memory(), None);
    }

    #[test]
    fn the_secret_goes_with_the_job() {
        let wanted = wanted(json!({ "image": "i" }), json!({ "secure_params": { "p": "horse" } })).unwrap();
        let secret = wanted.secret("u-1");
        let owner = &secret["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["uid"], &owner["name"]),
            (&json!("Job"), &json!("u-1"), &json!("disbatch-0a-3"))
        );
        assert!(secret["stringData"]["task.json"].as_str().unwrap().contains("horse"));
        assert!(!wanted.job.to_string().contains("horse"));
        let volume = &wanted.job["spec"]["template"]["spec"]["volumes"][0]["secret"];
        assert_eq!(volume["secretName"], "disbatch-0a-3");
    }

    #[test]
    fn the_manifest_may_say_more_of_the_pod() {
        let pod = json!({
            "metadata": { "labels": { "team": "a", "disbatch.task": "other" }, "annotations": { "x": "y" } },
            "spec": {
                "nodeSelector": { "disk": "ssd" },
                "containers": [
                    { "name": "main", "env": [{ "name": "A", "value": "0" }, { "name": "B", "value": "1" }] },
                    { "name": "side", "image": "s" },
                ],
                "volumes": [{ "name": "scratch", "emptyDir": {} }],
            },
        });
        let settings = json!({
            "image": "i", "env": { "A": "1" }, "service_account": "worker", "image_pull_secret": "registry",
            "resources": { "limits": { "memory": "64Mi" } }, "ttl": 5, "pod": pod,
        });
        let wanted = wanted(settings, json!({})).unwrap();
        let template = &wanted.job["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        assert_eq!((&labels["team"], &labels["disbatch.task"]), (&json!("a"), &json!("0a")));
        let spec = &template["spec"];
        assert_eq!(
            (&spec["nodeSelector"]["disk"], &spec["serviceAccountName"]),
            (&json!("ssd"), &json!("worker"))
        );
        assert_eq!(spec["automountServiceAccountToken"], json!(true));
        assert_eq!(spec["imagePullSecrets"], json!([{ "name": "registry" }]));
        assert_eq!((spec["volumes"].as_array().unwrap().len(), wanted.container().as_str()), (2, "main"));
        let env = spec["containers"][0]["env"].as_array().unwrap();
        assert_eq!(env[0], json!({ "name": "B", "value": "1" }));
        assert!(env.contains(&json!({ "name": "A", "value": "1" })), "{env:?}");
        assert_eq!(spec["containers"][1].get("env"), None);
        assert_eq!(wanted.memory(), Some("64Mi"));
        assert_eq!(wanted.job["spec"]["ttlSecondsAfterFinished"], json!(5));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = |settings: Value| wanted(settings, json!({})).err().unwrap();
        assert!(error(json!({})).starts_with("kubernetes.image must be given"));
        let again = json!({ "image": "i", "pod": { "restartPolicy": "OnFailure" } });
        assert!(error(again).starts_with("kubernetes.pod: restartPolicy"));
        let none = json!({ "image": "i", "pod": { "containers": null } });
        assert!(error(none).starts_with("kubernetes.pod: there is no container 'task'"));
        let elsewhere = json!({ "pod": { "containers": [{ "name": "a" }, { "name": "b", "image": "i" }] } });
        assert!(error(elsewhere).contains("the container 'a' has none"));
    }

    #[test]
    fn names_and_labels_tell_attempts_and_steps_apart() {
        let mut told = told(&json!({}), &json!({}), &json!({}));
        assert_eq!(job_name(&told), "disbatch-0a-3");
        let labels_of_task = labels(&told);
        assert_eq!((labels_of_task[TASK].as_str(), labels_of_task[ATTEMPT].as_str()), ("0a", "3"));
        assert_eq!((labels_of_task[PLUGIN].as_str(), labels_of_task.get(STEP)), ("My..Pod", None));
        assert_eq!(labels_of_task[DATABASE], "d");
        assert_eq!(selector_of_task(&told), "disbatch.task=0a,disbatch.database=d");
        told.step = Some(2);
        told.worker.database = Some("data base".to_owned());
        assert_eq!(job_name(&told), "disbatch-0a-3-2");
        assert_eq!(labels(&told)[STEP], "2");
        assert_eq!(selector_of_task(&told), "disbatch.task=0a,disbatch.database=data.base");
    }

    #[test]
    fn whatever_a_node_is_called_can_be_a_label() {
        assert_eq!(label_value("node1.example.com"), "node1.example.com");
        assert_eq!(label_value("-a/b c_"), "a.b.c");
        assert_eq!(label_value(&format!("{}.b", "a".repeat(62))), "a".repeat(62));
        assert_eq!(label_value(""), "");
    }

    /// The namespace of a task of `tenant`.
    fn of(settings: Value, of_node: Value, tenant: &str) -> Result<Option<String>, String> {
        let mut told = told(&settings, &of_node, &json!({}));
        told.worker.variables.insert(TENANT.to_owned(), tenant.to_owned());
        namespace(&told)
    }

    #[test]
    fn the_plugin_comes_before_the_tenant_and_that_before_the_node() {
        let of_node = json!({ "namespace": "shared", "tenant_namespaces": "disbatch-{tenant}" });
        let named = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(of(json!({ "namespace": "own" }), of_node.clone(), "acme"), named("own"));
        assert_eq!(of(json!({}), of_node.clone(), "acme"), named("disbatch-acme"));
        assert_eq!(of(json!({}), of_node, ""), named("shared"));
        let each = json!({ "namespace": "shared", "tenant_namespaces": { "acme": "for-acme" } });
        assert_eq!(of(json!({}), each.clone(), "acme"), named("for-acme"));
        assert_eq!(of(json!({}), each, "other"), named("shared"));
        assert_eq!(of(json!({}), json!({}), "acme"), Ok(None));
    }

    #[test]
    fn what_cannot_be_a_namespace_is_refused() {
        let of_node = json!({ "tenant_namespaces": "disbatch-{tenant}" });
        for tenant in ["Acme", "a/../b", "a b", "-", &"a".repeat(60)] {
            let error = of(json!({}), of_node.clone(), tenant).unwrap_err();
            assert!(error.starts_with("engines.kubernetes.tenant_namespaces: "), "{error}");
        }
        let error = of(json!({ "namespace": "" }), json!({}), "").unwrap_err();
        assert!(error.starts_with("kubernetes.namespace of the plugin: "), "{error}");
    }
}
