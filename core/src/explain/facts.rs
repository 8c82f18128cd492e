//! What is known of a task, its queue and the nodes, gathered with a few small reads.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use crate::admission::Rule;
use crate::fair::Before;
use crate::gates::Waits;
use crate::model::{
    Node, OnOrphan, Policy, Queue, REQUEUE_ATTEMPTS, Rules, Selector, Sort, Status, Task, TaskId, as_text,
};
use crate::rate::Standing;
use crate::store::collections::{NODES, TASKS};
use crate::store::error::typed;
use crate::store::{Store, StoreError, Stored, collect, count_of};
use crate::task::{SetAside, occupying};

/// So many tasks ahead are counted; whether it is more does not matter.
pub(super) const COUNTED: u64 = 1_000;

/// A node of Perl's tells the time of its own clock every few seconds. Older times mean that it is gone.
const PERL_SILENCE: Duration = Duration::from_secs(60);

/// How many tasks of the queue a node has claimed or running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub node: String,
    pub tasks: u64,
    /// How many of these another program than this release's DENs claimed.
    pub of_others: u64,
}

/// How many tasks are claimed before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// So many; [`COUNTED`] stands for that and more.
    Tasks(u64),
    /// The queue has no order; so many others wait.
    Unordered(u64),
    /// Groups take turns in the queue.
    InGroup(Before),
}

#[derive(Debug, Clone)]
pub struct Facts {
    /// The time of the server.
    pub now: DateTime,
    pub task: Task,
    pub queue: Option<Queue>,
    /// Who has claimed or running tasks of the queue.
    pub shares: Vec<Share>,
    pub nodes: Vec<Node>,
    /// How many tasks, of whatever queue, each node has claimed or running.
    pub busy: HashMap<String, u64>,
    pub ahead: Ahead,
    pub waits: Waits,
    pub held_by: Option<Rule>,
    /// What the rate of its queue allows, if it has one and the task waits.
    pub rate: Option<Standing>,
    /// What the rate of its group allows, likewise.
    pub group_rate: Option<Standing>,
    /// Why it is set aside, if it is, or had to end without room for the reason.
    pub aside: Option<SetAside>,
}

impl Facts {
    pub(super) fn time(&self, field: &str) -> Option<DateTime> {
        self.task.rest.get(field).and_then(Bson::as_datetime).copied()
    }

    /// Why the task came into its status, if that was said.
    pub(super) fn last_note(&self) -> Option<&str> {
        let history = self.task.rest.get_array("history").ok()?;
        let last = history.last().and_then(Bson::as_document)?;
        last.get_str("note").ok()
    }

    /// How often the task may be tried, as far as that is known.
    pub(super) fn most_attempts(&self) -> Option<i64> {
        let rules = Rules::of(&self.task, self.queue.as_ref());
        rules.max_attempts.or((rules.on_orphan == OnOrphan::Requeue).then_some(REQUEUE_ATTEMPTS))
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.task.node.as_ref().and_then(Bson::as_str)
    }

    pub(super) fn is_alive(&self, node: &Node) -> bool {
        let (from, silence) = match node.last_beat() {
            Some((seen, lease)) => (Some(seen), lease),
            None if node.is_ours() => (None, Duration::ZERO), // It has said that it ends.
            None => (node.timestamp(), PERL_SILENCE),
        };
        from.is_some_and(|from| from.saturating_add_duration(silence) >= self.now)
    }
}

impl Store {
    /// Gathers what explains the task. `None`: there is none with this id.
    #[operation(task = %id)]
    pub async fn facts_of_task(&self, id: TaskId) -> Result<Option<Facts>, StoreError> {
        let Some(facts) = self.facts_of_head(id).await? else { return Ok(None) };
        let (ahead, group_rate) = futures::try_join!(
            self.ahead_of(&facts.task, facts.queue.as_ref()),
            self.group_rate_of(&facts.task, facts.queue.as_ref()),
        )?;
        Ok(Some(Facts { ahead, group_rate, ..facts }))
    }

