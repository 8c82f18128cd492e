//! Tries: conditional updates that claim tasks which were chosen before, each for a place: -2 -> -1, or -2 -> 0 where a runner is ready
//! for the task.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::options::{Hint, ReturnDocument, WriteConcern};

use super::claim::{BATCH_READ, Claim, Claimant, claimable};
use super::run::started_by;
use super::statements::Statement;
use super::transition::{Transition, count_in, server_time_in};
use crate::budget;
use crate::model::document::unreadable_field;
use crate::model::{PLUGIN_VERSION, Queue, Status, TaskId, whole_number};
use crate::slots::STARTS_TAKE;
use crate::store::{Store, StoreError, WriteFailure, integer, with};

/// So few are claimed by an operation each, side by side: that takes one round trip, where one operation for all of
/// them takes two.
pub(crate) const MOST_ALONE: usize = 4;

/// A free slot of those that `threads` of a queue allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub number: u64,
    /// The process of the runner that is ready for the task that gets the slot. Such a task is started by its claim.
    pub runner: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Try {
    pub task: ObjectId,
    pub slot: Slot,
    pub group_slot: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct ClaimOutcome {
    pub claims: Vec<Claim>,
    /// Another task has the place in the queue.
    pub refused: Vec<Try>,
    /// Another task has the place in the group.
    pub full: Vec<Try>,
    pub lost: Vec<Try>,
}

impl ClaimOutcome {
    fn add(&mut self, other: Self) {
        self.claims.extend(other.claims);
        self.refused.extend(other.refused);
        self.full.extend(other.full);
        self.lost.extend(other.lost);
    }
}

impl Store {
    /// Claims what can be claimed of `tries`, and starts it where a runner is ready: up to `most_alone` with an operation each, more of them
    /// with one update. What needs more than a runner is claimed first.
    pub(crate) async fn try_claims(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        (tries, most_alone): (Vec<Try>, usize),
    ) -> Result<ClaimOutcome, StoreError> {
        let now = self.now();
        let left_alone = self.left_alone();
        let is_left = |one: &Try| left_alone.contains(&one.task.into());
        let (lost, tries): (Vec<Try>, Vec<Try>) = tries.into_iter().partition(is_left);
        let mut all = ClaimOutcome { lost, ..ClaimOutcome::default() };
        let mut started = Vec::new();
        if tries.len() > most_alone {
            let (claims, tries) = match most_alone {
                // Where others claim too, reading them first would be too late for most.
                ..=1 => (Vec::new(), tries),
                _ => self.start_those_with_runners(queue, claimant, tries).await?,
            };
            started = claims;
            let only_claimed = |one: Try| Try { slot: Slot { runner: None, ..one.slot }, ..one };
            let tries: Vec<Try> = tries.into_iter().map(only_claimed).collect();
            if !tries.is_empty() {
                all.add(self.try_claims_at_once(queue, claimant, tries, now).await?);
            }
        } else {
            let each = tries.iter().map(|one| self.try_claim(queue, claimant, *one, now));
            for outcome in futures::future::join_all(each).await {
                all.add(outcome?);
            }
        }
        self.note_claims(&all.claims, now);
        Box::pin(self.end_those_that_cannot_run(&mut all)).await?;
        // Boxed, so that its state does not weigh on claims without locks.
        Box::pin(self.look_at_locks(&mut all.claims)).await?;
        all.claims.splice(..0, started);
        self.metrics().claim_lost.add((all.lost.len() + all.refused.len()) as u64);
        Ok(all)
    }

    /// What has no room for its own end is not begun: nobody could store what comes of it. Nor is what no runner can read.
    async fn end_those_that_cannot_run(&self, all: &mut ClaimOutcome) -> Result<(), StoreError> {
        for claim in std::mem::take(&mut all.claims) {
            let Some(why) = unfit(&claim.document) else {
                all.claims.push(claim);
                continue;
            };
            self.end_unfit(claim.task, &claim.like(), Status::Terminated, why).await?;
            let slot = Slot { number: claim.slot().unwrap_or_default(), runner: claim.runner() };
            all.lost.push(Try { task: claim.task.0, slot, group_slot: None });
        }
        Ok(())
    }

    /// A place that is taken, or a task that cannot be changed, is no reason to claim nothing else.
    async fn claim_failed(
        &self,
        (queue, ours): (&Queue, Document),
        (one, error): (Try, StoreError),
        outcome: &mut ClaimOutcome,
    ) -> Result<(), StoreError> {
        match error.write_failure().filter(WriteFailure::is_duplicate_key) {
            // The message names the index.
            Some(failure) if failure.message.contains("group_slot") => outcome.full.push(one),
            Some(_) => outcome.refused.push(one),
            None => {
                // An answer that cannot be read comes after the claim.
                let still = doc! { "$or": [claimable(queue.id), ours] };
                self.end_unfit(TaskId(one.task), &still, Status::Terminated, error).await?;
                outcome.lost.push(one);
            }
        }
        Ok(())
    }

    async fn try_claim(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        one: Try,
        now: DateTime,
    ) -> Result<ClaimOutcome, StoreError> {
        let (filter, update) = one.statement(queue, claimant, now).alone();
        let claimed = self
            .raw_tasks()
            .find_one_and_update(filter, update)
            .hint(by_id())
            .return_document(ReturnDocument::After)
            .write_concern(self.concern_of(one))
            .max_time(STARTS_TAKE)
            .await;
        let mut outcome = ClaimOutcome::default();
        match claimed.map_err(StoreError::from) {
            Ok(Some(document)) => outcome.claims.push(claim_of(one, queue, claimant, document)),
            Ok(None) => outcome.lost.push(one),
            Err(error) if error.is_out_of_time() => return Err(StoreError::unconfirmed(error)),
            Err(error) => {
                let ours = claimed_by(claimant, now);
                Box::pin(self.claim_failed((queue, ours), (one, error), &mut outcome)).await?;
            }
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
    ) -> Result<ClaimOutcome, StoreError> {
        let statements: Vec<Statement> =
            tries.iter().map(|one| one.statement(queue, claimant, now)).collect();
        let report = self.update_tasks(&statements, Some(&one_member())).await?;
        let ids: Vec<ObjectId> = tries.iter().map(|one| one.task).collect();
        let ours = with(claimed_by(claimant, now), doc! { "_id": { "$in": ids } });
        let found = self.raw_tasks().find(ours).hint(by_id()).batch_size(BATCH_READ).await?;
        let documents: Vec<RawDocumentBuf> = found.try_collect().await?;
        let mut documents: HashMap<(ObjectId, u64), RawDocumentBuf> = documents
            .into_iter()
            .filter_map(|document| {
                let slot = u64::try_from(document.get_i64("slot").ok()?).ok()?;
                Some(((document.get_object_id("_id").ok()?, slot), document))
            })
            .collect();
        let mut failures: HashMap<usize, StoreError> = report.failures.into_iter().collect();
        let mut outcome = ClaimOutcome::default();
        for (number, one) in tries.into_iter().enumerate() {
            match (documents.remove(&(one.task, one.slot.number)), failures.remove(&number)) {
                (Some(document), _) => outcome.claims.push(claim_of(one, queue, claimant, document)),
                (None, Some(error)) => {
                    let ours = claimed_by(claimant, now);
                    Box::pin(self.claim_failed((queue, ours), (one, error), &mut outcome)).await?;
                }
                (None, None) => outcome.lost.push(one),
            }
        }
        Ok(outcome)
    }

    pub(crate) async fn have_others(&self, lost: &[Try], claimant: &Claimant) -> Result<bool, StoreError> {
        let ids: Vec<ObjectId> = lost.iter().map(|lost| lost.task).collect();
        let theirs = doc! { "_id": { "$in": ids }, "node": { "$nin": [Bson::Null, Bson::Int32(-1), Bson::from(&claimant.node)] } };
        Ok(self.tasks().find_one(theirs).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// A claim decides nothing, see [`one_member`]; a start does.
    fn concern_of(&self, one: Try) -> WriteConcern {
        match one.slot.runner {
            None => one_member(),
            Some(_) => self.database().write_concern().cloned().unwrap_or_else(WriteConcern::majority),
        }
    }

    pub(super) fn raw_tasks(&self) -> Collection<RawDocumentBuf> {
        self.tasks().clone_with_type()
    }
}

impl Try {
    fn statement(self, queue: &Queue, claimant: &Claimant, now: DateTime) -> Statement {
        let lease =
            claimant.lease.map_or_else(|| Bson::from("$$REMOVE"), |lease| server_time_in(lease).into());
        let transition = match self.slot.runner {
            None => Transition::to(Status::Claimed, now),
            Some(pid) => {
                // A task with locks is claimed only: whether it holds them is looked at before it is started.
                let has_locks = doc! { "$ne": [{ "$type": "$locks" }, "missing"] };
                let status = doc! { "$cond": [has_locks, Status::Claimed, Status::Running] };
                started_by(Transition::to(Status::Running, now), now, pid).compute("status", status)
            }
        };
        let transition = match queue.version_for(TaskId(self.task)) {
            Some(version) => transition.set(PLUGIN_VERSION, version.as_str()),
            // An earlier attempt may have had one.
            None => transition.unset(PLUGIN_VERSION),
        };
        let transition = transition
            .set("node", &claimant.node)
            .set("instance", claimant.instance.as_str())
            .set("slot", integer(self.slot.number))
            .set_some("group_slot", self.group_slot.map(integer))
            .compute("attempt", doc! { "$add": [count_in("attempt"), 1] })
            .compute("lease_until", lease);
        let like = with(claimable(queue.id), within(claimant.fence));
        Statement {
            within: claimant.fence.map(|_| STARTS_TAKE),
            ..Statement::of(self.task, like, transition)
        }
    }
}

/// Matches nothing after the fence of a holder of slots.
pub(super) fn within(fence: Option<DateTime>) -> Option<(String, Bson)> {
    Some(("$expr".to_owned(), doc! { "$lt": ["$$NOW", fence?] }.into()))
}

fn claimed_by(claimant: &Claimant, now: DateTime) -> Document {
    doc! { "status": { "$in": [Status::Claimed, Status::Running] }, "node": &claimant.node, "instance": &claimant.instance, "mtime": now }
}

pub(super) fn unfit(task: &RawDocument) -> Option<StoreError> {
    let bytes = task.as_bytes().len();
    if !budget::has_room_for_a_run(bytes) {
        return Some(budget::no_room(bytes));
    }
    let field = unreadable_field(task)?;
    Some(StoreError::unfit(&format!("the task cannot be read: text in its field '{field}' is not UTF-8")))
}

fn claim_of(one: Try, queue: &Queue, claimant: &Claimant, document: RawDocumentBuf) -> Claim {
    let field = |name| document.get(name).ok().flatten().and_then(|value| Bson::try_from(value).ok());
    let number = field("attempt");
    let status = field("status").as_ref().and_then(whole_number).map(Status::from_code);
    Claim {
        task: TaskId(one.task),
        queue: queue.id,
        node: claimant.node.clone(),
        attempt: number.as_ref().and_then(whole_number).unwrap_or(0),
        instance: claimant.instance.clone(),
        is_started: status == Some(Status::Running),
        document,
        has_lost_locks: false,
    }
}

pub(super) fn by_id() -> Hint {
    Hint::Keys(doc! { "_id": 1 })
}

/// A claim decides nothing: the start does, whose filter contains the claim, and which a majority acknowledges. If
/// the claim is lost with its server, the start finds no claimed task. A server that has been cut off cannot
/// confirm too much either: a claim that survives was copied before the others elected, so it comes before
/// everything that was written since, and those who claim later count it.
pub(crate) fn one_member() -> WriteConcern {
    WriteConcern::nodes(1)
}
