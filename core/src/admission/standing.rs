//! What a rule has come to: what of its tasks still waits or runs.

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use disbatch_wire::admission::{TaskLeft, TaskStranded};

use super::{GATE, Scope};
use crate::counters::count::Amount;
use crate::model::{Queue, Status};
use crate::store::{Store, StoreError, collect, with};
use crate::task::{DETACHED, TaskQuery, attached};

const BOUND: u64 = 10_000;

/// A count that takes longer is left out: what a user has submitted is in no index.
const PATIENCE: Duration = Duration::from_secs(2);

const MOST_STRANDED: i64 = 5;

const MOST_LEFT: i64 = 5;

const WAITING: [i32; 3] = [-7, -4, -2];

/// How many tasks a scope has that have not ended. `None`: counting them took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Those that wait: deferred, blocked, held or queued.
    pub waiting: Option<Amount>,
    /// Those of them that a rule holds.
    pub held: Option<Amount>,
    /// Those of them that no rule holds, and whose queue starts none: it is paused, has no threads, or is gone.
    pub stopped: Option<Amount>,
    /// Those that are claimed or run.
    pub running: Option<Amount>,
}

impl Standing {
    /// Whether nothing runs, and nothing waits but what is held, or in queues that start nothing.
    pub fn is_idle(&self) -> bool {
        let runs = self.running != Some(Amount::Exactly(0));
        let waits = match (self.waiting, self.held, self.stopped) {
            (Some(Amount::Exactly(waiting)), Some(Amount::Exactly(held)), Some(Amount::Exactly(stopped))) => {
                waiting > held.saturating_add(stopped)
            }
            _ => true, // There are many, or nobody knows.
        };
        !runs && !waits
    }
}

impl Store {
    /// How many tasks a scope has that have not ended. Tasks of queues that were deleted are not among those of all.
    #[operation]
    pub async fn standing_of(&self, scope: &Scope) -> Result<Standing, StoreError> {
        let queues = self.list_queues().await?;
        let tasks = of_scope(scope, &queues);
        let count = |condition: Document| self.count_patiently(with(tasks.clone(), condition));
        let (waiting, held, stopped, running) = futures::try_join!(
            count(doc! { "status": { "$in": WAITING.to_vec() } }),
            count(doc! { "status": Status::Blocked, "gate": GATE }),
            count(with(not_held(), doc! { "queue": in_queues(scope, &queues, false) })),
            count(doc! { "status": { "$in": [-1, 0] } }),
        )?;
        Ok(Standing { waiting, held, stopped, running })
    }

    /// Some of the tasks of a scope that are still to come to their end: the oldest that are claimed or run, and then such as
    /// wait in queues that start tasks. Queues are told by these names, and those without one by their ids.
    #[operation]
    pub async fn tasks_left(
        &self,
        scope: &Scope,
        names: &HashMap<ObjectId, String>,
    ) -> Result<Vec<TaskLeft>, StoreError> {
        let queues = self.list_queues().await?;
        let running = with(of_scope(scope, &queues), doc! { "status": { "$in": [-1, 0] } });
        let mut waiting = with(of_scope(scope, &queues), not_held());
        waiting.insert("queue", in_queues(scope, &queues, true));
        let mut left = Vec::new();
        for filter in [running, waiting] {
            let more = MOST_LEFT.saturating_sub(i64::try_from(left.len()).unwrap_or(MOST_LEFT));
            if more > 0 {
                let found = self.find_patiently(filter, more).await?;
                left.extend(found.iter().filter_map(|task| left_of(task, names)));
            }
        }
        Ok(left)
    }

    /// The oldest tasks of a scope that are claimed or running in the name of a node that is not alive. Those that have a lease
    /// are ended when it is over; those of other programs may never be.
    #[operation]
    pub async fn stranded_tasks(&self, scope: &Scope) -> Result<Vec<TaskStranded>, StoreError> {
        let mut filter = of_scope(scope, &self.list_queues().await?);
        let alive: Vec<Bson> = self.nodes_not_gone().await?;
        filter.extend(doc! {
            "status": { "$in": [-1, 0] }, "node": { "$nin": alive }, DETACHED: attached(),
        });
        let found = self.find_patiently(filter, MOST_STRANDED).await?;
        let stranded = |task: &Document| {
            let node = task.get_str("node").unwrap_or_default().to_owned();
            Some(TaskStranded { task: task.get_object_id("_id").ok()?.to_hex(), node })
        };
        Ok(found.iter().filter_map(stranded).collect())
    }

