//! An update of many tasks, of which the server refuses that of one: the others get it all the same.
//!
//! A task may be as large as the server allows. An entry in its history is too much then, and an update of many tasks ends at
//! the first that fails. So what was refused is tried with ever fewer tasks, until it is known which one it is about.

use bson::{Bson, Document, doc};
use mongodb::options::UpdateModifications;

use super::transition::Transition;
use crate::model::Status;
use crate::store::{Store, StoreError};

impl Store {
    /// Updates those of the tasks `ids` that `still` matches. One that would be larger than the server allows is cancelled
    /// (-5), without an entry in its history; another one that the server refuses stays as it is. The log tells of both.
    /// Returns how many were changed.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the user.
    pub(crate) async fn update_each(
        &self,
        ids: Vec<Bson>,
        still: &Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        let update = update.into();
        let (mut changed, mut parts) = (0, vec![ids]);
        while let Some(mut part) = parts.pop() {
            let these = doc! { "$and": [{ "_id": { "$in": &part } }, still] };
            let updated = self.tasks().update_many(these, update.clone()).await.map_err(StoreError::from);
            let error = match updated {
                Ok(updated) => {
                    changed += updated.modified_count;
                    continue;
                }
                Err(error) => error,
            };
            // Some of them may have changed.
            self.doubt_counters();
            if !is_about_one(&error) {
                return Err(error);
            }
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([part, rest]);
            } else if let Some(task) = part.first() {
                self.refused(task, still, &error).await?;
            }
        }
        Ok(changed)
    }

    async fn refused(&self, task: &Bson, still: &Document, error: &StoreError) -> Result<(), StoreError> {
        if !error.write_failure().is_some_and(|failure| failure.is_too_large()) {
            tracing::error!(%task, %error, "a task cannot be changed: it stays as it is");
            return Ok(());
        }
        let end = Transition::within().set("status", Status::Cancelled).set("mtime", self.now());
        let end = end.end_of_block().end_of_run().pipeline();
        let same = doc! { "$and": [{ "_id": task }, still] };
        match self.tasks().update_one(same, end).await.map_err(StoreError::from) {
            Ok(_) => tracing::error!(%task, %error, "a task is too large to be changed: it is cancelled"),
            Err(error) if !is_about_one(&error) => return Err(error),
            Err(error) => tracing::error!(%task, %error, "a task is too large even to be cancelled"),
        }
        Ok(())
    }
}

/// Whether an update failed because of what one of the tasks is like: the server was there, and let us in.
fn is_about_one(error: &StoreError) -> bool {
    let is_refused = error.write_failure().is_some_and(|failure| !failure.is_refusal());
    is_refused && !error.is_transient() && !error.is_out_of_time()
}
