//! Retry: an ended task is queued again by hand, as a new attempt. What came out before is kept.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::finish::COMMAND_FIELDS;
use super::question::ANSWER;
use super::steps::queued;
use super::transition::{ERROR, Transition};
use crate::arrays::Reopened;
use crate::inbox::REFUSED;
use crate::keys::{BORN, Hold, Key, WANTS_KEY};
use crate::model::{AWAITING, ArrayId, STEPS, Status, Task, TaskId};
use crate::store::{Store, StoreError, put};
use crate::tags::TAGS;
use crate::{admission, arrays};
use disbatch_metrics::labels::RetriedBy;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// For those that it comes after, if it has not waited for them to the end, and for its locks.
    New,
    Array(ArrayId),
    Admission,
}

impl Gate {
    const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Array(_) => arrays::GATE,
            Self::Admission => admission::GATE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    Queued,
    /// It is blocked again: it waits for its locks, for those that it comes after and has not waited for to the end, for the
    /// elements of its array, or for the rule of admission that holds it.
    Blocked,
    /// It has not ended, or someone else has changed it meanwhile: it is in this status now. A task that has left file sets has
    /// ended only when a majority of the servers knows it.
    NotEnded(Status),
    /// A task of the queue with the same `unique` key has not ended; this one, unless it has since.
    NotUnique(Option<TaskId>),
    /// It was refused by the inbox: there is nothing of it but its parameters.
    Refused,
    NoSuchTask,
}

impl Retried {
    pub const NOT_UNIQUE: &str = "a task of the queue with the same unique key has not ended";

    pub const WAS_REFUSED: &str = "the inbox has refused the task: submit another one";
}

/// Whether a task may be tried again as far as its key goes.
enum Wish {
    /// As long as it has this mark, if it has a key.
    Granted(Option<ObjectId>),
    Taken(TaskId),
    Changed,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Again {
    pub params: Option<Document>,
    /// Those that it waits for besides what it has left to wait for.
    pub waits_for: Vec<ObjectId>,
}

impl Store {
    /// The same with other parameters. The caller has checked them.
    #[operation(task = %id)]
    pub async fn retry_with(&self, id: TaskId, params: Document, note: &str) -> Result<Retried, StoreError> {
        Box::pin(self.retry_as(id, note, Again { params: Some(params), ..Again::default() })).await
    }

    /// The same with an element of an array, whose parameter `key` stays what it is for.
    #[operation(task = %id)]
    pub async fn retry_element(
        &self,
        id: TaskId,
        (key, mut params): (&str, Document),
        note: &str,
    ) -> Result<Retried, StoreError> {
        let task = self.find_task_fields(id, doc! { "array": 1 }).await?.unwrap_or_default();
        let Ok(place) = task.get_document("array") else { return Ok(Retried::NoSuchTask) };
        params.extend(
            place.get("value").or_else(|| place.get("index")).map(|item| (key.to_owned(), item.clone())),
        );
        Box::pin(self.retry_as(id, note, Again { params: Some(params), ..Again::default() })).await
    }

    /// Queues an ended task again (-3, -5, -6 or final -> -2) with all its attempts before it. Its output and
    /// result are kept in `tasks.attempts`. One with locks, or that was cancelled while it waited for others, goes to its
    /// gates instead (-> -4), and so does one that was held and that a rule of admission still holds. One that comes after all elements of an array
    /// waits for them once more, and the array is open again. Those that wait for it wait for its next end, of which its
    /// schedule is told, too.
    ///
    /// Of two who retry the same task at the same time, one does it.
    #[operation(task = %id)]
    pub async fn retry_task(&self, id: TaskId, note: &str) -> Result<Retried, StoreError> {
        Box::pin(self.retry_as(id, note, Again::default())).await
    }

