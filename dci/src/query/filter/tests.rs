use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn of_task(name: &str, value: Value) -> Result<Document, HttpError> {
    task_filter(&[(name, &value)])
}

fn of_collection(filter: Value) -> Result<Document, HttpError> {
    collection_filter(filter.as_object().unwrap())
}

#[test]
fn values_get_the_type_of_their_field() {
    let id = ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
    assert_eq!(of_task("id", json!(id.to_hex())).unwrap(), doc! { "_id": id });
    assert_eq!(of_task("queue", json!(id.to_hex())).unwrap(), doc! { "queue": id });
    assert_eq!(of_task("status", json!("-2")).unwrap(), doc! { "status": -2_i32 });
    assert_eq!(of_task("status", json!("-2.0")).unwrap(), doc! { "status": -2.0 });
    assert_eq!(of_task("params.n", json!(" 17")).unwrap(), doc! { "params.n": 17_i32 });
    assert_eq!(of_task("ctime", json!("1.5e3")).unwrap(), doc! { "ctime": 1500.0 });
    assert_eq!(of_task("params.a", json!(["5", "x"])).unwrap(), doc! { "params.a": { "$in": [5_i32, "x"] } });
    assert_eq!(of_task("params.a", json!(id.to_hex())).unwrap(), doc! { "params.a": id.to_hex() });
    assert_eq!(of_task("status", json!("abc")).unwrap(), doc! { "status": "abc" });
    assert_eq!(of_task("status", json!(["-2", 1])).unwrap(), doc! { "status": { "$in": [-2_i32, 1_i32] } });
    let tags = doc! { "tags": { "$all": ["a", "b"] } };
    assert_eq!(of_task("tags", json!("a,b")).unwrap(), tags, "all of them");
    assert_eq!(of_task("node", json!(null)).unwrap(), doc! { "node": null });
    assert_eq!(of_task("node", json!("7")).unwrap(), doc! { "node": "7" });
    assert_eq!(of_task("node", json!("-1")).unwrap(), doc! { "node": -1_i32 });
    assert_eq!(of_task("status", json!({"$lt": 0})).unwrap(), doc! { "status": { "$lt": 0_i32 } });
}

#[test]
fn ids_must_be_ids() {
    for wrong in [json!("xyz"), json!(["6b0003bb686c8275d70dc2f1"]), json!({"$oid": "x"}), json!(null)] {
        assert_eq!(of_task("queue", wrong).unwrap_err().status(), 400);
    }
}

#[test]
fn only_comparing_operators_pass() {
    for wrong in [
        json!({"$where": "1"}),
        json!({"$not": {"$expr": 1}}),
        json!([{"$where": "1"}]),
        json!({"$elemMatch": {"a": {"$function": {}}}}),
        json!({"$in": [{"a": {"$accumulator": {}}}]}),
        json!({"a": {"$where": 1}}),
    ] {
        let error = of_task("node", wrong.clone()).unwrap_err();
        assert!(error.to_string().ends_with("is not allowed"), "{wrong}: {error}");
    }
}

#[test]
fn collections_may_be_searched_with_combinations() {
    let filter = json!({"$or": [{"a": 1}, {"b": {"$in": ["x"]}}], "c.d": null});
    assert_eq!(
        of_collection(filter).unwrap(),
        doc! { "$or": [{ "a": 1_i32 }, { "b": { "$in": ["x"] } }], "c.d": null }
    );
    let error = of_collection(json!({"$bad": 1})).unwrap_err();
    assert!(error.to_string().starts_with("MongoDB::DatabaseError: unknown top level operator: $bad. If"));
    for wrong in
        [json!({"$or": 1}), json!({"$or": [1]}), json!({"$where": "1"}), json!({"$and": [{"$expr": {}}]})]
    {
        assert!(of_collection(wrong).is_err());
    }
    let error = of_collection(json!({"$accumulator": {}})).unwrap_err();
    assert_eq!(error.to_string(), "operator '$accumulator' is not allowed");
}

