//! The options of what tasks wait for: `.after`, `.after_when`, `.after_failed`, `.chain` and `.locks`.

use std::collections::HashSet;

use disbatch_core::gates::{AfterFailed, AfterWhen, LockRequest, MOST_AFTER};
use disbatch_core::model::TaskId;
use disbatch_core::task::TaskOptions;
use serde_json::Value;

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{gates, values};

/// What tasks wait for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gates {
    /// The tasks that they come after.
    pub after: Vec<TaskId>,
    /// What those must have come to.
    pub after_when: AfterWhen,
    /// What becomes of these when one of those has failed.
    pub after_failed: AfterFailed,
    /// Whether each comes after the one before, too.
    pub chain: bool,
    /// What they hold while they run.
    pub locks: Vec<LockRequest>,
}

/// What a submission says of it.
pub fn parse(params: &Params) -> Result<Gates, HttpError> {
    let given = |name: &str| params.options.get(name).filter(|value| !values::is_unset(value));
    let when = AfterWhen::ALL.map(AfterWhen::as_str);
    let when = given("after_when").map(|value| values::word(".after_when", value, &when)).transpose()?;
    let failed = AfterFailed::ALL.map(AfterFailed::as_str);
    let failed =
        given("after_failed").map(|value| values::word(".after_failed", value, &failed)).transpose()?;
    Ok(Gates {
        after: given("after").map(ids).transpose()?.unwrap_or_default(),
        after_when: when.and_then(AfterWhen::named).unwrap_or_default(),
        after_failed: failed.and_then(AfterFailed::named).unwrap_or_default(),
        chain: given("chain").map(|value| values::flag(".chain", value)).transpose()?.unwrap_or_default(),
        locks: given("locks").map(locks).transpose()?.unwrap_or_default(),
    })
}

/// Sees to it that there are all tasks that new ones are to come after, and that who asks may see them: those of other
/// queues are as if there were none.
pub async fn check(state: &State, who: &Who, options: &TaskOptions) -> Result<(), HttpError> {
    if options.after.is_empty() {
        return Ok(());
    }
    let known = state.store.queues_of_tasks(&options.after).await?;
    let sight = gates::sight(state, who).await?;
    let is_missing = |task: &&TaskId| !known.get(*task).is_some_and(|queue| sight.sees(*queue));
    let missing: Vec<TaskId> = options.after.iter().filter(is_missing).copied().collect();
    if missing.is_empty() { Ok(()) } else { Err(HttpError::no_such_tasks(&missing)) }
}

/// An array of texts, or one text with commas or spaces between them.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |item: &Value| match item {
        Value::String(text) => Some(text.clone()),
        // As answers have ids.
        Value::Object(object) if object.len() == 1 => object.get("$oid")?.as_str().map(str::to_owned),
        _ => None, // Nothing else names anything.
    };
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(text) => {
            let parts = text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty());
            Some(parts.map(str::to_owned).collect())
        }
        object @ Value::Object(_) => Some(vec![text(object)?]),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn ids(value: &Value) -> Result<Vec<TaskId>, HttpError> {
    let wrong = || HttpError::bad_request(format!(".after must be 1 to {MOST_AFTER} ids of tasks"));
    let texts = texts(value).filter(|texts| (1..=MOST_AFTER).contains(&texts.len())).ok_or_else(wrong)?;
    let mut known = HashSet::new();
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        let id = text.parse::<TaskId>();
        let id = id.map_err(|error| HttpError::bad_request(format!(".after: {error}")))?;
        if !known.insert(id) {
            return Err(HttpError::bad_request(format!(".after names the task {id} twice")));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn locks(value: &Value) -> Result<Vec<LockRequest>, HttpError> {
    let wrong =
        || HttpError::bad_request(".locks must be an array of names, as \"db\", \"db/shared\" or \"db/3\"");
    let texts = texts(value).filter(|texts| !texts.is_empty()).ok_or_else(wrong)?;
    LockRequest::list(texts.iter().map(String::as_str))
        .map_err(|error| HttpError::bad_request(format!(".locks: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d8013333";
    const OTHER: &str = "6b0003bb686c8275d8013334";

    fn of(options: Value) -> Result<Gates, HttpError> {
        parse(&Params { options: options.as_object().unwrap().clone(), ..Params::default() })
    }

    #[test]
    fn what_tasks_wait_for_is_read_from_json_and_from_forms() {
        let nothing = json!({ "after": "", "locks": null, "chain": "" });
        assert_eq!(of(nothing).unwrap(), Gates::default());
        let expected = Gates {
            after: vec![ID.parse().unwrap(), OTHER.parse().unwrap()],
            after_when: AfterWhen::Any,
            after_failed: AfterFailed::Wait,
            chain: true,
            locks: LockRequest::list(["a/3", "b"]).unwrap(),
        };
        let json = json!({
            "after": [ID, { "$oid": OTHER }], "after_when": "any", "after_failed": "wait", "chain": true,
            "locks": ["b", "a/3"],
        });
        assert_eq!(of(json).unwrap(), expected);
        let form = json!({
            "after": format!("{ID}, {OTHER}"), "after_when": "any", "after_failed": "wait", "chain": "1",
            "locks": "b,a/3",
        });
        assert_eq!(of(form).unwrap(), expected);
    }

    #[test]
    fn mistakes_name_the_option() {
        let many: Vec<String> = (0..1_001).map(|number| format!("{number:024x}")).collect();
        let wrong = [
            (json!({ "after": 5 }), ".after must be 1 to 1000 ids of tasks"),
            (json!({ "after": [] }), ".after must be 1 to 1000 ids of tasks"),
            (json!({ "after": many }), ".after must be 1 to 1000 ids of tasks"),
            (json!({ "after": ["x"] }), ".after: 'x' is not an id"),
            (json!({ "after": [ID, ID] }), ".after names the task 6b0003bb686c8275d8013333 twice"),
            (json!({ "after_when": "soon" }), ".after_when must be \"succeeded\" or \"finished\" or \"any\""),
            (json!({ "after_failed": 1 }), ".after_failed must be \"cancel\" or \"wait\""),
            (json!({ "chain": "yes" }), ".chain must be true or false"),
            (json!({ "locks": {} }), ".locks must be an array of names"),
            (json!({ "locks": ["a/0"] }), ".locks: 'a/0' is no lock"),
            (json!({ "locks": ["a", "a/2"] }), ".locks: the lock 'a' is named twice"),
            (json!({ "locks": ["array:x"] }), ".locks: 'array:x' is no lock for you"),
        ];
        for (options, message) in wrong {
            let error = of(options.clone()).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(message), "{options}: {error}");
        }
    }
}
