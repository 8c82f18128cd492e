//! Which queues somebody may see, where tasks of any queue are mentioned.

use std::collections::HashSet;

use bson::{Bson, Document};
use disbatch_core::accounts::Reach;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::store::{Store, StoreError};

/// Fields of a task that have ids of others.
const LINKS: [&str; 2] = ["after", "waiting_for"];

/// The queues whose tasks somebody may see. Others are mentioned as tasks of another queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Those of all, and of none.
    All,
    /// Those of these.
    Only(HashSet<QueueId>),
}

impl Sight {
    /// What they see whose rights reach so far.
    pub async fn of(store: &Store, reach: &Reach) -> Result<Self, StoreError> {
        let Reach::Some { queues, only, .. } = reach else { return Ok(Self::All) };
        let there = store.queues_within(reach).await?;
        // A queue that was deleted may still have tasks.
        let is_allowed = |queue: &&QueueId| only.as_ref().is_none_or(|only| only.contains(*queue));
        let named = queues.iter().filter(is_allowed).copied();
        Ok(Self::Only(there.iter().map(|queue| queue.id).chain(named).collect()))
    }

    /// Whether they see tasks of this queue.
    pub fn sees(&self, queue: Option<QueueId>) -> bool {
        match self {
            Self::All => true,
            Self::Only(queues) => queue.is_some_and(|queue| queues.contains(&queue)),
        }
    }

    /// Takes out of a task the ids of others that they may not see. Of which queue one was that is gone is not known.
    pub async fn conceal(&self, store: &Store, task: &mut Document) -> Result<(), StoreError> {
        let named: Vec<TaskId> = match self {
            Self::All => return Ok(()),
            Self::Only(_) => LINKS.iter().filter_map(|name| task.get(name)).flat_map(ids).collect(),
        };
        if named.is_empty() {
            return Ok(());
        }
        let queues = store.queues_of_tasks(&named).await?;
        for name in LINKS {
            if let Some(Bson::Array(items)) = task.get_mut(name) {
                let is_seen =
                    |item: &Bson| ids(item).iter().all(|id| self.sees(queues.get(id).copied().flatten()));
                items.retain(is_seen);
            }
        }
        Ok(())
    }
}

/// The ids in the value of a field.
fn ids(value: &Bson) -> Vec<TaskId> {
    match value {
        Bson::ObjectId(id) => vec![TaskId(*id)],
        Bson::Array(items) => items.iter().flat_map(ids).collect(),
        _ => Vec::new(), // Nothing else is an id.
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_task_of_no_queue_is_for_those_who_see_all() {
        let [mine, other] = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let some = Sight::Only(HashSet::from([mine]));
        assert!(some.sees(Some(mine)) && !some.sees(Some(other)) && !some.sees(None));
        assert!(Sight::All.sees(None) && Sight::All.sees(Some(other)));
    }
}
