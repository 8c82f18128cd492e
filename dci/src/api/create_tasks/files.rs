//! The option `.files`: which file sets tasks get, and which they leave.

use actix_web::http::StatusCode;
use bson::Bson;
use disbatch_core::accounts::Role;
use disbatch_core::model::{FILES, FileInput, TaskFiles};
use disbatch_core::request;
use disbatch_core::task::TaskOptions;
use serde_json::Value;

use crate::access::Who;
use crate::error::HttpError;
use crate::state::State;
use crate::{files, json, values};

/// What a queue says of the file sets of its tasks, as it is stored: theirs, or that they have them in their parameters.
pub fn read_of_queue(name: &str, given: &Value) -> Result<Bson, HttpError> {
    let given = values::object(given);
    let object = json::to_bson(&given);
    if TaskFiles::are_from_params(&object) {
        return Ok(object);
    }
    Ok(request::files(name, &given)?.map_or(Bson::Null, |files| files.document().into()))
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
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_takes_and_makes_what_its_submitter_may() {
        let of = |tenant: &str, role| Grant { scope: Scope::Tenant(tenant.to_owned()), role };
        let grants = vec![of("acme", Role::Submitter), of("seen", Role::Viewer)];
        let who = Who { rights: Rights::new(None, grants), ..Who::anybody("10.0.0.1".to_owned()) };
        let wanted = |files: Value| request::files("files", &files).unwrap();
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
