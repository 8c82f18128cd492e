//! A document of the inbox, and what it must be. Pure.

use std::borrow::Cow;

use bson::{Bson, Document};
use serde_json::{Map, Value};

use crate::model::{Selector, TraceContext, whole_number};
use crate::request::{self, Invalid};
use crate::schema::as_plugins_get;
use crate::secrets;
use crate::task::TaskOptions;

use super::LEFT;

/// The only version that there is.
const VERSION: i64 = 1;

const FIELDS: [&str; 9] = ["_id", "v", "queue", "params", "options", "key", "by", "trace", LEFT];

/// Options of `POST /tasks` that are not taken here, and why.
const NOT_HERE: [(&str, &str); 4] = [
    (
        secrets::FIELD,
        "secure parameters are not taken by the inbox, where others could read them: use POST /tasks",
    ),
    ("array", "arrays are not taken by the inbox: use POST /tasks"),
    ("idempotency_key", "is the field 'key' of the document"),
    ("tenant", "the tenant follows from the configuration"),
];

/// What a document asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub queue: Selector,
    pub params: Document,
    /// Without whose they are.
    pub options: TaskOptions,
    /// An idempotency key.
    pub key: Option<String>,
    pub by: Option<String>,
}

/// Why a document asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unread {
    /// A later release may understand it.
    Unknown(String),
    Wrong(String),
}

impl From<Invalid> for Unread {
    fn from(invalid: Invalid) -> Self {
        Self::Wrong(invalid.to_string())
    }
}

pub(super) fn read(document: &Document) -> Result<Wanted, Unread> {
    let wrong = |what: &str| Unread::Wrong(what.to_owned());
    let given = |name: &str| document.get(name).filter(|value| **value != Bson::Null);
    match given("v").map(whole_number) {
        Some(Some(VERSION)) => {}
        None => return Err(wrong("v is missing")),
        Some(_) => {
            return Err(Unread::Unknown(format!("v must be {VERSION}: no other version is known here")));
        }
    }
    let options = match given("options").map(json) {
        None => Map::new(),
        Some(Value::Object(options)) => options,
        Some(_) => return Err(wrong("options must be an object")),
    };
    let is_given = |name: &str| options.contains_key(name) || document.contains_key(name);
    if let Some((name, why)) = NOT_HERE.iter().find(|(name, _)| is_given(name)) {
        return Err(Unread::Wrong(format!(".{name}: {why}")));
    }
    if let Some(name) = document.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(Unread::Unknown(format!("the field '{}' is unknown", shortened(name))));
    }
    let known = request::names();
    if let Some(name) = options.keys().find(|name| !known.contains(name.as_str())) {
        return Err(Unread::Unknown(format!("the option '{}' is unknown", shortened(name))));
    }
    let options = request::options(|name| options.get(name).map(Cow::Borrowed))?;
    let queue = queue(document).ok_or_else(|| wrong("queue must be the name or the id of a queue"))?;
    let Some(Bson::Document(params)) = given("params") else {
        return Err(wrong("params must be an object"));
    };
    if params.is_empty() && options.steps.is_empty() {
        return Err(wrong("params must have a key"));
    }
    if let Value::Object(params) = as_plugins_get(params) {
        request::check_keys(&params)?;
    }
    let text = |name: &str| given(name).map(|value| request::text(name, &json(value))).transpose();
    let (key, by) = (text("key")?, text("by")?);
    Ok(Wanted {
        queue,
        params: params.clone(),
        options: TaskOptions { trace: trace(document), ..options },
        key,
        by,
    })
}

/// The queue that a document names.
pub(super) fn queue(document: &Document) -> Option<Selector> {
    match document.get("queue")? {
        Bson::String(name) => Some(Selector::parse(name)),
        Bson::ObjectId(id) => Some(Selector::Id(*id)),
        _ => None, // Nothing else names one.
    }
}

/// The trace of a document: its `traceparent`, or an object as tasks have it. What cannot be used is as if it were not there.
pub(super) fn trace(document: &Document) -> Option<TraceContext> {
    match document.get("trace")? {
        Bson::String(parent) => TraceContext::of(Some(parent), None, None),
        Bson::Document(field) => TraceContext::of_field(field),
        _ => None, // Nothing else says anything.
    }
}

/// A value as REST has it: times are text.
fn json(value: &Bson) -> Value {
    match value {
        Bson::DateTime(at) => Value::from(at.try_to_rfc3339_string().unwrap_or_default()),
        Bson::Document(fields) => fields.iter().map(|(name, value)| (name.clone(), json(value))).collect(),
        other => other.clone().into_relaxed_extjson(),
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
