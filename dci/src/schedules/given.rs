//! What a request says of a schedule: a value for each field, as JSON or as forms have them.

use actix_web::http::StatusCode;
use bson::{Bson, DateTime, Document};
use disbatch_core::closest::closest;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::schedules::{Overlap, Settings, Spec};
use disbatch_core::secrets::{self, Keys};
use disbatch_core::task::TaskOptions;
use serde_json::{Map, Value, json};

use super::{RESERVED, list};
use crate::api::create_tasks::{self, options};
use crate::error::HttpError;
use crate::params::Params;
use crate::{arrays, json as js, legacy, values};

/// The fields that say when a schedule makes tasks.
const TIMES: [&str; 8] = ["cron", "zone", "gap", "fold", "jitter", "start", "end", "calendars"];

const OTHERS: [&str; 8] =
    ["name", "description", "queue", "params", "overlap", "catch_up", "tenant", "paused"];

/// What its tasks can have besides.
const OPTIONS: [&str; 9] =
    ["timeout", "grace", "max_attempts", "backoff", "priority", "group", "locks", "steps", "files"];

/// What a request gives. Null is the default of a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    fields: Map<String, Value>,
    options: Map<String, Value>,
}

impl Given {
    /// Reads it. Options may be an object, or be given one by one, as `options.timeout`; calendars may be a list, or be
    /// given by their names as `calendars.exclude` and `calendars.only`. An empty field of a form is null.
    pub fn read(params: &Params) -> Result<Self, HttpError> {
        arrays::refuse(params)?;
        let mut given = Self::default();
        let mut calendars: Option<Vec<Value>> = None;
        for (name, value) in &params.fields {
            match name.split_once('.') {
                Some(("options", option)) => given.option(option, value)?,
                Some(("calendars", rule @ ("exclude" | "only"))) => {
                    let used = list(value).into_iter().map(|name| json!({ "name": name, "use": rule }));
                    calendars.get_or_insert_default().extend(used);
                }
                None if name == "options" => {
                    for (option, value) in object("options", value)? {
                        given.option(&option, &value)?;
                    }
                }
                None if TIMES.contains(&name.as_str()) || OTHERS.contains(&name.as_str()) => {
                    drop(given.fields.insert(name.clone(), unless_unset(value)));
                }
                _ => return Err(HttpError::bad_param("unknown param", name)),
            }
        }
        if let Some(calendars) = calendars {
            given.fields.insert("calendars".to_owned(), Value::from(calendars));
        }
        Ok(given)
    }

    /// A field that is given, and not null.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Whether the schedule is to be paused, or not, if that is said.
    pub fn paused(&self) -> Result<Option<bool>, HttpError> {
        self.field("paused").map(|value| values::flag("paused", value)).transpose()
    }

    /// Whether there is more than that.
    pub fn has_settings(&self, params: &Params) -> bool {
        let has_secure = params.options.get(secrets::FIELD).is_some_and(|value| value.as_str() != Some(""));
        has_secure || !self.options.is_empty() || self.fields.keys().any(|name| name != "paused")
    }

    /// When it makes tasks: as it did before, with what is given.
    pub fn spec(&self, before: Option<&Spec>) -> Result<Spec, HttpError> {
        let mut fields = before.map(Spec::document).unwrap_or_default();
        for name in TIMES {
            let Some(value) = self.fields.get(name) else { continue };
            let stored = match (name, value) {
                (_, Value::Null) => {
                    fields.remove(name);
                    continue;
                }
                ("cron", Value::String(text)) => expressions(text),
                ("calendars", value) => calendars(value)?,
                ("start" | "end", value) => moment(name, value)?.into(),
                ("jitter", value) => whole(value),
                (_, value) => js::to_bson(value),
            };
            fields.insert(name, stored);
        }
        Spec::read(&fields).map_err(|error| HttpError::bad_request(error.to_string()))
    }

