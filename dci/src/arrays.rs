//! Arrays: from the options of a submission, and to what clients see.

use disbatch_core::arrays::{
    Array, ArrayFilter, ArrayState, Counts, Element, FinalTask, FinalWhen, Items, MOST_ELEMENTS, NewArray,
};
use disbatch_core::model::{ArrayId, Status};
use disbatch_core::request::check_value;
use disbatch_wire::arrays::{self as wire, ArrayCount, ArrayElement, ArrayFinal, ArraySearch, ElementRange};
use serde_json::{Map, Value};

use crate::access::{Sight, Who};
use crate::api::create_tasks;
use crate::error::HttpError;
use crate::json::{self, Dates, date_text};
use crate::params::Params;
use crate::state::State;
use crate::{allowance, gates, legacy, values};

/// The options of a submission that are about its array.
pub const OPTIONS: [&str; 5] = ["array", "array_key", "array_cap", "array_final", "array_final_when"];

/// The parameter that says which element it is, unless another one is named.
const KEY: &str = "item";

/// The values of an array are so many bytes of JSON at most, as its document has them all.
const LONGEST_VALUES: usize = 4 * 1024 * 1024;

/// What all elements have is so many bytes of JSON at most when it is counted once for each: so much is written.
const MOST_WRITTEN: usize = 1024 * 1024 * 1024;

/// So many more copies there are of the parameters of an array: in its document, to check them, and with the values of an element.
const COPIES: usize = 5;

pub fn is_asked(params: &Params) -> bool {
    params.option("array").is_some()
}

/// Sees to it that a request asks for no array where there are none.
pub fn refuse(params: &Params) -> Result<(), HttpError> {
    match OPTIONS.into_iter().find(|name| params.option(name).is_some()) {
        None => Ok(()),
        Some("array") => {
            Err(HttpError::bad_request(".array is for POST /tasks alone, and not for tasks of a collection"))
        }
        Some(name) => Err(HttpError::bad_request(format!(".{name} needs .array"))),
    }
}

pub fn parse(params: &Params) -> Result<NewArray, HttpError> {
    let given = |name: &str| params.option(name);
    for other in ["chain", "unique"] {
        let is_given = given(other).is_some_and(|value| values::flag(other, value) != Ok(false));
        if is_given {
            return Err(HttpError::bad_request(format!(".array and .{other} exclude each other")));
        }
    }
    let large = params.fields.get("params").into_iter().chain(given("array_final"));
    allowance::take_for_copies(COPIES, large)?;
    let (items, own_cap) = items(given("array").unwrap_or(&Value::Null))?;
    let cap = match (given("array_cap"), own_cap) {
        (Some(_), Some(_)) => {
            return Err(HttpError::bad_request(".array_cap and % in .array exclude each other"));
        }
        (Some(value), None) => Some(cap(value)?),
        (None, own) => own,
    };
    let key = key_of(params)?;
    let own = match params.fields.get("params") {
        None | Some(Value::Null) => Map::new(),
        Some(value) => object("'params'", value)?,
    };
    if own.contains_key(&key) {
        let message =
            format!("'params' has the key {key} itself: .array_key names another one for the elements");
        return Err(HttpError::bad_request(message));
    }
    check_size(&items, &own, params)?;
    let last = given("array_final").map(|value| object(".array_final", value)).transpose()?;
    let when = FinalWhen::ALL.map(FinalWhen::as_str);
    let when =
        given("array_final_when").map(|value| values::word(".array_final_when", value, &when)).transpose()?;
    if last.is_none() && when.is_some() {
        return Err(HttpError::bad_request(".array_final_when needs .array_final"));
    }
    let when = when.and_then(FinalWhen::named).unwrap_or_default();
    let last = last.map(|params| FinalTask { params: json::to_document(&params), when });
    Ok(NewArray { items, cap, key, params: json::to_document(&own), last })
}

