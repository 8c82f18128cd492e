//! A blocked task, as far as its gates are concerned, and what one waits for that is to come after others.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReadConcern;

use super::holders::Holder;
use super::request::LockRequest;
use crate::model::{QueueId, Status, whole_number};
use crate::store::{Store, StoreError, collect, ids_in, with};
use disbatch_values::words;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Blocked {
    pub id: ObjectId,
    pub queue: Option<QueueId>,
    pub when: AfterWhen,
    pub failed: AfterFailed,
    /// Those of the tasks that it comes after that are not settled yet.
    pub waiting_for: Vec<ObjectId>,
    /// What it asks for, in order.
    pub locks: Vec<LockRequest>,
    /// How often it has been blocked.
    pub round: i64,
    /// The lock that it waits for.
    pub needs: Option<String>,
    pub run_at: Option<DateTime>,
}

impl Blocked {
    fn fields() -> Document {
        doc! {
            "queue": 1, "after_when": 1, "after_failed": 1, "waiting_for": 1, "locks": 1, "lock_round": 1,
            "needs_lock": 1, "run_at": 1,
        }
    }

    pub(super) fn of(task: &Document) -> Option<Self> {
        let queue = task.get_object_id("queue").ok().map(QueueId);
        Some(Self::with(task.get_object_id("_id").ok()?, queue, task))
    }

    pub(super) fn with(id: ObjectId, queue: Option<QueueId>, task: &Document) -> Self {
        Self {
            id,
            queue,
            when: word(task, "after_when", AfterWhen::named),
            failed: word(task, "after_failed", AfterFailed::named),
            waiting_for: ids_in(task, "waiting_for").collect(),
            locks: LockRequest::stored(task),
            round: round_of(task),
            needs: task.get_str("needs_lock").ok().map(str::to_owned),
            run_at: task.get_datetime("run_at").ok().copied(),
        }
    }

    /// What follows from what is known of those that it waits for. Of the others it is taken that they go on.
    pub(super) fn verdict(&self, known: impl Fn(&ObjectId) -> Option<Parent>) -> Verdict {
        let parent = |id: &ObjectId| (*id, known(id).unwrap_or(Parent::Live));
        let parents: Vec<(ObjectId, Parent)> = self.waiting_for.iter().map(parent).collect();
        judge(self.when, self.failed, &parents)
    }

    /// What it will be for the lock of this name, if it asks for that.
    pub(super) fn waiter(&self, lock: &str) -> Option<Holder> {
        let request = self.locks.iter().find(|request| request.name() == lock)?;
        let queue = self.queue.map(|queue| queue.0);
        Some(Holder { task: self.id, round: self.round, mode: request.mode(), queue, since: None })
    }

    /// The lock that it needs once it has this one.
    pub(super) fn lock_after(&self, lock: &str) -> Option<&str> {
        self.locks.iter().map(LockRequest::name).find(|name| *name > lock)
    }
}

/// A word that a task has. One that makes no sense counts as not given: other programs write these documents too.
fn word<T: Default>(task: &Document, field: &str, named: fn(&str) -> Option<T>) -> T {
    task.get_str(field).ok().and_then(named).unwrap_or_default()
}

pub(super) fn round_of(task: &Document) -> i64 {
    task.get("lock_round").and_then(whole_number).unwrap_or(0)
}

pub(super) fn of_round(round: i64) -> Bson {
    if round == 0 { Bson::from(doc! { "$in": [0, Bson::Null] }) } else { Bson::from(round) }
}

pub(super) fn waits_for_none() -> Bson {
    Bson::from(doc! { "$in": [Bson::Null, Bson::Array(Vec::new())] })
}

impl Store {
    /// Blocked tasks that `filter` matches, the oldest first.
    pub(super) async fn blocked(&self, filter: Document, limit: i64) -> Result<Vec<Blocked>, StoreError> {
        self.blocked_as(filter, limit, ReadConcern::local()).await
    }

    pub(super) async fn blocked_as(
        &self,
        filter: Document,
        limit: i64,
        concern: ReadConcern,
    ) -> Result<Vec<Blocked>, StoreError> {
        let blocked = with(doc! { "status": Status::Blocked }, filter);
        let tasks = self.tasks();
        let found = tasks.find(blocked).projection(Blocked::fields()).sort(doc! { "_id": 1 }).limit(limit);
        let found = collect(found.read_concern(concern)).await?;
        Ok(found.iter().filter_map(Blocked::of).collect())
    }
}

words! {
    /// What the tasks that another one comes after must have come to.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub enum AfterWhen {
        /// All of them have succeeded.
        #[default]
        Succeeded = "succeeded",
        /// All of them have ended, however.
        Finished = "finished",
        /// One of them has succeeded.
        Any = "any",
    }
}

words! {
    /// What becomes of a task when one that it comes after has failed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub enum AfterFailed {
        /// It is cancelled, and so is what comes after it.
        #[default]
        Cancel = "cancel",
        /// It waits until somebody has tried the failed one again, and that succeeds.
        Wait = "wait",
    }
}

