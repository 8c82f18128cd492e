//! JSON Schema of parameters, as manifests have it: whether the parameters of a task are what its plugin wants.
//!
//! A schema comes from the author of a plugin or from the database, and parameters from whoever submits tasks. So neither may
//! take long: a schema has a largest size ([`LARGEST`]) and refers to nothing outside itself, patterns are matched in linear time and
//! with texts up to a length, and a check ends at a moment that the caller chooses. Libraries that know all of JSON Schema have
//! no such end: a few lines of `anyOf` and `$ref` keep them busy for years.
//!
//! Checked are the keywords of draft 2020-12 and their forms in earlier drafts, except `unevaluatedProperties`,
//! `unevaluatedItems`, `$dynamicRef`, `format` and `content..`, which forbid nothing here. A pattern with look-around or back references
//! forbids nothing either, as it has no linear time.

mod check;
mod compile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::{Bson, Document};
use disbatch_documents::{PluginName, Step};
use regex::Regex;
use serde_json::{Number, Value};

use crate::plugin::Manifest;

/// A schema has so many bytes of JSON at most.
pub const LARGEST: usize = 128 * 1024;

pub const MOST_PROBLEMS: usize = 20;

/// So long the parameters of one submission may take to be checked.
pub const LONGEST_CHECK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Vec<Rule>>,
}

/// A schema inside a schema: its place in `nodes`. The first is the whole.
type NodeId = usize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("the schema has more than {LARGEST} bytes, or too many schemas and patterns in it")]
    TooLarge,
    /// It refers to something that is elsewhere, or is nowhere.
    #[error("{at}: '{reference}' is not in this schema: a $ref begins with #, and nothing else is read")]
    Reference {
        /// Where, as a JSON Pointer.
        at: String,
        reference: String,
    },
    /// A keyword has a value that it cannot have.
    #[error("{at}: expected {expected}")]
    Wrong { at: String, expected: &'static str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is: a JSON Pointer into the parameters.
    pub pointer: String,
    /// What is wrong, to be read behind the pointer.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// These are the first problems, [`MOST_PROBLEMS`] at most.
    Problems(Vec<Problem>),
    /// It could not be told in time.
    TooLong,
}

/// What one keyword, or several that belong together, ask for.
#[derive(Debug)]
enum Rule {
    Never,
    /// Any of these types, each a bit of [`TYPES`].
    Types(u8),
    Values(Vec<Value>),
    Bound(Bound, Number),
    MultipleOf(Number),
    Length(Extent),
    Pattern(Pattern),
    Items {
        first: Vec<NodeId>,
        others: Option<NodeId>,
    },
    Contains(NodeId, Extent),
    Count(Extent),
    Unique,
    Properties(Properties),
    Names(NodeId),
    Required(Vec<String>),
    Keys(Extent),
    Dependent(String, Vec<String>),
    DependentSchema(String, NodeId),
    All(Vec<NodeId>),
    Any(Vec<NodeId>),
    One(Vec<NodeId>),
    Not(NodeId),
    If {
        test: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Least,
    Above,
    Most,
    Below,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Extent {
    least: Option<u64>,
    most: Option<u64>,
}

impl Extent {
    fn has(self, number: usize) -> bool {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.least.is_none_or(|least| number >= least) && self.most.is_none_or(|most| number <= most)
    }
}

#[derive(Debug)]
struct Properties {
    named: BTreeMap<String, NodeId>,
    patterned: Vec<(Pattern, NodeId)>,
    others: Option<NodeId>,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    /// None: it is one that cannot be matched in linear time.
    regex: Option<Regex>,
}

impl Schema {
    /// Whether `value` fits, which has to be known by `until`.
    pub fn check(&self, value: &Value, until: Instant) -> Result<(), Wrong> {
        check::check(self, value, until)
    }
}

/// The schemas of plugins that are known, each read once. Whatever plugin has none takes any parameters.
#[derive(Debug, Clone, Default)]
pub struct Schemas {
    known: Arc<BTreeMap<PluginName, Arc<Schema>>>,
    unusable: BTreeMap<PluginName, SchemaError>,
}

/// What tasks are made of, as far as schemas are about it.
#[derive(Debug, Clone, Copy)]
pub struct OfTask<'a> {
    pub plugin: Option<&'a PluginName>,
    pub steps: &'a [Step],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
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

/// The types of JSON, each a bit; the narrower one first.
const TYPES: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("integer", 4),
    ("number", 8),
    ("string", 16),
    ("array", 32),
    ("object", 64),
];

/// So many values are in a message.
const MOST_NAMED: usize = 12;

/// A message has so many bytes of values.
const LONGEST_VALUES: usize = 300;

fn bit_of_type(name: &str) -> Option<u8> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

/// The bits of the types that a value has: a whole number is an integer, too.
fn bits_of(value: &Value) -> u8 {
    match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => 4 | 8,
        Value::Number(_) => 8,
        Value::String(_) => 16,
        Value::Array(_) => 32,
        Value::Object(_) => 64,
    }
}

/// Types in words: `integer or null`.
fn types_in_words(bits: u8) -> String {
    let named = TYPES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name);
    named.collect::<Vec<_>>().join(" or ")
}

fn type_of(value: &Value) -> &'static str {
    let bits = bits_of(value);
    TYPES.iter().find(|(_, bit)| bits & bit != 0).map_or("", |(name, _)| *name)
}

/// Values in words, as far as that is not long.
fn values_in_words(values: &[Value]) -> String {
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        let shown = value.to_string();
        if index == MOST_NAMED || text.len() + shown.len() > LONGEST_VALUES {
            text.push_str(", ..");
            break;
        }
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&shown);
    }
    text
}

fn shortened(text: &str) -> String {
    disbatch_values::text::cut(text, 100, "..")
}

#[cfg(test)]
mod tests;
