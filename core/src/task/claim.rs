//! Claim: a DEN takes the next queued task of a queue (-2 -> -1), or gives one back (-1 -> -2).

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::options::{Acknowledgment, Hint, ReturnDocument, WriteConcern};

use super::Ahead;
use super::statements::Statement;
use super::transition::{Transition, server_time_in};
use crate::model::{NodeName, Queue, QueueId, Sort, Status, Task, TaskId, whole_number};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// So few are claimed by an operation each, side by side: that takes one round trip, where one operation for all of
/// them takes two.
const MOST_ALONE: usize = 4;

/// How often a claim is tried with other tasks when others were faster.
const MOST_PASSES: usize = 8;

/// So many documents are read at once.
pub(super) const BATCH_READ: u32 = 1_000;

/// Who claims.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// The node.
    pub node: NodeName,
    /// This start of its DEN: tells it from the one before that had the same name.
    pub instance: String,
    /// How long the claim holds until its runner has started the task. `None`: for ever, for a runner that
    /// knows nothing of leases.
    pub lease: Option<Duration>,
}

/// A claimed task, not started yet: launch its runner with it, or give it back.
#[derive(Debug)]
#[must_use = "a claimed task must be launched or unclaimed, else it waits for the end of its lease"]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// Its queue.
    pub queue: QueueId,
    /// The node in whose name it was claimed.
    pub node: NodeName,
    /// Which claim of the task this is; with the next, the fence of everything that follows.
    pub attempt: i64,
    /// This start of the DEN.
    pub instance: String,
    /// The task as it was claimed.
    pub document: RawDocumentBuf,
}

/// What came of a number of claims of one queue.
#[derive(Debug, Default)]
pub struct Batch {
    /// The tasks, in the order of the queue.
    pub claims: Vec<Claim>,
    /// Places that other DENs turned out to have.
    pub taken: Vec<u64>,
    /// The queue has nothing more to claim now. Where this is not so, and there are no claims either, others were
    /// faster, or it is too early to read the queue from its start again: look again within a second. Where there are
    /// fewer claims than were asked for, ask again at once.
    pub exhausted: bool,
}

/// What became of a claim that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimed {
    /// The task is queued again.
    Queued,
    /// Its runner has started it, or someone else has changed it: it is not ours to give back.
    NotClaimed,
}

impl Claim {
    /// The place that it has in its queue.
    pub fn slot(&self) -> Option<u64> {
        let slot = self.document.get("slot").ok().flatten()?;
        slot.as_i64().or_else(|| slot.as_i32().map(i64::from)).and_then(|slot| u64::try_from(slot).ok())
    }
}

impl Store {
    /// Claims the next tasks of `queue`, in the queue's order, one for each of `slots` at most: free places of those
    /// that `threads` allows.
    ///
    /// Each claim is one update that matches a queued task that no node has and gives it to this one, so no two
    /// DENs can claim the same task (Disbatch 4 design, Task Lifecycle); and a unique index forbids that two claimed
    /// or running tasks of a queue have the same place, so no number of DENs can claim more than there are places.
    /// Which tasks are tried is read ahead, see [`Ahead`].
    ///
    /// # Errors
    /// The database cannot be reached. Some of the tasks may have been claimed.
    #[tracing::instrument(skip_all, fields(queue = %queue.id, slots = slots.len()), err(level = "debug"))]
    pub async fn claim_tasks(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[u64],
        ahead: &mut Ahead,
    ) -> Result<Batch, StoreError> {
        let window = ahead.window(queue.id, is_newest_first(queue));
        let mut batch = Batch::default();
        let mut slots = slots.to_vec();
        for _ in 0..MOST_PASSES {
            if slots.is_empty() {
                break;
            }
            let (ids, exhausted) = self.next_candidates(queue, window, slots.len()).await?;
            if ids.is_empty() {
                batch.exhausted = exhausted;
                break;
            }
            let tried = ids.len();
            // All that there were past the mark. Whether there is more elsewhere is for the next call to find out, so that
            // these need not wait for it.
            let were_all = tried < slots.len();
            let tries: Vec<Try> =
                ids.into_iter().zip(slots.drain(..tried)).map(|(task, slot)| Try { task, slot }).collect();
            // Where others claim too, most of what is tried is lost, which is not worth an operation each.
            let most_alone = if window.is_contended() { 1 } else { MOST_ALONE };
            let outcome = self.try_claims(queue, claimant, (tries, most_alone)).await;
            // Of a claim without an answer nobody knows whether it was made.
            let mut outcome = outcome.inspect_err(|_| self.doubt_counters())?;
            let claimed = outcome.claims.len() as u64;
            self.moved(queue.id, Some(Status::Queued), Some(Status::Claimed), claimed);
            batch.claims.append(&mut outcome.claims);
            batch.taken.extend(outcome.refused.iter().map(|refused| refused.slot));
            window.put_back(outcome.refused.iter().map(|refused| refused.task).collect());
            let lost = outcome.lost.len();
            slots.extend(outcome.lost.iter().map(|lost| lost.slot));
            if window.is_contended() || (lost > 0 && self.have_others(&outcome.lost, claimant).await?) {
                window.met_others(tried, lost);
            }
            if were_all && !batch.claims.is_empty() {
                break;
            }
        }
        Ok(batch)
    }

