//! The option `.steps`: what is done one after the other, in one private folder, each by the plugin of the queue or by another.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use disbatch_core::accounts::Role;
use disbatch_core::model::{PluginName, Queue, STEPS, Step};
use serde_json::json;

use crate::access::Who;
use crate::allowance;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;

/// So many more copies there are of steps: they are options, which are looked at on their own before each task gets them.
const COPIES: usize = 4;

/// Takes the room that the steps of a submission need.
pub fn weigh(params: &Params) -> Result<(), HttpError> {
    allowance::take_for_copies(COPIES, params.options.get(STEPS))
}

/// Sees to it that nobody runs a plugin by way of a step whom no queue lets run it.
pub async fn check(state: &State, who: &Who, queue: &Queue, steps: &[Step]) -> Result<(), HttpError> {
    let of_queue = queue.plugin_name().ok().flatten();
    let named: BTreeSet<&PluginName> = steps.iter().filter_map(|step| step.plugin.as_ref()).collect();
    let others: Vec<&PluginName> =
        named.into_iter().filter(|plugin| of_queue.as_ref() != Some(*plugin)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let plugins = state.catalogue().await?;
    if let Some(unknown) = others.iter().find(|plugin| !plugins.allows(plugin.as_str())) {
        let body = json!({ "error": "Unknown plugin", "plugin": unknown.as_str() });
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    if who.is_everywhere(Role::Operator) {
        return Ok(());
    }
    let queues = state.store.queues_within(&who.reach(Role::Submitter)).await?;
    let may_run: Vec<PluginName> =
        queues.iter().filter_map(|queue| queue.plugin_name().ok().flatten()).collect();
    match others.into_iter().find(|plugin| !may_run.contains(plugin)) {
        None => Ok(()),
        Some(plugin) => Err(HttpError::forbidden(format!(
            "a step of the plugin {plugin} needs a queue of that plugin that you may submit tasks to"
        ))),
    }
}
