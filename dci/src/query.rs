//! From the parameters of a request to a search over tasks: what may be asked for, and how it is answered; also in pages in the order of
//! ids (`.order`, `.after` and `.before`).

mod filter;

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::accounts::{Reach, tasks_within};
use disbatch_core::model::{NodeName, Queue, QueueId, TaskId, whole_number};
use disbatch_core::secrets;
use disbatch_core::tags::TAGS;
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_core::task::{Created, TaskQuery};
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::json::{Dates, to_bson};
use crate::params::Params;
use crate::values::{CREATED, TAG_NAMES, moment};
pub use filter::{check_concealed, check_forbidden, collection_filter, search_filter, sort};

/// So long the server may work on a search that is for more than certain values of fields of an index: regular expressions,
/// for one, can be made to take very long.
pub const SEARCH_TIME: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Listing {
    pub query: TaskQuery,
    pub shape: Shape,
    /// Which page, where they are asked for in the order of ids.
    pub page: Option<PageQuery>,
}

/// How tasks are answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Only their number.
    pub count: bool,
    /// One task as an object, not in an array.
    pub single: bool,
    /// Output that is in `GridFS` as text.
    pub full: bool,
    /// Output not at all.
    pub terse: bool,
    /// Over many lines.
    pub pretty: bool,
    pub dates: Dates,
    /// With what is left out otherwise: see [`crate::fields`].
    pub details: bool,
}

#[derive(Debug)]
pub enum Refusal {
    /// It would return all tasks.
    Everything { indexes: Vec<Vec<String>> },
    /// It would read all tasks.
    NotIndexed {
        indexes: Vec<Vec<String>>,
        /// What was asked for beyond these.
        invalid: Vec<String>,
    },
    /// A value makes no sense.
    Wrong(HttpError),
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Self {
        Self::Wrong(error)
    }
}

impl From<Refusal> for HttpError {
    fn from(refusal: Refusal) -> Self {
        let mut body = json!({ "path": "/tasks", "title": "Disbatch Tasks Query" });
        match refusal {
            Refusal::Wrong(error) => return error,
            Refusal::Everything { indexes } => {
                let message =
                    "refusing to return everything - include one or more indexed search restrictions";
                body["error"] = message.into();
                body["indexes"] = indexes.into();
            }
            Refusal::NotIndexed { indexes, invalid } => {
                body["error"] = "non-indexed params given".into();
                body["indexes"] = indexes.into();
                body["invalid_params"] = invalid.into();
            }
        }
        Self::with_body(StatusCode::BAD_REQUEST, body)
    }
}

impl Listing {
    /// Checks a request against the fields of the indexes of `tasks`. `default_limit` is for requests that say
    /// nothing about it.
    pub fn parse(
        params: &Params,
        index_fields: &BTreeSet<Vec<String>>,
        default_limit: Option<i64>,
        now: DateTime,
    ) -> Result<Self, Refusal> {
        // A field that a form left empty is no restriction. It counts for what an index covers, as with Perl.
        let names: Vec<&str> = params.fields.keys().map(String::as_str).collect();
        let fields: Vec<(&str, &Value)> = params
            .fields
            .iter()
            .filter(|(_, value)| value.as_str() != Some(""))
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let indexes = shown_indexes(index_fields);
        // What only our own indexes cover is not, unless it is a restriction.
        let is_empty = |name: &str| params.fields.get(name).is_some_and(|value| value.as_str() == Some(""));
        let mut covering = with_our_indexes(&indexes);
        covering
            .retain(|index| indexes.contains(index) || !index.first().is_some_and(|first| is_empty(first)));
        let invalid = not_covered(&names, &covering);
        if !invalid.is_empty() {
            return Err(Refusal::NotIndexed { indexes, invalid });
        }
        let shape = Shape::of(params);
        let limit = params.integer("limit")?;
        if fields.is_empty() && !shape.count && limit.is_none_or(|limit| limit <= 0) {
            return Err(Refusal::Everything { indexes });
        }
        let skip = params.integer("skip")?.unwrap_or(0);
        let skip = u64::try_from(skip).map_err(|_| HttpError::bad_request("'.skip' must not be negative"))?;
        let created = created(params, now)?;
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let is_indexed = not_covered(&names, &covering).is_empty() && created.is_any();
        let query = TaskQuery {
            filter: created_in(filter::task_filter(&fields)?, created),
            // To MongoDB a negative limit is a positive one without a second batch, and 0 is none.
            limit: limit.or(default_limit).map(i64::saturating_abs).filter(|limit| *limit != 0),
            skip,
            projection: projection(params)?,
            sort: None,
            archive: params.is_on("archive"),
            max_time: (fields.iter().any(takes_time) || !is_indexed).then_some(SEARCH_TIME),
        };
        let page = page(params, &query, created)?;
        Ok(Self { query, shape, page })
    }

