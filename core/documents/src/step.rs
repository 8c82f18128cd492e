//! The steps of a task: what several plugins do one after the other, in one private folder.

use bson::{Bson, Document};

use super::{PluginName, Status, Task};

/// The field of a task that has them.
pub const STEPS: &str = "steps";

/// A task has so many at most.
pub const MOST_STEPS: usize = 100;

/// The name of a step has so many characters at most.
pub const LONGEST_STEP_NAME: usize = 100;

/// A step of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    /// The plugin that does it; that of the task's queue if none is named.
    pub plugin: Option<PluginName>,
    /// Parameters of this step alone. They take the place of those of the task that have the same name.
    pub params: Document,
}

impl Step {
    /// Those of a task, in their order; none if it is an ordinary one.
    ///
    /// # Errors
    /// They are stored in a way that this release does not know. Says what is wrong with which.
    pub fn of_task(task: &Task) -> Result<Vec<Self>, String> {
        Self::of_field(task.rest.get(STEPS))
    }

    /// The same of the field that has them.
    pub fn of_field(field: Option<&Bson>) -> Result<Vec<Self>, String> {
        let steps = match field {
            None | Some(Bson::Null) => return Ok(Vec::new()),
            Some(Bson::Array(steps)) => steps,
            Some(_) => return Err("steps must be an array".to_owned()),
        };
        let step = |(index, step): (usize, &Bson)| {
            let stored = step.as_document().ok_or_else(|| format!("steps[{index}] must be an object"))?;
            Self::stored(stored, index).map_err(|why| format!("steps[{index}].{why}"))
        };
        steps.iter().enumerate().map(step).collect()
    }

    fn stored(step: &Document, index: usize) -> Result<Self, String> {
        let plugin = match step.get("plugin") {
            None | Some(Bson::Null) => None,
            Some(Bson::String(name)) => {
                Some(name.parse::<PluginName>().map_err(|error| format!("plugin: {error}"))?)
            }
            Some(_) => return Err("plugin must be text".to_owned()),
        };
        let params = match step.get("params") {
            None | Some(Bson::Null) => Document::new(),
            Some(Bson::Document(params)) => params.clone(),
            Some(_) => return Err("params must be an object".to_owned()),
        };
        let name = step.get("name").and_then(Bson::as_str).filter(|name| !name.is_empty());
        Ok(Self { name: name.map_or_else(|| Self::default_name(index), str::to_owned), plugin, params })
    }

    /// The name of a step that was given none. `index` counts from 0.
    pub fn default_name(index: usize) -> String {
        format!("step {}", index + 1)
    }

    /// As a new task has it.
    pub fn field(&self) -> Document {
        let mut step = Document::new();
        step.insert("name", self.name.as_str());
        if let Some(plugin) = &self.plugin {
            step.insert("plugin", plugin.as_str());
        }
        step.insert("params", self.params.clone());
        step.insert("status", Status::Queued);
        step
    }

    /// What its plugin gets as `params`, of a task that has `params`.
    pub fn params_over(&self, params: &Bson) -> Bson {
        match params {
            Bson::Document(of_task) => {
                let mut params = of_task.clone();
                params.extend(self.params.clone());
                Bson::Document(params)
            }
            // Whatever this is, it has no names.
            other if self.params.is_empty() => other.clone(),
            _ => Bson::Document(self.params.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn task(steps: impl Into<Bson>) -> Task {
        let steps: Bson = steps.into();
        let task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "steps": steps };
        bson::deserialize_from_document(task).unwrap()
    }

    #[test]
    fn steps_come_back_as_they_were_stored() {
        let steps = [
            Step { name: "get".to_owned(), plugin: None, params: doc! { "a": { "$oid": "x" } } },
            Step { name: "use".to_owned(), plugin: Some("My::Use".parse().unwrap()), params: doc! {} },
        ];
        let stored: Vec<Document> = steps.iter().map(Step::field).collect();
        assert_eq!(stored[1], doc! { "name": "use", "plugin": "My::Use", "params": {}, "status": -2 });
        assert_eq!(Step::of_task(&task(stored)).unwrap(), steps);
        for none in [Bson::Null, Bson::Array(Vec::new())] {
            assert!(Step::of_task(&task(none)).unwrap().is_empty());
        }
    }

    #[test]
    fn little_is_needed_and_what_is_wrong_is_named() {
        let steps = Step::of_task(&task(vec![doc! {}, doc! { "name": "", "params": Bson::Null }])).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["step 1", "step 2"]);
        let wrong = [
            (Bson::from("x"), "steps must be an array"),
            (Bson::from(vec![Bson::from(1)]), "steps[0] must be an object"),
            (vec![doc! {}, doc! { "plugin": 7 }].into(), "steps[1].plugin must be text"),
            (vec![doc! { "plugin": "a b" }].into(), "steps[0].plugin: plugin value 'a b' must be"),
            (vec![doc! { "params": [] }].into(), "steps[0].params must be an object"),
        ];
        for (steps, message) in wrong {
            let error = Step::of_task(&task(steps)).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn parameters_of_a_step_come_before_those_of_the_task() {
        let step = |params| Step { name: String::new(), plugin: None, params };
        let over = |params: Document| step(params).params_over(&doc! { "a": 1, "b": 2 }.into());
        assert_eq!(over(doc! { "b": 3, "c": 4 }), Bson::from(doc! { "a": 1, "b": 3, "c": 4 }));
        assert_eq!(over(doc! {}), Bson::from(doc! { "a": 1, "b": 2 }));
        assert_eq!(step(doc! {}).params_over(&Bson::Null), Bson::Null);
        assert_eq!(step(doc! { "a": 1 }).params_over(&Bson::Null), Bson::from(doc! { "a": 1 }));
    }
}
