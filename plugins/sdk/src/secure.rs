//! Secure parameters: what only the plugin is told.

use std::fmt;

use serde_json::{Map, Value};

/// The task's secure parameters: passwords, tokens, and whatever else was given to be shown to nobody. There may be
/// none.
///
/// Runner and plugin alone know them. Disbatch stores what a plugin prints, so do not print them, not even in errors;
/// with `{:?}` this value shows nothing. Programs that the plugin starts should get them on standard input or in files
/// of the [work folder](crate::Task::work_dir), as everybody on the host can see their arguments.
#[derive(Clone, Default, PartialEq)]
pub struct SecureParams(Map<String, Value>);

impl SecureParams {
    /// Takes them out of a task's document, so that nobody comes upon them by chance.
    pub(crate) fn take(document: &mut Value) -> Self {
        match document.as_object_mut().and_then(|document| document.remove("secure_params")) {
            Some(Value::Object(params)) => Self(params),
            _ => Self::default(), // A runner writes an object, or nothing.
        }
    }

    /// The one with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecureParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecureParams({}, not shown)", self.0.len())
    }
}