    /// The same of a task that is the next one: what comes before it, and what its group may have, is not looked at.
    pub(super) async fn facts_of_head(&self, id: TaskId) -> Result<Option<Facts>, StoreError> {
        let found = self.stored_task::<Stored>(id, doc! { "params": 0, "parameters": 0 });
        let (found, now, nodes) = futures::try_join!(found, self.server_time(), self.list_nodes())?;
        let Some(task) = found.map(|(task, _)| typed::<Task>(TASKS.name, task)).transpose()? else {
            return Ok(None);
        };
        let nodes: Vec<Node> =
            nodes.into_iter().filter_map(|node| typed::<Node>(NODES.name, node).ok()).collect();
        let its_queue = Selector::Id(task.queue.0);
        let names = nodes.iter().map(|node| node.node.clone()).collect();
        let (queue, shares, busy) = futures::try_join!(
            self.find_queue(&its_queue),
            self.shares_of(&task),
            self.tasks_by_node(names),
        )?;
        let waits = self.blocked_by(&task).await?;
        let held_by = self.rule_that_holds(&task).await?;
        let rate = match queue.as_ref().filter(|_| is_waiting(&task)) {
            Some(queue) => self.rate_standing(queue, None).await?,
            None => None,
        };
        let aside = self.find_aside(id).await?;
        Ok(Some(Facts {
            now,
            task,
            queue,
            shares,
            nodes,
            busy,
            ahead: Ahead::Tasks(0),
            waits,
            held_by,
            rate,
            group_rate: None,
            aside,
        }))
    }

    async fn shares_of(&self, task: &Task) -> Result<Vec<Share>, StoreError> {
        let is_theirs = doc! { "$eq": [{ "$type": "$slot" }, "missing"] };
        let pipeline = [
            doc! { "$match": { "queue": task.queue, "status": { "$in": [-1, 0] } } },
            doc! { "$group": {
                "_id": "$node", "tasks": { "$sum": 1 },
                "of_others": { "$sum": { "$cond": [is_theirs, 1, 0] } },
            } },
            doc! { "$sort": { "_id": 1 } },
        ];
        let groups = collect(self.tasks().aggregate(pipeline)).await?;
        let share = |group: &Document| Share {
            node: name(group.get("_id")),
            tasks: count_of(group, "tasks").unwrap_or(0),
            of_others: count_of(group, "of_others").unwrap_or(0),
        };
        Ok(groups.iter().map(share).collect())
    }

    /// How many tasks each of these nodes has claimed or running, besides those that web services work on. Those that have
    /// none are left out.
    #[operation]
    pub async fn tasks_by_node(&self, names: Vec<Bson>) -> Result<HashMap<String, u64>, StoreError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let pipeline = [
            doc! { "$match": occupying(doc! { "$in": names }) },
            doc! { "$group": { "_id": "$node", "tasks": { "$sum": 1 } } },
        ];
        let groups = collect(self.tasks().aggregate(pipeline)).await?;
        let tasks = |group: &Document| count_of(group, "tasks").unwrap_or(0);
        Ok(groups.iter().map(|group| (name(group.get("_id")), tasks(group))).collect())
    }

    async fn group_rate_of(
        &self,
        task: &Task,
        queue: Option<&Queue>,
    ) -> Result<Option<Standing>, StoreError> {
        let Some(queue) = queue.filter(|_| is_waiting(task)) else { return Ok(None) };
        let group = task.rest.get("group").and_then(Bson::as_str).unwrap_or_default();
        self.rate_standing(queue, Some(group)).await
    }

    async fn ahead_of(&self, task: &Task, queue: Option<&Queue>) -> Result<Ahead, StoreError> {
        let order = match queue.map(|queue| (queue, queue.policy())) {
            Some((_, Policy::Fair | Policy::Priority)) if task.status != Status::Queued => {
                return Ok(Ahead::Tasks(0));
            }
            Some((queue, Policy::Fair)) => {
                return Ok(Ahead::InGroup(self.before_in_group(queue, task, COUNTED).await?));
            }
            Some((queue, Policy::Priority)) => {
                return Ok(Ahead::Tasks(self.before_by_priority(queue, task, COUNTED).await?));
            }
            Some((_, Policy::Sorted(order))) => order,
            None => Sort::Default,
        };
        let mut filter = doc! { "queue": task.queue, "status": Status::Queued };
        let others = match order {
            Sort::Fifo => doc! { "$lt": task.id },
            Sort::Lifo => doc! { "$gt": task.id },
            Sort::Default => doc! { "$ne": task.id },
        };
        filter.insert("_id", others);
        let count = self.tasks().count_documents(filter).limit(COUNTED).await?;
        Ok(if order == Sort::Default { Ahead::Unordered(count) } else { Ahead::Tasks(count) })
    }
}

pub(super) fn is_waiting(task: &Task) -> bool {
    task.status.code() <= Status::Queued.code() && !task.status.has_ended()
}

/// A node's name, whatever it was stored as.
pub(super) fn name(node: Option<&Bson>) -> String {
    node.map(as_text).unwrap_or_default()
}
