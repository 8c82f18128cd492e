//! Held tasks: blocked (-4) at the gate `admission`, as a rule held them when they were submitted. They go on as soon as no
//! rule does any more, each by one update on the condition that it is still held and that no rule is about it.

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::transition::Transition;
use crate::admission::{GATE, HELD, Rules};
use crate::model::Status;
use crate::store::{Store, StoreError};

/// So many tasks are released at once.
const AT_ONCE: i64 = 1_000;

impl Store {
    /// Releases those tasks that no rule of admission holds any more: to their queue (-2), to their time (-7), or to the gates
    /// that they have to pass. Which these are is decided by all rules together, so a task that two rules held goes on when
    /// neither does. Any number of processes may do so at once. Returns how many were released.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the user. What was released by then goes on.
    #[operation]
    pub async fn release_held(&self) -> Result<u64, StoreError> {
        self.release_held_of(&doc! {}).await
    }

    /// The same for those held tasks that `whose` finds.
    pub(crate) async fn release_held_of(&self, whose: &Document) -> Result<u64, StoreError> {
        let (mut released, mut last) = (0, None);
        let mut rules = self.stored_rules().await?;
        loop {
            let found = self.held_in_vain(&rules, whose, last).await?;
            last = found.last().copied();
            if last.is_none() {
                return Ok(released);
            }
            // Whoever has inserted them knew the rule that holds them. If these rules do not have it, it was lifted.
            rules = self.stored_rules().await?;
            released += self.release_those(&found, &rules).await?;
        }
    }

    /// Some of the tasks that are held and that these rules do not hold: those behind `last`, in the order of their ids.
    async fn held_in_vain(
        &self,
        rules: &Rules,
        whose: &Document,
        last: Option<ObjectId>,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let mut filter = held();
        filter.extend(rules.accepted());
        if !whose.is_empty() {
            filter.insert("$and", vec![whose.clone()]);
        }
        if let Some(last) = last {
            filter.insert("_id", doc! { "$gt": last });
        }
        let tasks = self.tasks();
        let found =
            tasks.find(filter).projection(doc! { "_id": 1 }).sort(doc! { "_id": 1 }).limit(AT_ONCE).await?;
        let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        Ok(found.iter().filter_map(|task| task.get_object_id("_id").ok()).collect())
    }

    async fn release_those(&self, ids: &[ObjectId], rules: &Rules) -> Result<u64, StoreError> {
        let mut free = held();
        free.extend(rules.accepted());
        free.insert("_id", doc! { "$in": ids });
        let to = |status: Status| {
            let free = Transition::to(status, self.now()).without_node().unset(HELD);
            free.note("no rule of admission holds it any more")
        };
        // A task that is linked to those that it comes after only now waits for all of them; one that is tried again for those
        // that it has not waited for to the end.
        let unsettled = doc! { "$ifNull": ["$waiting_for", "$after"] };
        let to_gate = to(Status::Blocked).blocked_anew();
        let behind = to_gate.clone().compute("waiting_for", unsettled).pipeline();
        let mut released = self.move_all(with(&free, of_others(true)), &behind, Status::Blocked).await?;
        let mut alone = free;
        alone.extend(of_others(false));
        let moves = [
            (doc! { "$expr": is_to_come() }, to(Status::Deferred).end_of_block(), Status::Deferred),
            (has_locks(true), to_gate, Status::Blocked),
            (has_locks(false), to(Status::Queued).end_of_block(), Status::Queued),
        ];
        for (which, transition, status) in moves {
            released += self.move_all(with(&alone, which), &transition.pipeline(), status).await?;
        }
        Ok(released)
    }
}

/// Tasks that are held.
fn held() -> Document {
    doc! { "status": Status::Blocked, "gate": GATE }
}

fn with(filter: &Document, more: Document) -> Document {
    let mut filter = filter.clone();
    filter.extend(more);
    filter
}

/// Tasks that come after others, or do not.
fn of_others(others: bool) -> Document {
    doc! { "after.0": { "$exists": others } }
}

/// Tasks that may start, and have locks, or have none.
fn has_locks(locks: bool) -> Document {
    doc! { "locks.0": { "$exists": locks }, "$expr": { "$not": [is_to_come()] } }
}

/// A condition: the task is not to start yet.
fn is_to_come() -> Document {
    doc! { "$gt": ["$run_at", "$$NOW"] }
}
