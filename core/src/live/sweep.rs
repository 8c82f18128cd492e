//! What of live output is left behind: chunks of attempts that are over. A DEN that is stopped may write one for a runner that has
//! ended its task without it meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use crate::model::whole_number;
use crate::store::{Store, StoreError};

/// What was written a moment ago is left to whoever ends the attempt.
const YOUNG: Duration = Duration::from_secs(10);

/// So many chunks are looked at in a round, by the index alone.
const LOOKED_AT: usize = 2_000;

/// How far a sweeper has come: the next round goes on from there.
#[derive(Debug, Default)]
pub struct LiveSweep {
    /// The last task that was looked at.
    after: Option<ObjectId>,
}

impl Store {
    /// Removes live output of attempts that are over, or whose task is gone: looks at some of it, and notes in `sweep` how far it
    /// has come. Returns of how many attempts.
    #[operation]
    pub async fn sweep_live(&self, sweep: &mut LiveSweep) -> Result<u64, StoreError> {
        let found = match self.chunks_after(sweep.after).await {
            // A user that Perl Disbatch made may not look there.
            Err(error) if error.is_forbidden() => return Ok(0),
            found => found?,
        };
        let attempts: BTreeSet<(ObjectId, i64)> = found.iter().filter_map(attempt_of).collect();
        let running = self.running_attempts(attempts.iter().map(|(task, _)| *task).collect()).await?;
        let young = i64::try_from(YOUNG.as_millis()).unwrap_or(i64::MAX);
        let limit = DateTime::from_millis(self.now().timestamp_millis().saturating_sub(young));
        let mut removed = 0;
        for (task, attempt) in &attempts {
            if running.get(task) != Some(attempt) {
                let left = doc! { "task": task, "attempt": attempt, "at": { "$lt": limit } };
                removed += u64::from(self.live().delete_many(left).await?.deleted_count > 0);
            }
        }
        // From the start again when that was the last of them.
        let is_all = found.len() < LOOKED_AT;
        sweep.after = attempts.last().filter(|_| !is_all).map(|(task, _)| *task);
        Ok(removed)
    }

    async fn chunks_after(&self, task: Option<ObjectId>) -> Result<Vec<Document>, StoreError> {
        let next = task.map_or_else(Document::new, |task| doc! { "task": { "$gt": task } });
        let found = self
            .live()
            .find(next)
            .projection(doc! { "_id": 0, "task": 1, "attempt": 1 })
            .sort(doc! { "task": 1, "attempt": 1, "stream": 1, "offset": 1 })
            .limit(i64::try_from(LOOKED_AT).unwrap_or(i64::MAX))
            .await?;
        Ok(found.try_collect().await?)
    }
}

fn attempt_of(chunk: &Document) -> Option<(ObjectId, i64)> {
    Some((chunk.get_object_id("task").ok()?, chunk.get("attempt").and_then(whole_number)?))
}
