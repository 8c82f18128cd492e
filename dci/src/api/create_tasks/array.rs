//! `POST /tasks` with `.array`: many tasks that are submitted as one.

use disbatch_core::arrays::NewArray;
use disbatch_core::metrics::labels::Refusal;
use serde_json::{Value, json};

use super::{Prepared, fit, invalid, is_repetition, prepared};
use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{arrays, changes, json, measure};

/// Creates an array in a queue.
pub async fn create(state: &State, who: &Who, params: &Params) -> Answer {
    if let Some(param) = params.unknown(&["queue", "params"]) {
        let message = "with .array there are only 'queue' and 'params'";
        return Err(if param == "collection" { HttpError::bad_request(message) } else { invalid() });
    }
    let array: NewArray = arrays::parse(params)?;
    let Prepared { queue, options, once } = prepared(state, who, params).await?;
    let (array, checked) = fit::check_array(state, &queue, &options.steps, array).await?;
    if let Err(error) = checked
        && !is_repetition(state, queue.id, once.as_ref()).await?
    {
        measure::refused(state.store.metrics(), queue.id, Refusal::Schema);
        return Err(error);
    }
    let made = changes::submit_array(state, who, queue.id, array, (options, once)).await?;
    let body: Value = json!({ "array": arrays::view(&made.array, None) });
    Ok(json::ok(&body))
}
