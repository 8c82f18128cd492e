//! An update of many tasks, of which the server refuses that of one: the others get it all the same.
//!
//! A task may be as large as the server allows. An entry in its history is too much then, and an update of many tasks ends at
//! the first that fails. So what was refused is tried with ever fewer tasks, until it is known which one it is about; that one
//! ends, or is set aside ([`super::aside`]).

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::options::UpdateModifications;

use crate::model::{Status, TaskId};
use crate::store::{Store, StoreError};

impl Store {
    /// Updates those of the tasks `ids` that `still` matches. One for which the server refuses that because of what it is like
    /// ends, or is set aside, see [`Store::end_unfit`]. Returns how many were changed, without those.
    pub(crate) async fn update_each(
        &self,
        ids: Vec<Bson>,
        still: &Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        self.update_each_or_end((ids, still), update, Status::Terminated).await
    }

    /// The same. What cannot be changed so ends with `status`, if that is one to end with.
    pub(crate) async fn update_each_or_end(
        &self,
        (mut ids, still): (Vec<Bson>, &Document),
        update: impl Into<UpdateModifications>,
        status: Status,
    ) -> Result<u64, StoreError> {
        let update = update.into();
        let left_alone = self.left_alone();
        ids.retain(|id| !left_alone.contains(id));
        let (mut changed, mut parts) = (0, vec![ids]);
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
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
            if !error.is_about_one() {
                return Err(error);
            }
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([part, rest]);
            } else if let Some(task) = part.first().and_then(Bson::as_object_id) {
                let status = if status.has_ended() { status } else { Status::Terminated };
                self.end_unfit(TaskId(task), still, status, error).await?;
            } else {
                tracing::error!(task = ?part.first(), %error, "a task whose id is none cannot be changed: it stays as it is");
            }
        }
        Ok(changed)
    }

    /// Updates all tasks that `filter` matches with one command. Where the server refuses that because of what one is like, it sets
    /// that one aside and goes on with the others: these updates end no task. Returns how many were changed.
    pub(crate) async fn update_found(&self, filter: Document, update: Document) -> Result<u64, StoreError> {
        let updated =
            self.tasks().update_many(filter.clone(), update.clone()).await.map_err(StoreError::from);
        match updated {
            Err(error) if error.is_about_one() => {}
            updated => return Ok(updated?.modified_count),
        }
        let tasks = self.tasks();
        let found = tasks.find(self.without_left_alone(filter.clone())).projection(doc! { "_id": 1 });
        let found: Vec<Document> = found.await?.map_ok(Document::from).try_collect().await?;
        let mut changed = 0;
        for id in found.iter().filter_map(|task| task.get_object_id("_id").ok()) {
            let this = doc! { "$and": [{ "_id": id }, &filter] };
            match self.tasks().update_one(this, update.clone()).await.map_err(StoreError::from) {
                Ok(updated) => changed += updated.modified_count,
                Err(error) if error.is_about_one() => self.set_aside(TaskId(id), &error.to_string()).await,
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }
}
