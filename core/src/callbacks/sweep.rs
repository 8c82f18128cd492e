//! What of logs is left behind: sheets whose task has ended or gone without them, because whoever ended it, or stored them late,
//! was killed.

use disbatch_operation::operation;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;

use crate::model::{Status, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored};

/// Sheets that are older may belong to a task that has ended without them.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// So many old sheets are looked at in a round, by the index alone.
const LOOKED_AT: usize = 2_000;

/// How far a sweeper has come. The next round goes on from there, so that the sheets of tasks that run for long keep nobody
/// from those behind them.
#[derive(Debug, Default)]
pub struct LogSweep {
    /// The newest that was looked at.
    after: Option<Sheet>,
}

/// Which attempt a sheet is of, and since when it is there, in the order of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sheet {
    at: DateTime,
    task: ObjectId,
    attempt: i64,
}

impl Sheet {
    fn of(found: &Document) -> Option<Self> {
        Some(Self {
            at: *found.get_datetime("at").ok()?,
            task: found.get_object_id("task").ok()?,
            attempt: found.get("attempt").and_then(whole_number)?,
        })
    }
}

impl LogSweep {
    /// Matches what comes next of the sheets from before `limit`.
    fn next(&self, limit: DateTime) -> Document {
        let Some(Sheet { at, task, attempt }) = self.after else { return doc! { "at": { "$lt": limit } } };
        doc! {
            "at": { "$gte": at, "$lt": limit },
            "$or": [
                { "at": { "$gt": at } },
                { "task": { "$gt": task } },
                { "task": task, "attempt": { "$gt": attempt } },
            ],
        }
    }
}

impl Store {
    /// Removes logs that are left behind: looks at some that are old, and notes in `sweep` how far it has come. Returns of how
    /// many attempts.
    #[operation]
    pub async fn sweep_callback_logs(&self, sweep: &mut LogSweep) -> Result<u64, StoreError> {
        let age = i64::try_from(FORGOTTEN_AFTER.as_millis()).unwrap_or(i64::MAX);
        let limit = DateTime::from_millis(self.now().timestamp_millis().saturating_sub(age));
        let found: Vec<Document> = self
            .sheets()
            .find(sweep.next(limit))
            .projection(doc! { "_id": 0, "at": 1, "task": 1, "attempt": 1 })
            .sort(doc! { "at": 1, "task": 1, "attempt": 1 })
            .limit(i64::try_from(LOOKED_AT).unwrap_or(i64::MAX))
            .await?
            .try_collect()
            .await?;
        let sheets: Vec<Sheet> = found.iter().filter_map(Sheet::of).collect();
        let running = self.running_attempts(sheets.iter().map(|sheet| sheet.task).collect()).await?;
        let attempts: BTreeSet<(ObjectId, i64)> =
            sheets.iter().map(|sheet| (sheet.task, sheet.attempt)).collect();
        let mut removed = 0;
        for (task, attempt) in attempts {
            if running.get(&task) != Some(&attempt) {
                self.remove_log(TaskId(task), attempt).await?;
                removed += 1;
            }
        }
        // From the start again when that was the last of them.
        sweep.after = if found.len() < LOOKED_AT { None } else { sheets.last().copied() };
        Ok(removed)
    }

    /// Those of the tasks that run, with the attempt at which they are: 0 if nobody counts.
    pub(crate) async fn running_attempts(
        &self,
        tasks: BTreeSet<ObjectId>,
    ) -> Result<HashMap<ObjectId, i64>, StoreError> {
        if tasks.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<Bson> = tasks.into_iter().map(Bson::from).collect();
        let running = doc! { "_id": { "$in": ids }, "status": Status::Running };
        let found = self.tasks().find(running).projection(doc! { "attempt": 1 }).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let attempt = |task: &Stored| task.get("attempt").and_then(whole_number).unwrap_or(0);
        let of = |task: &Stored| Some((task.get_object_id("_id").ok()?, attempt(task)));
        Ok(found.iter().filter_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_goes_on_behind_what_it_has_seen() {
        let at = DateTime::from_millis;
        let mut sweep = LogSweep::default();
        assert_eq!(sweep.next(at(90)), doc! { "at": { "$lt": at(90) } });
        let task = ObjectId::new();
        sweep.after = Sheet::of(&doc! { "at": at(7), "task": task, "attempt": 2 });
        let next = sweep.next(at(90));
        assert_eq!(next.get_document("at").unwrap(), &doc! { "$gte": at(7), "$lt": at(90) });
        assert_eq!(next.get_array("$or").unwrap().len(), 3);
    }
}
