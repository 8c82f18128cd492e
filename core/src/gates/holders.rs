//! Holders of locks: who gets a lock next, whose locks are given back as they have ended or are to be tried again later, and
//! who was queued without its locks, by a program that knows nothing of them, or by hand.
//!
//! Whoever waits for a lock gets it in the order of the ids of their tasks, and nobody before somebody who cannot have it yet:
//! so one who wants it alone is not kept from it for ever by others who share it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::blocked::{of_round, round_of};
use super::request::{LockMode, LockRequest};
use super::{Parts, Passed, former_holders};
use crate::model::{Status, whole_number};
use crate::store::{Store, StoreError, as_majority, collect, documents_in, with};
use crate::task::transition::Transition;
use crate::task::{Claim, Unclaimed};

/// A lock has so many holders at once at most, whatever it is asked for: they are all in one document.
const MOST_HOLDERS: usize = 10_000;

/// So many tasks give their locks back at once.
const AT_ONCE: i64 = 200;

/// A task that holds a lock, or waits for it: then this is what it will be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Holder {
    pub task: ObjectId,
    /// The `lock_round` of the task in which it got the lock. In any other, it holds nothing.
    pub round: i64,
    pub mode: LockMode,
    pub queue: Option<ObjectId>,
    /// Since when; `None` is from now on.
    pub since: Option<DateTime>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Who holds it from now on.
    pub holders: Vec<Holder>,
    /// Whether that is another state than it had.
    pub changed: bool,
    /// The first so many of those that wait have it now.
    pub granted: usize,
}

impl Holder {
    /// What a lock has stored. One without a task holds nothing.
    pub(super) fn stored(holder: &Document) -> Option<Self> {
        Some(Self {
            task: holder.get_object_id("task").ok()?,
            round: holder.get("round").and_then(whole_number).unwrap_or(0),
            mode: LockMode::stored(holder),
            queue: holder.get_object_id("queue").ok(),
            since: Some(holder.get_datetime("since").copied().unwrap_or(DateTime::MIN)),
        })
    }

    pub(super) fn all(lock: &Document) -> Vec<Self> {
        documents_in(lock, "holders").filter_map(Self::stored).collect()
    }

    /// What gives the stored form in an update that is a pipeline.
    pub(super) fn expression(&self) -> Document {
        let mut holder =
            doc! { "task": self.task, "round": self.round, "mode": self.mode.as_str(), "queue": self.queue };
        if let LockMode::Places(places) = self.mode {
            holder.insert("places", i64::from(places));
        }
        holder.insert("since", self.since.map_or_else(|| Bson::from("$$NOW"), Bson::from));
        holder
    }
}

/// Gives a lock to as many of those who wait for it, the first one first, as can have it beside those of `held` that
/// `is_valid` tells to hold it still.
pub(super) fn plan(held: &[Holder], is_valid: impl Fn(&Holder) -> bool, waiters: &[Holder]) -> Plan {
    let mut holders: Vec<Holder> = held.iter().filter(|holder| is_valid(holder)).cloned().collect();
    let mut granted = 0;
    for waiter in waiters {
        // What it held in an earlier round does not stand in its own way.
        holders.retain(|holder| holder.task != waiter.task || holder.round == waiter.round);
        if !holders.iter().any(|holder| holder.task == waiter.task) {
            if !fits(&holders, waiter.mode) {
                break;
            }
            holders.push(waiter.clone());
        }
        granted += 1;
    }
    Plan { changed: holders != held, holders, granted }
}

/// Whether one more may hold it in this way. Where tasks do not agree on the number of places, the smallest one counts.
fn fits(holders: &[Holder], mode: LockMode) -> bool {
    let Some(mut places) = holders.iter().map(|holder| places_of(holder.mode)).min() else { return true };
    places = places.min(places_of(mode));
    let is_shared = |mode: LockMode| mode == LockMode::Shared;
    let are_alike = holders.iter().all(|holder| is_shared(holder.mode) == is_shared(mode));
    are_alike && holders.len() < places.min(MOST_HOLDERS)
}