    /// The options of its tasks: as they were before, with what is given, for tasks of `queue`. Secure parameters come as
    /// the option `.secure_params` of the request: null takes them away, and an empty field of a form leaves them.
    pub fn options(
        &self,
        params: &Params,
        queue: QueueId,
        keys: &Keys,
        before: Option<&TaskOptions>,
    ) -> Result<TaskOptions, HttpError> {
        let mut wanted = self.options.clone();
        let secure = params.options.get(secrets::FIELD);
        wanted.extend(secure.map(|value| (secrets::FIELD.to_owned(), value.clone())));
        let request = Params { fields: Map::new(), options: wanted };
        let fresh = options::of(&request, queue, keys).map_err(within_options)?;
        let mut all = before.cloned().unwrap_or_default();
        for name in self.options.keys() {
            match name.as_str() {
                "timeout" => all.timeout = fresh.timeout,
                "grace" => all.grace = fresh.grace,
                "max_attempts" => all.max_attempts = fresh.max_attempts,
                "backoff" => all.backoff.clone_from(&fresh.backoff),
                "priority" => all.priority = fresh.priority,
                "group" => all.group.clone_from(&fresh.group),
                "locks" => all.locks.clone_from(&fresh.locks),
                "steps" => all.steps.clone_from(&fresh.steps),
                "files" => all.files.clone_from(&fresh.files),
                _ => {} // There are no others.
            }
        }
        if secure.is_some_and(|value| value.as_str() != Some("")) {
            all.secure_params = fresh.secure_params;
        }
        Ok(all)
    }

    /// All settings: as they were before, with what is given, for tasks of `queue`. `owner` is that of a new schedule.
    pub fn settings(
        &self,
        before: Option<&Settings>,
        (queue, options): (Option<&Queue>, TaskOptions),
        owner: Option<&str>,
    ) -> Result<Settings, HttpError> {
        let missing = |name: &str| HttpError::bad_request(format!("{name} must be given"));
        let id = queue.map(|queue| queue.id).or(before.map(|before| before.queue));
        Ok(Settings {
            name: match (self.fields.get("name"), before) {
                (None, Some(before)) => before.name.clone(),
                (None | Some(Value::Null), _) => return Err(missing("name")),
                (Some(name), _) => name_of(name)?,
            },
            description: match (self.fields.get("description"), before) {
                (None, Some(before)) => before.description.clone(),
                (None | Some(Value::Null), _) => String::new(),
                (Some(Value::String(text)), _) => text.clone(),
                (Some(_), _) => return Err(HttpError::bad_request("description must be text")),
            },
            queue: id.ok_or_else(|| missing("queue"))?,
            params: match (self.fields.get("params"), before) {
                (None, Some(before)) => before.params.clone(),
                (None, None) => Document::new(),
                (Some(value), _) => parameters(value)?,
            },
            options,
            spec: self.spec(before.map(|before| &before.spec))?,
            overlap: match (self.fields.get("overlap"), before) {
                (None, Some(before)) => before.overlap,
                (None | Some(Value::Null), _) => Overlap::default(),
                (Some(value), _) => overlap(value)?,
            },
            catch_up: match (self.fields.get("catch_up"), before) {
                (None, Some(before)) => before.catch_up,
                (None | Some(Value::Null), _) => std::time::Duration::ZERO,
                (Some(value), _) => whole_seconds("catch_up", value)?,
            },
            tenant: self.tenant(before, queue)?,
            owner: match before {
                Some(before) => before.owner.clone(),
                None => owner.map(str::to_owned),
            },
        })
    }

    /// For whom its tasks are: that of the queue, if it has one. Of a queue that is nobody's it is as given, or as before.
    fn tenant(&self, before: Option<&Settings>, queue: Option<&Queue>) -> Result<Option<String>, HttpError> {
        let given = self.field("tenant").map(|value| values::text("tenant", value)).transpose()?;
        let before = before.and_then(|before| before.tenant.clone());
        match (given, queue.and_then(Queue::tenant)) {
            (Some(given), Some(own)) if given != own => {
                Err(HttpError::bad_request("tenant: the queue is that of another tenant"))
            }
            (_, Some(own)) => Ok(Some(own.to_owned())),
            (Some(given), None) => Ok(Some(given)),
            (None, None) if self.fields.contains_key("tenant") => Ok(None),
            (None, None) => Ok(before),
        }
    }

