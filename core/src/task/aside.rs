//! Aside: a task with which an operation cannot be done, however often, holds up nothing but itself.
//!
//! Such a task ends as -3, and its history says why ([`Store::end_unfit`]). What makes it too large is left out in the same
//! conditional update: its history, then all that runs have left, never its params. Where the server refuses even that, or it
//! is not known whose fault it was, the task is set aside: this process leaves it alone for a while, longer each time, and
//! `tasks.aside` names it, with the reason, for [`crate::explain`], the task's page and the page of the node.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::Claim;
use super::commit::Commit;
use super::steps::closed;
use super::transition::Transition;
use crate::budget::cut;
use crate::model::{STEPS, Status, TaskId, whole_number};
use crate::store::{Blame, Store, StoreError, collect, integer, millis, put};

/// How long a document of it is kept after the task was last met.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a task is left alone at first.
const FIRST: Duration = Duration::from_secs(10);

/// And at last.
const LONGEST: Duration = Duration::from_secs(3600);

/// So many are remembered; of more, those that were met last.
const MOST: usize = 10_000;

/// So many are left out of a search at most.
const MOST_LEFT_OUT: usize = 1_000;

/// A reason has so many bytes at most.
const REASON: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<ObjectId, Pause>>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    long: Duration,
}

impl Memory {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<ObjectId, Pause>) -> T) -> T {
        work(&mut crate::lock(&self.0))
    }

    /// Leaves a task alone, for longer than the last time.
    fn add(&self, task: ObjectId, now: Instant) {
        self.with(|all| {
            let long = all.get(&task).map_or(FIRST, |before| (before.long * 2).min(LONGEST));
            if all.len() >= MOST && !all.contains_key(&task) {
                let oldest = all.iter().min_by_key(|(_, pause)| pause.until).map(|(id, _)| *id);
                oldest.map(|id| all.remove(&id));
            }
            all.insert(task, Pause { until: now + long, long });
        });
    }

    fn forget(&self, task: ObjectId) {
        self.with(|all| all.remove(&task));
    }

    /// Those that are left alone at this time, the longest first.
    fn at(&self, now: Instant) -> Vec<ObjectId> {
        self.with(|all| {
            // Who was not met again for so long has gone.
            all.retain(|_, pause| now < pause.until + LONGEST);
            let mut left: Vec<(Instant, ObjectId)> = all
                .iter()
                .filter(|(_, pause)| now < pause.until)
                .map(|(id, pause)| (pause.until, *id))
                .collect();
            left.sort_unstable_by(|one, other| other.cmp(one));
            left.into_iter().map(|(_, id)| id).take(MOST_LEFT_OUT).collect()
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    Ended,
    /// Somebody else has changed it. Nothing has happened.
    Changed,
    /// It is left as it is, and left alone.
    Aside,
}

/// Why a task is set aside, or had to end without room for the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// When it was last met, by the server's clock.
    pub at: DateTime,
    /// Why, in a sentence without its full stop.
    pub reason: String,
}

impl SetAside {
    fn of(stored: &Document) -> Option<Self> {
        let at = *stored.get_datetime("at").ok()?;
        Some(Self { at, reason: stored.get_str("reason").ok()?.to_owned() })
    }
}

/// How much of a task is left out, so that there is room for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The history, and what runs have left beside their results.
    History,
    /// All but the status and the time.
    AllButStatus,
    /// The time, too.
    Time,
}

