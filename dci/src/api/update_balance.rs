//! `POST /balance`

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, DateTime, Document};
use disbatch_core::model::whole_number;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, get_balance};
use crate::error::HttpError;
use crate::openapi::{BalanceChange, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy};

/// Sets `max_tasks`, `queues` and, if given, `disabled` of the document of `QueueBalance`: until when it does nothing, in seconds
/// since 1970.
#[utoipa::path(
    post, path = "/balance", tag = "balance", operation_id = "updateBalance",
    request_body = BalanceChange,
    responses(
        (
            status = 200, description = "Changed.", body = Value,
            example = json!({"status": "success: queuebalance modified"}),
        ),
        (
            status = 400, description = "A parameter is missing or wrong.", body = Value,
            example = json!({"status": "failed: invalid json passed: 'queues' is missing"}),
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Result<Params, HttpError>) -> Answer {
    let params = match params {
        Err(error) if error.status() == StatusCode::BAD_REQUEST => return Err(failed(error.message())),
        other => other?,
    };
    let known = get_balance::known_queues(&state).await?.into_iter().collect();
    let fields = checked(&params.fields, Some(&known)).map_err(|message| failed(&message))?;
    if has_passed(&fields, state.store.now()) {
        return Err(failed("'disabled' is a time that has passed already"));
    }
    changes::save_balance(&state, &who, fields).await?;
    Ok(json::ok(&json!({ "status": "success: queuebalance modified" })))
}

/// Whether it was to be disabled until a time before `now`. 0 is no time: it stands for null.
fn has_passed(fields: &Document, now: DateTime) -> bool {
    let until = fields.get("disabled").and_then(whole_number).filter(|until| *until != 0);
    until.is_some_and(|until| until < now.timestamp_millis() / 1000)
}

fn failed(message: &str) -> HttpError {
    let body = json!({ "status": format!("failed: invalid json passed: {message}") });
    HttpError::with_body(StatusCode::BAD_REQUEST, body)
}

/// The fields as they are stored, with queues of `known` and legal times. Without `known` only their types are checked, for
/// what has been stored already and may be odd.
pub fn checked(fields: &Map<String, Value>, known: Option<&BTreeSet<String>>) -> Result<Document, String> {
    let unknown = fields.keys().find(|key| !["disabled", "max_tasks", "queues"].contains(&key.as_str()));
    if let Some(key) = unknown {
        return Err(format!("'{key}' is unknown, only 'max_tasks', 'queues' and 'disabled' are not"));
    }
    let given = |key: &str| fields.get(key).ok_or_else(|| format!("'{key}' is missing"));
    let mut stored = Document::new();
    stored.insert("max_tasks", max_tasks(given("max_tasks")?, known.is_some())?);
    stored.insert("queues", queues(given("queues")?, known)?);
    if let Some(until) = fields.get("disabled") {
        let wrong = || "'disabled' must be null or whole seconds since 1970".to_owned();
        let until = if until.is_null() { Bson::Null } else { whole(until).ok_or_else(wrong)? };
        stored.insert("disabled", until);
    }
    Ok(stored)
}

fn max_tasks(value: &Value, only_legal: bool) -> Result<Document, String> {
    let entries = value.as_object().ok_or("'max_tasks' must be an object of times and numbers")?;
    let entry = |(time, most): (&String, &Value)| {
        let quoted = Value::from(time.as_str());
        // What is stored has no key that the database could not take.
        if (only_legal && !is_time(time)) || time.contains(['\0', '.', '$']) {
            return Err(format!(
                "'max_tasks' has the time {quoted}, which must look like \"* 07:00\" for every \
                                day, or like \"0 07:00\" for Sundays, up to \"6 07:00\" for Saturdays"
            ));
        }
        let wrong = || format!("'max_tasks' has no non-negative integer for {quoted}");
        Ok((time.clone(), whole(most).ok_or_else(wrong)?))
    };
    entries.iter().map(entry).collect()
}

/// `<0-6 or *> HH:MM`
fn is_time(text: &str) -> bool {
    match text.as_bytes() {
        [b'0'..=b'6' | b'*', b' ', h1, h2, b':', b'0'..=b'5', b'0'..=b'9'] => {
            matches!((h1, h2), (b'0' | b'1', b'0'..=b'9') | (b'2', b'0'..=b'3'))
        }
        _ => false, // Nothing else is a day and a time.
    }
}

/// Text becomes a number, as Perl has it.
fn whole(value: &Value) -> Option<Bson> {
    let number = legacy::integer(value).filter(|_| legacy::is_non_negative_integer(value))?;
    Some(json::to_bson(&Value::from(number)))
}

fn queues(value: &Value, known: Option<&BTreeSet<String>>) -> Result<Vec<Bson>, String> {
    let tiers = value.as_array().ok_or("'queues' must be an array of arrays of names")?;
    let mut seen = BTreeSet::new();
    let mut name = |value: &Value| {
        let name = match value {
            Value::String(name) => name.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(format!("'queues' has {other}, which is no name")),
        };
        if known.is_some_and(|known| !known.contains(&name)) {
            return Err(format!("'queues' has {}, which is no queue", Value::from(name)));
        }
        if !seen.insert(name.clone()) {
            return Err(format!("'queues' has {} more than once", Value::from(name)));
        }
        Ok(Bson::String(name))
    };
    let tier = |tier: &Value| {
        let names =
            tier.as_array().ok_or_else(|| format!("'queues' has {tier}, which is no array of names"))?;
        names.iter().map(&mut name).collect::<Result<Vec<_>, _>>().map(Bson::Array)
    };
    tiers.iter().map(tier).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn check(fields: Value) -> Result<Document, String> {
        let known = ["q1", "q2", "7", "a b"].map(str::to_owned).into();
        checked(fields.as_object().unwrap(), Some(&known))
    }

    #[test]
    fn numbers_as_text_are_stored_as_numbers() {
        let fields =
            json!({"max_tasks": {"* 07:00": 1, "6 23:59": "5"}, "queues": [["q1", 7], []], "disabled": "9"});
        let stored =
            doc! { "max_tasks": { "* 07:00": 1, "6 23:59": 5 }, "queues": [["q1", "7"], []], "disabled": 9 };
        assert_eq!(check(fields).unwrap(), stored);
        let empty = json!({"max_tasks": {}, "queues": [], "disabled": null});
        assert_eq!(check(empty).unwrap(), doc! { "max_tasks": {}, "queues": [], "disabled": Bson::Null });
    }

    #[test]
    fn it_is_not_disabled_until_a_time_that_has_passed() {
        let now = DateTime::from_millis(1_795_163_067_344);
        let of = |until: Bson| has_passed(&doc! { "disabled": until }, now);
        assert!(of(Bson::Int32(1000)) && of(Bson::Int64(1_795_163_066)));
        assert!(!of(Bson::Int64(1_795_163_067)) && !of(Bson::Int64(4_102_444_800)));
        assert!(!of(Bson::Int32(0)) && !of(Bson::Null), "nothing is meant");
        assert!(!has_passed(&doc! {}, now));
    }

    #[test]
    fn what_was_stored_may_be_odd() {
        let of = |fields: Value| checked(fields.as_object().unwrap(), None);
        let odd = json!({"max_tasks": {"0 7:5": 1, "never": 2}, "queues": [["gone"], []]});
        let stored = doc! { "max_tasks": { "0 7:5": 1, "never": 2 }, "queues": [["gone"], []] };
        assert_eq!(of(odd).unwrap(), stored);
        for wrong in [
            json!({"max_tasks": {"never": "x"}, "queues": []}),
            json!({"max_tasks": {"nul\0": 1}, "queues": []}),
            json!({"max_tasks": {}, "queues": "x"}),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        let queues = |queues: Value| check(json!({"max_tasks": {}, "queues": queues})).unwrap_err();
        for wrong in [json!("q1"), json!(["q1"]), json!([[["q1"]]]), json!([["no"]]), json!([["q1"], ["q1"]])]
        {
            assert!(queues(wrong.clone()).starts_with("'queues' "), "{wrong}");
        }
        let max_tasks = |max: Value| check(json!({"max_tasks": max, "queues": []})).unwrap_err();
        for time in ["7 07:00", "* 24:00", "* 7:00", "07:00", "* 07:60", "*07:00", "é 07:00"] {
            assert!(max_tasks(json!({ time: 1 })).contains("must look like"), "{time}");
        }
        for number in [json!(1.1), json!(-1), json!("x"), json!(null), json!("99999999999999999999")] {
            assert!(max_tasks(json!({ "* 07:00": number })).contains("no non-negative integer"));
        }
        assert!(max_tasks(json!("foo")).starts_with("'max_tasks' must be"));
        assert_eq!(check(json!({"max_tasks": {}})).unwrap_err(), "'queues' is missing");
        let disabled = check(json!({"max_tasks": {}, "queues": [], "disabled": "abc"})).unwrap_err();
        assert!(disabled.starts_with("'disabled' must be"));
        assert!(check(json!({"foo": 1})).unwrap_err().starts_with("'foo' is unknown"));
    }
}
