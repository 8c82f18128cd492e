//! Rerun: an ended task runs again, and those that come after it wait for it again.
//!
//! Tasks are reset one by one, each only when all that it waits for have been: a task that is reset never starts before every one of these
//! has ended again. Each is one conditional update (see [`super::retry`]). Who dies in between leaves tasks that have their old outcome; the same
//! once more goes on with them.

use std::collections::{BTreeMap, BTreeSet};

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_operation::operation;
use serde::{Deserialize, Serialize};

use super::retry::{Again, Retried};
use super::transition::Transition;
use crate::arrays::{self, Array, element_id, final_id};
use crate::model::{ArrayId, QueueId, Status, TaskId};
use crate::store::{Store, StoreError, collect, ids_in, integer};

/// So many tasks that come after one are reset at most.
pub const MOST_DOWNSTREAM: usize = 1_000;

disbatch_values::words! {
    /// Which of the tasks that come after one run again, too.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Downstream {
        #[default]
        None = "none",
        /// Those that have ended without success.
        Failed = "failed",
        All = "all",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    pub id: TaskId,
    pub queue: QueueId,
    pub status: Status,
    /// Those that it is to wait for: the task that runs again, or others that wait for that.
    waits_for: Vec<ObjectId>,
    /// It is to wait for all elements of its array, of which several run again.
    waits_for_array: bool,
}

/// What is to be reset with a task, in the order in which that is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub waiters: Vec<Waiter>,
    /// What would have to be reset, but is about to run or runs, and its queue.
    pub busy: Vec<(TaskId, QueueId)>,
    pub too_many: bool,
}

#[derive(Debug, Clone)]
struct DependentTask {
    queue: QueueId,
    status: Status,
    after: Vec<ObjectId>,
    /// The array whose elements it comes after.
    elements_of: Option<ObjectId>,
    /// The array that it is an element of.
    array: Option<ObjectId>,
}

impl DependentTask {
    fn of(task: &Document) -> Option<(ObjectId, Self)> {
        let found = Self {
            queue: QueueId(task.get_object_id("queue").ok()?),
            status: Status::stored(task)?,
            after: ids_in(task, "after").collect(),
            elements_of: task.get_object_id("final_of").ok(),
            array: task.get_document("array").and_then(|array| array.get_object_id("id")).ok(),
        };
        Some((task.get_object_id("_id").ok()?, found))
    }
}

impl Store {
    /// What is to be reset when a task runs again. Archived tasks stay as they are.
    #[operation(task = %root)]
    pub async fn plan_rerun(&self, root: TaskId, downstream: Downstream) -> Result<Plan, StoreError> {
        if downstream == Downstream::None {
            return Ok(Plan::default());
        }
        let roots: BTreeMap<_, _> = self.linked(doc! { "_id": root.0 }).await?.into_iter().collect();
        let next = self.linked(later(&roots)).await?;
        self.plan_behind(roots, next, downstream).await
    }

    /// The same when those elements of an array run again that `again` finds. Elements are not read that nothing comes after.
    #[operation(array = %array.id)]
    pub async fn plan_array_rerun(
        &self,
        array: &Array,
        again: Document,
        downstream: Downstream,
    ) -> Result<Plan, StoreError> {
        let again = |which: Document| doc! { "$and": [{ "array.id": array.id }, which, again.clone()] };
        if downstream == Downstream::None {
            return Ok(Plan::default());
        }
        let Some(any) = self.tasks().find_one(again(doc! {})).projection(linked_fields()).await? else {
            return Ok(Plan::default());
        };
        let [first, last] = [0, array.count.saturating_sub(1)].map(|place| element_id(array.id, place).0);
        let of_elements = doc! { "$exists": true, "$elemMatch": { "$gte": first, "$lte": last } };
        let behind = doc! { "$or": [{ "after": of_elements }, { "_id": final_id(array.id) }] };
        let mut next = self.linked(behind).await?;
        let named = next.iter().flat_map(|(_, task)| &task.after).copied();
        let named: BTreeSet<ObjectId> = named.filter(|id| (first..=last).contains(id)).collect();
        let named = again(doc! { "_id": { "$in": named.into_iter().collect::<Vec<_>>() } });
        let mut roots: BTreeMap<_, _> = DependentTask::of(&any).into_iter().collect();
        roots.extend(read(collect(self.tasks().find(named).projection(linked_fields())).await?));
        next.retain(|(_, task)| {
            task.elements_of == Some(array.id.0) || task.after.iter().any(|id| roots.contains_key(id))
        });
        let mut plan = self.plan_behind(roots, next, downstream).await?;
        for waiter in plan.waiters.iter_mut().filter(|waiter| waiter.id == final_id(array.id)) {
            waiter.waits_for_array = true;
        }
        Ok(plan)
    }