    /// Leaves out the tasks of all other queues, but those of tenants within reach.
    pub fn limit(&mut self, queues: &[Queue], reach: &Reach) -> Result<(), HttpError> {
        let is_theirs = |id: QueueId| queues.iter().any(|queue| queue.id == id);
        if let Some(tagged) = self.page.as_mut().and_then(|page| page.of.tagged.as_mut()) {
            *tagged = tasks_within(std::mem::take(tagged), queues, &reach.tenants());
        } else if let Some(page) = &self.page
            && !page.of.queues.as_deref().is_some_and(|all| all.iter().copied().all(is_theirs))
        {
            let message = "pages in the order of ids are of one queue that you may see: name it with 'queue'";
            return Err(HttpError::forbidden(message));
        }
        self.query.filter = tasks_within(std::mem::take(&mut self.query.filter), queues, &reach.tenants());
        Ok(())
    }
}

/// The options `.created_since` and `.created_until`.
pub fn created(params: &Params, now: DateTime) -> Result<Created, HttpError> {
    let [since, until] = CREATED
        .map(|name| params.option(name).map(|value| moment(&format!(".{name}"), value, now)).transpose());
    Ok(Created { since: since?, until: until? })
}

/// A filter that also says when tasks were made.
fn created_in(mut filter: Document, created: Created) -> Document {
    let ids = created.ids();
    if ids.is_empty() {
        return filter;
    }
    if filter.contains_key("_id") {
        return doc! { "$and": [filter, { "_id": ids }] };
    }
    filter.insert("_id", ids);
    filter
}

/// Whether a restriction is more than certain values of an index that has nothing else.
fn takes_time((name, value): &(&str, &Value)) -> bool {
    value.is_object() || TAG_NAMES.contains(name)
}

impl Shape {
    pub fn of(params: &Params) -> Self {
        Self {
            count: params.is_on("count"),
            single: params.integer("limit").ok().flatten() == Some(1),
            full: params.is_on("full"),
            terse: params.is_on("terse"),
            pretty: params.is_on("pretty"),
            dates: if params.is_on("epoch") { Dates::Epoch } else { Dates::Text },
            details: params.is_on("details"),
        }
    }
}

/// `.fields`: an array of names, or an object of name and 0 or 1, or either as JSON text.
fn projection(params: &Params) -> Result<Option<Document>, HttpError> {
    let wrong =
        || HttpError::bad_request("'.fields' must be a JSON array of names, or an object of name and 0 or 1");
    let value = match params.options.get("fields") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => crate::allowance::json(text).map_err(|_| wrong())?,
        Some(value) => value.clone(),
    };
    match &value {
        Value::Array(names) => {
            let names: Option<Vec<&str>> = names.iter().map(Value::as_str).collect();
            let names = names.filter(|names| names.iter().all(|name| is_field(name))).ok_or_else(wrong)?;
            let field = |name: &str| Ok::<_, HttpError>((stored_as(name, true)?, Bson::Int32(1)));
            names.into_iter().map(field).collect::<Result<_, _>>().map(Some)
        }
        Value::Object(fields) => {
            // Operators of projections could compute anything.
            let simple =
                fields.iter().all(|(name, on)| is_field(name) && (on.is_number() || on.is_boolean()));
            if !simple {
                return Err(wrong());
            }
            let field = |(name, on): (&String, &Value)| {
                let is_on = on.as_bool() == Some(true) || on.as_f64().is_some_and(|on| on != 0.0);
                Ok::<_, HttpError>((stored_as(name, is_on)?, to_bson(on)))
            };
            fields.iter().map(field).collect::<Result<_, _>>().map(Some)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(wrong()),
    }
}

