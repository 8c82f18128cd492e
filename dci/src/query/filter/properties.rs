//! Whatever clients send: a filter has operators that they have used and may use, and `$in` where they gave several
//! values. What would run code on the server is refused wherever it hides.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::query::legacy::search_filter;

/// Some that may be used, some that may not, some that are none, and fields.
const KEYS: [&str; 30] = [
    "$eq",
    "$gt",
    "$in",
    "$nin",
    "$not",
    "$all",
    "$elemMatch",
    "$exists",
    "$regex",
    "$options",
    "$and",
    "$or",
    "$nor",
    "$where",
    "$expr",
    "$function",
    "$accumulator",
    "$jsonSchema",
    "$comment",
    "$lookup",
    "$Where",
    "$",
    "$oid",
    "a",
    "a.$where",
    "_id",
    "queue",
    "status",
    "mtime",
    "",
];

const TEXTS: [&str; 6] =
    ["6b0003bb686c8275d70dc2f1", "$where", "$$ROOT", "function () { return true }", "(a+)+$", ""];

/// What would run code.
const CODE: [&str; 4] = ["$where", "$function", "$accumulator", "$expr"];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![
        9 => prop::sample::select(&KEYS[..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop::collection::vec((key, values), 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

/// A filter with an operator that runs code somewhere in it, among others that are allowed there or are not.
fn with_code() -> impl Strategy<Value = (Map<String, Value>, &'static str)> {
    let code = prop::sample::select(&CODE[..]);
    (code, prop::collection::vec(0..7_usize, 0..6)).prop_map(|(code, wraps)| {
        let innermost = json!({ code: { "body": "function () { return true }", "args": [], "lang": "js" } });
        let hidden = wraps.into_iter().fold(innermost, |hidden, wrap| match wrap {
            0 => json!([hidden]),
            1 => json!({ "a": hidden }),
            2 => json!({ "$elemMatch": hidden }),
            3 => json!({ "$not": hidden }),
            4 => json!({ "$in": [1, hidden] }),
            5 => json!({ "$or": [hidden] }),
            _ => json!({ "b": 1, "$and": [{ "a": hidden }] }),
        });
        match hidden {
            Value::Object(filter) => (filter, code),
            hidden => (Map::from_iter([("a".to_owned(), hidden)]), code),
        }
    })
}

fn operators_of_json(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.extend(key.starts_with('$').then(|| key.clone()));
                operators_of_json(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| operators_of_json(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn operators_of_bson(value: &Bson, found: &mut BTreeSet<String>) {
    match value {
        Bson::Document(document) => {
            for (key, value) in document {
                found.extend(key.starts_with('$').then(|| key.clone()));
                operators_of_bson(value, found);
            }
        }
        Bson::Array(items) => items.iter().for_each(|item| operators_of_bson(item, found)),
        _ => {} // Nothing else holds an operator.
    }
}

fn check(filter: Document, sent: &Value) -> Result<(), TestCaseError> {
    let (mut made, mut given) = (BTreeSet::new(), BTreeSet::new());
    operators_of_bson(&Bson::Document(filter), &mut made);
    operators_of_json(sent, &mut given);
    for operator in made {
        let name = operator.as_str();
        // An id within a value that is compared as a whole stays what it looks like.
        let allowed = COMPARING.contains(&name) || COMBINING.contains(&name) || name == "$oid";
        prop_assert!(allowed, "{operator} is let through: {sent}");
        prop_assert!(given.contains(name) || name == "$in", "{operator} comes from nowhere: {sent}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_search_over_tasks_has_no_other_operators(
        name in prop::sample::select(vec!["id", "queue", "status", "node", "params.a"]),
        value in any_value(),
    ) {
        if let Ok(filter) = task_filter(&[(name, &value)]) {
            prop_assert_eq!(filter.len(), 1);
            check(filter, &value)?;
        }
    }

    #[test]
    fn a_filter_has_no_other_operators(filter in object(any_value())) {
        for read in [collection_filter(&filter), search_filter(&filter)].into_iter().flatten() {
            prop_assert_eq!(read.len(), filter.len());
            check(read, &Value::Object(filter.clone()))?;
        }
    }

    #[test]
    fn code_is_refused_wherever_it_is((filter, code) in with_code()) {
        let value = Value::Object(filter.clone());
        let refused = [
            collection_filter(&filter).err(),
            search_filter(&filter).err(),
            task_filter(&[("node", &value)]).err(),
            check_forbidden(&filter).err(),
        ];
        for error in &refused {
            let status = error.as_ref().map(|error| error.status().as_u16());
            prop_assert_eq!(status, Some(400), "{} in {}", code, value);
        }
        let named = format!("operator '{code}' is not allowed");
        prop_assert_eq!(refused[3].as_ref().map(HttpError::message), Some(named.as_str()));
    }
}
