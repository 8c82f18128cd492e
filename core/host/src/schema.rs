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
mod plugins;
mod words;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Number, Value};

pub use plugins::{Misfit, OfTask, Schemas, as_plugins_get, check_task};

/// A schema has so many bytes of JSON at most.
pub const LARGEST: usize = 128 * 1024;

/// So many problems of one submission are told.
pub const MOST_PROBLEMS: usize = 20;

/// So long the parameters of one submission may take to be checked.
pub const LONGEST_CHECK: Duration = Duration::from_secs(5);

/// A schema that can be checked by.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Vec<Rule>>,
}

/// A schema inside a schema: its place in `nodes`. The first is the whole.
type NodeId = usize;

/// Why a schema cannot be used.
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
    Wrong {
        /// Where, as a JSON Pointer.
        at: String,
        expected: &'static str,
    },
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is: a JSON Pointer into the parameters.
    pub pointer: String,
    /// What is wrong, to be read behind the pointer.
    pub text: String,
}

/// Why a value does not fit.
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
    /// Any of these types, each a bit of [`words::TYPES`].
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

/// How a number is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Least,
    Above,
    Most,
    Below,
}

/// The least and the most.
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

/// A regular expression, with its text.
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

#[cfg(test)]
mod tests;
