//! `QueueBalance`: the document that says how many tasks may run when, and which queues come first.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, DateTime, Document};
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::balance::revision;
use disbatch_core::config::Balance;
use disbatch_core::model::{Queue, whole_number};
use disbatch_core::store::{Store, StoreError};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{BalanceChange, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::ui::zone;
use crate::{changes, json, legacy, values};

const STALE: &str = "Other settings have been saved meanwhile. Load the page again to see them.";

/// The document of `QueueBalance`, its switches, and the names of all queues: JSON for people, or a page.
#[utoipa::path(
    get, path = "/balance", tag = "balance", operation_id = "getBalance",
    responses(
        (status = 200, description = "The document without its id, and what is known of it; or a page.", body = Value,
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>) -> Answer {
    Ok(json::ok_pretty(&Value::Object(find(&state).await?)))
}

/// Sets `max_tasks`, `queues` and, if given, `disabled` of the document of `QueueBalance`: until when it does nothing, in seconds
/// since 1970.
#[utoipa::path(
    post, path = "/balance", tag = "balance", operation_id = "updateBalance",
    request_body = BalanceChange,
    responses(
        (status = 200, description = "Changed.", body = Value, example = json!({"status": "success: queuebalance modified"})),
        (
            status = 400, description = "A parameter is missing or wrong.", body = Value,
            example = json!({"status": "failed: invalid json passed: 'queues' is missing"}),
        ),
    ),
)]
pub async fn update(state: Data<State>, who: Who, params: Result<Params, HttpError>) -> Answer {
    let params = match params {
        Err(error) if error.status() == StatusCode::BAD_REQUEST => return Err(failed(error.message())),
        other => other?,
    };
    let known = known_queues(&state).await?.into_iter().collect();
    let fields = checked(&params.fields, Some(&known)).map_err(|message| failed(&message))?;
    if has_passed(&fields, state.store.now()) {
        return Err(failed("'disabled' is a time that has passed already"));
    }
    let save = |store: Store| async move { store.save_balance(fields).await };
    changes::alter(&state, &who, (Verb::BalanceUpdate, Object::new(ObjectKind::Balance)), save).await?;
    Ok(json::ok(&json!({ "status": "success: queuebalance modified" })))
}

/// Sets `max_tasks` and `queues` as `POST /balance` does, if the settings still have the revision `.base`, which the page has as
/// `data-revision`. With `.undo` they are what was there before, and may name queues that are gone. Answers the new revision.
#[utoipa::path(
    post, path = "/ui/balance", tag = "service", operation_id = "saveBalance",
    request_body(
        content = Value, content_type = "application/json",
        example = json!({"max_tasks": {"* 07:00": 5}, "queues": [[], ["mail"]], ".base": ""}),
    ),
    responses(
        (status = 200, description = "Saved.", body = Value, example = json!({"revision": "9f86d081884c7d65"})),
        (status = 400, description = "A parameter is missing or wrong."),
        (status = 409, description = "Other settings have been saved meanwhile. Nothing is changed."),
    ),
)]
pub async fn save(state: Data<State>, who: Who, params: Params) -> Answer {
    let missing = || HttpError::bad_request(".base must be the revision that was changed");
    let base = params.options.get("base").and_then(Value::as_str).ok_or_else(missing)?;
    let known: BTreeSet<String> = known_queues(&state).await?.into_iter().collect();
    let known = (!params.is_on("undo")).then_some(&known);
    let fields = checked(&params.fields, known).map_err(HttpError::bad_request)?;
    let revision = revision(Some(&fields));
    if changes::change_balance(&state, &who, base.to_owned(), fields).await? {
        Ok(json::ok(&json!({ "revision": revision })))
    } else {
        Err(HttpError::conflict(STALE))
    }
}

/// Disables `QueueBalance` for so many `hours`, or `until` a time: UTC unless it has a zone or the page's reader has one, or seconds since 1970. If
/// that is a day, `at` has the time of it. With `enable` it works again.
#[utoipa::path(
    post, path = "/ui/balance/disable", tag = "service", operation_id = "disableBalance",
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({"hours": "8"}),
    ),
    responses(
        (
            status = 200, description = "Until when it is disabled now.", body = Value,
            example = json!({
                "disabled": 1_795_163_067, "said": "QueueBalance is disabled until 2026-11-20 08:24:27 UTC.",
            }),
        ),
        (status = 303, description = "Done; the address of `.then` is next."),
        (status = 400, description = "A parameter is missing or wrong."),
    ),
)]
pub async fn disable(state: Data<State>, who: Who, params: Params) -> Answer {
    let until = until(&params.fields, state.store.now())?;
    let pause = move |store: Store| async move { store.pause_balance(until).await };
    changes::alter(&state, &who, (Verb::BalancePause, Object::new(ObjectKind::Balance)), pause).await?;
    redirect::answer(&params, json::ok(&json!({ "disabled": until, "said": said(until) })))
}