    /// What comes after `roots`: `next`, and all that comes after that.
    async fn plan_behind(
        &self,
        roots: BTreeMap<ObjectId, DependentTask>,
        mut next: Vec<(ObjectId, DependentTask)>,
        downstream: Downstream,
    ) -> Result<Plan, StoreError> {
        let mut found = BTreeMap::new();
        while !next.is_empty() {
            let new: BTreeMap<_, _> = next.into_iter().collect();
            let behind = later(&new);
            found.extend(new);
            if found.len() > MOST_DOWNSTREAM {
                return Ok(Plan { too_many: true, ..Plan::default() });
            }
            next = self.linked(behind).await?;
            next.retain(|(id, _)| !roots.contains_key(id) && !found.contains_key(id));
        }
        Ok(plan(roots, found, downstream))
    }

    #[operation]
    pub async fn without_noted(&self, plan: &mut Plan, note: &str) -> Result<(), StoreError> {
        let ids: Vec<ObjectId> = plan.waiters.iter().map(|waiter| waiter.id.0).collect();
        let noted = self.linked(doc! { "_id": { "$in": ids }, "history.note": note }).await?;
        plan.waiters.retain(|waiter| !noted.iter().any(|(id, _)| *id == waiter.id.0));
        Ok(())
    }

    async fn linked(&self, filter: Document) -> Result<Vec<(ObjectId, DependentTask)>, StoreError> {
        let most = integer(MOST_DOWNSTREAM + 1);
        let found = collect(self.tasks().find(filter).projection(linked_fields()).limit(most)).await?;
        Ok(read(found).collect())
    }

    /// Resets a task of a plan: whoever has ended is tried again. It waits for these, and for what it has left to wait for.
    #[operation(task = %waiter.id)]
    pub async fn reset_waiter(&self, waiter: &Waiter, note: &str) -> Result<Retried, StoreError> {
        let ids = waiter.waits_for.clone();
        if waiter.status.has_ended() {
            let again = Again { waits_for: ids, ..Again::default() };
            return Box::pin(self.retry_as(waiter.id, note, again)).await;
        }
        let at_a_gate = doc! {
            "_id": waiter.id, "status": Status::Blocked,
            "gate": { "$in": ["new", "after", "locks"] },
        };
        let update = Transition::within().blocked_anew();
        let update = if waiter.waits_for_array {
            update.set("gate", arrays::GATE)
        } else {
            let both = doc! { "$setUnion": [{ "$ifNull": ["$waiting_for", []] }, ids] };
            update.compute("waiting_for", both)
        };
        if self.tasks().update_one(at_a_gate, update.pipeline()).await?.matched_count == 1 {
            self.link_at_once(&[waiter.id]).await;
            return Ok(Retried::Blocked);
        }
        self.not_retried(waiter.id).await
    }
}

fn linked_fields() -> Document {
    doc! { "queue": 1, "status": 1, "after": 1, "final_of": 1, "array.id": 1 }
}

fn read(tasks: Vec<Document>) -> impl Iterator<Item = (ObjectId, DependentTask)> {
    tasks.into_iter().filter_map(|task| DependentTask::of(&task))
}

/// Finds what comes directly after these.
fn later(tasks: &BTreeMap<ObjectId, DependentTask>) -> Document {
    let ids: Vec<ObjectId> = tasks.keys().copied().collect();
    let finals = tasks.values().filter_map(|task| task.array);
    let finals: Vec<TaskId> = finals.map(|array| final_id(ArrayId(array))).collect();
    doc! { "$or": [{ "after": { "$in": ids } }, { "_id": { "$in": finals } }] }
}

