//! An array is submitted as one: its document first, which has all that its tasks are made of, then the tasks.

use disbatch_operation::operation;
use std::slice;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::idempotency::{Note, id_of};
use super::{Once, SubmitError, TaskOptions, within_budget};
use crate::admission::Admitted;
use crate::arrays::{Array, FinalTask, GATE, NewArray, final_id, first_lease, lock_of, new_id, new_rev};
use crate::budget::{OverBudget, size_of_field};
use crate::gates::{LockMode, LockRequest};
use crate::model::{ArrayId, QueueId, Status};
use crate::store::{Store, StoreError, Stored, put};
use crate::tags::{self, TagIndex};

#[derive(Debug, Clone, PartialEq)]
pub struct SubmittedArray {
    pub array: Array,
    pub is_repetition: bool,
}

impl Store {
    /// Creates an array of tasks in `queue`, with a key once. Its document is there before its tasks are: should this process
    /// die in between, a DEN inserts the rest.
    #[operation(queue = %queue, elements = array.items.count())]
    pub async fn submit_array(
        &self,
        queue: QueueId,
        array: &NewArray,
        options: &TaskOptions,
        once: Option<&Once>,
    ) -> Result<SubmittedArray, SubmitError> {
        check(array, options)?;
        let note = match self.noted_array(queue, once).await? {
            (Some(note), true) => note,
            (noted, _) => self.make_array(queue, noted, array, options, once).await?,
        };
        let id = id_in(&note)?;
        self.fill_array(id).await?;
        if once.is_some() {
            self.mark_done(&note.id, &[id.0]).await?;
        }
        let made = self.find_array(id).await?.ok_or(SubmitError::AnotherRequest)?;
        Ok(SubmittedArray { array: made, is_repetition: note.done })
    }

    /// Makes an array if it is admitted. As long as there is none nothing is reserved for it, whatever is noted, so whoever
    /// completes a submission is asked about as the first one was. Returns the note of the array.
    async fn make_array(
        &self,
        queue: QueueId,
        noted: Option<Note>,
        array: &NewArray,
        options: &TaskOptions,
        once: Option<&Once>,
    ) -> Result<Note, SubmitError> {
        if noted.is_none() {
            // Not when a half-done submission is completed: what it came after was there when it began.
            self.check_after(options, usize::try_from(array.items.count()).unwrap_or(usize::MAX)).await?;
        }
        let tasks = array.items.count().saturating_add(u32::from(array.last.is_some()));
        let tasks = usize::try_from(tasks).unwrap_or(usize::MAX);
        let admitted = match self.admit(queue, options, tasks).await {
            Ok(admitted) => admitted,
            // It may be the same request that there is no room beside.
            Err(refused) => {
                let (noted, is_there) = self.noted_array(queue, once).await?;
                return noted.filter(|_| is_there).ok_or(refused);
            }
        };
        let new = |id: Bson| Note::new(id, vec![new_id().0]);
        let note = match (noted, once) {
            (Some(note), _) => Ok(note),
            (None, Some(once)) => self.take_note(queue, once, new(id_of(queue, once.key()).into())).await,
            (None, None) => Ok(new(Bson::Null)),
        };
        let (id, note) = match note.and_then(|note| Ok((id_in(&note)?, note))) {
            Ok(noted) => noted,
            Err(error) => return self.conclude(admitted, Err(error)).await,
        };
        match self.insert_array((id, queue), array, options, &admitted).await {
            Ok(true) => {
                let filled = self.fill_array(id).await.map_err(SubmitError::from);
                self.conclude(admitted, filled.map(|()| note)).await
            }
            Ok(false) => {
                // Somebody else has made it at the same moment, and has reserved what it takes.
                self.retract(&admitted).await;
                Ok(note)
            }
            Err(error) => self.conclude(admitted, Err(error)).await,
        }
    }

