//! From the parameters of a request to the settings of a schedule, and from a schedule to what clients see.

pub mod view;

use actix_web::http::StatusCode;
use bson::{DateTime, Document};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::model::{Queue, QueueId, Selector};
use disbatch_core::schedules::{
    self, OPTIONS, Occurrence, Overlap, Schedule, ScheduleError, ScheduleQuery, Settings, Spec,
};
use disbatch_core::secrets::{self, Keys};
use disbatch_core::task::TaskOptions;
use disbatch_core::text::closest;
use disbatch_wire::liberal::{Flag, Seconds, Set, Text, When, Whole, is_unset, list};
use disbatch_wire::schedules::{PreviewOptions, ScheduleChange, ScheduleSearch};
use serde_json::{Map, Value, json};

use crate::access::{NamedSchedule, Who, no_such_schedule};
use crate::api::create_tasks::{self, fit, options};
use crate::error::HttpError;
use crate::params::{self, Params};
use crate::state::State;
use crate::ui::zone;
use crate::{arrays, json as js, legacy, values};
pub use view::{offset, preview, view};

/// So many times are shown unless told otherwise.
pub const SHOWN: usize = 20;

/// So many schedules are answered at most.
const MOST: i64 = 1_000;

/// What stands in addresses where names do.
const RESERVED: [&str; 2] = ["new", "preview"];

impl From<ScheduleError> for HttpError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Store(error) => error.into(),
            ScheduleError::OverQuota(over) => over.into(),
            ScheduleError::OverBudget(over) => over.into(),
            ScheduleError::Busy(busy) => busy.into(),
            ScheduleError::CalendarInUse { ref schedules, .. } => Self::with_body(
                StatusCode::CONFLICT,
                json!({ "error": error.to_string(), "schedules": schedules }),
            ),
            ScheduleError::NameTaken(_) => Self::conflict(error.to_string()),
            ScheduleError::SealedForAnotherQueue => {
                Self::bad_request(".secure_params has to be given again when the queue changes")
            }
            ScheduleError::Wrong(_) | ScheduleError::NoSuchCalendar(_) => {
                Self::bad_request(error.to_string())
            }
        }
    }
}

/// Why a schedule is not as somebody wants it. Who may not see all of them is not told which names there are.
pub fn refused(error: ScheduleError, who: &Who) -> HttpError {
    match error {
        ScheduleError::NameTaken(_) if !who.is_everywhere(Role::Viewer) => HttpError::name_not_allowed(),
        other => other.into(),
    }
}

pub async fn find(state: &State, named: &NamedSchedule) -> Result<Schedule, HttpError> {
    let schedule = state.store.find_schedule(&named.selector).await?;
    schedule.ok_or_else(|| no_such_schedule(&named.name))
}

/// The settings of a new schedule, or of `before` with what a request gives in their place, and whether it is to be paused.
/// No settings: the request gives none for a schedule that there is.
pub async fn settings(
    state: &State,
    who: &Who,
    before: Option<&Schedule>,
    params: &Params,
) -> Result<(Option<Settings>, Option<bool>), HttpError> {
    let given = Given::read(params)?;
    if before.is_some() && !given.has_settings(params) {
        return Ok((None, given.paused()));
    }
    let before = before.map(|schedule| &schedule.settings);
    let queue = match (queue(state, who, &given).await?, before) {
        (Some(queue), _) => queue,
        (None, Some(before)) => state.queue_by_id(before.queue).await?,
        (None, None) => return Err(HttpError::bad_request("queue must be given")),
    };
    let options = given.options(params, queue.id, &state.keys, before.map(|before| &before.options))?;
    options::check_steps(state, who, &queue, &options.steps).await?;
    let settings = given.settings(before, (&queue, options), who.name.as_deref())?;
    if before.is_some_and(|before| would_tell(before, &settings)) && !who.is_everywhere(Role::Operator) {
        let why = ".secure_params has to be given again when the params or steps change, except by operators of all queues";
        return Err(HttpError::bad_request(why));
    }
    options::check_tenant(who, &queue, settings.tenant.as_deref())?;
    options::check_files(who, settings.options.files.as_ref(), settings.tenant.as_deref())?;
    fit::check_schedule(state, &queue, &settings).await?;
    Ok((Some(settings), given.paused()))
}

