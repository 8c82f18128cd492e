//! Who gets a lock next. Pure: who holds it and who waits for it in, who holds it then out.
//!
//! Whoever waits gets it in the order of the ids of their tasks, and nobody before somebody who cannot have it yet: so one
//! who wants it alone is not kept from it for ever by others who share it.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::request::LockMode;
use crate::model::whole_number;

/// A lock has so many holders at once at most, whatever it is asked for: they are all in one document.
pub(super) const MOST_HOLDERS: usize = 10_000;

/// A task that holds a lock.
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

/// A task that waits for a lock.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiter {
    pub task: ObjectId,
    pub round: i64,
    pub mode: LockMode,
    pub queue: Option<ObjectId>,
}

/// What becomes of a lock.
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
    pub(super) fn stored(value: &Bson) -> Option<Self> {
        let holder = value.as_document()?;
        Some(Self {
            task: holder.get_object_id("task").ok()?,
            round: holder.get("round").and_then(whole_number).unwrap_or(0),
            mode: LockMode::stored(holder),
            queue: holder.get_object_id("queue").ok(),
            since: Some(holder.get_datetime("since").copied().unwrap_or(DateTime::MIN)),
        })
    }

    /// What gives the stored form in an update that is a pipeline.
    pub(super) fn expression(&self) -> Document {
        let mut holder =
            doc! { "task": self.task, "round": self.round, "mode": self.mode.as_str(), "queue": self.queue };
        if let LockMode::Places(places) = self.mode {
            holder.insert("places", i64::from(places));
        }
        match self.since {
            Some(since) => holder.insert("since", since),
            None => holder.insert("since", "$$NOW"),
        };
        holder
    }
}

impl Waiter {
    fn holder(&self) -> Holder {
        Holder { task: self.task, round: self.round, mode: self.mode, queue: self.queue, since: None }
    }
}

/// Gives a lock to as many of those who wait for it, the first one first, as can have it beside those of `held` that
/// `is_valid` tells to hold it still.
pub(super) fn plan(held: &[Holder], is_valid: impl Fn(&Holder) -> bool, waiters: &[Waiter]) -> Plan {
    let mut holders: Vec<Holder> = held.iter().filter(|holder| is_valid(holder)).cloned().collect();
    let mut granted = 0;
    for waiter in waiters {
        // What it held in an earlier round does not stand in its own way.
        holders.retain(|holder| holder.task != waiter.task || holder.round == waiter.round);
        if !holders.iter().any(|holder| holder.task == waiter.task) {
            if !fits(&holders, waiter.mode) {
                break;
            }
            holders.push(waiter.holder());
        }
        granted += 1;
    }
    Plan { changed: holders != held, holders, granted }
}

/// Whether one more may hold it in this way. Where tasks do not agree on the number of places, the smallest one counts.
pub(super) fn fits(holders: &[Holder], mode: LockMode) -> bool {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(number: usize) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    fn waiter(number: usize, mode: LockMode) -> Waiter {
        Waiter { task: id(number), round: 1, mode, queue: None }
    }

    fn holders(modes: &[LockMode]) -> Vec<Holder> {
        modes.iter().enumerate().map(|(number, mode)| waiter(number, *mode).holder()).collect()
    }

    use LockMode::{Exclusive, Places, Shared};

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
        assert_eq!((free.granted, free.holders), (1, vec![waiters[1].holder()]));
    }

    #[test]
    fn who_has_it_already_is_let_in_and_earlier_rounds_do_not_count() {
        let held = vec![waiter(5, Exclusive).holder()];
        let again = plan(&held, |_| true, &[waiter(5, Exclusive)]);
        assert_eq!((again.granted, again.changed), (1, false), "its task was not told yet");
        let later = Waiter { round: 2, ..waiter(5, Exclusive) };
        let anew = plan(&held, |_| true, std::slice::from_ref(&later));
        assert_eq!((anew.granted, anew.changed, anew.holders), (1, true, vec![later.holder()]));
    }

    #[test]
    fn a_holder_is_stored_with_all_that_tells_it_from_others() {
        let places = Waiter { queue: Some(id(9)), ..waiter(1, Places(3)) }.holder();
        let mut stored = places.expression();
        assert_eq!(stored.get_str("since").unwrap(), "$$NOW");
        stored.insert("since", DateTime::from_millis(5));
        let read = Holder::stored(&Bson::from(stored.clone())).unwrap();
        assert_eq!(read, Holder { since: Some(DateTime::from_millis(5)), ..places });
        assert_eq!(read.expression(), stored);
        assert_eq!(Holder::stored(&Bson::from(doc! { "task": "x" })), None);
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
                    before.push(waiter(number, *mode).holder());
                }
            }
            let valid: Vec<ObjectId> =
                held.iter().enumerate().filter(|(_, (_, valid))| *valid).map(|(number, _)| id(number)).collect();
            let waiters: Vec<Waiter> =
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
                let waiters: Vec<(usize, Waiter)> = (0..jobs.len())
                    .filter(|at| jobs[*at].needs == Some(name))
                    .map(|at| (at, waiter(at, jobs[at].locks[&name])))
                    .collect();
                let held = locks.entry(name).or_default();
                let is_valid = |holder: &Holder| {
                    jobs.iter().enumerate().any(|(at, job)| id(at) == holder.task && !job.ended)
                };
                let only: Vec<Waiter> = waiters.iter().map(|(_, waiter)| waiter.clone()).collect();
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
}