fn plan(
    roots: BTreeMap<ObjectId, DependentTask>,
    mut found: BTreeMap<ObjectId, DependentTask>,
    downstream: Downstream,
) -> Plan {
    let mut reset: BTreeSet<ObjectId> = roots.keys().copied().collect();
    let mut done = reset.clone();
    found.extend(roots);
    // Those that a task comes after, as far as they are among these.
    let parents = |task: &DependentTask, among: &BTreeSet<ObjectId>| -> Vec<ObjectId> {
        let elements = task
            .elements_of
            .into_iter()
            .flat_map(|array| found.iter().filter(move |(_, other)| other.array == Some(array)));
        let all = task.after.iter().copied().chain(elements.map(|(id, _)| *id));
        all.filter(|id| among.contains(id)).collect()
    };
    let mut busy = Vec::new();
    for (id, task) in found.iter().filter(|(id, _)| !done.contains(*id)) {
        let is_meant = match downstream {
            Downstream::None => false,
            Downstream::Failed => task.status.has_ended() && task.status != Status::Succeeded,
            Downstream::All => true,
        };
        if task.status == Status::Blocked || (is_meant && task.status.has_ended()) {
            reset.insert(*id);
        } else if is_meant {
            busy.push((TaskId(*id), task.queue));
        }
    }
    // Each after all that it waits for: nobody comes after itself, so some can always be done.
    let mut left: BTreeMap<ObjectId, Vec<ObjectId>> = found
        .iter()
        .filter(|(id, _)| reset.contains(*id) && !done.contains(*id))
        .map(|(id, task)| (*id, parents(task, &reset)))
        .collect();
    let mut waiters = Vec::new();
    while let Some(id) =
        left.iter().find(|(_, all)| all.iter().all(|id| done.contains(id))).map(|(id, _)| *id)
    {
        let (Some(waits_for), Some(task)) = (left.remove(&id), found.get(&id)) else { break };
        done.insert(id);
        // What waits for none of them goes on as it is.
        if task.status.has_ended() || !waits_for.is_empty() {
            let (queue, status) = (task.queue, task.status);
            waiters.push(Waiter { id: TaskId(id), queue, status, waits_for, waits_for_array: false });
        }
    }
    Plan { waiters, busy, too_many: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ObjectId {
        ObjectId::from_bytes([number; 12])
    }

    fn task(status: i32, after: &[u8]) -> DependentTask {
        let after = after.iter().map(|number| id(*number)).collect();
        let status = Status::from_code(status.into());
        DependentTask { queue: QueueId(id(99)), status, after, elements_of: None, array: None }
    }

    fn order(plan: &Plan) -> Vec<(u8, Vec<u8>)> {
        let number = |id: &ObjectId| id.bytes()[0];
        plan.waiters
            .iter()
            .map(|one| (number(&one.id.0), one.waits_for.iter().map(number).collect()))
            .collect()
    }

    #[test]
    fn each_comes_after_those_that_it_waits_for() {
        // The ids do not tell the order.
        let found = BTreeMap::from([
            (id(1), task(-5, &[9, 2])),
            (id(2), task(2, &[9])),
            (id(3), task(1, &[9])),
            (id(4), task(-5, &[3])),
            (id(5), task(-4, &[1, 3])),
        ]);
        let of = |downstream| plan(BTreeMap::from([(id(9), task(2, &[]))]), found.clone(), downstream);
        assert_eq!(
            order(&of(Downstream::All)),
            [(2, vec![9]), (1, vec![9, 2]), (3, vec![9]), (4, vec![3]), (5, vec![1, 3]),]
        );
        // What comes after one that has succeeded does not wait for that.
        assert_eq!(
            order(&of(Downstream::Failed)),
            [(2, vec![9]), (1, vec![9, 2]), (4, vec![]), (5, vec![1]),]
        );
    }

    #[test]
    fn what_runs_is_in_the_way_of_all_and_not_of_what_has_failed() {
        let found = BTreeMap::from([(id(1), task(0, &[9])), (id(2), task(-5, &[1]))]);
        let of = |downstream| plan(BTreeMap::from([(id(9), task(2, &[]))]), found.clone(), downstream);
        assert_eq!(of(Downstream::All).busy, [(TaskId(id(1)), QueueId(id(99)))]);
        let failed = of(Downstream::Failed);
        assert_eq!((failed.busy.len(), order(&failed)), (0, vec![(2, vec![])]));
    }

    #[test]
    fn the_last_task_of_an_array_waits_for_its_elements() {
        let element = DependentTask { array: Some(id(50)), ..task(2, &[]) };
        let last = DependentTask { elements_of: Some(id(50)), ..task(-5, &[]) };
        let found = BTreeMap::from([(id(7), last), (id(8), task(-5, &[7]))]);
        let all = plan(BTreeMap::from([(id(9), element)]), found, Downstream::Failed);
        assert_eq!(order(&all), [(7, vec![9]), (8, vec![7])]);
    }
}