impl Store {
    /// Ends a task with which an operation failed because of what it is like ([`StoreError::is_about_one`]), or sets it aside. `still`:
    /// what it must be like, the same as for that operation. `status`: what it ends with, -3 unless the operation was to end it anyhow.
    ///
    /// # Errors
    /// The database cannot be reached; this is also the answer where that is why the operation failed.
    #[operation(%task)]
    pub async fn end_unfit(
        &self,
        task: TaskId,
        still: &Document,
        status: Status,
        error: StoreError,
    ) -> Result<Unfit, StoreError> {
        let reason = cut(&error.to_string(), REASON);
        match error.blame() {
            Blame::Database => return Err(error),
            Blame::Unclear => {
                self.set_aside(task, &reason).await;
                return Ok(Unfit::Aside);
            }
            Blame::Document => {}
        }
        let status = match self.committed_end(task, still).await? {
            Commit::Done(committed) => committed,
            Commit::Never => status,
            Commit::Open => return Ok(Unfit::Changed),
        };
        let mut refused = reason.clone();
        for without in [Without::Nothing, Without::History, Without::AllButStatus, Without::Time] {
            match self.end_without(task, still, status, (&reason, without)).await {
                Ok(Unfit::Ended) => {
                    tracing::error!(%task, status = status.code(), reason, ?without, "a task cannot go on: it is ended");
                    self.aside().forget(task.0);
                    if matches!(without, Without::AllButStatus | Without::Time) {
                        // It has no room for the reason.
                        self.note_aside(task, &reason).await;
                    }
                    return Ok(Unfit::Ended);
                }
                Ok(other) => return Ok(other),
                Err(error) if !error.is_about_one() => return Err(error),
                Err(error) => refused = cut(&error.to_string(), REASON),
            }
        }
        let both =
            if refused == reason { reason } else { format!("{reason}; and it cannot be ended: {refused}") };
        self.set_aside(task, &both).await;
        Ok(Unfit::Aside)
    }

    async fn committed_end(&self, task: TaskId, still: &Document) -> Result<Commit, StoreError> {
        let running = doc! { "$and": [{ "_id": task, "status": Status::Running }, still.clone()] };
        let found = self.tasks().find_one(running).projection(doc! { "attempt": 1 }).await?;
        let attempt = found.and_then(|task| task.get("attempt").and_then(whole_number));
        match attempt {
            Some(attempt) => self.settle_commit(task, attempt).await,
            None => Ok(Commit::Never),
        }
    }

    /// The same for the run of a claim, whose processes are gone.
    #[operation]
    pub async fn end_run_unfit(&self, claim: &Claim, error: StoreError) -> Result<(), StoreError> {
        self.end_unfit(claim.task, &claim.run().like(), Status::Orphaned, error).await?;
        Ok(())
    }

    /// The same for a claim that has not been started.
    #[operation]
    pub async fn end_claim_unfit(&self, claim: &Claim, error: StoreError) -> Result<(), StoreError> {
        self.end_unfit(claim.task, &claim.like(), Status::Terminated, error).await?;
        Ok(())
    }

    async fn end_without(
        &self,
        task: TaskId,
        still: &Document,
        status: Status,
        (reason, without): (&str, Without),
    ) -> Result<Unfit, StoreError> {
        let update = Transition::to(status, self.now()).end_of_run().end_of_block();
        let update = match without {
            Without::Nothing => update.note(reason).compute(STEPS, closed(status)),
            Without::History => update.without_leavings().forgetful().note(reason),
            Without::AllButStatus => update.bare(true),
            Without::Time => update.bare(false),
        };
        let filter = doc! { "$and": [{ "_id": task }, still.clone()] };
        let only = doc! { "queue": 1, "status": 1 };
        let before = self.tasks().find_one_and_update(filter, update.pipeline()).projection(only).await;
        let Some(before) = before.inspect_err(|_| self.doubt_counters())? else { return Ok(Unfit::Changed) };
        self.moved_from(&before, Some(status));
        Ok(Unfit::Ended)
    }