/// How many may hold a lock at once beside one that holds it so, with it.
fn places_of(mode: LockMode) -> usize {
    match mode {
        LockMode::Exclusive => 1,
        LockMode::Shared => usize::MAX,
        LockMode::Places(places) => usize::try_from(places).unwrap_or(usize::MAX),
    }
}

impl Store {
    pub(super) async fn release_holders(&self) -> Result<Passed, StoreError> {
        let only = doc! { "status": 1, "locks": 1, "lock_round": 1 };
        let filter = self.without_left_alone(former_holders());
        // Nobody else may have a lock because of an end that a failover takes back.
        let found = as_majority(&self.tasks(), filter, only, AT_ONCE).await?;
        let mut by_lock: BTreeMap<String, Vec<(ObjectId, i64)>> = BTreeMap::new();
        let mut alike: HashMap<(i64, i64), Vec<ObjectId>> = HashMap::new();
        for task in &found {
            let status = task.get("status").and_then(whole_number);
            let (Ok(id), Some(status)) = (task.get_object_id("_id"), status) else { continue };
            let round = round_of(task);
            for request in LockRequest::stored(task) {
                by_lock.entry(request.name().to_owned()).or_default().push((id, round));
            }
            alike.entry((status, round)).or_default().push(id);
        }
        let mut parts = Parts::default();
        // Those keep their mark whose locks cannot be taken from them.
        let mut kept: BTreeSet<ObjectId> = BTreeSet::new();
        for (lock, holders) in &by_lock {
            if let Err(error) = self.take_back(lock, holders).await {
                tracing::error!(lock, %error, "a lock cannot be taken back");
                kept.extend(holders.iter().map(|(task, _)| *task));
                parts.note(Err(error))?;
            }
            if parts.is_forbidden() {
                return parts.end();
            }
        }
        let mut passed = Passed::default();
        for ((status, round), mut ids) in alike {
            ids.retain(|id| !kept.contains(id));
            let same = doc! {
                "_id": { "$in": ids }, "status": status, "lock_round": of_round(round), "holds_locks": true,
            };
            let update = doc! { "$unset": { "holds_locks": "", "awaited": "" } };
            passed.unlocked += self.update_found(same, update).await?;
        }
        passed.more = passed.unlocked > 0;
        parts.note(Ok(passed))?;
        parts.end()
    }

    /// Removes holders from a lock: each is a task, and the last round in which it may have had the lock.
    async fn take_back(&self, lock: &str, holders: &[(ObjectId, i64)]) -> Result<(), StoreError> {
        let ids: Vec<ObjectId> = holders.iter().map(|(task, _)| *task).collect();
        let is = |(task, round): &(ObjectId, i64)| {
            doc! { "$and": [{ "$eq": ["$$this.task", task] }, { "$lte": ["$$this.round", *round] }] }
        };
        let any: Vec<Document> = holders.iter().map(is).collect();
        let rest = doc! { "$filter": { "input": "$holders", "cond": { "$not": [{ "$or": any }] } } };
        let update =
            vec![doc! { "$set": { "holders": rest, "dirty": true, "rev": Bson::from(ObjectId::new()) } }];
        self.locks().update_one(doc! { "_id": lock, "holders.task": { "$in": ids } }, update).await?;
        Ok(())
    }
}

impl Claim {
    /// Whether its task asks for locks that it has not got: it must not run.
    pub fn lacks_locks(&self) -> bool {
        let field = |name: &str| self.document.get(name).ok().flatten();
        let holds = field("holds_locks").and_then(|holds| holds.as_bool()).unwrap_or(false);
        let lacks = !holds || field("needs_lock").is_some() || self.has_lost_locks;
        lacks && !self.locks().is_empty()
    }

    /// What its task asks for. What is none, as a text that Perl's programs have put there for themselves, is not asked for at
    /// the gates either: the task would be blocked and let go for ever.
    fn locks(&self) -> Vec<LockRequest> {
        LockRequest::stored(&self.field("locks"))
    }

    /// A field of the task, if it has it, and nothing else.
    fn field(&self, name: &str) -> Document {
        let value = self.document.get(name).ok().flatten().and_then(|value| Bson::try_from(value).ok());
        value.map(|value| doc! { name: value }).unwrap_or_default()
    }
}