/// Whether secure parameters that are kept would be told to something else: params may say whom a plugin talks to, and files what it runs.
fn would_tell(before: &Settings, after: &Settings) -> bool {
    let sealed = &before.options.secure_params;
    sealed.is_some()
        && *sealed == after.options.secure_params
        && (before.params != after.params
            || before.options.steps != after.options.steps
            || before.options.files != after.options.files)
}

/// The queue that a request gives, by name or id, if whoever asks may submit tasks to it.
async fn queue(state: &State, who: &Who, given: &Given) -> Result<Option<Queue>, HttpError> {
    let Some(name) = given.queue() else { return Ok(None) };
    let queue = state.store.find_queue(&Selector::parse(name)).await?;
    let queue = queue.filter(|queue| who.sees(queue));
    let queue = queue.ok_or_else(create_tasks::queue_not_found)?;
    who.check(Role::Submitter, &queue)?;
    Ok(Some(queue))
}

/// Which schedules are asked for. An empty field of a form is no condition.
pub async fn query(state: &State, reach: Reach, params: &Params) -> Result<ScheduleQuery, HttpError> {
    let search: ScheduleSearch = params.whole()?;
    let queue = match &search.queue {
        None => None,
        Some(Text(name)) => {
            let found = state.store.find_queue(&Selector::parse(name)).await?;
            let known = found.filter(|queue| reach == Reach::All || is_within(&reach, queue));
            Some(known.ok_or_else(create_tasks::queue_not_found)?.id)
        }
    };
    let text = |given: Option<Text>| given.map(|Text(text)| text);
    Ok(ScheduleQuery {
        reach,
        queue,
        tenant: text(search.tenant),
        paused: search.paused.map(|Flag(paused)| paused),
        after: text(search.after),
        limit: search.limit.map_or(MOST, |Whole(limit)| limit),
    })
}

fn is_within(reach: &Reach, queue: &Queue) -> bool {
    let Reach::Some { queues, tenants, only } = reach else { return true };
    let is_named =
        queues.contains(&queue.id) || queue.tenant().is_some_and(|tenant| tenants.contains(tenant));
    is_named && only.as_ref().is_none_or(|only| only.contains(&queue.id))
}

/// What a schedule would do from when on: its next times, and what the first of them are after.
pub async fn times(
    state: &State,
    spec: &Spec,
    schedule: Option<&Schedule>,
    options: &PreviewOptions,
) -> Result<(Vec<Occurrence>, DateTime), HttpError> {
    let after = match &options.after {
        Some(When(value)) => moment(".after", value)?,
        None => state.store.server_time().await?,
    };
    let limit = options.limit.and_then(|Whole(limit)| usize::try_from(limit).ok()).unwrap_or(SHOWN);
    let calendars = state.store.calendars_of(spec).await?;
    if let Some(name) = calendars.missing(spec) {
        return Err(ScheduleError::NoSuchCalendar(name.to_owned()).into());
    }
    Ok((spec.preview(schedule.map(|schedule| schedule.id), &calendars, after, limit), after))
}

/// The revision that a change was made from, by the option `.rev`, if that is said.
pub fn revision(params: &Params) -> Result<Option<i64>, HttpError> {
    let wrong = || HttpError::bad_request(".rev must be the number of a revision");
    let rev = |value: &Value| legacy::integer(value).filter(|_| !value.is_boolean()).ok_or_else(wrong);
    params.option("rev").map(rev).transpose()
}

pub fn changed_meanwhile(rev: i64) -> HttpError {
    let message = format!("the schedule was changed meanwhile: its revision is {rev}. Nothing is changed");
    HttpError::with_body(StatusCode::CONFLICT, json!({ "error": message, "rev": rev }))
}

/// So many more copies there are of parameters: in what is stored, in what is compared with that, and in the answer.
const COPIES: usize = 6;

#[derive(Debug, Clone, Default)]
pub struct Given {
    /// But for what follows.
    fields: ScheduleChange,
    params: Option<Set<Value>>,
    /// What else its tasks have.
    options: Map<String, Value>,
}

