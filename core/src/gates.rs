//! Gates: what keeps a task blocked (-4) until other tasks have ended, or until it has its locks.
//!
//! A task with `after` or `locks` is born -4 with `gate: "new"`, and goes on from gate to gate:
//!
//! 1. **new**: the tasks that it comes after get `dependents: true`, and only then it is looked how they are. Whoever
//!    ends later is seen to have a dependent, whoever has ended before is seen to have ended. The process that submits
//!    does that at once; should it die, any DEN finds the task and does it.
//! 2. **after**: an ended task with `dependents: true` is looked for by all, and those that wait for it are told: each by one
//!    update on the condition that it still waits for it. Who has nothing left to wait for goes on with the same update.
//! 3. **locks**: a lock is a document with its holders. It is given on the condition that it is as it was when it was decided
//!    who gets it ([`holders::plan`], pure). Locks are taken in the order of their names and kept while waiting for the next, so
//!    that nobody waits in a circle.
//!
//! Each of these has a mark that an index finds: `gate: "new"`, `dependents: true`, `dirty: true` of a lock, and
//! `holds_locks: true` of a task that has ended. A mark is set before what it stands for, and removed after, on the
//! condition that nothing has come in between. So whoever dies in between leaves a mark, and whoever finds it does the
//! same again; any number may do so at once.
//!
//! A task with a key of its own is at the gate **key** before all of these, until it has it: see [`crate::keys`].
//!
//! **What is read.** The ends of tasks that others are let in for are read as a majority of the replica set has them: an
//! end that a failover takes back has let nobody in.

mod apply;
mod blocked;
mod graph;
mod holders;
mod locks;
mod parents;
mod request;
mod show;

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_operation::operation;

pub use blocked::{AfterFailed, AfterWhen};
pub use graph::{Neighbour, Neighbours};
pub(crate) use request::OF_ARRAYS;
pub use request::{LockError, LockMode, LockRequest, MOST_LOCKS, is_lock_name};
pub use show::{LockDetails, LockFilter, LockRow, LockWait, Relative, Waits};

use crate::model::{Status, TaskId};
use crate::store::collections::{self, TASKS};
use crate::store::{Store, StoreError, put};

pub(crate) const LOCKS: &str = collections::LOCKS.name;

pub const MOST_AFTER: usize = 1_000;

/// The tasks of a submission times those that each comes after are so many at most.
pub const MOST_LINKS: usize = 1_000_000;

/// So many rounds are done at once: more is left for the next call.
const ROUNDS: usize = 20;

const RECHECKED: i64 = 500;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Tasks of which those that they wait for know now, or that wait for a lock now.
    pub linked: u64,
    /// Tasks that are queued or deferred now.
    pub released: u64,
    /// Tasks that are cancelled, as what they wait for will not come.
    pub cancelled: u64,
    /// Ended tasks whose locks were given back.
    pub unlocked: u64,
    /// Whether anything was done, so that there may be more to do.
    pub more: bool,
}

impl Passed {
    fn add(&mut self, other: Self) {
        self.linked += other.linked;
        self.released += other.released;
        self.cancelled += other.cancelled;
        self.unlocked += other.unlocked;
        self.more |= other.more;
    }
}

/// What several parts came to, of which one that fails does not stop the others.
#[derive(Debug, Default)]
struct Parts {
    passed: Passed,
    failed: Option<StoreError>,
}

impl Parts {
    /// An error is that the database cannot be reached: so it is for the others.
    fn note(&mut self, part: Result<Passed, StoreError>) -> Result<(), StoreError> {
        match part {
            Ok(passed) => self.passed.add(passed),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Whether the first that failed has no right to what it needs.
    fn is_forbidden(&self) -> bool {
        self.failed.as_ref().is_some_and(StoreError::is_forbidden)
    }

    /// What they came to.
    ///
    /// # Errors
    /// That of the first that failed.
    fn end(self) -> Result<Passed, StoreError> {
        self.failed.map_or(Ok(self.passed), Err)
    }
}

impl Store {
    /// Does what there is to do at the gates: links new tasks, tells those that wait of ends, takes locks from tasks that
    /// have ended and gives them to the next. Any number of processes may do so at once. It does so much at most; whether
    /// there may be more is told. Where this user has no right to the locks, everything else is done before that is an error.
    #[operation]
    pub async fn pass_gates(&self) -> Result<Passed, StoreError> {
        let mut all = Parts::default();
        for number in 1..=ROUNDS {
            let mut round = Parts::default();
            // New tasks that were left before their keys named them, see `keys.rs`.
            let settled = self.settle_left().await;
            round.note(settled.map(|(released, more)| Passed { released, more, ..Passed::default() }))?;
            round.note(self.link_new().await)?;
            round.note(self.tell_of_ends().await)?;
            round.note(self.release_holders().await)?;
            round.note(self.serve_locks().await)?;
            let more = round.passed.more;
            all.note(Ok(Passed { more: more && number == ROUNDS, ..round.passed }))?;
            if let Some(error) = round.failed {
                all.note(Err(error))?;
            }
            if !more {
                break;
            }
        }
        all.end()
    }
}

fn new_ones() -> Document {
    doc! { "status": Status::Blocked, "gate": "new" }
}

/// Ended tasks that others wait for who have not been told. There are two parts of them, as statuses are.
fn ended_parents() -> [Document; 2] {
    [
        doc! { "dependents": true, "status": { "$in": [-6, -5, -3] } },
        doc! { "dependents": true, "status": { "$gte": 1 } },
    ]
}

/// Tasks that may be named as holders of locks, and hold them no more: those in any status but that of a task that waits, is
/// queued, claimed or runs.
fn former_holders() -> Document {
    doc! { "holds_locks": true, "status": { "$nin": [-4, -2, -1, 0] } }
}

fn dirty_locks() -> Document {
    doc! { "dirty": true }
}

/// Where there is something to do if any document matches: collections and filters. Each is found by one entry of an index that
/// has nothing else.
pub(crate) fn to_look_at() -> Vec<(&'static str, Document)> {
    let [ended, finished] = ended_parents();
    vec![
        (TASKS.name, new_ones()),
        (TASKS.name, ended),
        (TASKS.name, finished),
        (TASKS.name, former_holders()),
        (LOCKS, dirty_locks()),
    ]
}

impl Store {
    /// Has blocked tasks looked at again, the oldest of those behind `from`. Returns the last one, if there may be more
    /// behind it. Programs that know nothing of gates may have deleted or changed what they wait for, without a mark.
    #[operation]
    pub async fn recheck_gates(&self, from: Option<TaskId>) -> Result<Option<TaskId>, StoreError> {
        let mut filter = doc! { "gate": { "$in": ["after", "locks"] } };
        put(&mut filter, "_id", from.map(|from| doc! { "$gt": from }));
        let blocked = self.blocked(filter, RECHECKED).await?;
        let after = blocked.iter().filter(|task| task.needs.is_none());
        let after: Vec<ObjectId> = after.map(|task| task.id).collect();
        if !after.is_empty() {
            let still = doc! { "_id": { "$in": after }, "status": Status::Blocked, "gate": "after" };
            self.update_found(still, doc! { "$set": { "gate": "new" } }).await?;
        }
        let locks: BTreeSet<&str> = blocked.iter().filter_map(|task| task.needs.as_deref()).collect();
        for lock in locks {
            self.stir_lock(lock).await?;
        }
        let is_all = i64::try_from(blocked.len()).is_ok_and(|found| found < RECHECKED);
        Ok(blocked.last().filter(|_| !is_all).map(|task| TaskId(task.id)))
    }
}