    pub(super) async fn retry_as(&self, id: TaskId, note: &str, again: Again) -> Result<Retried, StoreError> {
        let Some(task) = self.find_task(id).await? else { return Ok(Retried::NoSuchTask) };
        if !task.status.has_ended() {
            return Ok(Retried::NotEnded(task.status));
        }
        if task.rest.contains_key(REFUSED) {
            return Ok(Retried::Refused);
        }
        // While the task still tells how its run has ended.
        if !self.settle_all_filesets(id).await? {
            // A majority of the servers has not heard of its end, which would be lost with the primary.
            return Ok(Retried::NotEnded(Status::Running));
        }
        let gate = self.gate_of_retried(&task).await?;
        let gate = gate.or((!again.waits_for.is_empty()).then_some(Gate::New));
        if let Some(Gate::Array(array)) = gate
            && Box::pin(self.reopen_array(array)).await? == Reopened::Busy
        {
            // Before the task waits for it: else it would wait for ever if this process died in between.
            return Ok(Retried::NotEnded(task.status));
        }
        let mark = match self.wish_for_key(&task).await? {
            Wish::Granted(mark) => mark,
            Wish::Taken(other) => return Ok(Retried::NotUnique(Some(other))),
            Wish::Changed => return self.not_retried(id).await,
        };
        let kept = self.keep_outcome(&task).await?;
        // A task of Perl's has no number; what it did was its first attempt all the same.
        let attempt = task.attempt().unwrap_or(0).max(1);
        let mut filter = doc! {
            "_id": id, "status": task.status, "attempt": task.rest.get("attempt").cloned(),
            "mtime": task.mtime.clone(),
        };
        put(&mut filter, WANTS_KEY, mark);
        let status = gate.map_or(Status::Queued, |_| Status::Blocked);
        let update = self.begin_again(&task, (status, gate, attempt), again).await?.note(note);
        let changed = self.tasks().update_one(filter, update.pipeline()).await.map_err(StoreError::from);
        if let Ok(result) = &changed
            && result.matched_count == 1
        {
            let retried = self.retried(&task, status).await;
            if let Some(Gate::Array(array)) = gate {
                Box::pin(self.keep_open(array)).await?;
            }
            return Ok(retried);
        }
        if kept {
            self.forget_attempt((id, attempt), None).await?;
        }
        if let Some(mark) = mark {
            self.forget_wish(id, mark).await?;
        }
        if let Ok(unique) = task.rest.get_str("unique") {
            let other = self.find_unique(task.queue, unique).await?.filter(|other| *other != id);
            // The index of an earlier release.
            if other.is_some() || changed.as_ref().is_err_and(StoreError::is_duplicate_key) {
                return Ok(Retried::NotUnique(other));
            }
        }
        changed.inspect_err(|_| self.doubt_counters())?;
        self.not_retried(id).await
    }

    /// Opens an array once more if it is done: whoever has a task wait for it may have stood still since it was opened, and nobody looks at one
    /// that is done.
    async fn keep_open(&self, array: ArrayId) -> Result<(), StoreError> {
        loop {
            let done = doc! { "_id": array, "state": "done" };
            let is_open = self.arrays().find_one(done).projection(doc! { "_id": 1 }).await?.is_none();
            if is_open || self.reopen_array(array).await? != Reopened::Busy {
                return Ok(());
            }
        }
    }

    /// Counts a task that waits again, and has it look at once whether it has to.
    async fn retried(&self, task: &Task, status: Status) -> Retried {
        self.moved(task.queue, Some(task.status), Some(status), 1);
        self.metrics().queues.of(task.queue.0.bytes()).retried.of(RetriedBy::Person).inc();
        if status == Status::Blocked {
            self.link_at_once(&[task.id]).await;
            return Retried::Blocked;
        }
        Retried::Queued
    }

    pub(super) async fn not_retried(&self, id: TaskId) -> Result<Retried, StoreError> {
        let status = self.find_task(id).await?.map(|task| task.status);
        Ok(status.map_or(Retried::NoSuchTask, Retried::NotEnded))
    }

