//! What holds the head of a queue, in one word and one sentence. The head is the task that would be claimed next: the first by its id
//! that can be claimed, else the first one that is blocked, else the first one that is deferred, else one that is queued and that DENs pass
//! over, as its id is of another kind than theirs, or it is set aside. Groups are not looked at: what a group has to wait for holds the
//! others up for no longer than its turn.
//!
//! Of one queue, all is read that is to be said of its head; of all queues, what tells their gates, in a bounded number of operations
//! that read one task of each.

use std::collections::HashMap;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use disbatch_wire::explanations::NodeChance;
use mongodb::options::FindOneOptions;

use super::facts::{is_waiting, name};
use super::{Ahead, Facts, Gate, Reader, Share, nodes, of_status, waits};
use crate::gates::Waits;
use crate::model::{Node, Policy, Queue, QueueId, Status, TaskId};
use crate::queue::{FirstTask, UnderWay};
use crate::rate::Standing;
use crate::store::collections::NODES;
use crate::store::error::typed;
use crate::store::{Store, StoreError, with};
use crate::task::{claimable, is_newest_first, is_taken};
use disbatch_values::words;

/// Others may claim or delete the head before it is read; then there is another one.
const TRIES: usize = 3;

words! {
    /// What holds the head of a queue. The words are the same everywhere, in every release.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Hold {
        /// Nothing: a DEN should claim it within seconds.
        None = "none",
        /// No task waits.
        Empty = "empty",
        Paused = "paused",
        /// As many tasks run as may: of the queue, or on all nodes that could run them.
        Limit = "limit",
        Rate = "rate",
        /// No node is alive that serves the queue and claims tasks.
        Nodes = "nodes",
        /// The queue has no plugin, or no node that serves the queue has it.
        Plugin = "plugin",
        /// All its tasks wait for their time: `run_at`, or a back-off.
        Deferred = "deferred",
        Admission = "admission",
        Lock = "lock",
        /// Other tasks.
        Dependency = "dependency",
        /// Something else: somebody's hand, or what DENs look at within seconds.
        Blocked = "blocked",
    }
}

#[derive(Debug, Clone)]
pub enum Head {
    /// What is known of the first task that waits.
    Task(Box<Facts>),
    /// There is one, which cannot be read: why.
    Unreadable(String),
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub gate: Hold,
    pub text: String,
    pub head: Option<TaskId>,
    /// When the gate opens, if that is known.
    pub next: Option<DateTime>,
    /// The nodes that are alive, and what keeps each from claiming the head. `None`: there is no head, or it is not for this reader.
    pub nodes: Option<Vec<NodeChance>>,
}

pub fn hold(queue: &Queue, head: &Head, reader: Reader) -> Holding {
    let without_task = |gate, text| Holding { gate, text, head: None, next: None, nodes: None };
    let name = queue.display_name();
    match head {
        Head::Missing => without_task(Hold::Empty, format!("No task of the queue {name} waits.")),
        Head::Unreadable(why) => {
            without_task(Hold::Blocked, format!("The first task of the queue {name} cannot be read: {why}."))
        }
        Head::Task(facts) => of_task(facts, reader),
    }
}

/// The gate alone, as cheap as it can be.
pub(super) fn gate_of(facts: &Facts) -> Hold {
    closed(facts, Reader::OfQueue).map_or(Hold::None, |gate| word(facts, &gate))
}

fn of_task(facts: &Facts, reader: Reader) -> Holding {
    let closed = closed(facts, reader);
    let gate = closed.as_ref().map_or(Hold::None, |gate| word(facts, gate));
    let text = match closed {
        None if facts.queue.as_ref().is_some_and(|queue| queue.policy() == Policy::Fair) => {
            "Nothing but its group keeps its first task from being claimed; what that may have is told of each task."
                .to_owned()
        }
        None => {
            "Nothing keeps its first task from being claimed; a DEN should take it within seconds.".to_owned()
        }
        Some(gate) if matches!(gate.name.as_str(), "status" | super::ASIDE) => format!(
            "None of its tasks can be claimed yet; the first of them is {}. {}",
            facts.task.id, gate.text
        ),
        Some(gate) => gate.text,
    };
    let next = match gate {
        Hold::Rate => facts.rate.and_then(|rate| rate.next).map(|wait| waits::after(facts.now, wait)),
        Hold::Deferred => facts.time("run_at"),
        _ => None, // Nobody knows.
    };
    let nodes = (reader == Reader::OfAll).then(|| nodes::chances(facts));
    Holding { gate, text, head: Some(facts.task.id), next, nodes }
}

