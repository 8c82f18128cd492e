//! The schemas of plugins, and what they say of tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bson::{Bson, Document};
use serde_json::Value;
use disbatch_documents::{PluginName, Step};

use super::{MOST_PROBLEMS, Problem, Schema, SchemaError, Wrong};
use crate::plugin::Manifest;

/// The schemas that are known, each read once. Whatever plugin has none takes any parameters.
#[derive(Debug, Clone, Default)]
pub struct Schemas {
    known: Arc<BTreeMap<PluginName, Arc<Schema>>>,
    unusable: BTreeMap<PluginName, SchemaError>,
}

/// What tasks are made of, as far as schemas are about it.
#[derive(Debug, Clone, Copy)]
pub struct OfTask<'a> {
    /// The plugin of their queue.
    pub plugin: Option<&'a PluginName>,
    /// Their steps, if they have some.
    pub steps: &'a [Step],
}

/// Why parameters do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The plugin whose schema it is.
    pub plugin: PluginName,
    /// The step that has it, counted from 0.
    pub step: Option<usize>,
    pub why: Wrong,
}

impl Schemas {
    /// Those of these plugins. Of several with one name the first counts, and each counts for its version.
    pub fn of<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Self {
        let (mut seen, mut known, mut unusable) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for manifest in manifests {
            let name = &manifest.name;
            let version = manifest.version().ok().flatten().map(|version| name.at(&version));
            let names = version.into_iter().chain([name.clone()]);
            let new: Vec<PluginName> = names.filter(|name| seen.insert(name.clone())).collect();
            let Some(schema) = manifest.params.as_ref().filter(|_| !new.is_empty()) else { continue };
            let compiled = Schema::compile(schema).map(Arc::new);
            for name in new {
                match &compiled {
                    Ok(schema) => drop(known.insert(name, Arc::clone(schema))),
                    Err(error) => drop(unusable.insert(name, error.clone())),
                }
            }
        }
        Self { known: Arc::new(known), unusable }
    }

    pub fn get(&self, plugin: &PluginName) -> Option<&Schema> {
        self.known.get(plugin).map(Arc::as_ref)
    }

    /// Those that cannot be used, and check nothing.
    pub fn unusable(&self) -> &BTreeMap<PluginName, SchemaError> {
        &self.unusable
    }
}

/// Whether a task may have these parameters, which are an object. Each step gets them with its own in their place, and a task
/// with steps gives them to nobody else.
pub fn check_task(schemas: &Schemas, of: OfTask<'_>, params: &Value, until: Instant) -> Result<(), Misfit> {
    let check = |plugin: Option<&PluginName>, step: Option<usize>, params: &Value| {
        let Some((plugin, schema)) = plugin.and_then(|plugin| Some((plugin, schemas.get(plugin)?))) else {
            return Ok(());
        };
        schema.check(params, until).map_err(|why| Misfit { plugin: plugin.clone(), step, why })
    };
    if of.steps.is_empty() {
        return check(of.plugin, None, params);
    }
    of.steps.iter().enumerate().try_for_each(|(index, step)| {
        let mut whole = params.clone();
        if let (Value::Object(whole), Value::Object(own)) = (&mut whole, as_plugins_get(&step.params)) {
            whole.extend(own);
        }
        check(step.plugin.as_ref().or(of.plugin), Some(index), &whole)
    })
}

/// Parameters as plugins get them.
pub fn as_plugins_get(params: &Document) -> Value {
    Bson::Document(params.clone()).into_relaxed_extjson()
}

impl Misfit {
    /// The problems; none if it only took too long.
    pub fn problems(&self) -> &[Problem] {
        match &self.why {
            Wrong::Problems(problems) => problems,
            Wrong::TooLong => &[],
        }
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = self.step.map_or_else(String::new, |step| format!(" of step {}", step + 1));
        let Wrong::Problems(problems) = &self.why else {
            return write!(
                f,
                "params{of} take too long to be checked by the schema of the plugin {}",
                self.plugin
            );
        };
        write!(f, "params{of} do not fit the schema of the plugin {}", self.plugin)?;
        for (index, problem) in problems.iter().enumerate() {
            let pointer = if problem.pointer.is_empty() { "the whole" } else { &problem.pointer };
            write!(f, "{} {pointer} {}", if index == 0 { ":" } else { ";" }, problem.text)?;
        }
        if problems.len() == MOST_PROBLEMS { f.write_str("; ..") } else { Ok(()) }
    }
}