    /// Has the key of an ended task name it again, if it has one: see [`crate::keys`].
    async fn wish_for_key(&self, task: &Task) -> Result<Wish, StoreError> {
        let Some(key) = Key::unique(task.queue, &task.rest) else { return Ok(Wish::Granted(None)) };
        let mark = ObjectId::new();
        let same = doc! { "_id": task.id, "status": task.status, "mtime": task.mtime.clone() };
        let wish = doc! { "$set": { WANTS_KEY: mark } };
        if self.tasks().update_one(same, wish).await?.matched_count == 0 {
            return Ok(Wish::Changed);
        }
        match self.hold_key(&key, task.id, mark).await {
            Ok(Hold::Held) => Ok(Wish::Granted(Some(mark))),
            Ok(Hold::Taken(other)) => {
                self.forget_wish(task.id, mark).await?;
                Ok(Wish::Taken(other))
            }
            Err(error) => Err(error),
        }
    }

    async fn forget_wish(&self, task: TaskId, mark: ObjectId) -> Result<(), StoreError> {
        let marked = doc! { "_id": task, WANTS_KEY: mark };
        self.tasks().update_one(marked, doc! { "$unset": { WANTS_KEY: "" } }).await?;
        Ok(())
    }

    async fn begin_again(
        &self,
        task: &Task,
        (status, gate, attempt): (Status, Option<Gate>, i64),
        again: Again,
    ) -> Result<Transition, StoreError> {
        let is_scheduled = doc! { "$ne": [{ "$type": "$schedule" }, "missing"] };
        let of_run =
            ["complete", "result", "progress", "exit", "failures", "cancel", "started", "run_at", "again"];
        let mut update = Transition::to(status, self.now())
            .without_node()
            .with_dependents()
            .compute("unsettled", doc! { "$cond": [is_scheduled, true, "$$REMOVE"] })
            .set("stdout", Bson::Null)
            .set("stderr", Bson::Null)
            .set("attempt", attempt)
            .compute(STEPS, queued())
            .end_of_run()
            .unset_all(of_run)
            .unset_all(COMMAND_FIELDS)
            .unset_all([ERROR, WANTS_KEY, BORN, ANSWER, AWAITING]);
        if gate != Some(Gate::Admission) {
            update = update.unset(admission::HELD);
        }
        if let Some(gate) = gate {
            update = update.blocked_anew().set("gate", gate.as_str()).unset("stood_down");
            if gate == Gate::New {
                // A task that was held until it was cancelled has not been linked to those that it comes after.
                let after = doc! { "$ifNull": ["$after", "$$REMOVE"] };
                update = update.compute("waiting_for", doc! { "$ifNull": ["$waiting_for", after] });
            }
        }
        // The elements of an array are counted, and not waited for one by one.
        if !again.waits_for.is_empty() && !matches!(gate, None | Some(Gate::Array(_))) {
            let left = doc! { "$ifNull": ["$waiting_for", { "$ifNull": ["$after", []] }] };
            update = update.compute("waiting_for", doc! { "$setUnion": [left, again.waits_for] });
        }
        if let Some(params) = again.params {
            let tags = self.tags_with(task, &params).await?;
            update = update.set("params", params).unset("parameters");
            update = if tags.is_empty() { update.unset(TAGS) } else { update.set(TAGS, tags) };
        }
        Ok(update)
    }

    /// Where an ended task goes that is tried again. `None`: to its queue.
    async fn gate_of_retried(&self, task: &Task) -> Result<Option<Gate>, StoreError> {
        if let Ok(array) = task.rest.get_object_id("final_of")
            && self.find_array(ArrayId(array)).await?.is_some()
        {
            return Ok(Some(Gate::Array(ArrayId(array))));
        }
        if self.is_still_held(task).await? {
            return Ok(Some(Gate::Admission));
        }
        let has_some =
            |field: &str| task.rest.get(field).and_then(Bson::as_array).is_some_and(|all| !all.is_empty());
        let is_linked = task.rest.contains_key("waiting_for");
        let waits = has_some("waiting_for") || has_some("locks") || (!is_linked && has_some("after"));
        Ok(waits.then_some(Gate::New))
    }
}
