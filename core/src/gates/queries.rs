//! What is looked for at the gates. Each is found by one entry of an index that has nothing else.

use bson::{Document, doc};

use super::LOCKS;
use crate::model::Status;
use crate::store::collections::TASKS;

/// Blocked tasks that nobody has looked at yet.
pub(super) fn new_ones() -> Document {
    doc! { "status": Status::Blocked, "gate": "new" }
}

/// Ended tasks that others wait for who have not been told. There are two parts of them, as statuses are.
pub(super) fn ended_parents() -> [Document; 2] {
    [
        doc! { "dependents": true, "status": { "$in": [-6, -5, -3] } },
        doc! { "dependents": true, "status": { "$gte": 1 } },
    ]
}

/// Tasks that may be named as holders of locks, and hold them no more: those in any status but that of a task that waits, is
/// queued, claimed or runs.
pub(super) fn former_holders() -> Document {
    doc! { "holds_locks": true, "status": { "$nin": [-4, -2, -1, 0] } }
}

/// Locks at which something has changed.
pub(super) fn dirty_locks() -> Document {
    doc! { "dirty": true }
}

/// Where there is something to do if any document matches: collections and filters.
pub(crate) fn to_look_at() -> Vec<(&'static str, Document)> {
    let [ended, finished] = ended_parents();
    vec![
        (TASKS.name, new_ones()),
        (TASKS.name, ended),
        (TASKS.name, finished),
        (TASKS.name, former_holders()),
        (LOCKS, dirty_locks()),
    ]
}