    /// The note of the same request, and whether its array is there.
    async fn noted_array(
        &self,
        queue: QueueId,
        once: Option<&Once>,
    ) -> Result<(Option<Note>, bool), SubmitError> {
        let Some(once) = once else { return Ok((None, false)) };
        let Some(note) = self.find_note(queue, once).await? else { return Ok((None, false)) };
        let is_there = self.find_array(id_in(&note)?).await?.is_some();
        Ok((Some(note), is_there))
    }

    /// Returns whether the array was not there yet.
    async fn insert_array(
        &self,
        (id, queue): (ArrayId, QueueId),
        array: &NewArray,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<bool, SubmitError> {
        let template = self.element_template((id, queue), array, options, admitted).await?;
        let now = self.server_time().await?;
        let mut document = doc! {
            "_id": id, "queue": queue, "words": array.items.words(), "count": i64::from(array.items.count()),
            "key": &array.key, "state": "open", "work": true, "filling": true, "next_index": 0_i64,
            "items": array.items.document(), "params": array.params.clone(), "rev": new_rev(),
            "created": now, "lease_until": first_lease(now), "owner": options.owner.clone(),
            "tenant": template.get("tenant").cloned(), "template": template,
        };
        put(&mut document, "cap", array.cap.map(i64::from));
        if admitted.tag_index != TagIndex::default() {
            document.insert(tags::INDEX, admitted.tag_index.paths());
        }
        if let Some(last) = &array.last {
            let task = self.final_task((id, queue), last, options, admitted).await?;
            document.extend(doc! { "final": final_id(id), "final_when": last.when.as_str(), "last": task });
        }
        let inserted = self.arrays().insert_one(Stored::from(document)).await;
        Ok(StoreError::unless_duplicate(inserted)?.is_some())
    }

    async fn element_template(
        &self,
        (id, queue): (ArrayId, QueueId),
        array: &NewArray,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Document, SubmitError> {
        let mut locks = options.locks.clone();
        if let Some(cap) = array.cap.filter(|cap| *cap < array.items.count()) {
            locks.push(LockRequest::internal(lock_of(id), LockMode::Places(cap)));
            locks.sort_by(|a, b| a.name().cmp(b.name()));
        }
        let options = TaskOptions { locks, unique: None, chain: false, ..options.clone() };
        let template = self.template(queue, &options, 1).await?;
        let mut task = template.task(ObjectId::new(), Document::new());
        admitted.mark(slice::from_mut(&mut task));
        for of_each in ["_id", "params", "ctime", "mtime"] {
            task.remove(of_each);
        }
        Ok(task)
    }

    /// The task that comes after all elements. It is blocked until then.
    async fn final_task(
        &self,
        (id, queue): (ArrayId, QueueId),
        last: &FinalTask,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Document, SubmitError> {
        // What the elements wait for has come by then.
        let options = TaskOptions {
            start: None,
            unique: None,
            after: Vec::new(),
            chain: false,
            steps: Vec::new(),
            files: None,
            ..options.clone()
        };
        let template = self.template(queue, &options, 1).await?;
        let mut task = template.task(final_id(id).0, last.params.clone());
        task.extend(doc! { "status": Status::Blocked, "gate": GATE, "final_of": id });
        admitted.mark(slice::from_mut(&mut task));
        Ok(task)
    }
}

/// Sees to it that its tasks can go through their whole life, and that there is room for all that they are made of in the document of
/// the array.
fn check(array: &NewArray, options: &TaskOptions) -> Result<(), OverBudget> {
    let mut element = array.params.clone();
    let largest = array.items.starting_at(0).max_by_key(|item| size_of_field("", item));
    element.insert(&array.key, largest.unwrap_or(Bson::Null));
    within_budget(options, &[element])?;
    let mut both = array.params.clone();
    if let Some(last) = &array.last {
        within_budget(options, std::slice::from_ref(&last.params))?;
        both.insert(".array_final", last.params.clone());
    }
    within_budget(options, &[both])
}

/// Only an array has a single id under such a request.
fn id_in(note: &Note) -> Result<ArrayId, SubmitError> {
    match note.ids[..] {
        [id, ..] => Ok(ArrayId(id)),
        [] => Err(SubmitError::AnotherRequest),
    }
}
