//! What the cluster is asked to make: a job with its pod, and the secret that the pod needs. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::environment::{self, Environment, FOLDER, TASK_KEY};
use super::input::JobInput;
use super::names;
use super::pod;

/// After so many seconds the cluster removes a job that has ended and is still there, unless the manifest says otherwise.
const USUAL_TTL: u32 = 60 * 60;

/// So many seconds more than its task a job may run. It is there for those that nobody looks after any more.
const MARGIN: u64 = 60;

/// The volume with the task.
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

impl fmt::Debug for Wanted {
    /// Shows nothing of parameters and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wanted({})", self.name)
    }
}

impl Wanted {
    /// What the manifest says and the task needs.
    pub fn new(told: &JobInput) -> Result<Self, String> {
        let name = names::job(told);
        let labels = names::labels(told);
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
            let whole = timeout.as_secs() + told.grace.as_secs() + MARGIN;
            spec["activeDeadlineSeconds"] = whole.into();
        }
        let metadata = json!({ "name": name, "labels": labels });
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
        Ok(Self {
            namespace: names::namespace(told)?,
            selector: names::selector_of_task(told),
            attempt: told.attempt,
            step: told.step,
            secret: environment.secret,
            name,
            job,
            labels,
        })
    }

    /// The secret, which goes with the job that has this id.
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

    /// The database, as labels have it.
    pub fn database(&self) -> &str {
        self.labels.get(names::DATABASE).map(String::as_str).unwrap_or_default()
    }

    /// The name of the container that is the task.
    pub fn container(&self) -> String {
        pod::main_container(&self.job["spec"]["template"])
    }

    /// How much memory that container may use, as Kubernetes writes it.
    pub fn memory(&self) -> Option<&str> {
        let container = self.container();
        let found =
            pod::containers(&self.job["spec"]["template"]).iter().find(|found| found["name"] == container);
        found?.pointer("/resources/limits/memory")?.as_str()
    }
}

/// The template of the pod, and what goes with it.
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
    let environment = environment::environment(told, name, &own)?;
    container["env"] = environment.variables.clone().into();
    Ok((template, environment))
}

/// What is made where the manifest says nothing else in `pod`.
fn made(told: &JobInput, name: &str, main: &str) -> Value {
    let settings = &told.worker.settings;
    let mut container = json!({
        "name": main,
        "terminationMessagePath": environment::LAST_WORDS,
        "volumeMounts": [{ "name": VOLUME, "mountPath": FOLDER, "readOnly": true }],
    });
    if !settings.image.is_empty() {
        container["image"] = settings.image.clone().into();
    }
    for (key, words) in [("command", &settings.command), ("args", &settings.args)] {
        if let Some(words) = words {
            container[key] = words.clone().into();
        }
    }
    if let Some(resources) = &settings.resources {
        container["resources"] = Value::Object(resources.clone());
    }
    let items = json!([{ "key": TASK_KEY, "path": TASK_KEY }]);
    let mut spec = json!({
        "restartPolicy": RESTART,
        // Who has no account of its own needs none.
        "automountServiceAccountToken": settings.service_account.is_some(),
        // Else every service of the namespace would be in its variables.
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": told.grace.as_secs().max(1),
        "containers": [container],
        "volumes": [{ "name": VOLUME, "secret": { "secretName": name, "defaultMode": 0o444, "items": items } }],
    });
    if let Some(account) = &settings.service_account {
        spec["serviceAccountName"] = account.clone().into();
    }
    if let Some(secret) = &settings.image_pull_secret {
        spec["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    json!({ "metadata": {}, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::super::input::tests::told;
    use super::*;

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
        let error = |settings: Value| wanted(settings, json!({})).unwrap_err();
        assert!(error(json!({})).starts_with("kubernetes.image must be given"));
        let again = json!({ "image": "i", "pod": { "restartPolicy": "OnFailure" } });
        assert!(error(again).starts_with("kubernetes.pod: restartPolicy"));
        let none = json!({ "image": "i", "pod": { "containers": null } });
        assert!(error(none).starts_with("kubernetes.pod: there is no container 'task'"));
        let elsewhere = json!({ "pod": { "containers": [{ "name": "a" }, { "name": "b", "image": "i" }] } });
        assert!(error(elsewhere).contains("the container 'a' has none"));
    }
}
