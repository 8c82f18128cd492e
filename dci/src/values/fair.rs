//! What queues say of whose turn it is.

use bson::Document;
use disbatch_core::fair::{MOST_CLASSES, MOST_WEIGHT, Scheme, check_group};
use serde_json::{Map, Value};

use super::wrong;
use crate::error::HttpError;
use crate::{json, legacy};

/// So many groups may have a weight.
const MOST_WEIGHTS: usize = 1_000;

/// How often each class of priorities is preferred: a list of numbers, or in a form these with commas between them.
pub fn scheme(name: &str, value: &Value) -> Result<Scheme, HttpError> {
    let numbers: Vec<Value> = match value {
        Value::Array(numbers) => numbers.clone(),
        Value::String(text) => {
            let text = text.trim().trim_start_matches('[').trim_end_matches(']');
            text.split(',').map(|number| Value::from(number.trim())).collect()
        }
        _ => Vec::new(), // Nothing else is several.
    };
    let number = |value: &Value| u32::try_from(legacy::integer(value).filter(|_| !value.is_boolean())?).ok();
    let numbers: Option<Vec<u32>> = numbers.iter().map(number).collect();
    let expected = || wrong(name, &format!("2 to {MOST_CLASSES} integers from 1 to 100"));
    numbers.and_then(Scheme::new).ok_or_else(expected)
}

/// How much more than others groups get: an object of their names, or its JSON as text.
pub fn weights(name: &str, value: &Value) -> Result<Document, HttpError> {
    let what =
        format!("an object of at most {MOST_WEIGHTS} groups, each with an integer from 1 to {MOST_WEIGHT}");
    let expected = || wrong(name, &what);
    let object: Map<String, Value> = match value {
        Value::Object(object) => object.clone(),
        Value::String(text) => crate::allowance::json(text).map_err(|_| expected())?,
        _ => return Err(expected()), // Nothing else has keys.
    };
    if !(1..=MOST_WEIGHTS).contains(&object.len()) {
        return Err(expected());
    }
    let weight = |(group, value): (&String, &Value)| {
        // The database takes a name that begins so for something to be done.
        if check_group(group).is_err() || group.starts_with('$') {
            let odd = Value::from(group.as_str());
            return Err(wrong(name, &format!("an object of groups, which {odd} is not")));
        }
        let fits = |n: &i64| !value.is_boolean() && (1..=i64::from(MOST_WEIGHT)).contains(n);
        let weight = legacy::integer(value).filter(fits);
        Ok((group.clone(), json::to_bson(&Value::from(weight.ok_or_else(expected)?))))
    };
    object.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_makes_a_queue_fair_is_checked() {
        assert_eq!(scheme("s", &json!([2, 1])).unwrap().times(), [2, 1]);
        assert_eq!(scheme("s", &json!(" [4, 2,1]")).unwrap().times(), [4, 2, 1]);
        for no in [json!([1]), json!([0, 1]), json!("2;1"), json!(3), json!([2, true]), json!([1, 101])] {
            let error = scheme("s", &no).unwrap_err();
            assert_eq!(error.to_string(), "s must be 2 to 10 integers from 1 to 100", "{no}");
        }
        assert_eq!(weights("w", &json!({"a": "5", "a/b.c": 2})).unwrap(), doc! { "a": 5, "a/b.c": 2 });
        assert_eq!(weights("w", &json!("{\"a\": 5}")).unwrap(), doc! { "a": 5 });
        for no in [json!({}), json!({"a": 0}), json!({"a": 101}), json!({"a": true}), json!("x"), json!([1])]
        {
            let error = weights("w", &no).unwrap_err().to_string();
            assert!(error.starts_with("w must be an object of at most 1000 groups"), "{no}: {error}");
        }
        for no in [json!({"a/": 1}), json!({"": 1}), json!({"$a": 1})] {
            assert!(
                weights("w", &no)
                    .unwrap_err()
                    .to_string()
                    .starts_with("w must be an object of groups, which ")
            );
        }
    }
}
