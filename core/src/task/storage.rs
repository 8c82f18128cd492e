//! Storage: what a plugin saves while it runs, for the next run of its task's schedule, or for the next attempt.

use bson::{Bson, doc};
use disbatch_operation::operation;

use super::Run;
use super::statements::Statement;
use super::transition::Transition;
use crate::store::{Store, StoreError};

/// The field of a task that has it.
pub const STORAGE: &str = "storage";

impl Run {
    /// What its plugin has saved, if this run still has the task, and nothing newer is there.
    pub(super) fn storage(&self, storage: Bson, number: i64) -> Statement {
        self.saving("saves.storage", number, Transition::within().set(STORAGE, storage))
    }

    /// A transition within this run that only takes place if none of the same kind with this number or a higher one has:
    /// `number_in` keeps it. What was asked of a DEN may come after what the runner has written by itself since.
    pub(super) fn saving(&self, number_in: &str, number: i64, transition: Transition) -> Statement {
        let mut like = self.like();
        like.insert(number_in, doc! { "$not": { "$gte": number } });
        Statement { task: self.task.0, like, transition: transition.set(number_in, number) }
    }
}

impl Store {
    /// Keeps what the plugin of a running task has saved, in place of what it had saved before. Nothing happens if this run
    /// has ended, or something with this `number` or a higher one was kept for it before.
    ///
    /// # Errors
    /// The database cannot be reached, or the document would be too large
    /// ([`crate::store::WriteFailure::is_too_large`]).
    #[operation(task = %run.task)]
    pub async fn save_storage(&self, run: &Run, storage: Bson, number: i64) -> Result<(), StoreError> {
        let (filter, update) = run.storage(storage, number).alone();
        self.tasks().update_one(filter, update).await?;
        Ok(())
    }
}
