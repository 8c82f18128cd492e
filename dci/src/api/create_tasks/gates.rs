//! Whether new tasks may come after those that `.after` names.

use disbatch_core::model::TaskId;
use disbatch_core::task::TaskOptions;

use crate::access::Who;
use crate::error::HttpError;
use crate::gates;
use crate::state::State;

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
