//! Sweep: what happens to tasks as time passes, whoever looks first. Each is one conditional update, so any
//! number of DENs may sweep at once.
//!
//! Claims and runs are unowned that no living process can have, because somebody has written them by hand, or a program that is gone. They
//! get a lease, as every other has: who owns one prolongs it, else it runs out, and the task is queued again or buried.
//!
//! Held tasks are blocked (-4) at the gate `admission`, as a rule held them when they were submitted. They go on as soon as no
//! rule does any more, each by one update on the condition that it is still held and that no rule is about it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::Hint;

use super::claim::given_back;
use super::question::{ANSWER, goes_on, nobodys, unanswered};
use super::transition::{Transition, is_past, server_time_in};
use crate::admission::{GATE, HELD, Rules};
use crate::model::{AWAITING, QueueId, Status, whole_number};
use crate::store::{Store, StoreError, collect, collect_ids, put, with};

/// So many tasks are moved, released or given a lease at once.
const AT_ONCE: i64 = 1_000;

/// A sweep begins nothing more after so long: a DEN does nothing else meanwhile.
const SWEEP_TAKES: Duration = Duration::from_millis(500);

pub(super) const DUE: &str = "its time has come";

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
    /// Of many it moves as many as it can within half a second: the others are found again.
    #[operation]
    pub async fn sweep_tasks(&self) -> Result<Swept, StoreError> {
        self.sweep_for(SWEEP_TAKES).await
    }

    /// The same within so long, but at least once: those of one queue that are in the same status.
    #[operation]
    pub async fn sweep_for(&self, time: Duration) -> Result<Swept, StoreError> {
        let (now, until) = (self.now(), Instant::now().checked_add(time));
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
        let cancelled = |why| Transition::to(Status::Cancelled, now).end_of_block().failed(why).pipeline();
        let (late, unheard) =
            (cancelled("its deadline passed before it ran"), cancelled("nobody has answered in time"));
        // One that fails is not to break off the others.
        let (queued, blocked, given_back, overdue, unanswered) = futures::join!(
            self.move_until(until, due(false), &queued, Status::Queued),
            self.move_until(until, due(true), &to_locks, Status::Blocked),
            self.move_until(until, claimed, &back, Status::Queued),
            self.move_until(until, overdue(), &late, Status::Cancelled),
            self.move_until(until, unanswered(), &unheard, Status::Cancelled),
        );
        let (queued, blocked) = (queued?, blocked?);
        Ok(Swept { due: queued + blocked, blocked, given_back: given_back?, overdue: overdue? + unanswered? })
    }

    /// Moves all tasks that `filter` finds to another status, those of a queue and a status together, so that each
    /// is counted where it belongs. Where there are none, this is one find. One that cannot be moved because of what it is
    /// like ends with `to`, or as -3 if that is no end. After `until` no more are moved. Returns how many have moved.
    pub(super) async fn move_until(
        &self,
        until: Option<Instant>,
        filter: Document,
        update: &[Document],
        to: Status,
    ) -> Result<u64, StoreError> {
        let tasks = self.tasks();
        let only = doc! { "queue": 1, "status": 1 };
        let filter = self.without_left_alone(filter);
        let mut all = 0;
        loop {
            let found = collect(tasks.find(filter.clone()).projection(only.clone()).limit(AT_ONCE)).await?;
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
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(all);
                }
            }
            let is_all = i64::try_from(found.len()).is_ok_and(|found| found < AT_ONCE);
            if is_all || all == before {
                return Ok(all);
            }
        }
    }

    /// Removes the place in a group from tasks that are not claimed or running: a program that does not know
    /// of places may have ended or requeued them, and its next claim must not meet one that is taken.
    /// Returns how many.
    #[operation]
    pub async fn clear_stale_slots(&self) -> Result<u64, StoreError> {
        let gone = doc! { "slot": "", "group_slot": "", "lease_until": "", "instance": "", "pid": "" };
        let update = doc! { "$unset": gone };
        self.update_each(self.some_ids(stale_slots()).await?, &stale_slots(), update).await
    }

    pub(super) async fn some_ids(&self, filter: Document) -> Result<Vec<Bson>, StoreError> {
        let filter = self.without_left_alone(filter);
        let found = collect(self.tasks().find(filter).projection(doc! { "_id": 1 }).limit(AT_ONCE)).await?;
        Ok(found.into_iter().filter_map(|mut task| task.remove("_id")).collect())
    }

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
            let found = collect(between.projection(doc! { "_id": 1 }).limit(AT_ONCE)).await?;
            odd.extend(found.into_iter().filter_map(|mut task| task.remove("_id")));
        }
        odd.retain(|id| id.as_object_id().is_none());
        Ok((odd.len(), odd.pop()))
    }

    /// Gives a lease to claims and runs whose lease is no time, and to those without one that are in nobody's name, or in that of
    /// one who is `gone`. Returns how many there were.
    #[operation]
    pub async fn lease_unowned(&self, lease: Duration, gone: &[&str]) -> Result<u64, StoreError> {
        let odd = doc! { "lease_until": { "$exists": true, "$not": { "$type": ["date", "null"] } } };
        // Not `$type` of the query language, which also takes lists with a text.
        let nobodys = doc! {
            "lease_until": Bson::Null, "$expr": { "$ne": [{ "$type": "$node" }, "string"] },
        };
        let gone: Vec<&str> = gone.iter().copied().chain([""]).collect();
        let of_gone = doc! { "lease_until": Bson::Null, "node": { "$in": gone } };
        let unowned = with(taken(), doc! { "$or": [odd, nobodys, of_gone] });
        let leased = Transition::within().compute("lease_until", server_time_in(lease));
        self.update_each(self.some_ids(unowned.clone()).await?, &unowned, leased.pipeline()).await
    }

    /// Releases those tasks that no rule of admission holds any more: to their queue (-2), to their time (-7), or to the gates
    /// that they have to pass. Which these are is decided by all rules together, so a task that two rules held goes on when
    /// neither does. Any number of processes may do so at once. Returns how many were released.
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
        let mut filter = with(held(), rules.accepted());
        put(&mut filter, "$and", (!whose.is_empty()).then_some([whose]));
        put(&mut filter, "_id", last.map(|last| doc! { "$gt": last }));
        let tasks = self.tasks();
        let found = tasks.find(filter).projection(doc! { "_id": 1 }).sort(doc! { "_id": 1 });
        collect_ids(found.limit(AT_ONCE)).await
    }

    async fn release_those(&self, ids: &[ObjectId], rules: &Rules) -> Result<u64, StoreError> {
        let free = with(with(held(), rules.accepted()), doc! { "_id": { "$in": ids } });
        let to = |status: Status| {
            let free = Transition::to(status, self.now()).without_node().unset(HELD);
            free.note("no rule of admission holds it any more")
        };
        // A task that is linked to those that it comes after only now waits for all of them; one that is tried again for those
        // that it has not waited for to the end.
        let unsettled = doc! { "$ifNull": ["$waiting_for", "$after"] };
        let to_gate = to(Status::Blocked).blocked_anew();
        let behind = to_gate.clone().compute("waiting_for", unsettled).pipeline();
        let mut released =
            self.move_until(None, with(free.clone(), of_others(true)), &behind, Status::Blocked).await?;
        let alone = with(free, of_others(false));
        let moves = [
            (doc! { "$expr": is_to_come() }, to(Status::Deferred).end_of_block(), Status::Deferred),
            (has_locks(true), to_gate, Status::Blocked),
            (has_locks(false), to(Status::Queued).end_of_block(), Status::Queued),
        ];
        for (which, transition, status) in moves {
            released +=
                self.move_until(None, with(alone.clone(), which), &transition.pipeline(), status).await?;
        }
        Ok(released)
    }
}

/// Tasks that wait, and may pass their deadline before they run.
pub(super) fn waiting() -> Document {
    let waiting = [Status::Deferred, Status::Blocked, Status::Queued].map(Bson::from);
    doc! { "status": { "$in": waiting.to_vec() } }
}

pub(super) fn stale_slots() -> Document {
    doc! { "group_slot": { "$exists": true }, "status": { "$nin": [-1, 0] } }
}

fn overdue() -> Document {
    with(waiting(), doc! { "deadline": { "$type": "date" }, "$expr": is_past("deadline") })
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

/// Matches claims and runs, as the index of leases has them.
pub(super) fn taken() -> Document {
    doc! { "status": { "$gte": -1, "$lte": 0 } }
}

fn held() -> Document {
    doc! { "status": Status::Blocked, "gate": GATE }
}

fn of_others(others: bool) -> Document {
    doc! { "after.0": { "$exists": others } }
}

fn has_locks(locks: bool) -> Document {
    doc! { "locks.0": { "$exists": locks }, "$expr": { "$not": [is_to_come()] } }
}

fn is_to_come() -> Document {
    doc! { "$gt": ["$run_at", "$$NOW"] }
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
