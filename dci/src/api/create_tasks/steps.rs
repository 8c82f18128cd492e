//! The option `.steps`: what is done one after the other, in one private folder, each by the plugin of the queue or by another.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use disbatch_core::accounts::Role;
use disbatch_core::model::{LONGEST_STEP_NAME, MOST_STEPS, PluginName, Queue, Step};
use serde_json::{Map, Value, json};

use super::check_keys;
use crate::access::Who;
use crate::error::HttpError;
use crate::json;
use crate::params::Params;
use crate::state::State;
use crate::{allowance, values};

/// So many more copies there are of steps: they are options, which are looked at on their own before each task gets them.
const COPIES: usize = 4;

/// The steps of a submission; none if its tasks are ordinary ones.
pub fn parse(params: &Params) -> Result<Vec<Step>, HttpError> {
    let Some(given) = params.options.get("steps").filter(|value| !values::is_unset(value)) else {
        return Ok(Vec::new());
    };
    allowance::take_for_copies(COPIES, [given])?;
    // A form has it as text.
    let parsed = given.as_str().map(allowance::json::<Value>);
    let given = match &parsed {
        Some(Ok(Value::Array(steps))) => Some(steps),
        Some(_) => None,
        None => given.as_array(),
    };
    let given = given.filter(|steps| (1..=MOST_STEPS).contains(&steps.len()));
    let given = given.ok_or_else(|| wrong("", &format!("a JSON array of 1 to {MOST_STEPS} objects")))?;
    given.iter().enumerate().map(|(index, given)| step(index, given)).collect()
}

/// Sees to it that nobody runs a plugin by way of a step whom no queue lets run it.
pub async fn check(state: &State, who: &Who, queue: &Queue, steps: &[Step]) -> Result<(), HttpError> {
    let of_queue = queue.plugin_name().ok().flatten();
    let named: BTreeSet<&PluginName> = steps.iter().filter_map(|step| step.plugin.as_ref()).collect();
    let others: Vec<&PluginName> =
        named.into_iter().filter(|plugin| of_queue.as_ref() != Some(*plugin)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let plugins = state.catalogue().await?;
    if let Some(unknown) = others.iter().find(|plugin| !plugins.allows(plugin.as_str())) {
        let body = json!({ "error": "Unknown plugin", "plugin": unknown.as_str() });
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    if who.is_everywhere(Role::Operator) {
        return Ok(());
    }
    let queues = state.store.queues_within(&who.reach(Role::Submitter)).await?;
    let may_run: Vec<PluginName> =
        queues.iter().filter_map(|queue| queue.plugin_name().ok().flatten()).collect();
    match others.into_iter().find(|plugin| !may_run.contains(plugin)) {
        None => Ok(()),
        Some(plugin) => Err(HttpError::forbidden(format!(
            "a step of the plugin {plugin} needs a queue of that plugin that you may submit tasks to"
        ))),
    }
}

fn step(index: usize, given: &Value) -> Result<Step, HttpError> {
    let at = |key: &str| format!("[{index}]{key}");
    let given = given.as_object().ok_or_else(|| wrong(&at(""), "an object"))?;
    if let Some(unknown) = given.keys().find(|key| !["name", "plugin", "params"].contains(&key.as_str())) {
        let known = "a step has name, plugin and params";
        return Err(HttpError::bad_request(format!(
            ".steps{} is unknown: {known}",
            at(&format!(".{unknown}"))
        )));
    }
    let field = |key: &str| given.get(key).filter(|value| !values::is_unset(value));
    let name = match field("name") {
        None => Step::default_name(index),
        Some(Value::String(name)) if is_name(name) => name.clone(),
        Some(_) => {
            let expected = format!("text of 1 to {LONGEST_STEP_NAME} characters, without control characters");
            return Err(wrong(&at(".name"), &expected));
        }
    };
    let plugin = match field("plugin") {
        None => None,
        Some(Value::String(name)) => {
            let plugin = name.parse::<PluginName>();
            Some(
                plugin
                    .map_err(|error| HttpError::bad_request(format!(".steps{}: {error}", at(".plugin"))))?,
            )
        }
        Some(_) => return Err(wrong(&at(".plugin"), "text")),
    };
    let params = match field("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(wrong(&at(".params"), "an object")),
    };
    check_keys(&params).map_err(|error| HttpError::bad_request(format!(".steps{}: {error}", at(""))))?;
    Ok(Step { name, plugin, params: json::to_document(&params) })
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_STEP_NAME).contains(&name.chars().count()) && !name.contains(char::is_control)
}

fn wrong(at: &str, expected: &str) -> HttpError {
    HttpError::bad_request(format!(".steps{at} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn of(steps: Value) -> Result<Vec<Step>, HttpError> {
        let options = json!({ "steps": steps }).as_object().unwrap().clone();
        parse(&Params { options, ..Params::default() })
    }

    #[test]
    fn steps_are_an_array_or_its_text() {
        let given = json!([{ "name": "get" }, { "plugin": "My::Use", "params": { "a": { "$b": 1 } } }, {}]);
        let step = |name: &str, plugin: Option<&str>, params: Document| Step {
            name: name.to_owned(),
            plugin: plugin.map(|plugin| plugin.parse().unwrap()),
            params,
        };
        let expected = vec![
            step("get", None, doc! {}),
            step("step 2", Some("My::Use"), doc! { "a": { "$b": 1 } }),
            step("step 3", None, doc! {}),
        ];
        assert_eq!(of(given.clone()).unwrap(), expected);
        assert_eq!(of(json!(given.to_string())).unwrap(), expected, "a form has it as text");
        for none in [json!(null), json!("")] {
            assert_eq!(of(none).unwrap(), Vec::new());
        }
        assert_eq!(parse(&Params::default()).unwrap(), Vec::new());
    }

    #[test]
    fn mistakes_are_named() {
        let many = Value::from(vec![json!({}); 101]);
        let long = json!([{ "name": "x".repeat(101) }]);
        let wrong = [
            (json!([]), ".steps must be a JSON array of 1 to 100 objects"),
            (many, ".steps must be a JSON array of 1 to 100 objects"),
            (json!({}), ".steps must be a JSON array of 1 to 100 objects"),
            (json!("nope"), ".steps must be a JSON array of 1 to 100 objects"),
            (json!("{}"), ".steps must be a JSON array of 1 to 100 objects"),
            (json!([1]), ".steps[0] must be an object"),
            (json!([{}, { "plugn": "x" }]), ".steps[1].plugn is unknown: a step has name, plugin and params"),
            (json!([{ "name": 7 }]), ".steps[0].name must be text of 1 to 100 characters"),
            (json!([{ "name": "a\nb" }]), ".steps[0].name must be text of 1 to 100 characters"),
            (long, ".steps[0].name must be text of 1 to 100 characters"),
            (json!([{ "plugin": "a b" }]), ".steps[0].plugin: plugin value 'a b' must be"),
            (json!([{ "plugin": [] }]), ".steps[0].plugin must be text"),
            (json!([{ "params": [1] }]), ".steps[0].params must be an object"),
            (json!([{ "params": { "a.b": 1 } }]), ".steps[0]: 'params' has the key \"a.b\""),
        ];
        for (steps, message) in wrong {
            let error = of(steps).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }
}