/// What a task that another one comes after has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    Live,
    /// It has ended so. If that is no success, it may be tried again.
    Ended(Status),
    /// It has ended so, and is in the archive, where nothing is tried again.
    Archived(Status),
    Gone,
}

impl Parent {
    pub(super) const fn of(status: Status, is_archived: bool) -> Self {
        match (status.has_ended(), is_archived) {
            (false, _) => Self::Live,
            (true, false) => Self::Ended(status),
            (true, true) => Self::Archived(status),
        }
    }

    pub(super) const fn has_succeeded(self) -> bool {
        matches!(self, Self::Ended(Status::Succeeded) | Self::Archived(Status::Succeeded))
    }

    pub(super) const fn is_over(self) -> bool {
        !matches!(self, Self::Live)
    }

    /// Whether nobody waits for its success any more.
    const fn is_lost(self, failed: AfterFailed) -> bool {
        match (self, failed) {
            (Self::Live | Self::Ended(Status::Succeeded) | Self::Archived(Status::Succeeded), _)
            | (Self::Ended(_), AfterFailed::Wait) => false,
            (Self::Ended(_), AfterFailed::Cancel) | (Self::Archived(_) | Self::Gone, _) => true,
        }
    }

    /// Whether a task that waits `when` need not look at it any more.
    pub(super) const fn is_settled(self, when: AfterWhen) -> bool {
        match when {
            AfterWhen::Succeeded => self.has_succeeded(),
            AfterWhen::Finished => self.is_over(),
            // All of them are needed to know that none has succeeded.
            AfterWhen::Any => false,
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Self::Live => "has not ended".to_owned(),
            Self::Ended(status) => format!("ended as {status}"),
            Self::Archived(status) => format!("ended as {status} and was archived"),
            Self::Gone => "no longer exists".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Pass,
    /// It waits, for fewer than before if some are settled.
    Wait,
    /// It never will, because of this one; or, if there is none, because of all.
    Never(Option<ObjectId>),
}

fn judge(when: AfterWhen, failed: AfterFailed, parents: &[(ObjectId, Parent)]) -> Verdict {
    let all = |is: fn(Parent) -> bool| parents.iter().all(|(_, parent)| is(*parent));
    let is_lost = |(_, parent): &&(ObjectId, Parent)| parent.is_lost(failed);
    match when {
        AfterWhen::Finished if all(Parent::is_over) => Verdict::Pass,
        AfterWhen::Finished => Verdict::Wait,
        AfterWhen::Succeeded => match parents.iter().find(is_lost) {
            Some((id, _)) => Verdict::Never(Some(*id)),
            None if all(Parent::has_succeeded) => Verdict::Pass,
            None => Verdict::Wait,
        },
        AfterWhen::Any if parents.is_empty() => Verdict::Pass,
        AfterWhen::Any if parents.iter().any(|(_, parent)| parent.has_succeeded()) => Verdict::Pass,
        AfterWhen::Any if parents.iter().filter(is_lost).count() == parents.len() => Verdict::Never(None),
        AfterWhen::Any => Verdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_known_goes_on() {
        let ids = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let task =
            doc! { "_id": ObjectId::new(), "waiting_for": [ids[0], ids[1], "odd"], "locks": ["b", "a/2"] };
        let task = Blocked::of(&task).unwrap();
        assert_eq!(task.waiting_for, ids);
        let good = |id: &ObjectId| (*id == ids[0]).then_some(Parent::Ended(Status::Succeeded));
        assert_eq!(task.verdict(good), Verdict::Wait);
        assert_eq!(task.verdict(|_| Some(Parent::Gone)), Verdict::Never(Some(ids[0])));
        assert_eq!(
            (task.lock_after(""), task.lock_after("a"), task.lock_after("b")),
            (Some("a"), Some("b"), None)
        );
        assert!(task.waiter("a").is_some() && task.waiter("c").is_none());
        assert_eq!(task.round, 0);
    }

    fn numbered(parents: &[Parent]) -> Vec<(ObjectId, Parent)> {
        let id = |number: usize| ObjectId::from_bytes([u8::try_from(number).unwrap(); 12]);
        parents.iter().enumerate().map(|(number, parent)| (id(number), *parent)).collect()
    }

    fn verdict(when: AfterWhen, failed: AfterFailed, parents: &[Parent]) -> Verdict {
        judge(when, failed, &numbered(parents))
    }

    const GOOD: Parent = Parent::Ended(Status::Succeeded);

    const BAD: Parent = Parent::Ended(Status::Failed);

    #[test]
    fn words_are_read_as_they_are_written() {
        for when in AfterWhen::ALL {
            assert_eq!(AfterWhen::named(when.as_str()), Some(when));
        }
        for failed in AfterFailed::ALL {
            assert_eq!(AfterFailed::named(failed.as_str()), Some(failed));
        }
        let odd = doc! { "after_when": 5, "after_failed": "never" };
        assert_eq!(word(&odd, "after_when", AfterWhen::named), AfterWhen::Succeeded);
        assert_eq!(word(&odd, "after_failed", AfterFailed::named), AfterFailed::Cancel);
    }

    #[test]
    fn one_failure_is_enough_where_all_must_succeed() {
        use AfterFailed::{Cancel, Wait};
        let of = |failed, parents: &[Parent]| verdict(AfterWhen::Succeeded, failed, parents);
        let second = Some(ObjectId::from_bytes([1; 12]));
        assert_eq!(of(Cancel, &[GOOD, GOOD]), Verdict::Pass);
        assert_eq!(of(Cancel, &[GOOD, Parent::Live]), Verdict::Wait);
        assert_eq!(of(Cancel, &[Parent::Live, BAD]), Verdict::Never(second));
        assert_eq!(of(Wait, &[Parent::Live, BAD]), Verdict::Wait);
        assert_eq!(of(Wait, &[GOOD, BAD]), Verdict::Wait, "it may be tried again");
        assert_eq!(of(Wait, &[GOOD, Parent::Archived(Status::Failed)]), Verdict::Never(second));
        assert_eq!(of(Wait, &[GOOD, Parent::Gone]), Verdict::Never(second));
        assert_eq!(of(Wait, &[GOOD, Parent::Archived(Status::Succeeded)]), Verdict::Pass);
    }

    #[test]
    fn how_they_end_does_not_matter_where_all_must_only_end() {
        let of = |parents: &[Parent]| verdict(AfterWhen::Finished, AfterFailed::Cancel, parents);
        assert_eq!(of(&[BAD, GOOD, Parent::Gone, Parent::Archived(Status::Orphaned)]), Verdict::Pass);
        assert_eq!(of(&[BAD, Parent::Live]), Verdict::Wait);
    }

    #[test]
    fn of_any_the_first_success_counts_and_the_last_failure() {
        use AfterFailed::{Cancel, Wait};
        let of = |failed, parents: &[Parent]| verdict(AfterWhen::Any, failed, parents);
        assert_eq!(of(Cancel, &[Parent::Live, BAD, GOOD]), Verdict::Pass);
        assert_eq!(of(Cancel, &[Parent::Live, BAD]), Verdict::Wait);
        assert_eq!(of(Cancel, &[BAD, Parent::Gone]), Verdict::Never(None));
        assert_eq!(of(Wait, &[BAD, Parent::Gone]), Verdict::Wait);
        assert_eq!(of(Wait, &[Parent::Archived(Status::Failed), Parent::Gone]), Verdict::Never(None));
    }

    #[test]
    fn only_real_ends_count() {
        for live in Status::LIVE.into_iter().chain([Status::Other(-42)]) {
            assert_eq!(Parent::of(live, false), Parent::Live);
            assert_eq!(Parent::of(live, true), Parent::Live, "a copy of what goes on tells nothing");
        }
        assert_eq!(Parent::of(Status::Other(17), true), Parent::Archived(Status::Other(17)));
    }

    fn any_parent() -> impl Strategy<Value = Parent> {
        let status = prop_oneof![
            Just(Status::Succeeded),
            Just(Status::Failed),
            Just(Status::Cancelled),
            Just(Status::Other(9))
        ];
        prop_oneof![
            Just(Parent::Live),
            status.clone().prop_map(Parent::Ended),
            status.prop_map(Parent::Archived),
            Just(Parent::Gone),
        ]
    }

    proptest! {
        /// Whatever they come to, and in whatever order it is looked at, what was settled before need not be looked at
        /// again.
        #[test]
        fn what_is_settled_does_not_matter_any_more(
            parents in prop::collection::vec(any_parent(), 1..6), wait in any::<bool>(), mode in 0_usize..3,
        ) {
            let (when, failed) = (AfterWhen::ALL[mode], AfterFailed::ALL[usize::from(wait)]);
            let all = numbered(&parents);
            let rest: Vec<_> = all.iter().filter(|(_, parent)| !parent.is_settled(when)).copied().collect();
            prop_assert_eq!(judge(when, failed, &all), judge(when, failed, &rest));
        }

        /// When nothing goes on any more, nobody waits but for a retry.
        #[test]
        fn nobody_waits_for_the_dead(
            parents in prop::collection::vec(any_parent(), 1..6), wait in any::<bool>(), mode in 0_usize..3,
        ) {
            let (when, failed) = (AfterWhen::ALL[mode], AfterFailed::ALL[usize::from(wait)]);
            let over: Vec<Parent> = parents.into_iter().filter(|parent| parent.is_over()).collect();
            let may_be_tried = over.iter().any(|parent| matches!(parent, Parent::Ended(s) if *s != Status::Succeeded));
            let waits = verdict(when, failed, &over) == Verdict::Wait;
            prop_assert!(!waits || (failed == AfterFailed::Wait && may_be_tried));
        }
    }
}