    /// What was done for one task. Where that failed because of what the task is like, it is set aside, and there is nothing.
    pub async fn unless_unfit<T>(
        &self,
        task: TaskId,
        done: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match done {
            Err(error) if error.is_about_one() => {
                self.set_aside(task, &error.to_string()).await;
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// Leaves a task alone for a while, and says so where people look for it.
    #[operation]
    pub async fn set_aside(&self, task: TaskId, reason: &str) {
        let reason = &cut(reason, REASON);
        tracing::error!(%task, reason, "a task is set aside: nothing can be done with it");
        self.aside().add(task.0, Instant::now());
        self.note_aside(task, reason).await;
    }

    /// Best effort: the memory of this process is what counts.
    async fn note_aside(&self, task: TaskId, reason: &str) {
        let update = vec![doc! { "$set": { "at": "$$NOW", "reason": { "$literal": reason } } }];
        let noted = self.asides().update_one(doc! { "_id": task }, update).upsert(true).await;
        if let Err(error) = noted.map_err(StoreError::from) {
            tracing::warn!(%task, %error, "cannot note that a task is set aside");
        }
    }

    #[operation(%task)]
    pub async fn find_aside(&self, task: TaskId) -> Result<Option<SetAside>, StoreError> {
        let found = self.asides().find_one(doc! { "_id": task }).await;
        // A user that an older release made may not look there.
        let found = StoreError::unless_forbidden(found)?.flatten();
        Ok(found.as_ref().and_then(SetAside::of))
    }

    /// All tasks that processes have set aside lately, and why. Of very many, those that were met last.
    pub(crate) async fn all_aside(&self) -> Result<HashMap<ObjectId, SetAside>, StoreError> {
        let asides = self.asides();
        // Nobody leaves a task alone for longer than that; the entry stays.
        let lately = doc! { "$expr": { "$gt": ["$at", { "$subtract": ["$$NOW", millis(LONGEST * 2)] }] } };
        let newest = asides.find(lately).sort(doc! { "at": -1 }).limit(integer(MOST_LEFT_OUT));
        let found = StoreError::unless_forbidden(collect(newest).await)?.unwrap_or_default();
        let one = |stored: &Document| Some((stored.get_object_id("_id").ok()?, SetAside::of(stored)?));
        Ok(found.iter().filter_map(one).collect())
    }

    pub fn count_aside(&self) -> usize {
        self.aside().at(Instant::now()).len()
    }

    pub(crate) fn left_alone(&self) -> Vec<Bson> {
        self.aside().at(Instant::now()).into_iter().map(Bson::from).collect()
    }

    pub(crate) fn without_left_alone(&self, filter: Document) -> Document {
        let id = self.not_left_alone(Document::new());
        if id.is_empty() {
            filter
        } else {
            doc! { "$and": [{ "_id": id }, filter] }
        }
    }

    pub(crate) fn not_left_alone(&self, mut id: Document) -> Document {
        let left_alone = self.left_alone();
        put(&mut id, "$nin", (!left_alone.is_empty()).then_some(left_alone));
        id
    }

    pub(super) async fn forget_aside(&self, tasks: &[Bson]) -> Result<(), StoreError> {
        StoreError::unless_forbidden(self.asides().delete_many(doc! { "_id": { "$in": tasks } }).await)?;
        Ok(())
    }
}

/// An expression that tells whether DENs claim a task with such an id: an ObjectId, and none of those that are set aside. It leads the server
/// to no other index than it would take without it.
pub(crate) fn is_taken<'a>(aside: impl Iterator<Item = &'a ObjectId>) -> Document {
    let aside: Vec<&ObjectId> = aside.collect();
    doc! { "$and": [
        { "$eq": [{ "$type": "$_id" }, "objectId"] },
        { "$not": [{ "$in": ["$_id", aside] }] },
    ] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    #[test]
    fn a_task_is_left_alone_for_longer_each_time() {
        let (memory, now) = (Memory::default(), Instant::now());
        memory.add(id(1), now);
        assert_eq!(memory.at(now), [id(1)]);
        assert_eq!(memory.at(now + FIRST), []);
        memory.add(id(1), now + FIRST);
        assert_eq!(memory.at(now + FIRST * 2), [id(1)], "twice as long");
        assert_eq!(memory.at(now + FIRST * 3), []);
        for _ in 0..20 {
            memory.add(id(1), now);
        }
        assert_eq!(memory.at(now + LONGEST - FIRST), [id(1)]);
        assert_eq!(memory.at(now + LONGEST), []);
        assert_eq!(memory.at(now + LONGEST * 3), []);
        memory.add(id(1), now);
        assert_eq!(memory.at(now + FIRST), [], "it was forgotten meanwhile");
    }

    #[test]
    fn neither_memory_nor_a_filter_grows_without_bound() {
        let (memory, now) = (Memory::default(), Instant::now());
        for number in 0..12_000 {
            memory.add(id(number), now + Duration::from_millis(number.into()));
        }
        assert_eq!(memory.with(|all| all.len()), MOST);
        let left = memory.at(now);
        assert_eq!((left.len(), left[0]), (MOST_LEFT_OUT, id(11_999)));
        memory.forget(id(11_999));
        assert_eq!(memory.at(now)[0], id(11_998));
    }
}
