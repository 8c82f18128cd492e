//! Locks: who waits for one, and who gets it.
//!
//! A lock is a document of `locks`: `{_id: NAME, holders: [{task, round, mode, places, since, queue}], dirty, rev, stirred}`.
//! `rev` is another one after each change of the holders, so that whoever has read the lock knows whether they are still the
//! same. `stirred` is another one whenever somebody comes who wants it: so whoever has looked at those who wait knows whether
//! these were all. It is no hindrance for giving the lock away, else nobody would get it while many come. A holder is one as long as its task has that `lock_round`, `holds_locks`,
//! and a status in which it waits, is queued, claimed or runs: a lock is never held by what is not there.
//!
//! A task notes which lock it needs, and that it may hold one, before it is given any; and the lock is `dirty` from before
//! that is over until those who wait have been looked at. So nobody who holds a lock, and nobody who waits for one, is ever
//! forgotten. Those who wait are read as a majority has them, and so are the tasks of holders: what one process has
//! given a lock for is seen by the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;

use super::apply::released;
use super::blocked::{Blocked, of_round, round_of, waits_for_none};
use super::holders::{Holder, plan};
use super::{Parts, Passed, dirty_locks};
use crate::model::{QueueId, Status};
use crate::store::{Store, StoreError, as_majority, collect};

/// So many locks are looked at in a round.
const LOOKED_AT: i64 = 50;

/// So many of those who wait for a lock are read at once.
const WAITING: i64 = 200;

/// How often a lock is looked at again that somebody else changes at the same time.
const TRIES: usize = 5;

#[derive(Debug)]
struct Lock {
    holders: Vec<Holder>,
    /// Whether there is something among its holders that is none.
    is_odd: bool,
    rev: Bson,
    /// Another one whenever somebody came who wants it.
    stirred: Bson,
}

impl Lock {
    fn of(lock: &Document) -> Self {
        let holders = Holder::all(lock);
        let is_odd = holders.len() != lock.get_array("holders").map_or(0, Vec::len);
        let field = |name: &str| lock.get(name).cloned().unwrap_or(Bson::Null);
        Self { holders, is_odd, rev: field("rev"), stirred: field("stirred") }
    }
}

/// What a task is like that a lock names as its holder.
#[derive(Debug)]
struct Holding {
    status: Option<Status>,
    round: i64,
    holds: bool,
    needs: Option<String>,
}

impl Holding {
    fn of(task: &Document) -> Self {
        Self {
            status: Status::stored(task),
            round: round_of(task),
            holds: task.get_bool("holds_locks").unwrap_or(false),
            needs: task.get_str("needs_lock").ok().map(str::to_owned),
        }
    }

    fn holds(&self, holder: &Holder) -> bool {
        let keeps =
            matches!(self.status, Some(Status::Blocked | Status::Queued | Status::Claimed | Status::Running));
        self.holds && self.round == holder.round && keeps
    }
}

/// What is next for tasks that go on together: another lock, the round that they are in, and, where they need no other one, their
/// queue.
type Kind<'a> = (Option<&'a str>, i64, Option<QueueId>);

impl Store {
    /// Has new tasks that wait for nothing but their locks wait for the first of them.
    pub(super) async fn enter_locks(&self, tasks: &[Blocked]) -> Result<Passed, StoreError> {
        let mut groups: BTreeMap<(&str, i64), Vec<Bson>> = BTreeMap::new();
        for task in tasks {
            self.leave_earlier_rounds(task).await?;
            if let Some(first) = task.lock_after("") {
                groups.entry((first, task.round)).or_default().push(task.id.into());
            }
        }
        let mut parts = Parts::default();
        for ((lock, round), ids) in groups {
            let entered = self.enter_lock(lock, round, ids).await;
            let passed = |linked| Passed { linked, more: linked > 0, ..Passed::default() };
            parts.note(entered.map(passed))?;
            if parts.is_forbidden() {
                break;
            }
        }
        parts.end()
    }

    async fn enter_lock(&self, lock: &str, round: i64, ids: Vec<Bson>) -> Result<u64, StoreError> {
        let new = doc! {
            "status": Status::Blocked, "gate": "new", "lock_round": of_round(round),
            "waiting_for": waits_for_none(),
        };
        let mut update = doc! { "needs_lock": lock, "holds_locks": true };
        self.update_each(ids.clone(), &new, doc! { "$set": update.clone() }).await?;
        // From now on they are among those who wait. They are new until the lock knows that.
        self.stir_lock(lock).await?;
        update.insert("gate", "locks");
        self.update_each(ids, &new, doc! { "$set": update }).await
    }

