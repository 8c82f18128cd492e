//! What a request sends: a form, JSON, or a query string; and the searches and tasks that are made of it.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf};
use disbatch_core::fair::check_group;
use disbatch_core::task::TaskQuery;
use disbatch_dci::input::{Refused, Request, order, search_filter, source_filter, taken, task_params};
use serde_json::{Map, Value};

use crate::{check_json, choice};

const MEDIA_TYPES: [&str; 4] = ["application/x-www-form-urlencoded", "application/json", "", "text/plain"];

/// What the indexes of a new database begin with.
const INDEXES: [&[&str]; 3] = [&["_id"], &["node", "status", "queue", "_id"], &["queue", "status"]];

/// The operators that a filter may have, and what an id that is compared as a part of a value looks like.
const ALLOWED: [&str; 20] = [
    "$all",
    "$and",
    "$elemMatch",
    "$eq",
    "$exists",
    "$gt",
    "$gte",
    "$in",
    "$lt",
    "$lte",
    "$ne",
    "$nin",
    "$nor",
    "$not",
    "$oid",
    "$options",
    "$or",
    "$regex",
    "$size",
    "$type",
];

/// Ten years.
const LONGEST: Duration = Duration::from_secs(315_360_000);

/// The first byte says the media type, what follows up to a line break is the query string, and the rest the body.
///
/// # Panics
/// A filter has an operator that no client may use; parameters of a task cannot be stored; a value is beyond its bounds; what
/// is written as JSON is none; or a request is refused with anything but 400.
pub fn check(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = choice(bytes) else { return false };
    let end = rest.iter().position(|byte| *byte == b'\n');
    let (query, body) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + 1..]));
    let media_type = MEDIA_TYPES[kind % MEDIA_TYPES.len()];
    let request = match Request::read(media_type, body, &String::from_utf8_lossy(query)) {
        Ok(request) => request,
        Err(error) => {
            refused(&error);
            return false;
        }
    };
    let names = |index: &[&str]| index.iter().map(|field| (*field).to_owned()).collect::<Vec<String>>();
    let indexes: BTreeSet<Vec<String>> = INDEXES.into_iter().map(names).collect();
    with(request.search(&indexes), check_search);
    with(request.task_options(), |options| {
        assert!(options.timeout.is_none_or(|time| !time.is_zero() && time <= LONGEST));
        assert!(options.max_attempts.is_none_or(|most| most > 0));
        assert!(options.group.as_deref().is_none_or(|group| check_group(group).is_ok()));
        assert!(options.priority.is_none_or(|priority| (-1_000..=1_000).contains(&priority)));
    });
    for value in request.fields().values() {
        check_value(value);
    }
    check_json(&Value::Object(request.fields().clone()));
    true
}

fn with<T>(read: Result<T, Refused>, check: impl FnOnce(T)) {
    match read {
        Ok(read) => check(read),
        Err(error) => refused(&error),
    }
}

fn refused(error: &Refused) {
    assert_eq!(error.status, 400, "{error:?}");
    assert!(!error.message.is_empty());
}

fn check_search(query: TaskQuery) {
    check_filter(&query.filter);
    let mut names = query.projection.iter().flat_map(Document::keys);
    assert!(names.all(|name| !name.is_empty() && !name.starts_with('$')), "{query:?}");
    assert!(query.limit.is_none_or(|limit| limit > 0), "{query:?}");
    let is_bounded = query.max_time.is_some();
    assert!(is_bounded || !query.filter.values().any(has_operators), "it may take for ever: {query:?}");
}

/// Whether it does more than to name values.
fn has_operators(value: &Bson) -> bool {
    let is_operator = |key: &String| key.starts_with('$') && key != "$in";
    value.as_document().is_some_and(|value| value.keys().any(is_operator))
}

/// No other operator is anywhere in it.
fn check_filter(filter: &Document) {
    for (key, value) in filter {
        assert!(!key.starts_with('$') || ALLOWED.contains(&key.as_str()), "{key} is let through");
        check_operators(value);
    }
}

fn check_operators(value: &Bson) {
    match value {
        Bson::Document(document) => check_filter(document),
        Bson::Array(items) => items.iter().for_each(check_operators),
        _ => {} // Nothing else holds an operator.
    }
}

fn check_value(value: &Value) {
    let parsed: Option<Value> = value.as_str().and_then(|text| serde_json::from_str(text).ok());
    let value = parsed.as_ref().unwrap_or(value);
    if let Value::Object(filter) = value {
        check_both(filter);
    }
    with(order(value), |order| {
        let fields = order.unwrap_or_default();
        assert!(fields.values().all(|way| matches!(way.as_i64(), Some(1 | -1))), "{fields}");
        assert!(fields.keys().all(|name| !name.starts_with('$')), "{fields}");
    });
    with(task_params(value), |tasks| tasks.iter().for_each(check_params));
    let taken = taken(value);
    assert!(taken.text.is_none_or(|text| (1..=200).contains(&text.chars().count()) && !text.contains('\0')));
    assert!(taken.number.is_none_or(|number| (0.0..=LONGEST.as_secs_f64()).contains(&number)));
    assert!(taken.seconds.is_none_or(|time| time <= LONGEST));
    assert!(taken.positive.is_none_or(|number| (1..=1_000_000).contains(&number)));
}

fn check_both(filter: &Map<String, Value>) {
    with(search_filter(filter), |read| check_filter(&read));
    with(source_filter(filter), |read| check_filter(&read));
}

/// They can be stored, and are read as they were given.
fn check_params(params: &Document) {
    check_keys(params);
    let Ok(bytes) = bson::serialize_to_vec(params) else { panic!("cannot be stored: {params}") };
    let read = RawDocumentBuf::from_bytes(bytes).and_then(Document::try_from);
    assert_eq!(read.ok().as_ref(), Some(params));
}

fn check_keys(params: &Document) {
    for (key, value) in params {
        assert!(!key.is_empty() && !key.contains(['.', '\0']), "{key:?} is a key");
        check_keys_within(value);
    }
}

fn check_keys_within(value: &Bson) {
    match value {
        Bson::Document(document) => check_keys(document),
        Bson::Array(items) => items.iter().for_each(check_keys_within),
        _ => {} // Nothing else has keys.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "$where is let through"]
    fn an_operator_that_is_let_through_is_found() {
        check_filter(&bson::doc! { "a": { "$in": [1, { "b": { "$where": "true" } }] } });
    }

    #[test]
    #[should_panic = "it may take for ever"]
    fn a_search_without_its_time_is_found() {
        let filter = bson::doc! { "node": { "$regex": "(a+)+$" } };
        check_search(TaskQuery { filter, ..TaskQuery::default() });
    }

    #[test]
    #[should_panic = "is a key"]
    fn keys_that_cannot_be_stored_are_found() {
        check_params(&bson::doc! { "a": [{ "b.c": 1 }] });
    }
}