/// The first closed gate. What has been claimed meanwhile, nothing holds.
fn closed(facts: &Facts, reader: Reader) -> Option<Gate> {
    let status = facts.task.status;
    if matches!(status, Status::Claimed | Status::Running) || status.has_ended() {
        return None;
    }
    let aside = facts.aside.as_ref().filter(|aside| super::still_aside(facts, aside));
    aside
        .map(|aside| super::of_aside(status, aside))
        .or_else(|| Some(of_status(facts)).filter(Gate::is_closed))
        .or_else(|| {
            let gate = waits::of_queue(facts, reader).into_iter().find(Gate::is_closed)?;
            // What dead nodes have left keeps its slots for as long as nobody looks after it.
            let opens_by_nodes = matches!(gate.name.as_str(), "queue_limit" | "queue_rate");
            let nobody = opens_by_nodes.then(|| nodes::none_alive(facts, reader)).flatten();
            Some(nobody.unwrap_or(gate))
        })
        .or_else(|| nodes::gates(facts, reader).into_iter().find(Gate::is_closed))
}

fn word(facts: &Facts, gate: &Gate) -> Hold {
    match gate.name.as_str() {
        "queue_paused" => Hold::Paused,
        "queue_plugin" => Hold::Plugin,
        "queue_threads" | "queue_limit" => Hold::Limit,
        "queue_rate" | "group_rate" => Hold::Rate,
        "nodes_alive" => Hold::Nodes,
        "nodes_able" => nodes::lack(facts),
        // That of the task, or a queue that has just been deleted.
        _ => of_waiting(facts),
    }
}

fn of_waiting(facts: &Facts) -> Hold {
    if facts.task.status == Status::Deferred {
        return Hold::Deferred;
    }
    match facts.task.rest.get("gate").and_then(Bson::as_str) {
        Some("admission") => Hold::Admission,
        Some("locks") => Hold::Lock,
        Some("after" | "array") => Hold::Dependency,
        _ => Hold::Blocked,
    }
}

#[derive(Debug)]
pub struct Heads {
    pub now: DateTime,
    pub first: HashMap<QueueId, FirstTask>,
    pub under_way: HashMap<QueueId, UnderWay>,
    pub nodes: Vec<Node>,
    pub busy: HashMap<String, u64>,
    pub rates: HashMap<QueueId, Standing>,
}

impl Heads {
    pub fn nodes_of(documents: &[Document]) -> Vec<Node> {
        documents.iter().filter_map(|node| typed::<Node>(NODES.name, node.clone()).ok()).collect()
    }

    /// What holds each of these queues. This takes time that grows with queues times nodes.
    pub fn holds(self, queues: &[Queue]) -> Vec<Hold> {
        let Self { now, mut first, under_way, mut nodes, mut busy, mut rates } = self;
        let each = |queue: &Queue| {
            let (task, aside) = match first.remove(&queue.id) {
                None => return Hold::Empty,
                Some(FirstTask { task: None, .. }) => return Hold::Blocked,
                Some(FirstTask { task: Some(task), aside, .. }) => (task, aside),
            };
            let running = under_way.get(&queue.id).map_or(0, |counts| counts.claimed + counts.running);
            let share = Share { node: String::new(), tasks: running, of_others: 0 };
            let facts = Facts {
                now,
                task,
                queue: Some(queue.clone()),
                shares: vec![share],
                nodes: std::mem::take(&mut nodes),
                busy: std::mem::take(&mut busy),
                ahead: Ahead::Tasks(0),
                waits: Waits::default(),
                held_by: None,
                rate: rates.remove(&queue.id),
                group_rate: None,
                aside,
            };
            let hold = gate_of(&facts);
            // All queues have the same nodes, which may be many.
            (nodes, busy) = (facts.nodes, facts.busy);
            hold
        };
        queues.iter().map(each).collect()
    }
}

impl Store {
    #[operation(queue = %queue.id)]
    pub async fn head_of_queue(&self, queue: &Queue) -> Result<Head, StoreError> {
        let mut last = Head::Missing;
        for _ in 0..TRIES {
            let Some(id) = self.first_id(queue).await? else { return Ok(Head::Missing) };
            let Some(id) = id.as_object_id().map(TaskId) else {
                return Ok(Head::Unreadable(format!("its _id is {}", name(Some(&id)))));
            };
            let facts = match self.facts_of_head(id).await {
                Err(error) if error.is_about_one() => return Ok(Head::Unreadable(error.to_string())),
                facts => facts?,
            };
            let Some(facts) = facts else { continue };
            let waits = is_waiting(&facts.task);
            last = Head::Task(Box::new(facts));
            if waits {
                break;
            }
        }
        Ok(last)
    }

    async fn first_id(&self, queue: &Queue) -> Result<Option<Bson>, StoreError> {
        let order = doc! { "_id": if is_newest_first(queue) { -1 } else { 1 } };
        let of_status = |status: Status| doc! { "queue": queue.id, "status": status };
        let aside = self.all_aside().await?;
        let taken = doc! { "$expr": is_taken(aside.keys()) };
        // Those without an order are in that of an index.
        let looks = [
            (with(claimable(queue.id), taken), Some(order)),
            (of_status(Status::Blocked), None),
            (of_status(Status::Deferred), None),
            (claimable(queue.id), None),
        ];
        for (filter, order) in looks {
            let options = FindOneOptions::builder().projection(doc! { "_id": 1 }).sort(order).build();
            if let Some(found) = self.tasks().find_one(filter).with_options(options).await? {
                return Ok(Document::from(found).remove("_id"));
            }
        }
        Ok(None)
    }
}
