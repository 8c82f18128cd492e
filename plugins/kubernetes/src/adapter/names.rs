//! What a task's job is called, what it is known by, and in which namespace it is. Pure.

use std::collections::BTreeMap;

use super::input::{JobInput, TenantNamespaces};

pub const TASK: &str = "disbatch.task";
pub const ATTEMPT: &str = "disbatch.attempt";
/// The number of the step, of a task with several.
pub const STEP: &str = "disbatch.step";
/// The node whose runner has made it.
pub const NODE: &str = "disbatch.node";
/// The database of the task, if that is known.
pub const DATABASE: &str = "disbatch.database";
pub const PLUGIN: &str = "disbatch.plugin";
/// Who makes such objects.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The longest name of a namespace, and the longest value of a label.
const LONGEST: usize = 63;

/// The variable with the tenant.
const TENANT: &str = "TENANT_ID";

/// What stands for the tenant's name.
const PLACE: &str = "{tenant}";

/// The name of the job of this attempt, and of its secret. A step has one of its own.
pub fn job(told: &JobInput) -> String {
    let name = format!("disbatch-{}-{}", told.task_id, told.attempt);
    told.step.map_or(name.clone(), |step| format!("{name}-{step}"))
}

/// What job, pod and secret are known by.
pub fn labels(told: &JobInput) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::from([
        (MANAGED_BY, "disbatch".to_owned()),
        (TASK, told.task_id.clone()),
        (ATTEMPT, told.attempt.to_string()),
        (NODE, value(told.worker.variable("DISBATCH_NODE").unwrap_or_default())),
        (PLUGIN, value(&told.worker.name)),
    ]);
    if let Some(step) = told.step {
        labels.insert(STEP, step.to_string());
    }
    if let Some(database) = &told.worker.database {
        labels.insert(DATABASE, value(database));
    }
    labels
}

/// Finds all jobs of the task, of whatever attempt.
pub fn selector_of_task(told: &JobInput) -> String {
    let of_task = format!("{TASK}={}", told.task_id);
    match &told.worker.database {
        Some(database) => format!("{of_task},{DATABASE}={}", value(database)),
        None => of_task,
    }
}

/// What looks like `text` and can be the value of a label.
fn value(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '.' };
    let text: String = text.chars().take(LONGEST).map(legal).collect();
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The namespace: that of the plugin, else that of the tenant, else that of the node. `None`: that of the kubeconfig.
pub fn namespace(told: &JobInput) -> Result<Option<String>, String> {
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
        && name.len() <= LONGEST
        && name.bytes().all(is_legal)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_name {
        return Ok(name);
    }
    Err(format!(
        "{of}: {name:?} cannot be a namespace, which has small letters, digits and hyphens, and at most {LONGEST} of them"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::input::tests::told;
    use super::*;

    #[test]
    fn names_and_labels_tell_attempts_and_steps_apart() {
        let mut told = told(&json!({}), &json!({}), &json!({}));
        assert_eq!(job(&told), "disbatch-0a-3");
        let labels_of_task = labels(&told);
        assert_eq!((labels_of_task[TASK].as_str(), labels_of_task[ATTEMPT].as_str()), ("0a", "3"));
        assert_eq!((labels_of_task[PLUGIN].as_str(), labels_of_task.get(STEP)), ("My..Pod", None));
        assert_eq!(labels_of_task[DATABASE], "d");
        assert_eq!(selector_of_task(&told), "disbatch.task=0a,disbatch.database=d");
        told.step = Some(2);
        told.worker.database = Some("data base".to_owned());
        assert_eq!(job(&told), "disbatch-0a-3-2");
        assert_eq!(labels(&told)[STEP], "2");
        assert_eq!(selector_of_task(&told), "disbatch.task=0a,disbatch.database=data.base");
    }

    #[test]
    fn whatever_a_node_is_called_can_be_a_label() {
        assert_eq!(value("node1.example.com"), "node1.example.com");
        assert_eq!(value("-a/b c_"), "a.b.c");
        assert_eq!(value(&format!("{}.b", "a".repeat(62))), "a".repeat(62));
        assert_eq!(value(""), "");
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
