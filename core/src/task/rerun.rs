//! Rerun: an ended task runs again, and those that come after it wait for it again.
//!
//! Tasks are reset one by one, each only when all that it waits for have been: a task that is reset never starts before every one of these
//! has ended again. Each is one conditional update (see [`super::retry`]). Who dies in between leaves tasks that have their old outcome; the same
//! once more goes on with them.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::retry::{Again, Retried};
use super::transition::Transition;
use crate::arrays::final_id;
use crate::model::{ArrayId, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError};

/// So many tasks that come after one are reset at most.
pub const MOST_DOWNSTREAM: usize = 1_000;

/// Which of the tasks that come after one run again, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Downstream {
    #[default]
    None,
    /// Those that have ended without success.
    Failed,
    /// All of them.
    All,
}

impl Downstream {
    pub const WORDS: [&str; 3] = ["none", "failed", "all"];
}

impl FromStr for Downstream {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "none" => Ok(Self::None),
            "failed" => Ok(Self::Failed),
            "all" => Ok(Self::All),
            _ => Err(()),
        }
    }
}

/// A task that is to wait again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    pub id: TaskId,
    pub queue: QueueId,
    pub status: Status,
    /// Those that it is to wait for: the task that runs again, or others that wait for that.
    waits_for: Vec<ObjectId>,
}

/// What is to be reset with a task, in the order in which that is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub waiters: Vec<Waiter>,
    /// What would have to be reset, but is about to run or runs.
    pub busy: Vec<TaskId>,
    /// There are more than can be reset.
    pub too_many: bool,
}

/// What was read of a task that comes after another.
#[derive(Debug, Clone)]
struct Found {
    queue: QueueId,
    status: Status,
    after: Vec<ObjectId>,
    /// The array whose elements it comes after.
    elements_of: Option<ObjectId>,
    /// The array that it is an element of.
    array: Option<ObjectId>,
}

impl Found {
    fn of(task: &Document) -> Option<(ObjectId, Self)> {
        let after = task.get_array("after").map(Vec::as_slice).unwrap_or_default();
        let found = Self {
            queue: QueueId(task.get_object_id("queue").ok()?),
            status: task.get("status").and_then(whole_number).map(Status::from_code)?,
            after: after.iter().filter_map(Bson::as_object_id).collect(),
            elements_of: task.get_object_id("final_of").ok(),
            array: task.get_document("array").and_then(|array| array.get_object_id("id")).ok(),
        };
        Some((task.get_object_id("_id").ok()?, found))
    }
}

impl Store {
    /// What is to be reset when a task runs again. Archived tasks stay as they are.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation(task = %root)]
    pub async fn plan_rerun(&self, root: TaskId, downstream: Downstream) -> Result<Plan, StoreError> {
        if downstream == Downstream::None {
            return Ok(Plan::default());
        }
        let mut found = BTreeMap::new();
        let mut next = self.linked(doc! { "_id": root.0 }).await?;
        let mut own = None;
        while !next.is_empty() {
            let ids: Vec<ObjectId> = next.iter().map(|(id, _)| *id).collect();
            let finals = next.iter().filter_map(|(_, task)| task.array);
            let finals: Vec<TaskId> = finals.map(|array| final_id(ArrayId(array))).collect();
            for (id, task) in next {
                if id == root.0 {
                    own = Some(task);
                } else {
                    found.insert(id, task);
                }
            }
            if found.len() > MOST_DOWNSTREAM {
                return Ok(Plan { too_many: true, ..Plan::default() });
            }
            let later = doc! { "$or": [{ "after": { "$in": ids } }, { "_id": { "$in": finals } }] };
            next = self.linked(later).await?;
            next.retain(|(id, _)| *id != root.0 && !found.contains_key(id));
        }
        Ok(own.map(|own| plan(root.0, own, found, downstream)).unwrap_or_default())
    }

    async fn linked(&self, filter: Document) -> Result<Vec<(ObjectId, Found)>, StoreError> {
        let fields = doc! { "queue": 1, "status": 1, "after": 1, "final_of": 1, "array.id": 1 };
        let most = i64::try_from(MOST_DOWNSTREAM + 1).unwrap_or(i64::MAX);
        let found = self.tasks().find(filter).projection(fields).limit(most).await?;
        let tasks: Vec<crate::store::Stored> = found.try_collect().await?;
        Ok(tasks.into_iter().map(Document::from).filter_map(|task| Found::of(&task)).collect())
    }

