//! What a plugin's author fills forms of new tasks and schedules in with.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the fields of a form have at first. Nothing of it applies by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// What a schedule is called.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The parameters of the task.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Options of the task as `POST /tasks` has them, without their dot: `{"timeout": 60}`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

impl Template {
    /// An option as a field of a form has it; empty if it is not set.
    pub fn option(&self, name: &str) -> String {
        match self.options.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn parse(template: &str) -> Result<Option<Template>, String> {
        testing::parse("template", template).map(|manifest| manifest.template)
    }

    #[test]
    fn a_template_has_a_name_parameters_and_options() {
        let template = parse(
            r#"{ "name": "nightly", "params": { "a": 1 }, "options": { "timeout": 60, "group": "x" } }"#,
        );
        let template = template.unwrap().unwrap();
        assert_eq!((template.name.as_str(), template.params.len()), ("nightly", 1));
        assert_eq!(
            ["timeout", "group", "grace"].map(|name| template.option(name)),
            ["60", "x", ""].map(str::to_owned)
        );
        assert_eq!(parse("{}"), Ok(Some(Template::default())));
        assert_eq!(parse("null"), Ok(None));
    }

    #[test]
    fn what_is_no_template_is_named() {
        for (template, part) in [
            ("5", "template: "),
            (r#"{ "params": 5 }"#, "template.params: "),
            (r#"{ "parms": {} }"#, "unknown field `parms`"),
        ] {
            let error = parse(template).unwrap_err();
            assert!(error.contains(part), "{template}: {error}");
        }
    }
}