/// The parameter that says which element it is.
pub fn key_of(params: &Params) -> Result<String, HttpError> {
    let Some(given) = params.option("array_key") else { return Ok(KEY.to_owned()) };
    let key = values::text(".array_key", given)?;
    if key.contains('.') { Err(HttpError::bad_request(".array_key must have no dot")) } else { Ok(key) }
}

/// Each element is a task of its own, with all parameters and options.
fn check_size(items: &Items, own: &Map<String, Value>, params: &Params) -> Result<(), HttpError> {
    let bytes = |(_, value): (&String, &Value)| json::compact(value).len();
    let options =
        params.options.iter().filter(|(name, _)| !["array", "array_final"].contains(&name.as_str()));
    let of_each = own.iter().map(bytes).sum::<usize>() + options.map(bytes).sum::<usize>();
    let elements = usize::try_from(items.count()).unwrap_or(usize::MAX);
    if of_each.saturating_mul(elements) <= MOST_WRITTEN {
        return Ok(());
    }
    Err(HttpError::bad_request(format!(
        ".array: {elements} elements with {of_each} bytes of 'params' and options each are more than {MOST_WRITTEN} bytes"
    )))
}

/// Text as `0-99%5`, or an array of values, which a form has as text.
fn items(value: &Value) -> Result<(Items, Option<u32>), HttpError> {
    let wrong = |error: &dyn std::fmt::Display| HttpError::bad_request(format!(".array: {error}"));
    let text = match value {
        Value::String(text) if text.trim_start().starts_with('[') => {
            let parsed: Value = crate::allowance::json(text).map_err(|error| wrong(&error))?;
            return items_of(&parsed).map(|items| (items, None));
        }
        Value::String(text) => text.clone(),
        // One number is a text, too.
        Value::Number(number) => number.to_string(),
        other => return items_of(other).map(|items| (items, None)),
    };
    Items::parse(text.trim()).map_err(|error| wrong(&error))
}

fn items_of(value: &Value) -> Result<Items, HttpError> {
    let expected = ".array must be text as \"0-99%5\" or \"1,3,5-9:2\", or a JSON array of values";
    let all = value.as_array().ok_or_else(|| HttpError::bad_request(expected))?;
    if json::compact(value).len() > LONGEST_VALUES {
        return Err(HttpError::bad_request(format!(".array has more than {LONGEST_VALUES} bytes of values")));
    }
    check_value(value).map_err(|error| HttpError::bad_request(format!(".array: {error}")))?;
    let items = Items::of(all.iter().map(json::to_bson).collect());
    items.map_err(|error| HttpError::bad_request(format!(".array: {error}")))
}

fn cap(value: &Value) -> Result<u32, HttpError> {
    let cap = legacy::integer(value).filter(|_| !value.is_boolean());
    let cap = cap.and_then(|cap| u32::try_from(cap).ok()).filter(|cap| (1..=MOST_ELEMENTS).contains(cap));
    cap.ok_or_else(|| {
        HttpError::bad_request(format!(".array_cap must be an integer from 1 to {MOST_ELEMENTS}"))
    })
}