    /// Resets a task of a plan: whoever has ended is tried again, and waits; who waits, waits for these, too.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation(task = %waiter.id)]
    pub async fn reset_waiter(&self, waiter: &Waiter, note: &str) -> Result<Retried, StoreError> {
        let ids = waiter.waits_for.clone();
        if waiter.status.has_ended() {
            let again = Again { waits_for: Some(ids), ..Again::default() };
            return Box::pin(self.retry_as(waiter.id, note, again)).await;
        }
        let at_a_gate = doc! {
            "_id": waiter.id, "status": Status::Blocked,
            "gate": { "$in": ["new", "after", "locks"] },
        };
        let both = doc! { "$setUnion": [{ "$ifNull": ["$waiting_for", []] }, ids] };
        let update = Transition::within().blocked_anew().compute("waiting_for", both);
        if self.tasks().update_one(at_a_gate, update.pipeline()).await?.matched_count == 1 {
            self.link_at_once(&[waiter.id]).await;
            return Ok(Retried::Blocked);
        }
        let status = self.find_task(waiter.id).await?.map(|task| task.status);
        Ok(status.map_or(Retried::NoSuchTask, Retried::NotEnded))
    }
}

/// The part of the plan that can be thought.
fn plan(root: ObjectId, own: Found, mut found: BTreeMap<ObjectId, Found>, downstream: Downstream) -> Plan {
    found.insert(root, own);
    // Those that a task comes after, as far as they are among these.
    let parents = |task: &Found, among: &BTreeSet<ObjectId>| -> Vec<ObjectId> {
        let elements =
            found.iter().filter(|(_, other)| other.array.is_some() && other.array == task.elements_of);
        let all = task.after.iter().copied().chain(elements.map(|(id, _)| *id));
        all.filter(|id| among.contains(id)).collect()
    };
    let mut reset = BTreeSet::from([root]);
    let mut busy = Vec::new();
    for (id, task) in found.iter().filter(|(id, _)| **id != root) {
        let is_meant = match downstream {
            Downstream::None => false,
            Downstream::Failed => task.status.has_ended() && task.status != Status::Succeeded,
            Downstream::All => true,
        };
        if task.status == Status::Blocked || (is_meant && task.status.has_ended()) {
            reset.insert(*id);
        } else if is_meant {
            busy.push(TaskId(*id));
        }
    }
    // Each after all that it waits for: nobody comes after itself, so some can always be done.
    let mut left: BTreeMap<ObjectId, Vec<ObjectId>> = found
        .iter()
        .filter(|(id, _)| reset.contains(*id))
        .map(|(id, task)| (*id, parents(task, &reset)))
        .collect();
    left.remove(&root);
    let (mut done, mut waiters) = (BTreeSet::from([root]), Vec::new());
    while let Some(id) =
        left.iter().find(|(_, all)| all.iter().all(|id| done.contains(id))).map(|(id, _)| *id)
    {
        let (Some(waits_for), Some(task)) = (left.remove(&id), found.get(&id)) else { break };
        done.insert(id);
        // What waits for none of them goes on as it is.
        if task.status.has_ended() || !waits_for.is_empty() {
            waiters.push(Waiter { id: TaskId(id), queue: task.queue, status: task.status, waits_for });
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

    fn task(status: i32, after: &[u8]) -> Found {
        let after = after.iter().map(|number| id(*number)).collect();
        let status = Status::from_code(status.into());
        Found { queue: QueueId(id(99)), status, after, elements_of: None, array: None }
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
        let of = |downstream| plan(id(9), task(2, &[]), found.clone(), downstream);
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
        let of = |downstream| plan(id(9), task(2, &[]), found.clone(), downstream);
        assert_eq!(of(Downstream::All).busy, [TaskId(id(1))]);
        let failed = of(Downstream::Failed);
        assert_eq!((failed.busy.len(), order(&failed)), (0, vec![(2, vec![])]));
    }

    #[test]
    fn the_last_task_of_an_array_waits_for_its_elements() {
        let element = Found { array: Some(id(50)), ..task(2, &[]) };
        let last = Found { elements_of: Some(id(50)), ..task(-5, &[]) };
        let found = BTreeMap::from([(id(7), last), (id(8), task(-5, &[7]))]);
        let all = plan(id(9), element, found, Downstream::Failed);
        assert_eq!(order(&all), [(7, vec![9]), (8, vec![7])]);
    }
}
