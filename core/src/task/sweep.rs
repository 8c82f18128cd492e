//! Sweep: what happens to tasks as time passes, whoever looks first. Each is one conditional update, so any
//! number of DENs may sweep at once.

use disbatch_operation::operation;
use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;
use mongodb::options::Hint;

use super::claim::given_back;
use super::question::{ANSWER, goes_on, nobodys, unanswered};
use super::transition::{Transition, is_past};
use crate::model::{AWAITING, QueueId, Status, whole_number};
use crate::store::collections::TASKS;
use crate::store::{Store, StoreError};

/// So many tasks are moved at once.
const AT_ONCE: i64 = 1_000;

/// What the history says of a deferred task whose time has come.
pub(super) const DUE: &str = "its time has come";

/// How many tasks a sweep has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Deferred tasks whose time has come.
    pub due: u64,
    /// Those of them that wait for their locks now.
    pub blocked: u64,
    /// Claimed tasks that were not started within their lease.
    pub given_back: u64,
    /// Tasks whose deadline passed before they ran, or before somebody answered what they had asked.
    pub overdue: u64,
}

/// How a deferred task goes on: to its queue, or to its locks if it has some; without an answer, if it waits for one.
pub(super) fn undeferred(to: Status, now: DateTime, note: &str) -> Transition {
    let transition = Transition::to(to, now).without_node().compute(ANSWER, nobodys()).unset(AWAITING);
    let transition = if to == Status::Blocked { transition.blocked_anew() } else { transition };
    transition.note(note)
}

impl Store {
    /// Queues deferred tasks whose time has come (-7 -> -2, or -4 if they have locks), gives back claims whose lease has
    /// run out (-1 -> -2), and cancels what waits beyond its deadline, or that of its question (-> -5). All times are the server's.
    #[operation]
    pub async fn sweep_tasks(&self) -> Result<Swept, StoreError> {
        let now = self.now();
        let due = |has_locks: bool| {
            doc! {
                "status": Status::Deferred, "run_at": { "$type": "date" }, "$expr": is_past("run_at"),
                "locks.0": { "$exists": has_locks }, "awaiting.on_deadline": goes_on(),
            }
        };
        let to_locks = undeferred(Status::Blocked, now, DUE).pipeline();
        let queued = undeferred(Status::Queued, now, DUE).pipeline();
        let claimed = doc! {
            "status": Status::Claimed,
            "lease_until": { "$type": "date" }, "$expr": is_past("lease_until"),
        };
        let back = given_back(self, "not started within its lease");
        let cancelled = Transition::to(Status::Cancelled, now).end_of_block();
        let cancelled = cancelled.failed("its deadline passed before it ran").pipeline();
        // One that fails is not to break off the others.
        let unheard = Transition::to(Status::Cancelled, now).end_of_block();
        let unheard = unheard.failed("nobody has answered in time").pipeline();
        let (queued, blocked, given_back, overdue, unanswered) = futures::join!(
            self.move_all(due(false), &queued, Status::Queued),
            self.move_all(due(true), &to_locks, Status::Blocked),
            self.move_all(claimed, &back, Status::Queued),
            self.move_all(overdue(), &cancelled, Status::Cancelled),
            self.move_all(unanswered(), &unheard, Status::Cancelled),
        );
        let (queued, blocked) = (queued?, blocked?);
        Ok(Swept { due: queued + blocked, blocked, given_back: given_back?, overdue: overdue? + unanswered? })
    }

    /// How the server looks for tasks that wait beyond their deadline.
    #[operation]
    pub async fn explain_overdue(&self) -> Result<Document, StoreError> {
        let find = doc! { "find": TASKS.name, "filter": overdue(), "limit": AT_ONCE };
        Ok(self.database().run_command(doc! { "explain": find, "verbosity": "executionStats" }).await?)
    }

    /// Moves all tasks that `filter` finds to another status, those of a queue and a status together, so that each
    /// is counted where it belongs. Where there are none, this is one find. One that cannot be moved because of what it is
    /// like ends with `to`, or as -3 if that is no end. Returns how many have moved.
    pub(super) async fn move_all(
        &self,
        filter: Document,
        update: &[Document],
        to: Status,
    ) -> Result<u64, StoreError> {
        let tasks = self.tasks();
        let only = doc! { "queue": 1, "status": 1 };
        let filter = self.without_left_alone(filter);
        let mut all = 0;
        loop {
            let found = tasks.find(filter.clone()).projection(only.clone()).limit(AT_ONCE).await?;
            let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
            let before = all;
            for ((queue, status), ids) in together(&found) {
                // What has changed since it was found is left alone.
                let still = doc! { "$and": [{ "status": status }, &filter] };
                let ids = ids.into_iter().cloned().collect();
                let moved = self.update_each_or_end((ids, &still), update.to_vec(), to).await?;
                if let Some(queue) = queue {
                    self.moved(QueueId(queue), Some(Status::from_code(status)), Some(to), moved);
                }
                all += moved;
            }
            let is_all = i64::try_from(found.len()).is_ok_and(|found| found < AT_ONCE);
            if is_all || all == before {
                return Ok(all);
            }
        }
    }