impl Store {
    /// Looks whether the locks of claimed tasks know of them. Between the end of a task and the moment at which it is noted that
    /// its locks were taken back, a program that knows nothing of locks may queue it again as it was. Where no task has locks,
    /// nothing is read.
    pub(crate) async fn look_at_locks(&self, claims: &mut [Claim]) -> Result<(), StoreError> {
        let names: BTreeSet<String> =
            claims.iter().flat_map(Claim::locks).map(|lock| lock.name().to_owned()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let tasks: Vec<ObjectId> = claims.iter().map(|claim| claim.task.0).collect();
        let ours = doc! { "$filter": { "input": "$holders", "cond": { "$in": ["$$this.task", tasks] } } };
        let pipeline = [
            doc! { "$match": { "_id": { "$in": Vec::from_iter(names) }, "holders": { "$type": "array" } } },
            doc! { "$project": { "holders": ours } },
        ];
        let found = collect(self.locks().aggregate(pipeline)).await;
        // Nor has anybody given it locks then.
        let Some(found) = StoreError::unless_forbidden(found)? else { return Ok(()) };
        let mut held: HashSet<(&str, ObjectId, i64)> = HashSet::new();
        for lock in &found {
            let Ok(name) = lock.get_str("_id") else { continue };
            held.extend(Holder::all(lock).into_iter().map(|holder| (name, holder.task, holder.round)));
        }
        for claim in claims {
            let round = round_of(&claim.field("lock_round"));
            let has = |lock: &LockRequest| held.contains(&(lock.name(), claim.task.0, round));
            claim.has_lost_locks = !claim.locks().iter().all(has);
        }
        Ok(())
    }

    /// Sends a claimed task to its locks (-1 -> -4). Nothing happens if its runner has started it meanwhile.
    #[operation(task = %claim.task)]
    pub async fn block_claim(&self, claim: &Claim) -> Result<Unclaimed, StoreError> {
        let claimed = with(doc! { "_id": claim.task }, claim.like());
        let update = Transition::to(Status::Blocked, self.now()).without_node().end_of_run().blocked_anew();
        let update = update.note("it was queued without its locks").pipeline();
        let blocked = self.tasks().update_one(claimed, update).await.map_err(StoreError::from);
        match blocked {
            Ok(blocked) if blocked.matched_count == 1 => {}
            Ok(_) => return Ok(Unclaimed::NotClaimed),
            Err(error) if error.is_about_one() => {
                self.end_unfit(claim.task, &claim.like(), Status::Terminated, error).await?;
                return Ok(Unclaimed::NotClaimed);
            }
            Err(error) => {
                self.doubt_counters();
                return Err(error);
            }
        }
        self.moved(claim.queue, Some(claim.status()), Some(Status::Blocked), 1);
        self.link_at_once(&[claim.task]).await;
        Ok(Unclaimed::Queued)
    }
}

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{NodeName, QueueId, TaskId};

    use LockMode::{Exclusive, Places, Shared};

    fn id(number: usize) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    fn waiter(number: usize, mode: LockMode) -> Holder {
        Holder { task: id(number), round: 1, mode, queue: None, since: None }
    }

    fn holders(modes: &[LockMode]) -> Vec<Holder> {
        modes.iter().enumerate().map(|(number, mode)| waiter(number, *mode)).collect()
    }

    #[test]
    fn one_alone_several_together_or_so_many_at_once() {
        let fits = |held: &[LockMode], mode| fits(&holders(held), mode);
        for mode in [Exclusive, Shared, Places(1)] {
            assert!(fits(&[], mode), "{mode:?}");
            assert!(!fits(&[Exclusive], mode), "{mode:?}");
        }
        assert!(!fits(&[Shared], Exclusive) && fits(&[Shared, Shared], Shared));
        assert!(!fits(&[Shared], Places(9)) && !fits(&[Places(9)], Shared) && !fits(&[Places(9)], Exclusive));
        assert!(fits(&[Places(3), Places(3)], Places(3)));
        assert!(!fits(&[Places(3), Places(3), Places(3)], Places(3)));
        assert!(!fits(&[Places(1)], Places(9)), "the smallest number counts");
        assert!(!fits(&[Places(9)], Places(1)));
    }