/// What the database has for a field of an answer. That a task has secure parameters is known by the name of their key.
fn stored_as(name: &str, is_on: bool) -> Result<String, HttpError> {
    refuse_concealed(name)?;
    Ok(match name {
        secrets::SHOWN if is_on => format!("{}.key", secrets::FIELD),
        secrets::SHOWN => secrets::FIELD.to_owned(),
        other => other.to_owned(),
    })
}

/// Refuses to look for, or at, what nobody but the plugin may see.
pub fn refuse_concealed(field: &str) -> Result<(), HttpError> {
    if secrets::is_concealed(field) {
        let message = format!("'{}' is for plugins only: it cannot be searched or shown", secrets::FIELD);
        return Err(HttpError::bad_request(message));
    }
    Ok(())
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.contains('\0')
}

/// What is told if nothing is chosen.
const DEFAULT_FIELD: &str = "status";

/// So many fields may be chosen.
const MOST_FIELDS: usize = 50;

/// The fields that are asked for, as the database finds them: names with commas between them, or a JSON array of names. `None`:
/// none are.
pub fn chosen_fields(given: Option<&Value>) -> Result<Option<Document>, HttpError> {
    let Some(names) = text_list(given).map_err(|()| wrong_fields())? else { return Ok(None) };
    let names: BTreeSet<String> = names.into_iter().collect();
    if names.len() > MOST_FIELDS || !names.iter().all(|name| is_field(name)) {
        return Err(wrong_fields());
    }
    // An id is told anyway.
    let others = names.iter().filter(|name| !matches!(name.as_str(), "id" | "_id"));
    let fields = others.map(|name| Ok((stored_as(name, true)?, Bson::Int32(1))));
    let mut fields = fields.collect::<Result<Document, HttpError>>()?;
    if fields.is_empty() {
        fields.insert("_id", 1);
    }
    Ok(Some(fields))
}

/// The same where something has to be told.
pub fn chosen_fields_or_status(given: Option<&Value>) -> Result<Document, HttpError> {
    Ok(chosen_fields(given)?
        .unwrap_or_else(|| Document::from_iter([(DEFAULT_FIELD.to_owned(), Bson::Int32(1))])))
}

fn wrong_fields() -> HttpError {
    HttpError::bad_request(format!(
        ".fields must be 1 to {MOST_FIELDS} names of fields, with commas between them"
    ))
}

/// Texts with commas between them, several such texts, a JSON array of texts, or that as text. `None`: nothing is given.
pub fn text_list(value: Option<&Value>) -> Result<Option<Vec<String>>, ()> {
    let items: Vec<Value> = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) => items.clone(),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) if text.trim_start().starts_with('[') => {
            crate::allowance::json(text).map_err(|_| ())?
        }
        Some(text @ Value::String(_)) => vec![text.clone()],
        Some(_) => return Err(()), // Nothing else is a list of texts.
    };
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
    let texts = texts.ok_or(())?;
    let parts = texts.into_iter().flat_map(|text| text.split(',')).map(|part| part.trim().to_owned());
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { Err(()) } else { Ok(Some(parts)) }
}

/// The indexes as clients see them: `_id` is called `id`, and an index that another one starts with is left
/// out. What they cover may be searched, so that no request reads all tasks.
fn shown_indexes(indexes: &BTreeSet<Vec<String>>) -> Vec<Vec<String>> {
    let contained = |short: &Vec<String>| indexes.iter().any(|long| long != short && long.starts_with(short));
    let shown = |name: &String| if name == "_id" { "id".to_owned() } else { name.clone() };
    indexes.iter().filter(|index| !contained(index)).map(|index| index.iter().map(shown).collect()).collect()
}

/// The same with indexes that only have some tasks, and serve a search for certain values: tasks of a schedule, and those with tags, of
/// which each is looked at for the rest. They are not shown, as Perl Disbatch has none of them.
fn with_our_indexes(indexes: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut all = indexes.to_vec();
    all.push(["schedule", "status"].map(str::to_owned).to_vec());
    for tags in TAG_NAMES {
        all.extend(["queue", "status", "node"].map(|field| vec![tags.to_owned(), field.to_owned()]));
    }
    all
}

