//! What the fields of the form of a schedule have.

use std::collections::BTreeMap;

use disbatch_core::model::Queue;
use disbatch_core::plugin::Template as Prefilled;
use disbatch_core::tags::TAGS;
use serde_json::{Map, Value};

use crate::json;
use crate::params::Params;
use crate::ui::text;
use crate::values::tags;

/// The texts of the fields, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// The text of a field; empty if it has none.
    pub fn of(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn set(&mut self, name: impl Into<String>, value: String) {
        self.0.insert(name.into(), value);
    }

    /// Whether there are options of tasks among them.
    pub fn has_options(&self) -> bool {
        self.0.iter().any(|(name, value)| name.starts_with("options.") && !value.is_empty())
    }

    pub fn of_request(params: &Params) -> Self {
        let texts = params.fields.iter().map(|(name, value)| (name.clone(), lines(value)));
        Self(texts.collect())
    }

    /// What the author of the plugin of a queue has forms begin with.
    pub fn of_template(queue: &Queue, template: &Prefilled) -> Self {
        let mut values = Self::default();
        values.set("queue", queue.id.to_string());
        values.set("name", template.name.clone());
        if !template.params.is_empty() {
            values.set("params", pretty(&template.params));
        }
        for (name, value) in &template.options {
            values.set(format!("options.{name}"), option(name, value));
        }
        values
    }

    /// Those of a schedule as clients see it.
    pub fn of_schedule(view: &Value) -> Self {
        let mut values = Self::default();
        for (name, value) in view.as_object().into_iter().flatten() {
            match (name.as_str(), value) {
                // Without a zone it would be UTC as well, but not everybody knows.
                ("start" | "end", Value::String(time)) => values.set(name, format!("{time}Z")),
                ("jitter" | "catch_up", none) if *none == 0 => {}
                ("params", Value::Object(params)) if params.is_empty() => {}
                ("params", Value::Object(params)) => values.set(name, pretty(params)),
                ("options", Value::Object(options)) => {
                    for (name, value) in options {
                        values.set(format!("options.{name}"), option(name, value));
                    }
                }
                ("calendars", Value::Array(calendars)) => {
                    for rule in ["exclude", "only"] {
                        let used = calendars.iter().filter(|used| used["use"] == rule);
                        let names: Vec<&str> = used.filter_map(|used| used["name"].as_str()).collect();
                        values.set(format!("calendars.{rule}"), names.join("\n"));
                    }
                }
                (_, value) => values.set(name, lines(value)),
            }
        }
        values
    }
}

/// An option of tasks as the text of a field.
fn option(name: &str, value: &Value) -> String {
    let tags = (name == TAGS).then(|| tags::list(value)).flatten();
    tags.map_or_else(|| lines(value), |tags| tags::line(&tags))
}

/// A value as the text of a field: one of several on each line.
fn lines(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let texts = values.iter().map(lines).filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Object(_) => json::compact(value),
        value => text(Some(value)),
    }
}

fn pretty(params: &Map<String, Value>) -> String {
    json::pretty(&Value::Object(params.clone())).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_hold_what_a_schedule_has() {
        let view = json!({
            "name": "nightly", "description": "", "queue": "6b", "zone": "Europe/Berlin", "gap": "after",
            "fold": "first", "overlap": "skip", "cron": ["0 3 * * *", "@monthly"], "jitter": 0, "catch_up": 60,
            "start": "2026-11-20T00:00:00", "end": null, "params": { "a": 1 },
            "options": { "timeout": 60, "locks": ["a", "b/shared"], "backoff": { "base": 1 }, "tags": ["a", "b"] },
            "calendars": [{ "name": "holidays", "use": "exclude" }, { "name": "fairs", "use": "only" }],
        });
        let values = Values::of_schedule(&view);
        let of = |names: [&str; 4]| names.map(|name| values.of(name).to_owned());
        assert_eq!(of(["cron", "jitter", "catch_up", "end"]), ["0 3 * * *\n@monthly", "", "60", ""]);
        assert_eq!(
            of(["start", "zone", "params", "x"]),
            ["2026-11-20T00:00:00Z", "Europe/Berlin", "{\n   \"a\" : 1\n}", ""]
        );
        assert_eq!(values.of("options.tags"), "a,b");
        assert_eq!(
            of(["options.timeout", "options.locks", "options.backoff", "calendars.exclude"]),
            ["60", "a\nb/shared", "{\"base\":1}", "holidays"]
        );
    }

    #[test]
    fn a_form_begins_with_the_template_of_the_plugin() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let queue: Queue = bson::deserialize_from_document(bson::doc! { "_id": id, "name": "mail" }).unwrap();
        let template: Prefilled = serde_json::from_value(
            json!({ "name": "nightly", "params": { "a": 1 }, "options": { "timeout": 5 } }),
        )
        .unwrap();
        let values = Values::of_template(&queue, &template);
        assert_eq!(values.of("queue"), id.to_hex());
        assert_eq!((values.of("name"), values.of("options.timeout")), ("nightly", "5"));
        assert_eq!(values.of("params"), "{\n   \"a\" : 1\n}");
    }
}
