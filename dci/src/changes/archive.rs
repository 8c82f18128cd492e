//! One task that goes to the archive. For many there are bulk jobs.

use bson::doc;
use disbatch_core::audit::{AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::{QueueId, Status, TaskId, whole_number};
use disbatch_core::store::{Store, StoreError};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchivedOne {
    /// It is in the archive now.
    Archived,
    /// It was there before.
    Before,
    NotEnded(Status),
    /// Others wait for it, and have not been told yet that it has ended.
    Awaited,
    /// There is no such task.
    NoSuchTask,
}

/// Moves a task that has ended to the archive.
pub async fn archive_task(state: &State, who: &Who, id: TaskId) -> Result<ArchivedOne, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let before = look(&store, id).await?;
        let Look::Ended(queue) = before else { return Ok::<ArchivedOne, StoreError>(before.outcome()) };
        if store.archive_tasks(&[id]).await?.moved == 0 {
            // Somebody else was faster with it, or with something else.
            return Ok(look(&store, id).await?.outcome());
        }
        let entry = AuditEntry::new(who, Verb::TaskArchive, Object::with_id(ObjectKind::Task, id.0));
        store.note_audit(&AuditEntry { queue, ..entry }).await;
        Ok(ArchivedOne::Archived)
    };
    to_the_end(state, change).await
}

/// Where a task is.
enum Look {
    /// It has ended, and is still among the others.
    Ended(Option<QueueId>),
    /// It has not.
    Live(Status),
    Archived,
    /// There is none.
    Absent,
}

impl Look {
    fn outcome(self) -> ArchivedOne {
        match self {
            Self::Ended(_) => ArchivedOne::Awaited,
            Self::Live(status) => ArchivedOne::NotEnded(status),
            Self::Archived => ArchivedOne::Before,
            Self::Absent => ArchivedOne::NoSuchTask,
        }
    }
}

async fn look(store: &Store, id: TaskId) -> Result<Look, StoreError> {
    let fields = doc! { "queue": 1, "status": 1, "archived": 1 };
    let Some(task) = store.find_task_fields(id, fields).await? else { return Ok(Look::Absent) };
    if task.contains_key("archived") {
        return Ok(Look::Archived);
    }
    let status = Status::from_code(task.get("status").and_then(whole_number).unwrap_or_default());
    let queue = task.get_object_id("queue").ok().map(QueueId);
    Ok(if status.has_ended() { Look::Ended(queue) } else { Look::Live(status) })
}
