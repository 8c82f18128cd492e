//! The option `.files`: which file sets tasks get, and which they leave.

use actix_web::http::StatusCode;
use bson::Bson;
use disbatch_core::accounts::Role;
use disbatch_core::model::{FILES, FileInput, TaskFiles};
use disbatch_core::task::TaskOptions;
use serde_json::Value;

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{files, json, values};

/// The file sets of a submission; none if it says nothing of them.
pub fn parse(params: &Params) -> Result<Option<TaskFiles>, HttpError> {
    match params.options.get(FILES).filter(|value| !values::is_unset(value)) {
        Some(given) => read(".files", given),
        None => Ok(None),
    }
}

/// The same of a value that is called `name`: an object, or its JSON as text, as forms have it.
pub fn read(name: &str, given: &Value) -> Result<Option<TaskFiles>, HttpError> {
    let parsed = TaskFiles::parse(&object(name, given)?);
    parsed.map_err(|why| HttpError::bad_request(format!("{name}.{why}")))
}

/// What a queue says of the file sets of its tasks, as it is stored: theirs, or that they have them in their parameters.
pub fn read_of_queue(name: &str, given: &Value) -> Result<Bson, HttpError> {
    let object = object(name, given)?;
    if TaskFiles::are_from_params(&object) {
        return Ok(object);
    }
    Ok(read(name, given)?.map_or(Bson::Null, |files| files.document().into()))
}

fn object(name: &str, given: &Value) -> Result<Bson, HttpError> {
    let expected = || HttpError::bad_request(format!("{name} must be an object with input and output"));
    let value = match given {
        Value::Object(_) => given.clone(),
        Value::String(text) => crate::allowance::json(text).map_err(|_| expected())?,
        _ => return Err(expected()), // Nothing else has keys.
    };
    if !value.is_object() {
        return Err(expected());
    }
    Ok(json::to_bson(&value))
}

/// Sees to it that nobody has a task read or make file sets who may not read or make them without it. `tenant` is that of the
/// tasks: they take and make sets of no other.
pub fn check(who: &Who, wanted: Option<&TaskFiles>, tenant: Option<&str>) -> Result<(), HttpError> {
    let Some(wanted) = wanted else { return Ok(()) };
    if wanted.input.is_some() {
        files::check(who, Role::Viewer, tenant)?;
    }
    if wanted.output.is_some() {
        files::check(who, Role::Submitter, tenant)?;
    }
    Ok(())
}

/// Sees to it that the files are there that new tasks are to get. Those of tasks that start later may still come.
pub async fn check_input(state: &State, who: &Who, options: &TaskOptions) -> Result<(), HttpError> {
    let starts_later = !options.after.is_empty() || options.chain || options.start.is_some();
    let input = options.files.as_ref().and_then(|files| files.input.as_ref());
    let Some(FileInput { name, version, .. }) = input.filter(|_| !starts_later) else { return Ok(()) };
    let found = files::find(state, who, (name.as_str(), *version), Role::Viewer).await;
    found.map(drop).map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => HttpError::bad_request(format!(".files.input: {}", error.message())),
        _ => error, // It is there, or nobody knows.
    })
}

/// The same of what a queue says. Where its tasks may say what they like, whoever decides that must be allowed all of it.
pub fn check_of_queue(who: &Who, wanted: Option<&Bson>, tenant: Option<&str>) -> Result<(), HttpError> {
    if wanted.is_some_and(TaskFiles::are_from_params) {
        files::check(who, Role::Viewer, tenant)?;
        return files::check(who, Role::Submitter, tenant);
    }
    let wanted =
        TaskFiles::of_field(wanted).map_err(|why| HttpError::bad_request(format!("{FILES}.{why}")))?;
    check(who, wanted.as_ref(), tenant)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use serde_json::json;

    use super::*;

    fn of(files: Value) -> Result<Option<TaskFiles>, String> {
        let options = json!({ "files": files }).as_object().unwrap().clone();
        parse(&Params { options, ..Params::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn files_are_an_object_or_its_text() {
        let given = json!({ "input": { "name": "data", "version": 2 }, "output": { "name": "result", "patterns": ["*"] } });
        let expected = doc! {
            "input": { "name": "data", "version": 2_i64 }, "output": { "name": "result", "patterns": ["*"] },
        };
        let files = of(given.clone()).unwrap().unwrap();
        assert_eq!(files.document(), expected);
        assert_eq!(of(json!(given.to_string())), Ok(Some(files)), "a form has it as text");
        let theirs = json!({ "Fileset": { "Input": { "Name": "data", "Patterns": [] } } });
        assert!(of(theirs).unwrap().is_some());
        for none in [json!(null), json!(""), json!({})] {
            assert_eq!(of(none), Ok(None));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (files, expected) in [
            (json!([]), ".files must be an object with input and output"),
            (json!("nope"), ".files must be an object with input and output"),
            (json!("5"), ".files must be an object with input and output"),
            (json!({ "in": {} }), ".files.in is unknown"),
            (json!({ "input": {} }), ".files.input.name is missing"),
            (json!({ "output": { "name": "../x" } }), ".files.output.name: '../x' is no name of a file set"),
            (
                json!({ "input": { "name": "a", "patterns": ["a["] } }),
                ".files.input.patterns: the pattern 'a['",
            ),
        ] {
            let error = of(files).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_task_takes_and_makes_what_its_submitter_may() {
        let of = |tenant: &str, role| Grant { scope: Scope::Tenant(tenant.to_owned()), role };
        let grants = vec![of("acme", Role::Submitter), of("seen", Role::Viewer)];
        let who = Who { rights: Rights::new(None, grants), ..Who::anybody("10.0.0.1".to_owned()) };
        let wanted = |files: Value| super::read("files", &files).unwrap();
        let (input, output) =
            (wanted(json!({ "input": { "name": "a" } })), wanted(json!({ "output": { "name": "a" } })));
        for (files, tenant, may) in [
            (&input, Some("acme"), true),
            (&output, Some("acme"), true),
            (&input, Some("seen"), true),
            (&output, Some("seen"), false),
            (&input, Some("other"), false),
            (&input, None, false),
            (&None, None, true),
        ] {
            assert_eq!(check(&who, files.as_ref(), tenant).is_ok(), may, "{files:?} {tenant:?}");
        }
    }
}
