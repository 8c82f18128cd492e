//! What follows from a verdict: conditional updates, of all tasks alike in one.
//!
//! The condition of each names what the task must still wait for, or not wait for any more. So it does not matter how many
//! judge the same task at once, each by what it knows.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::blocked::{AfterWhen, Blocked, Parent, Verdict, of_round};
use super::parents::States;
use super::{Parts, Passed};
use crate::model::{QueueId, Status};
use crate::store::{Store, StoreError};
use crate::task::transition::Transition;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// See [`way_of`].
    Go(Status),
    /// What is settled is left out.
    Wait,
    Cancel(Option<ObjectId>),
}

/// Tasks that one update is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    step: Step,
    when: AfterWhen,
    queue: Option<QueueId>,
    round: i64,
}

/// What a task is next that waits for no other any more: blocked, if it goes to its locks.
pub(super) fn way_of(task: &Blocked, now: DateTime) -> Status {
    match (task.run_at, task.locks.is_empty()) {
        (Some(at), _) if at > now => Status::Deferred,
        (_, true) => Status::Queued,
        (_, false) => Status::Blocked,
    }
}

impl Store {
    /// The time that it is looked at for `run_at`: the server's, if any of the tasks has one.
    pub(super) async fn time_for(&self, tasks: &[Blocked]) -> Result<DateTime, StoreError> {
        if tasks.iter().any(|task| task.run_at.is_some()) { self.server_time().await } else { Ok(self.now()) }
    }

    pub(super) async fn apply(
        &self,
        gate: &str,
        tasks: &[Blocked],
        states: &States,
    ) -> Result<Passed, StoreError> {
        let now = self.time_for(tasks).await?;
        let mut groups: HashMap<Group, Vec<ObjectId>> = HashMap::new();
        for task in tasks {
            let is_settled = |id: &ObjectId| states.get(id).is_some_and(|state| state.is_settled(task.when));
            let step = match task.verdict(|id| states.get(id).copied()) {
                Verdict::Pass => Step::Go(way_of(task, now)),
                Verdict::Never(culprit) => Step::Cancel(culprit),
                Verdict::Wait if gate == "new" || task.waiting_for.iter().any(is_settled) => Step::Wait,
                Verdict::Wait => continue,
            };
            let group = Group { step, when: task.when, queue: task.queue, round: task.round };
            groups.entry(group).or_default().push(task.id);
        }
        let mut parts = Parts::default();
        for (group, ids) in groups {
            // In another round it waits for other ends.
            let mut still =
                doc! { "status": Status::Blocked, "gate": gate, "lock_round": of_round(group.round) };
            still.extend(condition(&group, states));
            let ids = ids.into_iter().map(Bson::from).collect();
            parts.note(self.step(&group, (ids, still), states).await)?;
        }
        parts.end()
    }

    async fn step(
        &self,
        group: &Group,
        (ids, still): (Vec<Bson>, Document),
        states: &States,
    ) -> Result<Passed, StoreError> {
        let (queue, mut passed) = (group.queue, Passed::default());
        match group.step {
            Step::Go(Status::Blocked) => {
                // What comes next for them is the same as for one that is new and waits for no other.
                let update = doc! { "$set": { "waiting_for": [], "gate": "new" } };
                passed.linked = self.update_each(ids, &still, update).await?;
            }
            Step::Wait => {
                let update = leave_out(&settled(group.when, states));
                passed.linked = self.update_each(ids, &still, update).await?;
            }
            Step::Go(way) => {
                let update = released(self, way).note("what it waited for has ended");
                passed.released = self.unblock((ids, still), update, queue, way).await?;
            }
            Step::Cancel(culprit) => {
                // What it has waited for with success may be deleted before it is tried again.
                let rest = without(&settled(group.when, states));
                let update = Transition::to(Status::Cancelled, self.now()).compute("waiting_for", rest);
                let update = update.note(reason(culprit, states));
                let to = Status::Cancelled;
                passed.cancelled = self.unblock((ids, still), update, queue, to).await?;
            }
        }
        passed.more = passed != Passed::default();
        Ok(passed)
    }

    /// Moves those of blocked tasks of a queue that `still` matches to another status. Returns how many have moved.
    pub(super) async fn unblock(
        &self,
        (ids, still): (Vec<Bson>, Document),
        update: Transition,
        queue: Option<QueueId>,
        to: Status,
    ) -> Result<u64, StoreError> {
        let update = update.end_of_block().pipeline();
        let moved = self.update_each_or_end((ids, &still), update, to).await?;
        if let Some(queue) = queue {
            self.moved(queue, Some(Status::Blocked), Some(to), moved);
        }
        Ok(moved)
    }
}