    #[test]
    fn no_lock_has_more_holders_than_its_document_takes() {
        for mode in [Shared, Places(1_000_000)] {
            assert!(fits(&holders(&vec![mode; MOST_HOLDERS - 1]), mode), "{mode:?}");
            assert!(!fits(&holders(&vec![mode; MOST_HOLDERS]), mode), "{mode:?}");
        }
    }

    #[test]
    fn nobody_is_let_in_before_one_who_cannot_have_it_yet() {
        let waiters = [waiter(5, Shared), waiter(6, Exclusive), waiter(7, Shared)];
        let first = plan(&holders(&[Shared]), |_| true, &waiters);
        assert_eq!((first.granted, first.changed, first.holders.len()), (1, true, 2));
        let none = plan(&first.holders, |_| true, &waiters[1..]);
        assert_eq!((none.granted, none.changed), (0, false));
        let free = plan(&first.holders, |_| false, &waiters[1..]);
        assert_eq!((free.granted, free.holders), (1, vec![waiters[1].clone()]));
    }

    #[test]
    fn who_has_it_already_is_let_in_and_earlier_rounds_do_not_count() {
        let held = vec![waiter(5, Exclusive)];
        let again = plan(&held, |_| true, &[waiter(5, Exclusive)]);
        assert_eq!((again.granted, again.changed), (1, false), "its task was not told yet");
        let later = Holder { round: 2, ..waiter(5, Exclusive) };
        let anew = plan(&held, |_| true, std::slice::from_ref(&later));
        assert_eq!((anew.granted, anew.changed, anew.holders), (1, true, vec![later]));
    }

    #[test]
    fn a_holder_is_stored_with_all_that_tells_it_from_others() {
        let places = Holder { queue: Some(id(9)), ..waiter(1, Places(3)) };
        let mut stored = places.expression();
        assert_eq!(stored.get_str("since").unwrap(), "$$NOW");
        stored.insert("since", DateTime::from_millis(5));
        let read = Holder::stored(&stored).unwrap();
        assert_eq!(read, Holder { since: Some(DateTime::from_millis(5)), ..places });
        assert_eq!(read.expression(), stored);
        assert_eq!(Holder::stored(&doc! { "task": "x" }), None);
    }

    fn any_mode() -> impl Strategy<Value = LockMode> {
        prop_oneof![Just(Exclusive), Just(Shared), (1_u32..4).prop_map(Places)]
    }

    /// Whether these may hold a lock together.
    fn agree(holders: &[Holder]) -> bool {
        let modes: Vec<LockMode> = holders.iter().map(|holder| holder.mode).collect();
        let places = |mode: &LockMode| match mode {
            Places(places) => usize::try_from(*places).ok(),
            Exclusive | Shared => None,
        };
        let least = modes.iter().filter_map(places).min();
        modes.len() < 2
            || modes.iter().all(|mode| *mode == Shared)
            || (modes.iter().all(|mode| matches!(mode, Places(_)))
                && least.is_some_and(|least| modes.len() <= least))
    }

    /// A task of the simulation below.
    #[derive(Debug, Clone)]
    struct Job {
        locks: BTreeMap<u8, LockMode>,
        /// The lock that it waits for; `None`: it runs.
        needs: Option<u8>,
        ended: bool,
    }

    impl Job {
        fn is_after(&self, lock: u8) -> Option<u8> {
            self.locks.keys().copied().find(|name| *name > lock)
        }
    }

