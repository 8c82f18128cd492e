//! The heads of queues: of one with all that is to be said of it, and of all with what tells their gates, in a bounded number of
//! operations that read one task of each queue.

use std::collections::HashMap;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::FindOneOptions;

use super::facts::name;
use super::head::gate_of;
use super::{Ahead, Facts, Head, Hold, Share};
use crate::gates::Waits;
use crate::model::{Node, Queue, QueueId, Status, TaskId};
use crate::queue::{FirstTask, UnderWay};
use crate::rate::Standing;
use crate::store::collections::NODES;
use crate::store::error::typed;
use crate::store::{Store, StoreError};
use crate::task::{claimable, is_newest_first};

/// Others may claim or delete the head before it is read; then there is another one.
const TRIES: usize = 3;

/// What is known of all queues.
#[derive(Debug)]
pub struct Heads {
    /// The time of the server.
    pub now: DateTime,
    /// The first task that waits of each queue that has one.
    pub first: HashMap<QueueId, FirstTask>,
    pub under_way: HashMap<QueueId, UnderWay>,
    pub nodes: Vec<Node>,
    /// How many tasks, of whatever queue, each node has claimed or running.
    pub busy: HashMap<String, u64>,
    /// What the rates of queues allow.
    pub rates: HashMap<QueueId, Standing>,
}

impl Heads {
    /// Nodes as they are stored.
    pub fn nodes_of(documents: &[Document]) -> Vec<Node> {
        documents.iter().filter_map(|node| typed::<Node>(NODES.name, node.clone()).ok()).collect()
    }

    /// What holds each of these queues. This takes time that grows with queues times nodes.
    pub fn holds(self, queues: &[Queue]) -> Vec<Hold> {
        let Self { now, mut first, under_way, nodes, busy, mut rates } = self;
        let mut facts: Option<Facts> = None;
        let mut all = (nodes, busy);
        let mut each = |queue: &Queue| {
            let task = match first.remove(&queue.id) {
                None => return Hold::Empty,
                Some(FirstTask { task: None, .. }) => return Hold::Blocked,
                Some(FirstTask { task: Some(task), .. }) => task,
            };
            // All queues have the same nodes, which may be many.
            if let Some(last) = facts.take() {
                all = (last.nodes, last.busy);
            }
            let running = under_way.get(&queue.id).map_or(0, |counts| counts.claimed + counts.running);
            let share = Share { node: String::new(), tasks: running, of_others: 0 };
            let (nodes, busy) = std::mem::take(&mut all);
            let of_queue = facts.insert(Facts {
                now,
                task,
                queue: Some(queue.clone()),
                shares: vec![share],
                nodes,
                busy,
                ahead: Ahead::Tasks(0),
                waits: Waits::default(),
                held_by: None,
                rate: rates.remove(&queue.id),
                group_rate: None,
                aside: None,
            });
            gate_of(of_queue)
        };
        queues.iter().map(&mut each).collect()
    }
}

impl Store {
    /// What is known of the first task of a queue that waits.
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
            let waits = facts.task.status.code() <= Status::Queued.code() && !facts.task.status.has_ended();
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
        // The last two are in the order of an index.
        let looks = [
            (claimable(queue), Some(order)),
            (of_status(Status::Blocked), None),
            (of_status(Status::Deferred), None),
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