    /// The oldest tasks, or none if looking for them takes too long: they are counted all the same.
    async fn find_patiently(&self, filter: Document, most: i64) -> Result<Vec<Document>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "node": 1 };
        let tasks = self.tasks();
        let found = tasks.find(filter).projection(only).sort(doc! { "_id": 1 }).limit(most);
        let found = StoreError::unless_out_of_time(collect(found.max_time(PATIENCE)).await)?;
        Ok(found.unwrap_or_default())
    }

    async fn count_patiently(&self, filter: Document) -> Result<Option<Amount>, StoreError> {
        let query = TaskQuery { filter, max_time: Some(PATIENCE), ..TaskQuery::default() };
        StoreError::unless_out_of_time(self.count_query_up_to(&query, BOUND).await)
    }
}

/// Matches the tasks of a scope; of wide ones by their queues, as there is no index over statuses alone.
fn of_scope(scope: &Scope, queues: &[Queue]) -> Document {
    let mut tasks = scope.filter();
    if matches!(scope, Scope::All | Scope::Owner(_)) {
        tasks.insert("queue", doc! { "$in": ids(queues.iter()) });
    }
    tasks
}

/// Matches those that wait and that no rule holds.
fn not_held() -> Document {
    doc! { "status": { "$in": WAITING.to_vec() }, "gate": { "$ne": GATE } }
}

/// Matches queues of a scope that start tasks, or that start none.
fn in_queues(scope: &Scope, queues: &[Queue], start: bool) -> Document {
    let starts = |queue: &&Queue| queue.claim_limit() > 0;
    let starting = ids(queues.iter().filter(starts));
    match (scope, start) {
        (Scope::Queue(queue), _) if starting.contains(&queue.0) == start => doc! { "$eq": queue },
        (Scope::Queue(_), _) => doc! { "$in": [] },
        (_, true) => doc! { "$in": starting },
        (Scope::Tenant(_), false) => doc! { "$nin": starting },
        // Not those of queues that are gone: they are not among all.
        (Scope::All | Scope::Owner(_), false) => {
            doc! { "$in": ids(queues.iter().filter(|queue| !starts(queue))) }
        }
    }
}

fn ids<'a>(queues: impl Iterator<Item = &'a Queue>) -> Vec<ObjectId> {
    queues.map(|queue| queue.id.0).collect()
}

fn left_of(task: &Document, names: &HashMap<ObjectId, String>) -> Option<TaskLeft> {
    let queue = task.get_object_id("queue").ok()?;
    Some(TaskLeft {
        task: task.get_object_id("_id").ok()?.to_hex(),
        queue: names.get(&queue).cloned().unwrap_or_else(|| queue.to_hex()),
        status: Status::stored(task)?.code(),
        node: task.get_str("node").ok().map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_idle_when_nothing_is_left_but_what_is_held() {
        let exactly = |tasks| Some(Amount::Exactly(tasks));
        let of = |waiting, held, running| Standing { waiting, held, stopped: exactly(0), running }.is_idle();
        let stopped = |waiting, stopped, running| {
            let standing = Standing { waiting: exactly(waiting), held: exactly(1), stopped, running };
            standing.is_idle()
        };
        assert!(stopped(5, exactly(4), exactly(0)));
        assert!(!stopped(6, exactly(4), exactly(0)) && !stopped(5, exactly(4), exactly(1)));
        assert!(!stopped(5, None, exactly(0)));
        assert!(of(exactly(0), exactly(0), exactly(0)) && of(exactly(3), exactly(3), exactly(0)));
        assert!(!of(exactly(3), exactly(2), exactly(0)) && !of(exactly(0), exactly(0), exactly(1)));
        assert!(!of(None, exactly(0), exactly(0)) && !of(exactly(0), exactly(0), None));
        assert!(!of(Some(Amount::MoreThan(9)), Some(Amount::MoreThan(9)), exactly(0)));
    }
}
