//! Claim: a DEN takes the next queued task of a queue, or gives one back. Where a runner is ready for the task, its claim is its start
//! (-2 -> 0), and it can be given back until that runner is told of it; elsewhere a runner starts it later (-2 -> -1 -> 0).
//!
//! Which tasks may be claimed next is read from an index and nothing else: ids in the order of their queue.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use mongodb::options::{FindOptions, Hint};

use super::claim_updates::{MOST_ALONE, Slot, Try};
use super::external::{DETACHED, attached};
use super::read_ahead::{Reading, Search, Window};
use super::transition::Transition;
use super::{Ahead, Run, Waiting};
use crate::clock::chance;
use crate::model::{NodeName, Policy, Queue, QueueId, Sort, Status, Task, TaskId};
use crate::rate::Granted;
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, collect_ids, integer, put, with};

/// How often a claim is tried with other tasks when others were faster.
pub(crate) const MOST_PASSES: usize = 8;

/// So many documents are read at once.
pub(super) const BATCH_READ: u32 = 1_000;

#[derive(Debug, Clone)]
pub struct Claimant {
    pub node: NodeName,
    /// This start of its DEN: tells it from the one before that had the same name.
    pub instance: String,
    /// How long the claim holds until its runner has started the task. `None`: for ever, for a runner that
    /// knows nothing of leases.
    pub lease: Option<Duration>,
    /// Until when tasks may be started in the slots that it holds, by the server's clock: see [`crate::slots`]. `None`: it holds none, and counts.
    pub fence: Option<DateTime>,
}

/// A claimed task that no runner has been told of yet: launch its runner with it, or give it back.
#[derive(Debug)]
#[must_use = "a claimed task must be launched or unclaimed, else it waits for the end of its lease"]
pub struct Claim {
    pub task: TaskId,
    pub queue: QueueId,
    pub node: NodeName,
    /// Which claim of the task this is; with the next, the fence of everything that follows.
    pub attempt: i64,
    pub instance: String,
    pub document: RawDocumentBuf,
    /// Whether it has been started, too, for the runner that it says: [`Claim::runner`].
    pub is_started: bool,
    /// Whether it says that it holds locks that do not know of it: it was queued again, by a program that knows nothing of
    /// locks, while these were taken back.
    pub has_lost_locks: bool,
}

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
    /// There are tasks whose time comes after so long: the rates of their groups allow none of them to start now.
    pub next: Option<Duration>,
    /// By what the rates of groups have granted these claims: a start of each that is given back goes back, too.
    pub grants: HashMap<TaskId, Granted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimed {
    Queued,
    /// Its runner has started it, or someone else has changed it: it is not ours to give back.
    NotClaimed,
}

impl Claim {
    pub fn slot(&self) -> Option<u64> {
        let slot = self.document.get("slot").ok().flatten()?;
        slot.as_i64().or_else(|| slot.as_i32().map(i64::from)).and_then(|slot| u64::try_from(slot).ok())
    }

    pub fn runner(&self) -> Option<u32> {
        let pid = self.document.get("pid").ok().flatten().filter(|_| self.is_started)?;
        pid.as_i64().and_then(|pid| u32::try_from(pid).ok())
    }

    pub fn started_at(&self) -> Option<DateTime> {
        self.document.get_datetime("mtime").ok().filter(|_| self.is_started)
    }

    /// Where it is while it is neither given back nor handed on.
    pub(crate) fn status(&self) -> Status {
        if self.is_started { Status::Running } else { Status::Claimed }
    }

    /// What its task is like as long as nobody has started it, or has done anything with it since it was, or given it back.
    pub(crate) fn like(&self) -> Document {
        let mut like = doc! {
            "node": &self.node, "status": self.status(), "attempt": self.attempt, "instance": &self.instance,
        };
        // Not the claim that came after it with the same number, when this one was lost with its primary.
        put(&mut like, "mtime", self.document.get_datetime("mtime").ok());
        like
    }

    pub fn run(&self) -> Run {
        Run {
            task: self.task,
            queue: self.queue,
            node: self.node.clone(),
            attempt: self.attempt,
            instance: Some(self.instance.clone()),
        }
    }

    pub fn group(&self) -> &str {
        crate::fair::group_of(&self.document)
    }
}

impl Store {
    /// Claims the next tasks of `queue`, one for each of `slots` at most, for runners that are not there yet: see [`Store::take_tasks`].
    #[operation]
    pub async fn claim_tasks(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[u64],
        ahead: &mut Ahead,
    ) -> Result<Batch, StoreError> {
        let slots: Vec<Slot> = slots.iter().map(|number| Slot { number: *number, runner: None }).collect();
        self.take_tasks(queue, claimant, &slots, ahead).await
    }