    async fn try_claims(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        (tries, most_alone): (Vec<Try>, usize),
    ) -> Result<Outcome, StoreError> {
        let now = self.now();
        if tries.len() > most_alone {
            return self.try_claims_at_once(queue, claimant, tries, now).await;
        }
        let each = tries.iter().map(|one| self.try_claim(queue, claimant, *one, now));
        let mut all = Outcome::default();
        for outcome in futures::future::join_all(each).await {
            all.add(outcome?);
        }
        Ok(all)
    }

    async fn try_claim(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        one: Try,
        now: DateTime,
    ) -> Result<Outcome, StoreError> {
        let (filter, update) = one.statement(queue, claimant, now).alone();
        let claimed = self
            .raw_tasks()
            .find_one_and_update(filter, update)
            .hint(by_id())
            .return_document(ReturnDocument::After)
            .write_concern(one_member())
            .await;
        let mut outcome = Outcome::default();
        match claimed.map_err(StoreError::from) {
            Ok(Some(document)) => outcome.claims.push(claim_of(one, queue, claimant, document)),
            Ok(None) => outcome.lost.push(one),
            Err(error) => outcome.failed(one, error)?,
        }
        Ok(outcome)
    }

    /// Claims with one update, then reads what was claimed: tasks that have this start of the DEN, the place that
    /// they were to get, and the time of this call. No earlier claim of ours has all of these.
    async fn try_claims_at_once(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        tries: Vec<Try>,
        now: DateTime,
    ) -> Result<Outcome, StoreError> {
        let statements: Vec<Statement> =
            tries.iter().map(|one| one.statement(queue, claimant, now)).collect();
        let report = self.update_tasks(&statements, Some(&one_member())).await?;
        let ids: Vec<ObjectId> = tries.iter().map(|one| one.task).collect();
        let ours = doc! {
            "_id": { "$in": ids }, "status": Status::Claimed, "node": &claimant.node,
            "instance": &claimant.instance, "mtime": now,
        };
        let found = self.raw_tasks().find(ours).hint(by_id()).batch_size(BATCH_READ).await?;
        let documents: Vec<RawDocumentBuf> = found.try_collect().await?;
        let mut documents: HashMap<(ObjectId, u64), RawDocumentBuf> = documents
            .into_iter()
            .filter_map(|document| Some(((id_of(&document)?, slot_of(&document)?), document)))
            .collect();
        let mut failures: HashMap<usize, StoreError> = report.failures.into_iter().collect();
        let mut outcome = Outcome::default();
        for (number, one) in tries.into_iter().enumerate() {
            match (documents.remove(&(one.task, one.slot)), failures.remove(&number)) {
                (Some(document), _) => outcome.claims.push(claim_of(one, queue, claimant, document)),
                (None, Some(error)) => outcome.failed(one, error)?,
                (None, None) => outcome.lost.push(one),
            }
        }
        Ok(outcome)
    }

    fn raw_tasks(&self) -> Collection<RawDocumentBuf> {
        self.tasks().clone_with_type()
    }

    /// Whether other DENs have any of these tasks.
    async fn have_others(&self, lost: &[Try], claimant: &Claimant) -> Result<bool, StoreError> {
        let ids: Vec<ObjectId> = lost.iter().map(|lost| lost.task).collect();
        let theirs = doc! { "_id": { "$in": ids }, "node": { "$nin": [Bson::Null, Bson::Int32(-1), Bson::from(&claimant.node)] } };
        Ok(self.tasks().find_one(theirs).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// Gives a claimed task back to its queue. Nothing happens if its runner has started it meanwhile.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %claim.task), err(level = "debug"))]
    pub async fn unclaim_task(&self, claim: &Claim, why: &str) -> Result<Unclaimed, StoreError> {
        let mut filter = doc! {
            "_id": claim.task, "node": &claim.node, "status": Status::Claimed, "attempt": claim.attempt,
            "instance": &claim.instance,
        };
        // Not the claim that came after it with the same number, when this one was lost with its primary.
        if let Ok(claimed) = claim.document.get_datetime("mtime") {
            filter.insert("mtime", claimed);
        }
        let result = self.tasks().update_one(filter, given_back(self, why)).await;
        let is_given_back = result.inspect_err(|_| self.doubt_counters())?.matched_count == 1;
        if is_given_back {
            self.moved(claim.queue, Some(Status::Claimed), Some(Status::Queued), 1);
        }
        Ok(if is_given_back { Unclaimed::Queued } else { Unclaimed::NotClaimed })
    }

    /// Gives back every task that `node` has claimed and no runner has started, save those in `except`.
    /// Returns how many.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn unclaim_all(
        &self,
        node: &NodeName,
        except: &[TaskId],
        why: &str,
    ) -> Result<u64, StoreError> {
        let mut filter = doc! { "node": node, "status": Status::Claimed };
        if !except.is_empty() {
            filter.insert("_id", doc! { "$nin": except.iter().map(|id| id.0).collect::<Vec<_>>() });
        }
        self.move_all(filter, &given_back(self, why), Status::Queued).await
    }

    /// How many tasks `node` has claimed or running, save those in `except`.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn running_on_node(&self, node: &NodeName, except: &[TaskId]) -> Result<u64, StoreError> {
        let mut filter = doc! { "node": node, "status": { "$in": [-1, 0] } };
        if !except.is_empty() {
            filter.insert("_id", doc! { "$nin": except.iter().map(|id| id.0).collect::<Vec<_>>() });
        }
        Ok(self.tasks().count_documents(filter).await?)
    }

