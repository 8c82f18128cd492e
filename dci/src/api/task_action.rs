//! What the operations on one task have in common, and those on arrays with them.

use disbatch_core::model::{Status, TaskId};

use crate::error::HttpError;
use crate::params::Params;
use crate::values;

/// The id in an address.
pub fn id(text: &str) -> Result<TaskId, HttpError> {
    text.parse().map_err(|_| not_found(text))
}

/// There is no such task.
pub fn not_found(id: &str) -> HttpError {
    HttpError::not_found(format!("no task with id {id}"))
}

/// The task is not in a state for that.
pub fn wrong_state(status: Status, what: &str) -> HttpError {
    HttpError::conflict(format!("the task {what}: its status is {} ({})", status.code(), status.word()))
}

/// Why, if that is said.
pub fn reason(params: &Params) -> Result<Option<String>, HttpError> {
    reason_beside(params, &[])
}

/// The same where there are other parameters, which are known.
pub fn reason_beside(params: &Params, known: &[&str]) -> Result<Option<String>, HttpError> {
    params.only(&[&["reason"], known].concat())?;
    let given = params.fields.get("reason").filter(|reason| !values::is_unset(reason));
    Ok(given.map(|reason| values::text("reason", reason)).transpose()?)
}
