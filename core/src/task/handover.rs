//! Starts of queued tasks (-2 -> 0) for runners that are ready, several with one update; and handover: the next task of a queue is started
//! in the slot that another one frees, by the command that stores the end of that one (0 -> final, then -2 -> 0).
//!
//! Such a task has been read before, document and all, and nothing is read back. So its start matches the task only as it was read:
//! queued for the first time, which counts no attempt yet, and not changed since. A slot is given once: where the end cannot be stored, the
//! start behind it is not made.

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::{CString, RawArrayBuf, RawBsonRef};
use bson::{Bson, DateTime, RawDocument, RawDocumentBuf, doc, rawdoc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::claim::{BATCH_READ, Claim, Claimant, claimable};
use super::claim_updates::{Slot, Try, by_id, unfit, within};
use super::run::started_by;
use super::statements::Statement;
use super::transition::{Transition, server_time_in};
use super::{Ahead, RunWrite, Waiting, Written};
use crate::model::{NodeName, PLUGIN_VERSION, Queue, QueueId, Status, Task, TaskId, Version, whole_number};
use crate::slots::STARTS_TAKE;
use crate::store::{Store, StoreError, integer, with};

/// So many bytes of documents are read ahead of a queue at once, and one document more.
pub const MOST_READ_AHEAD: usize = 4 * 1024 * 1024;

const FIRST: i32 = 1;

/// What a task has that needs more than a runner before it begins, or whose start needs more than its document.
const NOT_PLAIN: [&str; 6] = ["attempt", "deadline", "external", "holds_locks", "locks", "schedule"];

#[derive(Debug)]
pub struct Queued {
    pub task: TaskId,
    document: RawDocumentBuf,
    /// Of those that were read together, none had been changed later.
    unchanged_since: DateTime,
    version: Option<Version>,
}

#[derive(Debug, Default)]
pub struct StartedAhead {
    pub claims: Vec<Claim>,
    /// Tasks that were not started, and the slots that were to be theirs.
    pub lost: Vec<(TaskId, Slot)>,
    /// Whether another task had one of the slots. If not, they are as free as before: only the tasks were gone.
    pub found_slots_taken: bool,
}

#[derive(Debug, Clone)]
pub struct Take {
    pub task: TaskId,
    pub queue: QueueId,
    pub node: NodeName,
    pub instance: String,
    pub slot: u64,
    /// The process of the runner that is ready for it.
    pub pid: u32,
    /// The time of the start, the same in every repetition.
    pub at: DateTime,
    pub lease: Duration,
    fence: Option<DateTime>,
    pub(super) waiting: Option<Waiting>,
    unchanged_since: DateTime,
    version: Option<Version>,
}

impl Store {
    /// Reads the next tasks of `queue`, so many at most, besides those in hand. They end before the first that is not to be handed a
    /// slot: that is claimed in its turn.
    #[operation(queue = %queue.id)]
    pub async fn read_ahead(
        &self,
        queue: &Queue,
        ahead: &mut Ahead,
        wanted: usize,
    ) -> Result<Vec<Queued>, StoreError> {
        let window = ahead.window(queue.id, false);
        let (ids, _) = self.next_candidates(queue, window, wanted).await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut documents = self.documents_of(&ids).await?;
        let mut queued = Vec::new();
        let mut left = ids.into_iter();
        for id in left.by_ref() {
            let Some(one) = documents.remove(&id).and_then(|document| Queued::plain(queue, id, document))
            else {
                ahead.window(queue.id, false).put_back(std::iter::once(id).chain(left).collect());
                break;
            };
            queued.push(one);
        }
        same_time(&mut queued);
        Ok(queued)
    }

    /// Starts those that need nothing but a runner, and for which one is ready, with one update. Returns the claims, and the others: they are to
    /// be claimed.
    pub(super) async fn start_those_with_runners(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        tries: Vec<Try>,
    ) -> Result<(Vec<Claim>, Vec<Try>), StoreError> {
        let is_ready = |one: &Try| one.slot.runner.is_some() && one.group_slot.is_none();
        let (ready, mut others): (Vec<Try>, Vec<Try>) = tries.into_iter().partition(is_ready);
        if ready.is_empty() || claimant.lease.is_none() {
            others.extend(ready);
            return Ok((Vec::new(), others));
        }
        let ids: Vec<ObjectId> = ready.iter().map(|one| one.task).collect();
        let mut documents = self.documents_of(&ids).await?;
        let (mut queued, mut slots) = (Vec::new(), Vec::new());
        for one in ready {
            match documents.remove(&one.task).and_then(|document| Queued::plain(queue, one.task, document)) {
                Some(task) => {
                    queued.push(task);
                    slots.push(one.slot);
                }
                None => others.push(one),
            }
        }
        same_time(&mut queued);
        let started = self.start_read(queue, claimant, queued.into_iter().zip(slots)).await?;
        let lost = |(task, slot): (TaskId, Slot)| Try { task: task.0, slot, group_slot: None };
        others.extend(started.lost.into_iter().map(lost));
        Ok((started.claims, others))
    }

    /// Starts tasks that were read before, each in a slot for which a runner is ready, with one update.
    ///
    /// # Errors
    /// The database cannot be reached. Some of the tasks may have been started.
    #[operation(queue = %queue.id)]
    pub async fn start_ahead(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        tasks: Vec<(Queued, Slot)>,
    ) -> Result<StartedAhead, StoreError> {
        self.start_read(queue, claimant, tasks.into_iter()).await
    }

    async fn start_read(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        tasks: impl Iterator<Item = (Queued, Slot)>,
    ) -> Result<StartedAhead, StoreError> {
        let at = self.now();
        let (mut claims, mut slots, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        let mut started = StartedAhead::default();
        for (queued, slot) in tasks {
            // What its runner is told of the queue is this, which may have changed since the task was read.
            let queued = Queued { version: queue.version_for(queued.task), ..queued };
            match queued.take(queue.id, claimant, (slot, at)) {
                Some(take) => {
                    slots.push((queued.task, slot));
                    claims.push(queued.taken(&take));
                    writes.push(RunWrite::Take(take));
                }
                None => started.lost.push((queued.task, slot)),
            }
        }
        for ((claim, slot), written) in claims.into_iter().zip(slots).zip(self.write_runs(&writes).await?) {
            match written? {
                Written::Started => started.claims.push(claim),
                other => {
                    started.found_slots_taken |= other == Written::SlotTaken;
                    started.lost.push(slot);
                }
            }
        }
        Ok(started)
    }

    /// The documents of those tasks, as far as they are there: at most [`MOST_READ_AHEAD`] bytes of them, and one more.
    async fn documents_of(&self, ids: &[ObjectId]) -> Result<HashMap<ObjectId, RawDocumentBuf>, StoreError> {
        let of_ids = doc! { "_id": { "$in": ids } };
        let mut found = self.raw_tasks().find(of_ids).hint(by_id()).batch_size(BATCH_READ).await?;
        let (mut documents, mut bytes) = (HashMap::new(), 0);
        while bytes < MOST_READ_AHEAD
            && let Some(document) = found.try_next().await?
        {
            bytes += document.as_bytes().len();
            if let Ok(id) = document.get_object_id("_id") {
                documents.insert(id, document);
            }
        }
        Ok(documents)
    }
}

/// Has all of them match as unchanged since the latest change of any: so they can share a statement. None had been changed later when they
/// were read.
fn same_time(queued: &mut [Queued]) {
    if let Some(latest) = queued.iter().map(|one| one.unchanged_since).max() {
        queued.iter_mut().for_each(|one| one.unchanged_since = latest);
    }
}

impl Queued {
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// That of a document of a task. `None`: it cannot be handed a slot.
    fn plain(queue: &Queue, id: ObjectId, document: RawDocumentBuf) -> Option<Self> {
        let field = |name| document.get(name).ok().flatten();
        let number = |value: RawBsonRef<'_>| Bson::try_from(value).ok().as_ref().and_then(whole_number);
        let is_queued = field("status").and_then(number) == Some(Status::Queued.code())
            && field("queue").and_then(|of| of.as_object_id()) == Some(queue.id.0)
            && field("node").is_none_or(|node| matches!(node, RawBsonRef::Null) || number(node) == Some(-1))
            && matches!(field("history"), None | Some(RawBsonRef::Array(_)));
        let is_plain = NOT_PLAIN.iter().all(|name| field(name).is_none()) && unfit(&document).is_none();
        let unchanged_since = field("mtime")?.as_datetime()?;
        let (task, version) = (TaskId(id), queue.version_for(TaskId(id)));
        (is_queued && is_plain).then_some(Self { task, document, unchanged_since, version })
    }

    /// Its start in a slot. `None`: there is no runner for it, or one that knows nothing of leases, and so starts tasks by itself.
    pub fn take(&self, queue: QueueId, by: &Claimant, (slot, at): (Slot, DateTime)) -> Option<Take> {
        Some(Take {
            task: self.task,
            queue,
            node: by.node.clone(),
            instance: by.instance.clone(),
            slot: slot.number,
            pid: slot.runner?,
            at,
            lease: by.lease?,
            fence: by.fence,
            waiting: Waiting::of_document(queue, &self.document),
            unchanged_since: self.unchanged_since,
            version: self.version.clone(),
        })
    }

    pub fn taken(self, take: &Take) -> Claim {
        Claim {
            task: self.task,
            queue: take.queue,
            node: take.node.clone(),
            attempt: i64::from(FIRST),
            instance: take.instance.clone(),
            // It has been read before: what cannot be read is not plain.
            document: take.applied_to(&self.document).unwrap_or(self.document),
            is_started: true,
            has_lost_locks: false,
        }
    }
}

impl Take {
    pub(super) fn statement(&self) -> Statement {
        let like = with(claimable(self.queue), within(self.fence));
        let like = with(like, doc! { "attempt": Bson::Null, "mtime": { "$lte": self.unchanged_since } });
        let transition = started_by(Transition::to(Status::Running, self.at), self.at, self.pid)
            .set("node", &self.node)
            .set("instance", self.instance.as_str())
            .set("slot", integer(self.slot))
            .set("attempt", FIRST)
            .set_some(PLUGIN_VERSION, self.version.as_ref().map(Version::as_str))
            .compute("lease_until", server_time_in(self.lease));
        Statement { follows: true, within: Some(STARTS_TAKE), ..Statement::of(self.task.0, like, transition) }
    }

    pub(super) fn is_of(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && task.instance() == Some(self.instance.as_str())
            && task.pid() == i32::try_from(self.pid).ok()
            && task.attempt() == Some(i64::from(FIRST))
            && task.mtime == Some(Bson::DateTime(self.at))
    }

    /// The task after its start, as far as it can be known without reading it.
    fn applied_to(&self, task: &RawDocument) -> bson::error::Result<RawDocumentBuf> {
        let lease_until = self.at.saturating_add_duration(self.lease);
        let status = i32::try_from(Status::Running.code()).unwrap_or_default();
        let mut set = rawdoc! {
            "status": status, "mtime": self.at, "node": self.node.as_str(), "started": self.at,
            "pid": i64::from(self.pid), "instance": self.instance.as_str(), "slot": integer(self.slot),
            "attempt": FIRST, "lease_until": lease_until,
        };
        if let Some(version) = &self.version {
            set.append(CString::try_from(PLUGIN_VERSION)?, version.as_str());
        }
        let entry = rawdoc! { "at": self.at, "status": status, "attempt": FIRST, "node": self.node.as_str() };
        let mut history = RawArrayBuf::new();
        if let Ok(before) = task.get_array("history") {
            for entry in before {
                history.push(entry?);
            }
        }
        history.push(entry);
        let mut applied = RawDocumentBuf::new();
        // In the order of the task, as the server has them.
        for field in task.iter_elements().chain(set.iter_elements()) {
            let field = field?;
            if field.key().as_str() != "history" && applied.get(field.key())?.is_none() {
                let value = set.get(field.key())?.map_or_else(|| field.value(), Ok)?;
                applied.append(field.key(), value);
            }
        }
        applied.append(CString::try_from("history")?, history);
        Ok(applied)
    }
}
