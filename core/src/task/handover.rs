//! Handover: the next task of a queue is started in the slot that another one frees, by the command that stores the end of that one
//! (0 -> final, then -2 -> 0).
//!
//! The next task has been read before, document and all, and nothing is read back. So its start matches the task only as it was read:
//! queued for the first time, which counts no attempt yet, and not changed since. A slot is given once: should the end not be stored, the
//! unique index over slots refuses the start.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bson::raw::{CString, RawArrayBuf, RawBsonRef};
use bson::{Bson, DateTime, RawDocument, RawDocumentBuf, doc, rawdoc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::claim::{BATCH_READ, Claim, claimable_of};
use super::start::started_by;
use super::statements::Statement;
use super::transition::{Transition, millis, server_time_in};
use super::tries::{by_id, unfit};
use super::{Ahead, Waiting};
use crate::model::{NodeName, Queue, QueueId, Status, Task, TaskId, whole_number};
use crate::store::{Store, StoreError};

/// So many bytes of documents are read ahead of a queue at once, and one document more.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Which attempt it is.
const FIRST: i32 = 1;

/// What a task has that needs more than a runner before it begins, or whose start needs more than its document.
const NOT_PLAIN: [&str; 6] = ["attempt", "deadline", "external", "holds_locks", "locks", "schedule"];

/// A queued task that was read ahead.
#[derive(Debug)]
pub struct Queued {
    /// The task.
    pub task: TaskId,
    /// As it was read.
    document: RawDocumentBuf,
    /// Of those that were read together, none had been changed later.
    unchanged_since: DateTime,
}

/// The start of a queued task in a slot that another one frees.
#[derive(Debug, Clone)]
pub struct Take {
    /// The task.
    pub task: TaskId,
    /// Its queue.
    pub queue: QueueId,
    /// The node.
    pub node: NodeName,
    /// This start of its DEN.
    pub instance: String,
    /// The slot.
    pub slot: u64,
    /// The process of the runner that is ready for it.
    pub pid: u32,
    /// The time of the start, the same in every repetition.
    pub at: DateTime,
    /// How long the task is the runner's until it renews that.
    pub lease: Duration,
    /// Since when it has waited, for [`crate::series`].
    waiting: Option<Waiting>,
    unchanged_since: DateTime,
}

impl Store {
    /// Reads the next tasks of `queue`, so many at most, besides those in `known`. They end before the first that is not to be handed a
    /// slot: that is claimed in its turn.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation(queue = %queue.id)]
    pub async fn read_ahead(
        &self,
        queue: &Queue,
        ahead: &mut Ahead,
        (wanted, known): (usize, &HashSet<TaskId>),
    ) -> Result<Vec<Queued>, StoreError> {
        let window = ahead.window(queue.id, false);
        let (mut ids, _) = self.next_candidates(queue, window, wanted).await?;
        ids.retain(|id| !known.contains(&TaskId(*id)));
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let of_ids = doc! { "_id": { "$in": &ids } };
        let mut found = self.raw_tasks().find(of_ids).hint(by_id()).batch_size(BATCH_READ).await?;
        let (mut documents, mut bytes) = (HashMap::new(), 0);
        while bytes < MOST_BYTES
            && let Some(document) = found.try_next().await?
        {
            bytes += document.as_bytes().len();
            if let Ok(id) = document.get_object_id("_id") {
                documents.insert(id, document);
            }
        }
        let mut queued = Vec::new();
        let mut latest = DateTime::MIN;
        let mut left = ids.into_iter();
        for id in left.by_ref() {
            let document = documents.remove(&id);
            let Some((document, changed)) = document.and_then(|document| plain(queue.id, document)) else {
                ahead.window(queue.id, false).put_back(std::iter::once(id).chain(left).collect());
                break;
            };
            latest = latest.max(changed);
            queued.push(Queued { task: TaskId(id), document, unchanged_since: latest });
        }
        queued.iter_mut().for_each(|one| one.unchanged_since = latest);
        Ok(queued)
    }
}

/// A document of a task that can be handed a slot, and when it was changed last.
fn plain(queue: QueueId, document: RawDocumentBuf) -> Option<(RawDocumentBuf, DateTime)> {
    let field = |name| document.get(name).ok().flatten();
    let number = |value: RawBsonRef<'_>| Bson::try_from(value).ok().as_ref().and_then(whole_number);
    let is_queued = field("status").and_then(number) == Some(Status::Queued.code())
        && field("queue").and_then(|of| of.as_object_id()) == Some(queue.0)
        && field("node").is_none_or(|node| matches!(node, RawBsonRef::Null) || number(node) == Some(-1))
        && matches!(field("history"), None | Some(RawBsonRef::Array(_)));
    let is_plain = NOT_PLAIN.iter().all(|name| field(name).is_none()) && unfit(&document).is_none();
    let changed = field("mtime")?.as_datetime()?;
    (is_queued && is_plain).then_some((document, changed))
}

impl Queued {
    /// As it was read.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// Its start in a slot.
    pub fn take(&self, of: &Claim, (pid, at, lease): (u32, DateTime, Duration)) -> Option<Take> {
        Some(Take {
            task: self.task,
            queue: of.queue,
            node: of.node.clone(),
            instance: of.instance.clone(),
            slot: of.slot()?,
            pid,
            at,
            lease,
            waiting: Waiting::of_document(of.queue, &self.document),
            unchanged_since: self.unchanged_since,
        })
    }

    /// The claim that it is once `take` has been made.
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
        let mut like = claimable_of(self.queue);
        like.insert("attempt", Bson::Null);
        like.insert("mtime", doc! { "$lte": self.unchanged_since });
        let transition = started_by(Transition::to(Status::Running, self.at), self.at, self.pid)
            .set("node", &self.node)
            .set("instance", self.instance.as_str())
            .set("slot", self.stored_slot())
            .set("attempt", FIRST)
            .compute("lease_until", server_time_in(self.lease));
        Statement { task: self.task.0, like, transition }
    }

    /// Whether it is this start that the task runs by.
    pub(super) fn is_of(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && task.instance() == Some(self.instance.as_str())
            && task.pid() == i32::try_from(self.pid).ok()
            && task.attempt() == Some(i64::from(FIRST))
            && task.mtime.as_ref().is_some_and(|mtime| mtime.0 == Bson::DateTime(self.at))
    }

    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref()
    }

    fn stored_slot(&self) -> i64 {
        i64::try_from(self.slot).unwrap_or(i64::MAX)
    }

    /// The task after its start, as far as it can be known without reading it.
    fn applied_to(&self, task: &RawDocument) -> bson::error::Result<RawDocumentBuf> {
        let lease_until =
            DateTime::from_millis(self.at.timestamp_millis().saturating_add(millis(self.lease)));
        let status = i32::try_from(Status::Running.code()).unwrap_or_default();
        let set = rawdoc! {
            "status": status, "mtime": self.at, "node": self.node.as_str(), "started": self.at,
            "pid": i64::from(self.pid), "instance": self.instance.as_str(), "slot": self.stored_slot(), "attempt": FIRST,
            "lease_until": lease_until,
        };
        let entry = rawdoc! { "at": self.at, "status": status, "attempt": FIRST, "node": self.node.as_str() };
        let mut history = RawArrayBuf::new();
        if let Ok(before) = task.get_array("history") {
            for entry in before {
                history.push(entry?);
            }
        }
        history.push(entry);
        let mut applied = RawDocumentBuf::new();
        for field in task.iter_elements() {
            let field = field?;
            match set.get(field.key())? {
                Some(value) => applied.append(field.key(), value),
                None if field.key().as_str() != "history" => applied.append(field.key(), field.value()?),
                None => {}
            }
        }
        for field in set.iter_elements() {
            let field = field?;
            if task.get(field.key())?.is_none() {
                applied.append(field.key(), field.value()?);
            }
        }
        applied.append(CString::try_from("history")?, history);
        Ok(applied)
    }
}
