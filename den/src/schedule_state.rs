//! What the schedules of claimed tasks know of earlier runs: it goes to the runner together with the task.

use std::collections::HashMap;

use disbatch_core::model::{Task, TaskId};
use disbatch_core::schedules::ForRun;
use disbatch_core::store::StoreError;
use disbatch_core::task::Claim;

use crate::node::Node;

/// What is known of a task's schedule: nothing if it has none or that is gone; or why it cannot be read.
pub type OfSchedule = Result<Option<ForRun>, String>;

impl Node {
    /// What is known of the schedules of those of these tasks that have one; most have none. What earlier runs have left
    /// is told to a schedule before it is read.
    pub(crate) async fn schedules_of(
        &mut self,
        claims: &[Claim],
    ) -> Result<HashMap<TaskId, OfSchedule>, StoreError> {
        let has_one = |claim: &&Claim| matches!(claim.document.get("schedule"), Ok(Some(_)));
        let with_one: Vec<&Claim> = claims.iter().filter(has_one).collect();
        // A configured `task_runner` reads it by itself, if it knows of schedules.
        if with_one.is_empty() || !self.runners.launcher.knows_leases() {
            return Ok(HashMap::new());
        }
        self.runners.uncertain = true;
        let all = futures::future::try_join_all(with_one.into_iter().map(|claim| self.schedule_of(claim)));
        let known = all.await?.into_iter().collect();
        self.runners.uncertain = false;
        Ok(known)
    }

    async fn schedule_of(&self, claim: &Claim) -> Result<(TaskId, OfSchedule), StoreError> {
        let known = match bson::deserialize_from_slice::<Task>(claim.document.as_bytes()) {
            Err(error) => Err(error.to_string()),
            Ok(task) => match self.store.schedule_for_run(&task).await {
                Err(error) if error.is_transient() => return Err(error),
                // The runner says so in the task's standard error, rather than begin it without what it needs.
                read => read.map_err(|error| error.to_string()),
            },
        };
        Ok((claim.task, known))
    }
}
