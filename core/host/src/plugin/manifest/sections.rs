//! What a manifest says to its engine: a section for each that needs more than a command.

mod container;
mod http;
mod kubernetes;
mod perl;
mod program;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

pub use container::{Container, ContainerLimits, Mount, Pull};
pub use http::{CallbackAuth, Http};
pub use kubernetes::Kubernetes;
pub use perl::Perl;
pub use program::{Program, ProgramType};

/// What is wrong with a section: the key in it, and why.
pub(super) type Wrong = (&'static str, String);

/// A section as an adapter is told of it: with the values that it has by default.
fn told(section: &impl Serialize, defaults: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let mut told = match serde_json::to_value(section) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    };
    for (key, value) in defaults {
        told.entry(key).or_insert(value);
    }
    Value::Object(told)
}

/// Whether these can be variables: names without `=`, and nothing with the byte that ends one.
fn check_variables(key: &'static str, variables: &BTreeMap<String, String>) -> Result<(), Wrong> {
    let is_wrong = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match variables.iter().find(is_wrong) {
        Some((name, _)) => Err((key, format!("{name:?} cannot be the name of a variable, or its value"))),
        None => Ok(()),
    }
}