/// An object, which a form has as text, with keys that can be stored.
fn object(name: &str, value: &Value) -> Result<Map<String, Value>, HttpError> {
    let wrong = || HttpError::bad_request(format!("{name} must be a JSON object where there is .array"));
    let object = match value {
        Value::Object(object) => object.clone(),
        // As tasks have it that are no array.
        Value::Array(items) if items.len() == 1 => items[0].as_object().cloned().ok_or_else(wrong)?,
        Value::String(text) => crate::allowance::json(text).map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    check_value(&Value::Object(object.clone()))?;
    Ok(object)
}

pub async fn filter(state: &State, who: &Who, params: &Params) -> Result<(ArrayFilter, i64), HttpError> {
    let search = params.search::<ArraySearch>()?;
    let sight = gates::sight(state, who).await?;
    let mut queues = match &sight {
        Sight::All => None,
        Sight::Only(queues) => Some(queues.iter().copied().collect::<Vec<_>>()),
    };
    if let Some(name) = &search.queue {
        let queue = create_tasks::find_queue(state, Some(name)).await?;
        if !sight.sees(Some(queue.id)) {
            // One that is not for them is as if there were none.
            return Err(create_tasks::queue_not_found());
        }
        queues = Some(vec![queue.id]);
    }
    let states = ArrayState::ALL.map(ArrayState::as_str);
    let in_state = search.state.as_ref().map(|value| values::word("state", value, &states)).transpose()?;
    let before = search
        .before
        .map(|id| id.parse::<ArrayId>().map_err(|error| HttpError::bad_request(format!(".before: {error}"))));
    let filter =
        ArrayFilter { queues, state: in_state.and_then(ArrayState::named), before: before.transpose()? };
    Ok((filter, search.limit.unwrap_or(50)))
}

/// Which elements somebody asks for: the first, and how many.
pub fn extent(params: &Params) -> Result<(u32, u32), HttpError> {
    let ElementRange { from, limit } = params.options()?;
    let from = u32::try_from(from.unwrap_or(0)).ok().filter(|from| *from <= MOST_ELEMENTS);
    let from =
        from.ok_or_else(|| HttpError::bad_request(format!("'.from' must be from 0 to {MOST_ELEMENTS}")))?;
    Ok((from, limit.unwrap_or(100)))
}

pub async fn find(state: &State, id: &str) -> Result<Array, HttpError> {
    let id: ArrayId = id.parse().map_err(|_| not_found(id))?;
    state.store.find_array(id).await?.ok_or_else(|| not_found(&id.to_string()))
}

/// There is no such array, or not for whoever asks.
pub fn not_found(id: &str) -> HttpError {
    HttpError::not_found(format!("no array with id {id}"))
}

pub fn ended(counts: &Counts) -> i64 {
    counts.iter().filter(|(status, _)| Status::from_code(**status).has_ended()).map(|(_, tasks)| tasks).sum()
}

pub fn view(array: &Array, counts: Option<&Counts>) -> wire::Array {
    let word = |status| Status::from_code(status).word().to_owned();
    let count = |(&status, &tasks): (&i64, &i64)| ArrayCount { status, word: word(status), tasks };
    let last = array.last.map(|(id, when)| (id.to_string(), when.as_str().to_owned()));
    wire::Array {
        id: array.id.to_string(),
        queue: array.queue.to_string(),
        items: array.words.clone(),
        count: array.count,
        inserted: array.inserted,
        cap: array.cap,
        key: array.key.clone(),
        state: array.state.as_str().to_owned(),
        created: array.created.and_then(date_text),
        ended: array.ended.and_then(date_text),
        succeeded: array.succeeded,
        owner: array.owner.clone(),
        tenant: array.tenant.clone(),
        done: counts.map(ended),
        counts: counts.map(|counts| counts.iter().map(count).collect()),
        r#final: last.map(|(id, when)| ArrayFinal { id, when, status: None }),
        elements: None,
    }
}

pub fn of_element(element: &Element) -> ArrayElement {
    ArrayElement {
        id: element.id.to_string(),
        index: element.index,
        value: element.value.as_ref().map(|value| json::from_bson(value, Dates::Text)),
        status: element.status.map(Status::code),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    fn of(fields: Value, options: Value) -> Result<NewArray, HttpError> {
        let map = |value: Value| value.as_object().unwrap().clone();
        parse(&Params { fields: map(fields), options: map(options) })
    }

    #[test]
    fn an_array_is_read_from_json_and_from_forms() {
        let array = of(json!({ "params": { "a": 1 } }), json!({ "array": "0-9%3" })).unwrap();
        assert_eq!((array.items.count(), array.cap, array.key.as_str()), (10, Some(3), "item"));
        assert_eq!((array.params, array.last), (doc! { "a": 1 }, None));
        let whole = json!({
            "array": ["a", { "b": 1 }], "array_cap": "2", "array_key": "file", "array_final": { "sum": true },
            "array_final_when": "finished", "chain": false,
        });
        let array = of(json!({}), whole).unwrap();
        assert_eq!(
            (array.items.words().as_str(), array.cap, array.key.as_str()),
            ("2 values", Some(2), "file")
        );
        let last = FinalTask { params: doc! { "sum": true }, when: FinalWhen::Finished };
        assert_eq!(array.last, Some(last));
        let form =
            of(json!({ "params": "{\"a\":1}" }), json!({ "array": "[1, 2]", "array_final": "{}" })).unwrap();
        assert_eq!((form.items.count(), form.params, form.last.is_some()), (2, doc! { "a": 1 }, true));
        assert_eq!(of(json!({}), json!({ "array": 7 })).unwrap().items.count(), 1);
    }

    #[test]
    fn mistakes_name_the_option() {
        let wrong = [
            (json!({ "array": "x" }), ".array: 'x' is no array"),
            (json!({ "array": "5-1" }), ".array: the range '5-1' ends before it begins"),
            (json!({ "array": [] }), ".array: an array has at least one element"),
            (json!({ "array": {} }), ".array must be text as"),
            (json!({ "array": "[1" }), ".array: EOF"),
            (json!({ "array": [{ "a.b": 1 }] }), ".array: 'params' has the key \"a.b\""),
            (json!({ "array": "0-9%2", "array_cap": 3 }), ".array_cap and % in .array exclude each other"),
            (json!({ "array": "0-9", "array_cap": 0 }), ".array_cap must be an integer from 1 to 100000"),
            (json!({ "array": "0-9", "array_key": "a.b" }), ".array_key must have no dot"),
            (json!({ "array": "0-9", "array_key": "own" }), "'params' has the key own itself"),
            (json!({ "array": "0-9", "array_final": 5 }), ".array_final must be a JSON object"),
            (
                json!({ "array": "0-9", "array_final_when": "finished" }),
                ".array_final_when needs .array_final",
            ),
            (
                json!({ "array": "0-9", "array_final": {}, "array_final_when": "any" }),
                ".array_final_when must be",
            ),
            (json!({ "array": "0-9", "chain": true }), ".array and .chain exclude each other"),
            (json!({ "array": "0-9", "unique": "k" }), ".array and .unique exclude each other"),
        ];
        for (options, message) in wrong {
            let error = of(json!({ "params": { "own": 1 } }), options.clone()).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(message), "{options}: {error}");
        }
        let error = of(json!({ "params": [{ "a": 1 }, { "a": 2 }] }), json!({ "array": "0-9" })).unwrap_err();
        assert!(error.to_string().starts_with("'params' must be a JSON object"), "{error}");
        let params =
            |options: Value| Params { options: options.as_object().unwrap().clone(), ..Params::default() };
        assert!(refuse(&params(json!({ "array": "", "delay": 5 }))).is_ok());
        assert!(refuse(&params(json!({ "array": "0-9" }))).is_err());
        assert_eq!(
            refuse(&params(json!({ "array_cap": 5 }))).unwrap_err().to_string(),
            ".array_cap needs .array"
        );
    }

    #[test]
    fn elements_are_not_large_and_many() {
        let text = "x".repeat(20_000);
        let array = |items: &str| of(json!({ "params": { "text": text } }), json!({ "array": items }));
        assert!(array("0-49999").is_ok());
        let error = array("0-59999").unwrap_err();
        assert_eq!(error.status(), 400);
        let expected = ".array: 60000 elements with 20002 bytes of 'params' and options each are more than";
        assert!(error.to_string().starts_with(expected), "{error}");
        let steps = json!([{ "params": { "text": text } }]);
        assert!(of(json!({}), json!({ "array": "0-59999", "steps": steps })).is_err());
    }

    #[test]
    fn what_has_ended_is_counted() {
        let counts = Counts::from([(-4, 5), (-2, 4), (0, 3), (1, 2), (2, 1), (-5, 7)]);
        assert_eq!(ended(&counts), 10);
        assert_eq!(extent(&Params::default()).unwrap(), (0, 100));
    }
}