#[test]
fn code_is_named_before_anything_else_that_is_wrong() {
    let check = |filter: Value| check_forbidden(filter.as_object().unwrap());
    for (filter, operator) in [
        (json!({"$bad": 1, "z": {"$where": "1"}}), "$where"),
        (json!({"a": [[{"b": {"$expr": {"$function": {"body": "f", "args": [], "lang": "js"}}}}]]}), "$expr"),
        (json!({"a": {"$map": {"in": {"$function": {}}}}}), "$function"),
    ] {
        let error = check(filter).unwrap_err();
        assert_eq!(
            (error.status().as_u16(), error.message()),
            (400, &*format!("operator '{operator}' is not allowed"))
        );
    }
    assert!(check(json!({"$bad": 1, "where": "$where", "a": {"$in": ["$function"]}})).is_ok());
}

const ID: &str = "6b0003bb686c8275d70dc2f1";

fn filter(value: Value) -> Result<Document, HttpError> {
    search_filter(value.as_object().unwrap())
}

#[test]
fn text_becomes_an_id_and_milliseconds_a_time() {
    let id = ObjectId::parse_str(ID).unwrap();
    let at = DateTime::from_millis(1_700_000_000_000);
    let same = [
        (json!({"queue": ID}), doc! { "queue": id }),
        (json!({"queue": {"$in": [ID]}}), doc! { "queue": { "$in": [id] } }),
        (json!({"_id": {"$oid": ID}}), doc! { "_id": id }),
        (json!({"_id": ID}), doc! { "_id": id }),
        (json!({"_id": "x"}), doc! { "_id": "x" }),
        (json!({"ctime": 1_700_000_000_000_i64}), doc! { "ctime": at }),
        (
            json!({"$or": [{"mtime": {"$lt": 1_700_000_000_000_i64}}, {"queue": ID}]}),
            doc! { "$or": [{ "mtime": { "$lt": at } }, { "queue": id }] },
        ),
        (
            json!({"ctime": {"$exists": true}, "params.a": "b"}),
            doc! { "ctime": { "$exists": true }, "params.a": "b" },
        ),
    ];
    for (given, stored) in same {
        assert_eq!(filter(given).unwrap(), stored);
    }
    let error = filter(json!({"queue": "zzz"})).unwrap_err().to_string();
    assert_eq!(error, "Bad OID passed: 'zzz' is not an id: expected 24 hexadecimal digits");
    assert!(filter(json!({"$where": "1"})).is_err());
}

#[test]
fn nobody_searches_for_what_is_for_plugins_only() {
    for secret in [
        json!({"secure_params": {"$exists": true}}),
        json!({"secure_params.data": {"$regex": "a"}}),
        json!({"status": 1, "$or": [{"a": 1}, {"$and": [{"secure_params.key": "k"}]}]}),
        json!({"$nor": [{"secure_params": null}]}),
    ] {
        let error = filter(secret.clone()).unwrap_err();
        assert_eq!(error.status(), 400, "{secret}");
        assert!(error.to_string().starts_with("'secure_params' is for plugins only"), "{error}");
    }
    assert!(sort(Some(&json!({"secure_params.key": 1}))).is_err());
    for other in [json!({"params.secure_params": 1}), json!({"params": {"secure_params": 1}})] {
        assert!(filter(other.clone()).is_ok(), "{other}");
    }
}

#[test]
fn orders_are_fields_with_directions() {
    assert_eq!(sort(None).unwrap(), None);
    assert_eq!(sort(Some(&json!({"_id": -1}))).unwrap(), Some(doc! { "_id": -1_i64 }));
    for wrong in [json!([]), json!("x"), json!({"a": 2}), json!({"$a": 1}), json!({"": 1}), json!({"a": {}})]
    {
        assert!(sort(Some(&wrong)).is_err(), "{wrong}");
    }
}

// Whatever clients send: a filter has operators that they have used and may use, and `$in` where they gave several
// values. What would run code on the server is refused wherever it hides.

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
