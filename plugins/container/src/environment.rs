//! The variables of a container.

use std::collections::BTreeMap;

use disbatch_adapter::{CONTROL_VARIABLE, fill};
use serde_json::Value;

use crate::channel;
use crate::input::ContainerInput;

/// All of them, as Docker's interface has them. Of the same name, what a runner sets comes before what the task brings, and
/// that before what the manifest says: secrets stand only where that names them.
pub fn variables(told: &ContainerInput, of_config: Option<&Value>) -> Result<Vec<String>, String> {
    let (settings, secrets) = (&told.worker.settings, &told.worker.secrets);
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in entries("container.config.Env", of_config)? {
        let value = fill("container.config.Env", &value, secrets)?;
        all.insert(name, value.text.to_string());
    }
    for (name, value) in &settings.env {
        let value = fill(&format!("container.env.{name}"), value, secrets)?;
        all.insert(name.clone(), value.text.to_string());
    }
    let brought = told.brought.as_ref().and_then(|brought| brought.get("Env"));
    all.extend(entries("params.Container.Config.Env", brought)?);
    all.extend(told.worker.variables.iter().map(|(name, value)| (name.clone(), value.clone())));
    let folder = settings.folder();
    all.insert("DISBATCH_WORK_DIR".to_owned(), folder.to_owned());
    all.insert(channel::VARIABLE.to_owned(), format!("{folder}/{}", channel::NAME));
    // There is no such descriptor in it.
    all.remove(CONTROL_VARIABLE);
    Ok(all.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// Names and values. A name alone takes a variable of the image away with Docker, but Podman looks for it in its own environment,
/// and for `*` takes all of that.
fn entries(of: &str, list: Option<&Value>) -> Result<Vec<(String, String)>, String> {
    let wrong = || format!("{of}: expected a list of NAME=value");
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(wrong()),
    };
    let split = |value: &Value| -> Result<(String, String), String> {
        let text = value.as_str().filter(|text| !text.contains('\0'));
        let (name, value) = text.and_then(|text| text.split_once('=')).ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        Ok((name.to_owned(), value.to_owned()))
    };
    list.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::tests::told;

    fn of(settings: &Value, params: &Value) -> Result<Vec<String>, String> {
        let told = told(settings, params);
        let of_config = told.worker.settings.config.as_ref().and_then(|config| config.get("Env")).cloned();
        variables(&told, of_config.as_ref())
    }

    #[test]
    fn a_container_finds_the_variables_of_its_task_and_its_own() {
        let expected = [
            "DISBATCH_ATTEMPT=3",
            "DISBATCH_CONTROL=/work/.disbatch-control",
            "DISBATCH_NODE=n1",
            "DISBATCH_TASK_ID=0a",
            "DISBATCH_WORK_DIR=/work",
            "JOB_ID=j",
        ];
        assert_eq!(of(&json!({ "image": "i" }), &json!({})).unwrap(), expected);
        let settings = json!({
            "env": { "A": "1", "JOB_ID": "x", "B": "=" }, "workdir": "/data/",
            "config": { "Env": ["A=0", "C=3", "PATH="] }
        });
        let variables = of(&settings, &json!({})).unwrap();
        for expected in ["A=1", "B==", "C=3", "PATH=", "JOB_ID=j", "DISBATCH_WORK_DIR=/data"] {
            assert!(variables.contains(&expected.to_owned()), "{expected}: {variables:?}");
        }
        assert_eq!(variables.len(), 10);
    }

    #[test]
    fn secrets_stand_where_the_manifest_names_them_and_nowhere_else() {
        let settings = json!({
            "env": { "A": "x{{secret:token}}y{{ secret:token }}{{secret: token }}" },
            "config": { "Env": ["B={{secret:token}}"] }, "config_from_params": true
        });
        let params = json!({ "Container": { "Config": { "Env": ["C={{secret:token}}"] } } });
        let variables = of(&settings, &params).unwrap();
        for expected in ["A=xhorsey{{ secret:token }}horse", "B=horse", "C={{secret:token}}"] {
            assert!(variables.contains(&expected.to_owned()), "{expected}: {variables:?}");
        }
        let error = |settings: Value| of(&settings, &json!({})).unwrap_err();
        let missing = error(json!({ "env": { "A": "{{secret:other}}" } }));
        assert_eq!(missing, "container.env.A: the plugin has no secret 'other' here");
        assert_eq!(error(json!({ "env": { "A": "{{secret:x" } })), "container.env.A: {{secret: without }}");
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for list in [
            json!("A=1"),
            json!([1]),
            json!([""]),
            json!(["=1"]),
            json!(["A=\0"]),
            json!(["A"]),
            json!(["*"]),
        ] {
            let error = of(&json!({ "config": { "Env": list } }), &json!({})).unwrap_err();
            assert_eq!(error, "container.config.Env: expected a list of NAME=value");
        }
    }
}