impl Given {
    /// Reads it. Options may be an object, or be given one by one, as `options.timeout`; calendars may be a list, or be
    /// given by their names as `calendars.exclude` and `calendars.only`.
    pub fn read(params: &Params) -> Result<Self, HttpError> {
        arrays::refuse(params)?;
        let (mut fields, mut options) = (Map::new(), Map::new());
        let mut calendars: Option<Vec<Value>> = None;
        for (name, value) in &params.fields {
            match name.split_once('.') {
                Some(("options", name)) => drop(options.insert(name.to_owned(), value.clone())),
                Some(("calendars", rule @ ("exclude" | "only"))) => {
                    let used = list(value).into_iter().map(|name| json!({ "name": name, "use": rule }));
                    calendars.get_or_insert_default().extend(used);
                }
                None if name == "queue" && (value.is_array() || value.is_object() || value.is_boolean()) => {
                    return Err(create_tasks::queue_not_found()); // That names none.
                }
                None if name == "options" => options.extend(object("options", value)?),
                _ => drop(fields.insert(name.clone(), value.clone())),
            }
        }
        fields.extend(calendars.map(|calendars| ("calendars".to_owned(), Value::from(calendars))));
        let options = options.into_iter().map(|(name, value)| option(name, value));
        let options = options.collect::<Result<_, _>>()?;
        let mut fields: ScheduleChange = params::typed(fields)?;
        Ok(Self { params: fields.params.take(), fields, options })
    }

    pub fn queue(&self) -> Option<&str> {
        let Some(Set(Some(Text(queue)))) = &self.fields.queue else { return None };
        Some(queue)
    }

    /// Whether the schedule is to be paused, or not, if that is said.
    pub fn paused(&self) -> Option<bool> {
        let Some(Set(Some(Flag(paused)))) = self.fields.paused else { return None };
        Some(paused)
    }

    /// Whether there is more than that.
    pub fn has_settings(&self, params: &Params) -> bool {
        let has_secure = params.options.get(secrets::FIELD).is_some_and(|value| value.as_str() != Some(""));
        let others = ScheduleChange { paused: None, ..self.fields.clone() };
        let is_same = self.params.is_none() && self.options.is_empty() && others == ScheduleChange::default();
        has_secure || !is_same
    }

    pub fn spec(&self) -> Result<Spec, HttpError> {
        Spec::read(&self.stored()?).map_err(|error| HttpError::bad_request(error.to_string()))
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
        let names: Vec<&str> = self.options.keys().map(String::as_str).collect();
        let before = before.cloned().unwrap_or_default();
        let keeps = secure.is_none_or(|value| value.as_str() == Some(""));
        let sealed = if keeps { before.secure_params.clone() } else { fresh.secure_params.clone() };
        let all = schedules::options_with(&before, &names, &fresh);
        let all = all.map_err(|error| HttpError::bad_request(error.to_string()))?;
        Ok(TaskOptions { secure_params: sealed, ..all })
    }

    /// All settings: as they were before, with what is given, for tasks of `queue`. `owner` is that of a new schedule.
    pub fn settings(
        &self,
        before: Option<&Settings>,
        (queue, options): (&Queue, TaskOptions),
        owner: Option<&str>,
    ) -> Result<Settings, HttpError> {
        match (&self.fields.name, before) {
            (Some(Set(Some(Text(name)))), _) if RESERVED.contains(&name.as_str()) => {
                return Err(HttpError::bad_request(format!("name must not be {}", RESERVED.join(" or "))));
            }
            (Some(Set(Some(_))), _) | (None, Some(_)) => {}
            (None | Some(Set(None)), _) => return Err(HttpError::bad_request("name must be given")),
        }
        if let Some(Set(Some(overlap))) = &self.fields.overlap {
            values::word("overlap", &overlap.as_str().into(), &Overlap::ALL.map(Overlap::as_str))?;
        }
        if let Some(Set(Some(Seconds(catch_up)))) = &self.fields.catch_up
            && values::seconds("catch_up", catch_up)?.subsec_nanos() != 0
        {
            return Err(HttpError::bad_request("catch_up must be whole seconds"));
        }
        let mut fields = self.stored()?;
        fields.insert("queue", queue.id);
        let settings = Settings::with(before, fields);
        let settings = settings.map_err(|error| HttpError::bad_request(error.to_string()))?;
        let params = self.params.as_ref().map(|Set(value)| parameters(value.as_ref())).transpose()?;
        Ok(Settings {
            params: params.or_else(|| before.map(|before| before.params.clone())).unwrap_or_default(),
            options,
            tenant: self.tenant(settings.tenant, queue)?,
            owner: before.map_or_else(|| owner.map(str::to_owned), |before| before.owner.clone()),
            ..settings
        })
    }