    /// A task that is tried again, or waits again, holds nothing that it had before.
    pub(super) async fn leave_earlier_rounds(&self, task: &Blocked) -> Result<(), StoreError> {
        if task.round <= 1 || task.locks.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = task.locks.iter().map(|request| request.name()).collect();
        let earlier = doc! { "task": task.id, "round": { "$lt": task.round } };
        let held = doc! { "_id": { "$in": names }, "holders": { "$elemMatch": earlier.clone() } };
        let leave = doc! {
            "$pull": { "holders": earlier }, "$set": { "dirty": true, "rev": ObjectId::new() },
        };
        self.locks().update_many(held, leave).await?;
        Ok(())
    }

    /// Has somebody look who waits for the lock.
    pub(super) async fn stir_lock(&self, name: &str) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let stir = doc! {
                "$set": { "dirty": true, "stirred": ObjectId::new() },
                "$setOnInsert": { "holders": [], "rev": ObjectId::new() },
            };
            let stirred = self.locks().update_one(doc! { "_id": name }, stir).upsert(true).await;
            match stirred.map_err(StoreError::from) {
                // Two at once have found none, and one of them has made it.
                Err(error) if tries < TRIES && error.is_duplicate_key() => {}
                other => return other.map(|_| ()),
            }
        }
    }

    pub(super) async fn serve_locks(&self) -> Result<Passed, StoreError> {
        let locks = self.locks();
        let dirty = locks.find(dirty_locks()).projection(doc! { "_id": 1 }).limit(LOOKED_AT);
        let dirty = collect(dirty).await?;
        let mut parts = Parts::default();
        for name in dirty.iter().filter_map(|lock| lock.get_str("_id").ok()) {
            let served = self.serve_lock(name).await;
            if let Err(error) = &served
                && !error.is_transient()
                && !error.is_forbidden()
            {
                tracing::error!(lock = name, %error, "a lock cannot be given away: the next one is looked at");
            }
            parts.note(served)?;
            if parts.is_forbidden() {
                break;
            }
        }
        parts.end()
    }

    async fn serve_lock(&self, name: &str) -> Result<Passed, StoreError> {
        let mut passed = Passed::default();
        for _ in 0..TRIES {
            let dirty = doc! { "_id": name, "dirty": true };
            let Some(lock) = self.locks().find_one(dirty).await?.as_ref().map(Lock::of) else { break };
            // Who is given a lock because it waits must be seen to wait by whoever looks later whether it may have the lock.
            let waits = doc! { "needs_lock": name };
            let waiting = self.blocked_as(waits, WAITING, ReadConcern::majority()).await?;
            let is_all = i64::try_from(waiting.len()).is_ok_and(|found| found < WAITING);
            let free = waiting.iter().filter(|task| task.waiting_for.is_empty());
            let (waiters, waiting): (Vec<Holder>, Vec<&Blocked>) =
                free.filter_map(|task| Some((task.waiter(name)?, task))).unzip();
            let tasks = self.holding(&lock.holders).await?;
            let holds = |holder: &Holder| tasks.get(&holder.task).is_some_and(|task| task.holds(holder));
            let plan = plan(&lock.holders, holds, &waiters);
            let mut rev = lock.rev.clone();
            if plan.changed || lock.is_odd {
                let Some(changed) = self.change_holders(name, &lock, &plan.holders).await? else { continue };
                rev = changed;
                passed.more = true;
            }
            let granted = waiting.get(..plan.granted).unwrap_or_default();
            let (let_in, released) = self.let_in(name, granted).await?;
            passed.released += released;
            passed.more |= !granted.is_empty();
            passed.more |= self.stir_later(name, &lock.holders, &tasks).await?;
            // One that could not be let in holds the lock for nothing, if it does: all is looked at again.
            let may_be_more = plan.granted > 0 && plan.granted == waiters.len() && !is_all;
            if let_in
                && !may_be_more
                && self.settle_lock(name, (&rev, &lock.stirred), plan.holders.is_empty()).await?
            {
                break;
            }
        }
        Ok(passed)
    }

    /// What the tasks are like that are named as holders, as a majority has them.
    async fn holding(&self, holders: &[Holder]) -> Result<HashMap<ObjectId, Holding>, StoreError> {
        if holders.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<ObjectId> = holders.iter().map(|holder| holder.task).collect();
        let only = doc! { "status": 1, "lock_round": 1, "holds_locks": 1, "needs_lock": 1 };
        let found = as_majority(&self.tasks(), doc! { "_id": { "$in": ids } }, only, 0).await?;
        let holding = |task: &Document| Some((task.get_object_id("_id").ok()?, Holding::of(task)));
        Ok(found.iter().filter_map(holding).collect())
    }

    /// Writes who holds the lock, if it is as it was read. Returns its new `rev`.
    async fn change_holders(
        &self,
        name: &str,
        lock: &Lock,
        holders: &[Holder],
    ) -> Result<Option<Bson>, StoreError> {
        let same = doc! { "_id": name, "rev": &lock.rev };
        let rev = Bson::from(ObjectId::new());
        let holders: Vec<Document> = holders.iter().map(Holder::expression).collect();
        let change = vec![doc! { "$set": { "holders": holders, "dirty": true, "rev": &rev } }];
        let changed = self.locks().update_one(same, change).await?.matched_count == 1;
        Ok(changed.then_some(rev))
    }

    /// Lets tasks go on that have this lock: to the next one that they need, or, if it was the last, to their queue. Returns
    /// whether all of them did, and how many are queued now.
    async fn let_in(&self, name: &str, tasks: &[&Blocked]) -> Result<(bool, u64), StoreError> {
        let mut groups: HashMap<Kind<'_>, Vec<Bson>> = HashMap::new();
        for task in tasks {
            let next = task.lock_after(name);
            let queue = task.queue.filter(|_| next.is_none());
            groups.entry((next, task.round, queue)).or_default().push(task.id.into());
        }
        let (mut all, mut released_tasks) = (true, 0);
        for ((next, round, queue), ids) in groups {
            let expected = ids.len() as u64;
            let still = doc! {
                "status": Status::Blocked, "needs_lock": name, "lock_round": of_round(round),
                "waiting_for": waits_for_none(),
            };
            let moved = match next {
                None => {
                    let update = released(self, Status::Queued).note("it has its locks");
                    let moved = self.unblock((ids, still), update, queue, Status::Queued).await?;
                    released_tasks += moved;
                    moved
                }
                Some(next) => {
                    let update = doc! { "$set": { "needs_lock": next, "gate": "locks" } };
                    let moved = self.update_each(ids, &still, update).await?;
                    self.stir_lock(next).await?;
                    moved
                }
            };
            all &= moved == expected;
        }
        Ok((all, released_tasks))
    }

    /// Holders of this lock that wait for a later one: whoever let them in may have died before that was told.
    /// Returns whether there are any.
    async fn stir_later(
        &self,
        name: &str,
        holders: &[Holder],
        tasks: &HashMap<ObjectId, Holding>,
    ) -> Result<bool, StoreError> {
        let needs = |holder: &Holder| {
            let task = tasks.get(&holder.task).filter(|task| task.holds(holder))?;
            task.needs.as_deref().filter(|_| task.status == Some(Status::Blocked))
        };
        let later: BTreeSet<&str> =
            holders.iter().filter_map(needs).filter(|needed| *needed > name).collect();
        for lock in &later {
            self.stir_lock(lock).await?;
        }
        Ok(!later.is_empty())
    }

    /// Notes that those who wait for the lock have been looked at, unless something has happened meanwhile. One that nobody
    /// holds or wants is removed. Returns whether that was so.
    async fn settle_lock(
        &self,
        name: &str,
        (rev, stirred): (&Bson, &Bson),
        is_free: bool,
    ) -> Result<bool, StoreError> {
        let same = doc! { "_id": name, "rev": rev, "stirred": stirred };
        if is_free && self.blocked(doc! { "needs_lock": name }, 1).await?.is_empty() {
            return Ok(self.locks().delete_one(same).await?.deleted_count == 1);
        }
        let clean = doc! { "$unset": { "dirty": "" } };
        Ok(self.locks().update_one(same, clean).await?.matched_count == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_one_while_its_task_may_still_run() {
        let id = ObjectId::new();
        let holder = Holder::stored(&doc! { "task": id, "round": 2 }).unwrap();
        let holds = |task: Document| Holding::of(&task).holds(&holder);
        for status in [-4, -2, -1, 0] {
            assert!(holds(doc! { "status": status, "lock_round": 2, "holds_locks": true }), "{status}");
        }
        for status in [-7, -6, -5, -3, 1, 2, 17, -42] {
            assert!(!holds(doc! { "status": status, "lock_round": 2, "holds_locks": true }), "{status}");
        }
        assert!(!holds(doc! { "status": 0, "lock_round": 3, "holds_locks": true }), "it is tried again");
        assert!(!holds(doc! { "status": 0, "lock_round": 2 }), "its locks were given back");
        assert!(!holds(doc! {}));
    }

    #[test]
    fn what_is_no_holder_is_noticed() {
        let lock = Lock::of(&doc! { "holders": [{ "task": ObjectId::new() }, 5, { "task": "x" }] });
        assert_eq!((lock.holders.len(), lock.is_odd, lock.rev), (1, true, Bson::Null));
        assert!(!Lock::of(&doc! {}).is_odd);
    }
}