    fn option(&mut self, name: &str, value: &Value) -> Result<(), HttpError> {
        if !OPTIONS.contains(&name) {
            let body = match closest(name, OPTIONS) {
                None => json!({ "error": "unknown param in options", "param": name }),
                Some(meant) => {
                    json!({ "error": format!("unknown param in options: did you mean {meant}?"), "param": name })
                }
            };
            return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
        }
        let value = match (name, unless_unset(value)) {
            // Forms have them as lines.
            ("locks", Value::String(text)) => Value::from(list(&Value::from(text))),
            ("steps", Value::String(text)) => parsed("options.steps", &text)?,
            ("files", Value::String(text)) => parsed("options.files", &text)?,
            (_, value) => value,
        };
        self.options.insert(name.to_owned(), value);
        Ok(())
    }
}

/// A point in time as [`values::time`] has it. A day alone is its beginning, and seconds may be left out.
pub fn moment(name: &str, value: &Value) -> Result<DateTime, HttpError> {
    let completed = value.as_str().map(|text| match text.trim() {
        day if day.len() == 10 && is_day(day) => format!("{day}T00:00:00"),
        minute if minute.len() == 16 && is_day(minute) => format!("{minute}:00"),
        other => other.to_owned(),
    });
    values::time(name, &completed.map_or_else(|| value.clone(), Value::from))
}

fn unless_unset(value: &Value) -> Value {
    if values::is_unset(value) { Value::Null } else { value.clone() }
}

fn parsed(name: &str, text: &str) -> Result<Value, HttpError> {
    crate::allowance::json(text)
        .map_err(|error| HttpError::bad_request(format!("{name} is not JSON: {error}")))
}

/// An object, or its JSON as text. Null has nothing in it.
fn object(name: &str, value: &Value) -> Result<Map<String, Value>, HttpError> {
    let value = match value {
        Value::String(text) if !text.is_empty() => parsed(name, text)?,
        value => unless_unset(value),
    };
    match value {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(Map::new()),
        _ => Err(HttpError::bad_request(format!("{name} must be a JSON object"))), // Nothing else has names.
    }
}

/// So many more copies there are of them: in what is stored, in what is compared with that, and in the answer.
const COPIES: usize = 6;

/// The parameters of its tasks; there may be none.
fn parameters(value: &Value) -> Result<Document, HttpError> {
    crate::allowance::take_for_copies(COPIES, [value])?;
    let params = object("params", value)?;
    if params.is_empty() {
        return Ok(Document::new());
    }
    Ok(create_tasks::task_params(Value::Object(params))?.pop().unwrap_or_default())
}

/// Text with an expression on each line.
fn expressions(text: &str) -> Bson {
    let lines: Vec<Bson> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Bson::from).collect();
    match <[Bson; 1]>::try_from(lines) {
        Ok([one]) => one,
        Err(lines) => Bson::Array(lines),
    }
}

fn calendars(value: &Value) -> Result<Bson, HttpError> {
    match value {
        Value::String(text) => Ok(js::to_bson(&parsed("calendars", text)?)),
        value => Ok(js::to_bson(value)),
    }
}

/// A whole number as one; what is none stays as it is, for whoever reads it to say so.
fn whole(value: &Value) -> Bson {
    let number = legacy::integer(value).filter(|_| !value.is_boolean());
    number.map_or_else(|| js::to_bson(value), Bson::from)
}

fn whole_seconds(name: &str, value: &Value) -> Result<std::time::Duration, HttpError> {
    let given = values::seconds(name, value)?;
    let wrong = || HttpError::bad_request(format!("{name} must be whole seconds"));
    Some(given).filter(|given| given.subsec_nanos() == 0).ok_or_else(wrong)
}

fn name_of(value: &Value) -> Result<String, HttpError> {
    let name = values::text("name", value)?;
    if RESERVED.contains(&name.as_str()) {
        return Err(HttpError::bad_request(format!("name must not be {}", RESERVED.join(" or "))));
    }
    Ok(name)
}

fn overlap(value: &Value) -> Result<Overlap, HttpError> {
    let name = values::word("overlap", value, &Overlap::ALL.map(Overlap::as_str))?;
    Ok(Overlap::named(name).unwrap_or_default())
}

/// The options of a schedule have no dot before them.
fn within_options(error: HttpError) -> HttpError {
    let is_named = error.message().starts_with('.') && !error.message().starts_with(".secure_params");
    if is_named { HttpError::bad_request(format!("options{}", error.message())) } else { error }
}

fn is_day(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-')
}

#[cfg(test)]
mod tests;