    /// For whom its tasks are: that of the queue, if it has one. Of a queue that is nobody's it is as `wanted`.
    fn tenant(&self, wanted: Option<String>, queue: &Queue) -> Result<Option<String>, HttpError> {
        let Some(own) = queue.tenant() else { return Ok(wanted) };
        match &self.fields.tenant {
            Some(Set(Some(Text(given)))) if given != own => {
                Err(HttpError::bad_request("tenant: the queue is that of another tenant"))
            }
            _ => Ok(Some(own.to_owned())),
        }
    }

    /// The fields that are stored as they are given, null for those that are to have their default.
    fn stored(&self) -> Result<Document, HttpError> {
        let fields = ScheduleChange { queue: None, paused: None, ..self.fields.clone() };
        let mut stored = js::document(&fields)?;
        for (name, given) in [("start", &self.fields.start), ("end", &self.fields.end)] {
            if let Some(Set(Some(When(at)))) = given {
                stored.insert(name, moment(name, at)?);
            }
        }
        if let Some(Set(Some(Value::String(text)))) = &self.fields.calendars {
            stored.insert("calendars", js::to_bson(&parsed("calendars", text)?));
        }
        Ok(stored)
    }
}

/// An option of its tasks. Forms have them as lines, or as JSON.
fn option(name: String, value: Value) -> Result<(String, Value), HttpError> {
    if !OPTIONS.contains(&name.as_str()) {
        let meant = closest(&name, OPTIONS).map(|meant| format!(": did you mean {meant}?"));
        let error = format!("unknown param in options{}", meant.unwrap_or_default());
        let body = json!({ "error": error, "param": name });
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    let value = match (name.as_str(), value) {
        (_, unset) if is_unset(&unset) => Value::Null,
        ("locks", Value::String(text)) => Value::from(list(&Value::from(text))),
        ("steps" | "files", Value::String(text)) => parsed(&format!("options.{name}"), &text)?,
        (_, value) => value,
    };
    Ok((name, value))
}

/// A point in time as [`values::time`] has it, or [`zone::time`] if it is text.
pub fn moment(name: &str, value: &Value) -> Result<DateTime, HttpError> {
    match value {
        Value::String(text) => zone::time(&zone::now(), name, text),
        value => Ok(values::time(name, value)?),
    }
}

fn parsed(name: &str, text: &str) -> Result<Value, HttpError> {
    crate::allowance::json(text)
        .map_err(|error| HttpError::bad_request(format!("{name} is not JSON: {error}")))
}

/// An object, or its JSON as text. Null has nothing in it.
fn object(name: &str, value: &Value) -> Result<Map<String, Value>, HttpError> {
    let value = match value {
        unset if is_unset(unset) => return Ok(Map::new()),
        Value::String(text) => parsed(name, text)?,
        value => value.clone(),
    };
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(HttpError::bad_request(format!("{name} must be a JSON object"))), // Nothing else has names.
    }
}

/// The parameters of its tasks; there may be none.
fn parameters(value: Option<&Value>) -> Result<Document, HttpError> {
    let Some(value) = value else { return Ok(Document::new()) };
    crate::allowance::take_for_copies(COPIES, [value])?;
    let params = object("params", value)?;
    if params.is_empty() {
        return Ok(Document::new());
    }
    Ok(create_tasks::task_params(Value::Object(params))?.pop().unwrap_or_default())
}

/// The options of a schedule have no dot before them.
fn within_options(error: HttpError) -> HttpError {
    let is_named = error.message().starts_with('.') && !error.message().starts_with(".secure_params");
    if is_named { HttpError::bad_request(format!("options{}", error.message())) } else { error }
}

#[cfg(test)]
mod tests;