pub(super) fn released(store: &Store, way: Status) -> Transition {
    let nothing = Bson::Array(Vec::new());
    Transition::to(way, store.now()).without_node().set("waiting_for", nothing)
}

/// Why a task is cancelled. Which task it was is left out: who may see this one may not have to know of that.
fn reason(culprit: Option<ObjectId>, states: &States) -> String {
    match culprit {
        Some(id) => {
            let state = states.get(&id).copied().unwrap_or(Parent::Gone);
            format!("a task that it comes after {}", state.words())
        }
        None => "none of the tasks that it comes after has succeeded".to_owned(),
    }
}

/// Those that nobody who waits `when` looks at any more.
fn settled(when: AfterWhen, states: &States) -> Vec<ObjectId> {
    those(states, |state| state.is_settled(when))
}

fn those(states: &States, is: impl Fn(Parent) -> bool) -> Vec<ObjectId> {
    states.iter().filter(|(_, state)| is(**state)).map(|(id, _)| *id).collect()
}

/// What a task of the group must still be waiting for, so that the verdict is right.
fn condition(group: &Group, states: &States) -> Document {
    // No element outside of these.
    let none_but = |ids: Vec<ObjectId>| doc! { "waiting_for": { "$not": { "$elemMatch": { "$nin": ids } } } };
    match (group.step, group.when) {
        (Step::Wait, _) => Document::new(),
        (Step::Go(_), AfterWhen::Any) => {
            doc! { "waiting_for": { "$in": those(states, Parent::has_succeeded) } }
        }
        (Step::Go(_), when) => none_but(settled(when, states)),
        (Step::Cancel(Some(culprit)), _) => doc! { "waiting_for": culprit },
        (Step::Cancel(None), _) => none_but(those(states, |state| state.is_over() && !state.has_succeeded())),
    }
}

/// What a task still waits for.
fn without(settled: &[ObjectId]) -> Document {
    doc! { "$setDifference": ["$waiting_for", settled] }
}

/// Leaves those out that are settled. If somebody else has left out the others meanwhile, the task is looked at again.
fn leave_out(settled: &[ObjectId]) -> Vec<Document> {
    let rest = without(settled);
    let gate = doc! { "$cond": [{ "$eq": [{ "$size": &rest }, 0] }, "new", "after"] };
    vec![doc! { "$set": { "waiting_for": rest, "gate": gate } }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(fields: Document) -> Blocked {
        let mut task = doc! { "_id": ObjectId::new() };
        task.extend(fields);
        Blocked::of(&task).unwrap()
    }

    #[test]
    fn a_task_goes_to_its_time_before_it_goes_to_its_locks() {
        let at = DateTime::from_millis;
        let way = |fields| way_of(&task(fields), at(5));
        assert_eq!(way(doc! {}), Status::Queued);
        assert_eq!(way(doc! { "locks": ["a"] }), Status::Blocked);
        assert_eq!(way(doc! { "locks": ["a"], "run_at": at(6) }), Status::Deferred);
        assert_eq!(way(doc! { "locks": ["a"], "run_at": at(5) }), Status::Blocked);
        assert_eq!(way(doc! { "run_at": at(4) }), Status::Queued);
    }

    #[test]
    fn conditions_name_what_the_verdict_was_about() {
        let [good, bad] = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let ended = Parent::Ended;
        let states = States::from([(good, ended(Status::Succeeded)), (bad, ended(Status::Failed))]);
        let of = |step, when| condition(&Group { step, when, queue: None, round: 0 }, &states);
        let none_but = |id: ObjectId| doc! { "waiting_for": { "$not": { "$elemMatch": { "$nin": [id] } } } };
        assert_eq!(of(Step::Go(Status::Queued), AfterWhen::Succeeded), none_but(good));
        assert_eq!(of(Step::Go(Status::Queued), AfterWhen::Any), doc! { "waiting_for": { "$in": [good] } });
        assert_eq!(of(Step::Cancel(Some(bad)), AfterWhen::Succeeded), doc! { "waiting_for": bad });
        assert_eq!(of(Step::Cancel(None), AfterWhen::Any), none_but(bad));
        assert_eq!(settled(AfterWhen::Finished, &states).len(), 2);
        let why = reason(Some(bad), &states);
        assert_eq!(why, "a task that it comes after ended as failed (2)");
    }
}
