//! From the parameters of a request to a search over tasks: what may be asked for, and how it is answered.

pub mod field_list;
mod filter;
pub mod legacy;
mod pages;

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::accounts::{Reach, tasks_within};
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::secrets;
use disbatch_core::task::pages::PageQuery;
use disbatch_core::task::{Created, TaskQuery};
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::json::{Dates, to_bson};
use crate::params::Params;
use crate::values::tags::NAMES;
use crate::values::{CREATED, is_unset, moment};
pub use filter::{check_forbidden, collection_filter};

/// So long the server may work on a search that is for more than certain values of fields of an index: regular expressions,
/// for one, can be made to take very long.
pub const SEARCH_TIME: Duration = Duration::from_secs(60);

/// A search that may be made.
#[derive(Debug)]
pub struct Listing {
    pub query: TaskQuery,
    pub shape: Shape,
    /// Which page, where they are asked for in the order of ids.
    pub page: Option<PageQuery>,
}

/// How tasks are answered.
#[derive(Debug, Clone, Copy)]
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

/// Why a search is not made.
#[derive(Debug)]
pub enum Refusal {
    /// It would return all tasks.
    Everything {
        /// What may be asked for.
        indexes: Vec<Vec<String>>,
    },
    /// It would read all tasks.
    NotIndexed {
        /// What may be asked for.
        indexes: Vec<Vec<String>>,
        /// What was asked for beyond that.
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
        // A field that a form left empty is no restriction.
        let fields: Vec<(&str, &Value)> = params
            .fields
            .iter()
            .filter(|(_, value)| value.as_str() != Some(""))
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let indexes = field_list::for_display(index_fields);
        let invalid = field_list::not_covered(&names, &field_list::with_ours(&indexes));
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
        let query = TaskQuery {
            filter: created_in(filter::task_filter(&fields)?, created),
            // To MongoDB a negative limit is a positive one without a second batch, and 0 is none.
            limit: limit.or(default_limit).map(i64::saturating_abs).filter(|limit| *limit != 0),
            skip,
            projection: projection(params)?,
            sort: None,
            archive: params.is_on("archive"),
            max_time: (fields.iter().any(takes_time) || !created.is_any()).then_some(SEARCH_TIME),
        };
        let page = pages::page(params, &query, created)?;
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
    let [since, until] = CREATED.map(|name| {
        let given = params.options.get(name).filter(|value| !is_unset(value));
        given.map(|value| moment(&format!(".{name}"), value, now)).transpose()
    });
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
    value.is_object() || NAMES.contains(name)
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

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn indexes() -> BTreeSet<Vec<String>> {
        ["_id", "node status queue", "node status queue _id", "queue status"]
            .iter()
            .map(|index| index.split(' ').map(str::to_owned).collect())
            .collect()
    }

    fn parse(fields: Value, options: Value) -> Result<Listing, HttpError> {
        let map = |value: Value| value.as_object().unwrap().clone();
        let params = Params { fields: map(fields), options: map(options) };
        Listing::parse(&params, &indexes(), None, DateTime::from_millis(100_000)).map_err(HttpError::from)
    }

    #[test]
    fn everything_is_refused_unless_limited_or_counted() {
        for options in [json!({}), json!({"limit": 0}), json!({"limit": "-2"}), json!({"skip": "1"})] {
            let error = parse(json!({}), options).unwrap_err();
            assert!(error.to_string().starts_with("refusing to return everything"));
        }
        assert!(parse(json!({"queue": "", "status": ""}), json!({})).is_err());
        assert_eq!(parse(json!({}), json!({"limit": "2"})).unwrap().query.limit, Some(2));
        assert!(parse(json!({}), json!({"count": 1})).unwrap().shape.count);
    }

    #[test]
    fn a_negative_limit_is_a_positive_one() {
        let listing = parse(json!({"queue": QUEUE}), json!({"limit": "-2", "skip": 3})).unwrap();
        assert_eq!((listing.query.limit, listing.query.skip), (Some(2), 3));
        assert!(!listing.shape.single);
        assert!(parse(json!({"queue": QUEUE}), json!({"limit": 1})).unwrap().shape.single);
        for wrong in [json!({"limit": "abc"}), json!({"skip": -1}), json!({"skip": 1.5})] {
            assert_eq!(parse(json!({"queue": QUEUE}), wrong).unwrap_err().status(), 400);
        }
    }

    #[test]
    fn when_tasks_were_made_is_in_their_ids() {
        let filter =
            |fields: Value, options: Value| parse(fields, options).map(|listing| listing.query.filter);
        let id = |text: &str| bson::oid::ObjectId::parse_str(text).unwrap();
        let options = json!({"created_since": "60s", "created_until": 100, "limit": 5});
        let between = doc! { "$gte": id("000000280000000000000000"), "$lte": id("00000063ffffffffffffffff") };
        assert_eq!(filter(json!({}), options.clone()).unwrap(), doc! { "_id": between.clone() });
        let page = json!({"created_since": "60s", "order": "id"});
        let page = parse(json!({"queue": QUEUE}), page).unwrap().page.unwrap();
        assert_eq!(page.of.created.since, Some(DateTime::from_millis(40_000)));
        let one = doc! { "$and": [{ "_id": id(QUEUE) }, { "_id": between }] };
        assert_eq!(filter(json!({"id": QUEUE}), options).unwrap(), one);
        for wrong in [json!({"created_since": "soon"}), json!({"created_until": []})] {
            assert_eq!(filter(json!({"queue": QUEUE}), wrong).unwrap_err().status(), 400);
        }
    }

    #[test]
    fn a_search_with_operators_has_its_time() {
        let time = |status: Value| {
            parse(json!({"queue": QUEUE, "status": status}), json!({})).unwrap().query.max_time
        };
        assert_eq!(time(json!({"$regex": "(a+)+$"})), Some(SEARCH_TIME));
        assert_eq!(parse(json!({"tags": "a"}), json!({})).unwrap().query.max_time, Some(SEARCH_TIME));
        assert_eq!([time(json!(1)), time(json!([1, "2"]))], [None, None]);
    }

    #[test]
    fn fields_are_an_array_or_an_object_or_either_as_text() {
        let projection = |fields: Value| {
            parse(json!({"queue": QUEUE}), json!({ "fields": fields }))
                .map(|listing| listing.query.projection)
        };
        assert_eq!(projection(json!(["status"])).unwrap(), Some(doc! { "status": 1 }));
        assert_eq!(projection(json!("[\"status\"]")).unwrap(), Some(doc! { "status": 1 }));
        assert_eq!(
            projection(json!("{\"status\":1,\"_id\":0}")).unwrap(),
            Some(doc! { "_id": 0, "status": 1 })
        );
        assert_eq!(projection(json!("")).unwrap(), None);
        for wrong in [json!("status"), json!(5), json!([1]), json!({"a": {"$slice": 1}}), json!({"a": "$b"})]
        {
            assert_eq!(projection(wrong).unwrap_err().status(), 400);
        }
        let shown = |fields: Value| projection(fields).unwrap().unwrap();
        assert_eq!(shown(json!(["has_secure_params"])), doc! { "secure_params.key": 1 });
        assert_eq!(shown(json!({"has_secure_params": true})), doc! { "secure_params.key": true });
        assert_eq!(shown(json!({"has_secure_params": 0})), doc! { "secure_params": 0 });
        for secret in
            [json!(["secure_params"]), json!({"secure_params": 0}), json!("[\"secure_params.data\"]")]
        {
            let error = projection(secret).unwrap_err().to_string();
            assert!(error.starts_with("'secure_params' is for plugins only"), "{error}");
        }
    }
}