async fn find(state: &State) -> Result<Map<String, Value>, StoreError> {
    let (document, mut known) = futures::try_join!(state.store.stored_balance(), known_queues(state))?;
    known.sort_unstable();
    let mut shown = match document {
        Some(document) => json::from_document(&document, Dates::Text),
        None => Map::from_iter([("notice".to_owned(), Value::from("balance document not found"))]),
    };
    shown.remove("_id");
    shown.insert("known_queues".to_owned(), known.into());
    shown.insert("settings".to_owned(), settings(state.balance));
    Ok(shown)
}

pub async fn known_queues(state: &State) -> Result<Vec<String>, StoreError> {
    Ok(state.store.list_queues().await?.iter().map(Queue::display_name).collect())
}

fn settings(balance: Balance) -> Value {
    json!({
        "enabled": balance.enabled.0,
        "log": balance.log.0,
        "pretend": balance.pretend.0,
        "verbose": balance.verbose.0,
    })
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
fn checked(fields: &Map<String, Value>, known: Option<&BTreeSet<String>>) -> Result<Document, String> {
    let names = disbatch_wire::options::field_names::<BalanceChange>();
    if let Some(key) = fields.keys().find(|key| !names.contains(&key.as_str())) {
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

fn said(until: Option<i64>) -> String {
    let Some(until) = until else { return "QueueBalance works again.".to_owned() };
    let at = zone::clock(DateTime::from_millis(until.saturating_mul(1000)));
    format!("QueueBalance is disabled until {at} {}.", zone::name())
}

/// Until when, in seconds since 1970; `None` if it is to work.
fn until(fields: &Map<String, Value>, now: DateTime) -> Result<Option<i64>, HttpError> {
    let given = |name: &str| fields.get(name).filter(|value| !values::is_unset(value));
    if let Some(enable) = given("enable")
        && values::flag("enable", enable)?
    {
        return Ok(None);
    }
    let now = now.timestamp_millis() / 1000;
    let until = match (given("hours"), given("until")) {
        (Some(hours), _) => now + values::positive("hours", hours)? * 3600,
        (None, Some(Value::String(until))) => {
            // A form has the day and the time in two fields.
            let at = given("at").and_then(Value::as_str).map(|at| format!("{until} {}", at.trim()));
            zone::time(&zone::now(), "until", at.as_ref().unwrap_or(until))?.timestamp_millis() / 1000
        }
        (None, Some(until)) => values::time("until", until)?.timestamp_millis() / 1000,
        (None, None) => {
            return Err(HttpError::bad_request("say until when, or for how many hours"));
        }
    };
    if until <= now {
        return Err(HttpError::bad_request("this time has passed already"));
    }
    Ok(Some(until))
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

    fn end(fields: Value) -> Result<Option<i64>, String> {
        let now = DateTime::from_millis(1_795_163_067_344);
        until(fields.as_object().unwrap(), now).map_err(|error| error.to_string())
    }

    #[test]
    fn the_end_is_told_in_hours_or_as_a_time() {
        assert_eq!(end(json!({"hours": "8", "until": ""})), Ok(Some(1_795_163_067 + 8 * 3600)));
        assert_eq!(end(json!({"until": "2026-11-20T08:25"})), Ok(Some(1_795_163_100)));
        assert_eq!(end(json!({"until": "2026-11-20", "at": "08:25"})), Ok(Some(1_795_163_100)));
        assert_eq!(end(json!({"until": "2026-11-21", "at": ""})), Ok(Some(1_795_219_200)));
        assert_eq!(end(json!({"until": "2026-11-20T08:25:01.000Z"})), Ok(Some(1_795_163_101)));
        assert_eq!(end(json!({"until": "1795163068"})), Ok(Some(1_795_163_068)));
        assert_eq!(end(json!({"enable": "1", "until": ""})), Ok(None));
        assert_eq!(said(None), "QueueBalance works again.");
        assert_eq!(said(Some(1_795_163_067)), "QueueBalance is disabled until 2026-11-20 08:24:27 UTC.");
    }

    #[test]
    fn what_is_no_end_is_refused() {
        let wrong = [
            (json!({}), "say until when"),
            (json!({"until": "", "enable": "0"}), "say until when"),
            (json!({"until": "2026-11-20T08:24"}), "this time has passed"),
            (json!({"until": "soon"}), "until must be a time"),
            (json!({"until": "2026-11-21", "at": "8 PM"}), "until must be a time"),
            (json!({"hours": "0"}), "hours must be an integer"),
            (json!({"hours": "99999999999"}), "hours must be an integer"),
            (json!({"enable": "x"}), "enable must be true or false"),
        ];
        for (fields, message) in wrong {
            let error = end(fields.clone()).unwrap_err();
            assert!(error.starts_with(message), "{fields}: {error}");
        }
    }
}