    /// Claims the next tasks of `queue`, in the queue's order, one for each of `slots` at most: free places of those
    /// that `threads` allows. Those for which a runner is ready are started at once.
    ///
    /// Each claim is one update that matches a queued task that no node has and gives it to this one, so no two
    /// DENs can claim the same task (Disbatch 4 design, Task Lifecycle). The places are the claimant's: it holds them
    /// ([`crate::slots`]), and no task of its is in one.
    /// Which tasks are tried is read ahead, see [`Ahead`]; whose turn it is in queues with a policy, see [`crate::fair`].
    ///
    /// # Errors
    /// The database cannot be reached. Some of the tasks may have been claimed.
    #[operation(queue = %queue.id, slots = slots.len())]
    pub async fn take_tasks(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[Slot],
        ahead: &mut Ahead,
    ) -> Result<Batch, StoreError> {
        match queue.policy() {
            Policy::Sorted(_) => {}
            // Boxed, so that its state does not weigh on every other claim.
            Policy::Priority => {
                return Box::pin(self.claim_by_priority(queue, claimant, slots, ahead.ranked(queue.id)))
                    .await;
            }
            Policy::Fair => {
                return Box::pin(self.claim_fairly(queue, claimant, slots, ahead.fair(queue.id))).await;
            }
        }
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
            let tries: Vec<Try> = ids
                .into_iter()
                .zip(slots.drain(..tried))
                .map(|(task, slot)| Try { task, slot, group_slot: None })
                .collect();
            // Where others claim too, most of what is tried is lost, which is not worth an operation each.
            let most_alone = if window.has_others() { 1 } else { MOST_ALONE };
            let outcome = self.try_claims(queue, claimant, (tries, most_alone)).await;
            // Of a claim without an answer nobody knows whether it was made.
            let mut outcome = outcome.inspect_err(|_| self.doubt_counters())?;
            batch.claims.append(&mut outcome.claims);
            batch.taken.extend(outcome.refused.iter().map(|refused| refused.slot.number));
            window.put_back(outcome.refused.iter().map(|refused| refused.task).collect());
            let lost = outcome.lost.len();
            slots.extend(outcome.lost.iter().map(|lost| lost.slot));
            if window.has_others() || (lost > 0 && self.have_others(&outcome.lost, claimant).await?) {
                window.met_others(tried, lost);
            }
            if were_all && !batch.claims.is_empty() {
                break;
            }
        }
        Ok(batch)
    }

    /// Gives a claimed task back to its queue, of which no runner has been told, or whose runner has gone without beginning it. Nothing
    /// happens if anybody has done something with it meanwhile.
    #[operation(task = %claim.task)]
    pub async fn unclaim_task(&self, claim: &Claim, why: &str) -> Result<Unclaimed, StoreError> {
        let filter = with(doc! { "_id": claim.task }, claim.like());
        let result = self.tasks().update_one(filter, given_back(self, why)).await.map_err(StoreError::from);
        match result {
            Ok(result) if result.matched_count == 1 => {
                self.moved(claim.queue, Some(claim.status()), Some(Status::Queued), 1);
                return Ok(Unclaimed::Queued);
            }
            Ok(_) => {}
            Err(error) => {
                self.doubt_counters();
                Box::pin(self.end_unfit(claim.task, &claim.like(), Status::Terminated, error)).await?;
            }
        }
        Ok(Unclaimed::NotClaimed)
    }

    /// Gives back every task that `node` has claimed and no runner has started, save those in `except`; and those that were started for
    /// a runner among `ready` and are not among the tasks beside it, which it has: nobody was told of them. Returns how many.
    #[operation]
    pub async fn unclaim_all(
        &self,
        (node, instance): (&NodeName, &str),
        (except, ready): (&[TaskId], &[(u32, Vec<TaskId>)]),
        why: &str,
    ) -> Result<u64, StoreError> {
        let untold = self.give_back_untold((node, instance), ready, why).await?;
        let mut filter = doc! { "node": node, "status": Status::Claimed };
        put(&mut filter, "_id", (!except.is_empty()).then(|| doc! { "$nin": except }));
        Ok(untold + self.move_until(None, filter, &given_back(self, why), Status::Queued).await?)
    }

    /// Gives back the tasks that were started for runners which have none. Each by its own attempt and time: a repetition that arrives late
    /// finds no later start of it.
    async fn give_back_untold(
        &self,
        (node, instance): (&NodeName, &str),
        ready: &[(u32, Vec<TaskId>)],
        why: &str,
    ) -> Result<u64, StoreError> {
        if ready.is_empty() {
            return Ok(0);
        }
        let pids: Vec<i64> = ready.iter().map(|(pid, _)| i64::from(*pid)).collect();
        let ours = doc! {
            "node": node, "status": Status::Running, "instance": instance, "pid": { "$in": pids },
            DETACHED: attached(),
        };
        let fence = doc! { "node": 1, "status": 1, "instance": 1, "attempt": 1, "mtime": 1, "pid": 1 };
        let found = collect(self.tasks().find(ours).projection(fence)).await?;
        let mut given = 0;
        for task in found {
            let (id, pid) = (task.get_object_id("_id").map(TaskId), task.get_i64("pid"));
            let has_it = |(runner, tasks): &(u32, Vec<TaskId>)| {
                pid.as_ref().is_ok_and(|pid| *pid == i64::from(*runner))
                    && id.as_ref().is_ok_and(|id| tasks.contains(id))
            };
            if ready.iter().any(has_it) {
                continue;
            }
            given += self.move_until(None, task, &given_back(self, why), Status::Queued).await?;
        }
        Ok(given)
    }

    /// How many tasks `node` has claimed or running, save those in `except` and those that web services work on.
    #[operation]
    pub async fn running_on_node(&self, node: &NodeName, except: &[TaskId]) -> Result<u64, StoreError> {
        let mut filter = occupying(node);
        put(&mut filter, "_id", (!except.is_empty()).then(|| doc! { "$nin": except }));
        Ok(self.tasks().count_documents(filter).await?)
    }

    #[operation(task = %id)]
    pub async fn find_task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let found = self.tasks().find_one(doc! { "_id": id }).await?;
        found.map(|document| typed(TASKS.name, document)).transpose()
    }

    pub(super) fn note_claims(&self, claims: &[Claim], now: DateTime) {
        for claim in claims {
            self.moved(claim.queue, Some(Status::Queued), Some(claim.status()), 1);
            if claim.is_started
                && let Some(waiting) = Waiting::of_document(claim.queue, &claim.document)
            {
                self.note_start(&waiting, now);
            }
        }
    }

    /// The next tasks to try, at most so many, and whether the queue has none.
    pub(super) async fn next_candidates(
        &self,
        queue: &Queue,
        window: &mut Window,
        wanted: usize,
    ) -> Result<(Vec<ObjectId>, bool), StoreError> {
        let mut search = Search::of(wanted);
        while let Some(reading) = window.reading(&search, Instant::now(), chance()) {
            let began = Instant::now();
            let ids = self.read_ids(queue, reading).await?;
            window.read(&mut search, reading, ids, (began, Instant::now()));
        }
        let exhausted = window.is_exhausted(&search);
        Ok((window.take(wanted), exhausted))
    }

    async fn read_ids(&self, queue: &Queue, reading: Reading) -> Result<Vec<ObjectId>, StoreError> {
        let newest_first = is_newest_first(queue);
        let (past, direction) = if newest_first { ("$lt", -1) } else { ("$gt", 1) };
        // From the first id that there can be, so that documents with ids of another kind are not in the way.
        let id = match reading.past {
            Some(id) => doc! { past: id },
            None if newest_first => doc! { "$lte": ObjectId::from_bytes([u8::MAX; 12]) },
            None => doc! { "$gte": ObjectId::from_bytes([0; 12]) },
        };
        let mut filter = claimable(queue.id);
        filter.insert("_id", self.not_left_alone(id));
        // It is one of Perl's. It has each of the possible nodes in order; the server merges them as it reads, backwards for the
        // newest first. The other direction has an index of its own, which is not there where `indexes` is "lean".
        let index = doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 };
        let options = |hint| {
            FindOptions::builder()
                .projection(doc! { "_id": 1 })
                .sort(doc! { "_id": direction })
                .limit(integer(reading.limit))
                .batch_size(BATCH_READ)
                .hint(hint)
                .build()
        };
        let tasks = self.tasks();
        let find = |hint| tasks.find(filter.clone()).with_options(options(hint));
        match collect_ids(find(Some(Hint::Keys(index)))).await {
            // Nobody has created it yet: the server finds another way.
            Err(error) if error.is_no_index() => collect_ids(find(None)).await,
            found => found,
        }
    }
}

/// Back to the queue. The number of the attempt stays: the next claim gets another.
pub(super) fn given_back(store: &Store, why: &str) -> Vec<Document> {
    Transition::to(Status::Queued, store.now())
        .without_node()
        .end_of_run()
        .unset("started")
        .note(why)
        .pipeline()
}

pub(crate) fn claimable(queue: QueueId) -> Document {
    with(claimable_of_any(), doc! { "queue": queue })
}

pub(crate) fn claimable_of_any() -> Document {
    doc! { "node": { "$in": [Bson::Null, Bson::Int32(-1)] }, "status": Status::Queued }
}

/// Matches the tasks that a node has claimed or running, save those that web services work on.
pub(crate) fn occupying(node: impl Into<Bson>) -> Document {
    doc! { "node": node.into(), "status": { "$in": [-1, 0] }, DETACHED: attached() }
}

pub(crate) fn is_newest_first(queue: &Queue) -> bool {
    queue.policy() == Policy::Sorted(Sort::Lifo)
}