    proptest! {
        #[test]
        fn as_many_as_fit_are_let_in_and_they_agree(
            held in prop::collection::vec((any_mode(), any::<bool>()), 0..5),
            wait in prop::collection::vec(any_mode(), 0..6),
        ) {
            let mut before: Vec<Holder> = Vec::new();
            for (number, (mode, _)) in held.iter().enumerate() {
                if fits(&before, *mode) {
                    before.push(waiter(number, *mode));
                }
            }
            let valid: Vec<ObjectId> =
                held.iter().enumerate().filter(|(_, (_, valid))| *valid).map(|(number, _)| id(number)).collect();
            let waiters: Vec<Holder> =
                wait.iter().enumerate().map(|(number, mode)| waiter(100 + number, *mode)).collect();
            let plan_of = plan(&before, |holder| valid.contains(&holder.task), &waiters);
            prop_assert!(agree(&plan_of.holders), "{plan_of:?}");
            prop_assert_eq!(plan_of.changed, plan_of.holders != before);
            if let Some(next) = waiters.get(plan_of.granted) {
                prop_assert!(!fits(&plan_of.holders, next.mode));
            }
            let again = plan(&plan_of.holders, |_| true, &waiters[plan_of.granted..]);
            prop_assert_eq!((again.changed, again.granted), (false, 0));
        }

        /// Tasks with any sets of locks, taken in order: whoever is looked at first and whoever ends first, all of them come
        /// to run, and never two that do not agree.
        #[test]
        fn nobody_waits_for_ever(
            wanted in prop::collection::vec(prop::collection::btree_map(0_u8..5, any_mode(), 1..4), 1..9),
            chances in prop::collection::vec(any::<u16>(), 0..300),
        ) {
            let first = |locks: &BTreeMap<u8, LockMode>| locks.keys().next().copied();
            let mut jobs: Vec<Job> = wanted
                .into_iter()
                .map(|locks| Job { needs: first(&locks), locks, ended: false })
                .collect();
            let mut locks: BTreeMap<u8, Vec<Holder>> = BTreeMap::new();
            for step in 0..2_000 {
                // At random for a while, and then each in its turn: sooner or later everything is looked at.
                let chance = chances.get(step).map_or(step, |chance| usize::from(*chance));
                // A task ends at its time, and not before.
                let running: Vec<usize> = (0..jobs.len()).filter(|at| jobs[*at].needs.is_none() && !jobs[*at].ended).collect();
                if chance % 3 == 0 && !running.is_empty() {
                    jobs[running[chance % running.len()]].ended = true;
                }
                let name = u8::try_from(chance % 5).unwrap();
                let waiters: Vec<(usize, Holder)> = (0..jobs.len())
                    .filter(|at| jobs[*at].needs == Some(name))
                    .map(|at| (at, waiter(at, jobs[at].locks[&name])))
                    .collect();
                let held = locks.entry(name).or_default();
                let is_valid = |holder: &Holder| {
                    jobs.iter().enumerate().any(|(at, job)| id(at) == holder.task && !job.ended)
                };
                let only: Vec<Holder> = waiters.iter().map(|(_, waiter)| waiter.clone()).collect();
                let plan = plan(held, is_valid, &only);
                prop_assert!(agree(&plan.holders), "{plan:?}");
                *held = plan.holders;
                for (at, _) in waiters.iter().take(plan.granted) {
                    jobs[*at].needs = jobs[*at].is_after(name);
                }
            }
            prop_assert!(jobs.iter().all(|job| job.ended), "{jobs:?} {locks:?}");
        }
    }

    fn lacks_locks(task: &Document) -> bool {
        let id = ObjectId::new();
        let claim = Claim {
            task: TaskId(id),
            queue: QueueId(id),
            node: NodeName::new("n1"),
            attempt: 1,
            instance: "i".to_owned(),
            document: RawDocumentBuf::try_from(task).unwrap(),
            is_started: false,
            has_lost_locks: false,
        };
        claim.lacks_locks()
    }

    #[test]
    fn what_is_no_lock_is_not_waited_for() {
        for locks in [doc! {}, doc! { "locks": [] }, doc! { "locks": "a" }, doc! { "locks": ["my lock", 5] }]
        {
            assert!(!lacks_locks(&locks), "{locks}");
        }
        assert!(lacks_locks(&doc! { "locks": ["my lock", "a/3"] }));
        assert!(lacks_locks(&doc! { "locks": ["a"], "holds_locks": true, "needs_lock": "a" }));
        assert!(!lacks_locks(&doc! { "locks": ["a"], "holds_locks": true }));
    }
}