    /// Removes the place in a queue from tasks that are not claimed or running: a program that does not know
    /// of places may have ended or requeued them, and its next claim must not meet one that is taken.
    /// Returns how many.
    #[operation]
    pub async fn clear_stale_slots(&self) -> Result<u64, StoreError> {
        let gone = doc! { "slot": "", "group_slot": "", "lease_until": "", "instance": "", "pid": "" };
        let update = doc! { "$unset": gone };
        let filter = self.without_left_alone(stale_slots());
        let found = self.tasks().find(filter).projection(doc! { "_id": 1 }).limit(AT_ONCE).await?;
        let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        let ids = found.iter().filter_map(|task| task.get("_id").cloned()).collect();
        self.update_each(ids, &stale_slots(), update).await
    }
}

impl Store {
    /// Tasks whose `_id` is no ObjectId: no DEN claims them, and no address leads to them. Returns how many there are, up to
    /// [`AT_ONCE`] of each kind, and one of them.
    #[operation]
    pub async fn tasks_with_odd_ids(&self) -> Result<(usize, Option<Bson>), StoreError> {
        let (first, last) = (ObjectId::from_bytes([0; 12]), ObjectId::from_bytes([u8::MAX; 12]));
        let (tasks, mut odd) = (self.tasks(), Vec::new());
        // By the order of the index: comparisons in a filter are with values of one type.
        for (from, to) in [(Bson::MinKey, Bson::from(first)), (last.into(), Bson::MaxKey)] {
            let by_id = tasks.find(doc! {}).hint(Hint::Keys(doc! { "_id": 1 }));
            let between = by_id.min(doc! { "_id": from }).max(doc! { "_id": to });
            let found = between.projection(doc! { "_id": 1 }).limit(AT_ONCE).await?;
            let found: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
            odd.extend(found.into_iter().filter_map(|mut task| task.remove("_id")));
        }
        odd.retain(|id| id.as_object_id().is_none());
        Ok((odd.len(), odd.pop()))
    }
}

/// Tasks that wait, and may pass their deadline before they run.
pub(super) fn waiting() -> Document {
    let waiting = [Status::Deferred, Status::Blocked, Status::Queued].map(Bson::from);
    doc! { "status": { "$in": waiting.to_vec() } }
}

/// Tasks with a place that they must not have.
pub(super) fn stale_slots() -> Document {
    doc! { "slot": { "$exists": true }, "status": { "$nin": [-1, 0] } }
}

/// Those of them whose deadline is over.
fn overdue() -> Document {
    let mut overdue = waiting();
    overdue.extend(doc! { "deadline": { "$type": "date" }, "$expr": is_past("deadline") });
    overdue
}

/// The status by which the server has found a task: one of a list, if that is what is stored, and a number of any type.
fn found_as(status: &Bson) -> Option<i64> {
    match status {
        Bson::Array(items) => items.iter().find_map(found_as),
        Bson::Decimal128(number) => number.to_string().parse().ok(),
        other => whole_number(other),
    }
}

/// The ids of tasks by queue and status. Whatever has no status is left alone.
fn together(tasks: &[Document]) -> HashMap<(Option<ObjectId>, i64), Vec<&Bson>> {
    let mut together: HashMap<_, Vec<&Bson>> = HashMap::new();
    for task in tasks {
        if let (Some(id), Some(status)) = (task.get("_id"), task.get("status").and_then(found_as)) {
            together.entry((task.get_object_id("queue").ok(), status)).or_default().push(id);
        }
    }
    together
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_any_kind_is_the_one_that_was_looked_for() {
        let decimal: bson::Decimal128 = "-2".parse().unwrap();
        let list = Bson::Array(vec!["x".into(), (-2).into(), 5.into()]);
        for status in [Bson::from(-2), Bson::from(-2_i64), Bson::from(-2.0), decimal.into(), list] {
            assert_eq!(found_as(&status), Some(-2), "{status}");
        }
        assert_eq!(found_as(&"-2".into()), None);
    }
}