/// Those of `names` that no index covers. A field is covered if all fields before it in an index are given.
fn not_covered(names: &[&str], indexes: &[Vec<String>]) -> Vec<String> {
    let given = |field: &String| names.contains(&field.as_str());
    let covered: BTreeSet<&str> = indexes
        .iter()
        .flat_map(|index| index.iter().take_while(|field| given(field)).map(String::as_str))
        .collect();
    names.iter().filter(|name| !covered.contains(*name)).map(|name| (*name).to_owned()).collect()
}

/// How long a page is unless it is told.
const DEFAULT_LIMIT: usize = 100;

const LONGEST_PAGE: usize = 10_000;

/// The page that the options ask for; none if they ask for none.
fn page(params: &Params, query: &TaskQuery, created: Created) -> Result<Option<PageQuery>, HttpError> {
    let order = match params.option("order").map(Value::as_str) {
        None => Order::Oldest,
        Some(Some("id")) => Order::Oldest,
        Some(Some("-id")) => Order::Newest,
        Some(_) => return Err(HttpError::bad_request("'.order' must be id or -id")),
    };
    let id = |name: &str| {
        let id = params.option(name).map(|value| value.as_str().and_then(|text| text.parse::<TaskId>().ok()));
        id.map(|id| id.ok_or_else(|| HttpError::bad_request(format!("'.{name}' must be the id of a task"))))
            .transpose()
    };
    let position = match (id("after")?, id("before")?) {
        (None, None) if params.option("order").is_none() => return Ok(None),
        (None, None) => Position::First,
        (Some(task), None) => Position::After(task),
        (None, Some(task)) => Position::Before(task),
        (Some(_), Some(_)) => {
            return Err(HttpError::bad_request("'.after' and '.before' exclude each other"));
        }
    };
    if query.archive || query.skip > 0 {
        return Err(HttpError::bad_request("pages in the order of ids have neither '.skip' nor '.archive'"));
    }
    let limit = query.limit.map_or(Some(DEFAULT_LIMIT), |limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit <= LONGEST_PAGE);
    let limit = limit.ok_or_else(|| {
        HttpError::bad_request(format!("'.limit' of a page must not be more than {LONGEST_PAGE}"))
    })?;
    let of = selection(&query.filter).map(|of| Selection { created, ..of });
    let of = of.ok_or_else(|| {
        HttpError::bad_request(
            "there are pages in the order of ids of all tasks, of those with tags, of a queue, of a queue and statuses, \
             and of a queue, statuses and a node",
        )
    })?;
    Ok(Some(PageQuery { of, order, position, limit }))
}

/// What a filter selects, if it does so by an index that has ids in order.
fn selection(filter: &Document) -> Option<Selection> {
    let mut selection = Selection::default();
    for (field, value) in filter {
        match (field.as_str(), value) {
            ("queue", Bson::ObjectId(id)) => selection.queues = Some(vec![QueueId(*id)]),
            ("node", Bson::String(node)) => selection.node = Some(NodeName::new(node)),
            (TAGS, Bson::Document(_)) => selection.tagged = Some(doc! { TAGS: value }),
            ("status", Bson::Document(any)) if any.len() == 1 => {
                let statuses = any.get_array("$in").ok()?.iter().map(whole_number);
                selection.statuses = Some(statuses.collect::<Option<Vec<i64>>>()?);
            }
            // When they were made: an id itself is no document.
            ("_id", Bson::Document(_)) => {}
            ("status", status) => selection.statuses = Some(vec![whole_number(status)?]),
            _ => return None, // No index has it before ids.
        }
    }
    let needs_queue = selection.statuses.is_some() || selection.node.is_some();
    let is_ordered = selection.tagged.is_some()
        || (selection.queues.is_some() || !needs_queue)
            && (selection.statuses.is_some() || selection.node.is_none());
    is_ordered.then_some(selection)
}

#[cfg(test)]
mod tests;