    /// One task. `None`: there is none with this id.
    ///
    /// # Errors
    /// The database cannot be reached, or the document cannot be understood.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn find_task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let found = self.tasks().find_one(doc! { "_id": id }).await?;
        found.map(|document| typed("tasks", document)).transpose()
    }
}

/// Back to the queue. The number of the attempt stays: the next claim gets another.
pub(super) fn given_back(store: &Store, why: &str) -> Vec<Document> {
    Transition::to(Status::Queued, store.now()).without_node().end_of_run().note(why).pipeline()
}

/// A task and the place that it is to have.
#[derive(Debug, Clone, Copy)]
struct Try {
    task: ObjectId,
    slot: u64,
}

/// What came of some tries.
#[derive(Debug, Default)]
struct Outcome {
    claims: Vec<Claim>,
    /// Another task has the place.
    refused: Vec<Try>,
    /// The task cannot be claimed any more.
    lost: Vec<Try>,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.claims.extend(other.claims);
        self.refused.extend(other.refused);
        self.lost.extend(other.lost);
    }

    /// A place that is taken, or a task that cannot take another field, is no reason to claim nothing else.
    fn failed(&mut self, one: Try, error: StoreError) -> Result<(), StoreError> {
        match error.write_failure() {
            Some(failure) if failure.is_duplicate_key() => self.refused.push(one),
            Some(failure) if failure.is_too_large() => {
                tracing::warn!(task = %one.task, "the task is too large to be claimed");
                self.lost.push(one);
            }
            _ => return Err(error),
        }
        Ok(())
    }
}

impl Try {
    fn statement(self, queue: &Queue, claimant: &Claimant, now: DateTime) -> Statement {
        let lease =
            claimant.lease.map_or_else(|| Bson::from("$$REMOVE"), |lease| server_time_in(lease).into());
        let transition = Transition::to(Status::Claimed, now)
            .set("node", &claimant.node)
            .set("instance", claimant.instance.as_str())
            .set("slot", i64::try_from(self.slot).unwrap_or(i64::MAX))
            .compute("attempt", doc! { "$add": [{ "$ifNull": ["$attempt", 0] }, 1] })
            .compute("lease_until", lease);
        Statement { task: self.task, like: claimable(queue), transition }
    }
}

/// Matches the queued tasks of `queue` that no node has.
pub(super) fn claimable(queue: &Queue) -> Document {
    doc! { "node": { "$in": [Bson::Null, Bson::Int32(-1)] }, "status": Status::Queued, "queue": queue.id }
}

fn claim_of(one: Try, queue: &Queue, claimant: &Claimant, document: RawDocumentBuf) -> Claim {
    let number = document.get("attempt").ok().flatten().and_then(|value| Bson::try_from(value).ok());
    Claim {
        task: TaskId(one.task),
        queue: queue.id,
        node: claimant.node.clone(),
        attempt: number.as_ref().and_then(whole_number).unwrap_or(0),
        instance: claimant.instance.clone(),
        document,
    }
}

fn id_of(document: &RawDocumentBuf) -> Option<ObjectId> {
    document.get_object_id("_id").ok()
}

fn slot_of(document: &RawDocumentBuf) -> Option<u64> {
    document.get_i64("slot").ok().and_then(|slot| u64::try_from(slot).ok())
}

fn by_id() -> Hint {
    Hint::Keys(doc! { "_id": 1 })
}

/// A claim decides nothing: the start does, whose filter contains the claim, and which a majority acknowledges. If
/// the claim is lost with its server, the start finds no claimed task. A server that has been cut off cannot
/// confirm too much either: a claim that survives was copied before the others elected, so it comes before
/// everything that was written since, and those who claim later count it.
fn one_member() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Nodes(1)).build()
}

/// Whether the queue is taken from its end.
pub(super) fn is_newest_first(queue: &Queue) -> bool {
    queue.sort_order() == Ok(Sort::Lifo)
}
