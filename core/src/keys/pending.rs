//! Pending tasks: new ones whose keys do not name them yet.

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;

use super::hold::{Holder, key_document};
use super::{BORN, GATE, Hold, Key};
use crate::model::{Status, TaskId, whole_number};
use crate::store::{Store, StoreError};

/// What became of a pending task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is what it was to be, or more has become of it since.
    GoesOn,
    /// It is removed: this task has its key.
    Refused(TaskId),
}

/// A new task as it is until its key names it.
pub(crate) fn pending(mut task: Document) -> Document {
    let mut born = Document::new();
    for (field, value) in [("status", Bson::from(Status::Blocked)), ("gate", Bson::from(GATE))] {
        if let Some(own) = task.insert(field, value) {
            born.insert(field, own);
        }
    }
    task.insert(BORN, born);
    task
}

/// Whether a task is pending.
pub(crate) fn is_pending(task: &Document) -> bool {
    let status = task.get("status").and_then(whole_number);
    status == Some(Status::Blocked.code()) && task.get_str("gate").ok() == Some(GATE)
}

/// Matches pending tasks.
pub(super) fn all_pending() -> Document {
    doc! { "status": Status::Blocked, "gate": GATE }
}

/// Matches all others.
pub(crate) fn not_pending() -> Document {
    doc! { "$nor": [all_pending()] }
}

impl Store {
    /// Has a pending task go on if it has the key, and removes it if another one has.
    ///
    /// # Errors
    /// The database cannot be reached: a DEN settles it then. Or this user has no right to keys: the task is removed.
    pub(crate) async fn settle_pending(&self, task: TaskId, key: &Key) -> Result<Settled, StoreError> {
        // Another hold each time: two who settle the same must not bring back one that somebody else has read.
        let other = match self.hold_key(key, task, ObjectId::new()).await {
            Ok(Hold::Held) => None,
            Ok(Hold::Taken(other)) => Some(other),
            Err(error) => {
                if error.is_forbidden() {
                    self.remove_pending(&[task.0]).await?;
                }
                return Err(error);
            }
        };
        let is_done = match other {
            None => self.let_go_on(&[task.0]).await? == 1,
            Some(_) => self.remove_pending(&[task.0]).await? == 1,
        };
        let is_there = if is_done {
            other.is_none()
        } else {
            // Somebody else was faster, whatever they found, and may have counted it.
            self.doubt_counters();
            self.find_task_fields(task, doc! { "_id": 1 }).await?.is_some()
        };
        match other {
            _ if is_there => Ok(Settled::GoesOn),
            Some(other) => Ok(Settled::Refused(other)),
            None => {
                Err(StoreError::Unconfirmed { reason: "a new task was removed by somebody else".to_owned() })
            }
        }
    }

    /// Makes those of the pending tasks what they are to be whose keys name them. Returns how many there were.
    pub(crate) async fn let_go_on(&self, tasks: &[ObjectId]) -> Result<u64, StoreError> {
        let born = |field: &str, otherwise: Bson| doc! { "$ifNull": [format!("${BORN}.{field}"), otherwise] };
        let update = vec![doc! { "$set": {
            "status": born("status", Status::Queued.into()), "gate": born("gate", "$$REMOVE".into()), BORN: "$$REMOVE",
        } }];
        Ok(self.tasks().update_many(among(tasks), update).await?.matched_count)
    }

    /// Removes those of these tasks that are pending. Returns how many there were.
    pub(crate) async fn remove_pending(&self, tasks: &[ObjectId]) -> Result<u64, StoreError> {
        let removed = self.tasks().delete_many(among(tasks)).await?.deleted_count;
        if removed > 0 {
            // Others may wait for one by now: it was to be seen.
            let gone: Vec<Bson> = tasks.iter().copied().map(Bson::from).collect();
            self.ask_dependents_again(&gone).await?;
        }
        Ok(removed)
    }

    /// Has keys that nobody has name pending tasks, all at once. Returns the places of those that others have, or have had.
    /// Whether tasks count that no key names is not looked at.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to keys and nothing else keeps their tasks apart.
    pub(crate) async fn take_free_keys(&self, new: &[(Key, TaskId)]) -> Result<BTreeSet<usize>, StoreError> {
        let documents =
            new.iter().map(|(key, task)| key_document(key, Holder { task: task.0, hold: task.0 }));
        let inserted = match self.keys().insert_many(documents).ordered(false).await {
            Ok(_) => Ok(BTreeSet::new()),
            Err(error) => duplicates(error),
        };
        match inserted {
            Err(error) if error.is_forbidden() => match new.first() {
                Some((key, _)) if !self.keeps_apart(key.former_index()).await? => Err(error),
                _ => Ok(BTreeSet::new()),
            },
            inserted => inserted,
        }
    }
}

fn among(tasks: &[ObjectId]) -> Document {
    let mut among = doc! { "_id": { "$in": tasks } };
    among.extend(all_pending());
    among
}

/// Which of several documents were there already, if that is all that was wrong.
pub(crate) fn duplicates(error: mongodb::error::Error) -> Result<BTreeSet<usize>, StoreError> {
    if let ErrorKind::InsertMany(many) = error.kind.as_ref()
        && many.write_concern_error.is_none()
        && let Some(failures) = &many.write_errors
        && failures.iter().all(|failure| failure.code == 11_000)
    {
        return Ok(failures.iter().map(|failure| failure.index).collect());
    }
    Err(error.into())
}
