//! The file sets of a task: what its run has taken and made.
//!
//! What a run makes is fenced by it. The task is told of the version by an update that names the run, and only then the
//! version is sealed: a run that has lost its task makes none. A version that is sealed is seen by nobody. It is done when
//! the task has ended well by the very attempt that has made it, and gone when it has not, whoever notices that first:
//! [`Store::settle_filesets`]. A run that gives up takes back what it has made before, with [`Store::withdraw_filesets`].

use bson::{Document, doc};
use disbatch_operation::operation;

use super::Run;
use crate::model::FILES;
use crate::store::{Store, StoreError};

impl Store {
    /// Keeps in the task of `run` which files it takes and which it makes, in place of what was there. Tells whether it is
    /// still this run's; if not, nothing has changed.
    #[operation(task = %run.task)]
    pub async fn record_files(&self, run: &Run, files: Document) -> Result<bool, StoreError> {
        let update = doc! { "$set": { FILES: files } };
        Ok(self.tasks().update_one(run.filter(), update).await?.matched_count == 1)
    }
}
