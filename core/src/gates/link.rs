//! New blocked tasks: those that they come after get a mark, then it is looked how these are.

use std::collections::{BTreeSet, HashMap};

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::apply::{Way, released, status_of};
use super::blocked::{Blocked, waits_for_none};
use super::queries;
use super::{Parts, Passed};
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError};

/// So many tasks are linked at once.
const AT_ONCE: usize = 500;

/// To so many others at most.
const PARENTS: usize = 20_000;

/// How many steps a task takes at most until it waits for something, or for nothing: to those that it comes after, and from
/// there to its locks.
const STEPS: usize = 3;

impl Store {
    /// Links tasks that were made or blocked just now. If that fails, a DEN does it.
    pub(crate) async fn link_at_once(&self, tasks: &[TaskId]) {
        for batch in tasks.chunks(AT_ONCE) {
            let ids: Vec<ObjectId> = batch.iter().map(|task| task.0).collect();
            for _ in 0..STEPS {
                match self.link(doc! { "_id": { "$in": &ids } }).await {
                    Ok(passed) if passed.more => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, tasks = tasks.len(), "cannot link blocked tasks: a DEN does it");
                        return;
                    }
                }
            }
        }
    }

    /// Links tasks that nobody has linked yet.
    pub(super) async fn link_new(&self) -> Result<Passed, StoreError> {
        let mut parts = Parts::default();
        parts.note(self.link(Document::new()).await)?;
        if parts.is_forbidden() {
            // Those that cannot go to their locks are not in the way of others.
            let others =
                [doc! { "waiting_for.0": { "$exists": true } }, doc! { "locks.0": { "$exists": false } }];
            parts.note(self.link(doc! { "$or": others.to_vec() }).await)?;
        }
        parts.end()
    }

    async fn link(&self, only: Document) -> Result<Passed, StoreError> {
        let mut filter = queries::new_ones();
        filter.extend(only);
        let found = self.blocked(filter, i64::try_from(AT_ONCE).unwrap_or(i64::MAX)).await?;
        let (waiting, others): (Vec<Blocked>, Vec<Blocked>) =
            found.into_iter().partition(|task| !task.waiting_for.is_empty());
        let mut parts = Parts::default();
        parts.note(self.link_to_parents(&waiting).await)?;
        parts.note(self.pass_on(others).await)?;
        parts.end()
    }

    async fn link_to_parents(&self, waiting: &[Blocked]) -> Result<Passed, StoreError> {
        let mut parents = BTreeSet::new();
        let mut linked = 0;
        for task in waiting {
            if linked > 0 && parents.len() + task.waiting_for.len() > PARENTS {
                break;
            }
            parents.extend(task.waiting_for.iter().copied());
            linked += 1;
        }
        let Some(waiting) = waiting.get(..linked).filter(|waiting| !waiting.is_empty()) else {
            return Ok(Passed::default());
        };
        let parents: Vec<ObjectId> = parents.into_iter().collect();
        // Before they are looked at, and known to a majority, as is all that was written before: also that they are there.
        let unmarked = doc! { "_id": { "$in": &parents }, "dependents": { "$ne": true } };
        self.update_found(unmarked, doc! { "$set": { "dependents": true } }).await?;
        let states = self.parent_states(&parents).await?;
        self.apply("new", waiting, &states).await
    }

    /// Lets tasks go on that wait for no other.
    async fn pass_on(&self, tasks: Vec<Blocked>) -> Result<Passed, StoreError> {
        let now = self.time_for(&tasks).await?;
        let mut parts = Parts::default();
        let mut groups: HashMap<(Way, Option<QueueId>), Vec<Bson>> = HashMap::new();
        let mut to_locks = Vec::new();
        for task in tasks {
            match Way::of(&task, now) {
                Way::Locks => to_locks.push(task),
                way => groups.entry((way, task.queue)).or_default().push(task.id.into()),
            }
        }
        for ((way, queue), ids) in groups {
            let still = doc! { "status": Status::Blocked, "gate": "new", "waiting_for": waits_for_none() };
            let update = released(self, way).note("it waits for nothing");
            let released = self.unblock((ids, still), update, queue, status_of(way)).await;
            let passed = |released| Passed { released, more: released > 0, ..Passed::default() };
            parts.note(released.map(passed))?;
        }
        parts.note(self.enter_locks(&to_locks).await)?;
        parts.end()
    }
}
