//! Sweep: what happens to tasks as time passes, whoever looks first. Each is one conditional update, so any
//! number of DENs may sweep at once.

use bson::{Bson, doc};

use super::claim::given_back;
use super::transition::{Transition, is_past};
use crate::model::Status;
use crate::store::{Store, StoreError};

/// How many tasks a sweep has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Deferred tasks whose time has come.
    pub due: u64,
    /// Claimed tasks that were not started within their lease.
    pub given_back: u64,
    /// Tasks whose deadline passed before they ran.
    pub overdue: u64,
}

impl Store {
    /// Queues deferred tasks whose time has come (-7 -> -2), gives back claims whose lease has run out
    /// (-1 -> -2), and cancels what waits beyond its deadline (-> -5). All times are the server's.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn sweep_tasks(&self) -> Result<Swept, StoreError> {
        let tasks = self.tasks();
        let now = self.now();
        let due = doc! {
            "status": Status::Deferred, "run_at": { "$type": "date" }, "$expr": is_past("run_at"),
        };
        let queued = Transition::to(Status::Queued, now).without_node().note("its time has come").pipeline();
        let claimed = doc! {
            "status": Status::Claimed,
            "lease_until": { "$type": "date" }, "$expr": is_past("lease_until"),
        };
        let back = given_back(self, "not started within its lease");
        let waiting = [Status::Deferred, Status::Blocked, Status::Queued].map(Bson::from);
        let overdue = doc! {
            "status": { "$in": waiting.to_vec() }, "deadline": { "$type": "date" }, "$expr": is_past("deadline"),
        };
        let cancelled =
            Transition::to(Status::Cancelled, now).note("its deadline passed before it ran").pipeline();
        let (due, given_back, overdue) = futures::try_join!(
            tasks.update_many(due, queued).into_future(),
            tasks.update_many(claimed, back).into_future(),
            tasks.update_many(overdue, cancelled).into_future(),
        )?;
        Ok(Swept {
            due: due.modified_count,
            given_back: given_back.modified_count,
            overdue: overdue.modified_count,
        })
    }

    /// Removes the place in a queue from tasks that are not claimed or running: a program that does not know
    /// of places may have ended or requeued them, and its next claim must not meet one that is taken.
    /// Returns how many.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn clear_stale_slots(&self) -> Result<u64, StoreError> {
        let stale = doc! { "slot": { "$exists": true }, "status": { "$nin": [-1, 0] } };
        let update = doc! { "$unset": { "slot": "", "lease_until": "", "instance": "", "pid": "" } };
        Ok(self.tasks().update_many(stale, update).await?.modified_count)
    }
}
