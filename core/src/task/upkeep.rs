//! Upkeep: one look at all that time brings about, where a loop of updates would mostly find nothing.
//!
//! It is one aggregate of small parts. Each part reads one entry of an index, so a look costs the same
//! however many tasks there are. It decides nothing: whoever finds something does the conditional update
//! that belongs to it, and that asks again.

use disbatch_operation::operation;
use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::claim::{claimable, claimable_of_any, occupying};
use super::orphan::stale_claims;
use super::sweep::{stale_slots, taken, waiting};
use crate::definitions::Definition;
use crate::model::{NodeName, Queue, QueueId, Status, Task, TaskId, whole_number};
use crate::node::{Peer, shares, silent_nodes_to_find};
use crate::queue::readable;
use crate::slots::Holder;
use crate::store::collections::{ARRAYS, INBOX, NODES, QUEUES, SCHEDULES, SLOTS, TASKS};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, in_one, millis, of_millis, put, with};

/// The collections of Disbatch 4 that are looked at.
const OF_DISBATCH: [&str; 3] = [TASKS.name, NODES.name, QUEUES.name];

const IN_A_COMMAND: usize = 100;

/// Times farther away than this (in the year 10,000) cannot be reckoned with: milliseconds.
const FARTHEST: i64 = 253_402_300_800_000;

#[derive(Debug, Clone)]
pub struct Question<'a> {
    pub node: &'a NodeName,
    /// Its own lease: a node that has been silent for half of it is looked at.
    pub lease: Duration,
    /// Whether it has tasks: their leases are looked at.
    pub occupied: bool,
    /// Whether to look for what any DEN may do. Where there are many, it is enough that some do.
    pub for_all: bool,
    pub claim_from: &'a [QueueId],
    pub queues: bool,
    pub peers: bool,
    /// As what this one holds slots. With `for_all` it is told whether others do.
    pub holder: Option<Holder>,
}

impl<'a> Question<'a> {
    /// For all that there is to do, save claims.
    pub fn new(node: &'a NodeName, lease: Duration) -> Self {
        let (occupied, for_all, queues, peers) = (true, true, false, false);
        Self { node, lease, occupied, for_all, claim_from: &[], queues, peers, holder: None }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outlook {
    pub claimable: bool,
    /// The node has claimed or running tasks, besides those that web services work on.
    pub occupied: bool,
    /// A deferred task, a deadline, or the lease of a claim or run: its time has come.
    pub due: bool,
    pub lapsed: bool,
    /// When the next of these times comes, counted from now.
    pub next: Option<Duration>,
    pub stale_claims: bool,
    pub stale_slots: bool,
    /// Another one than the holder that asks holds slots.
    pub held_by_others: bool,
    pub silent_nodes: bool,
    /// There is something to do at the gates, see [`Store::pass_gates`].
    pub gates: bool,
    /// A schedule is due, see [`Store::fire_schedules`].
    pub schedules: bool,
    /// A schedule has to be told of the end of a task, see [`Store::settle_scheduled`].
    pub unsettled: bool,
    /// How old the oldest document of the inbox is that was not left, see [`Store::move_inbox`].
    pub inbox: Option<Duration>,
    /// There is something to do about an array, or will be: see [`Store::pass_arrays`].
    pub arrays: bool,
    pub queues: Option<Vec<Queue>>,
    /// If queues were asked for: what is another value when a worker has changed. None: there are no workers.
    pub workers: Option<Bson>,
    /// The nodes whose DENs have been heard of a moment ago, if they were asked for.
    pub peers: Option<Vec<Peer>>,
    /// If they were asked for: a node has an entry that no DEN of this system has made.
    pub strangers: bool,
}

impl Outlook {
    fn of(question: &Question<'_>, found: Vec<Document>) -> Self {
        let mut outlook = Self {
            queues: question.queues.then(Vec::new),
            peers: question.peers.then(Vec::new),
            ..Self::default()
        };
        let document = |part: &mut Document, field: &str| match part.remove(field) {
            Some(Bson::Document(document)) => Some(document),
            _ => None,
        };
        for mut part in found {
            let left = part.get("in").and_then(whole_number);
            match part.get_str("what").unwrap_or_default() {
                "run_at" | "deadline" => outlook.comes(left),
                "lease" => {
                    outlook.comes(left);
                    outlook.lapsed |= left.is_some_and(|left| left < 0);
                }
                "claimable" => outlook.claimable = true,
                "occupied" => outlook.occupied = true,
                "stale claims" => outlook.stale_claims = true,
                "stale slots" => outlook.stale_slots = true,
                "held" => outlook.held_by_others = true,
                "silent nodes" => outlook.silent_nodes = true,
                "gates" => outlook.gates = true,
                "schedule" if left.is_some_and(|left| left <= 0) => outlook.schedules = true,
                "schedule" => outlook.comes(left),
                "unsettled" => outlook.unsettled = true,
                "arrays" => outlook.arrays = true,
                "inbox" => outlook.inbox = left.map(of_millis),
                "strangers" => outlook.strangers = true,
                "queue" => {
                    let queue = document(&mut part, "queue").and_then(readable);
                    outlook.queues.get_or_insert_default().extend(queue);
                }
                "peer" => {
                    let peer = document(&mut part, "peer").and_then(shares::peer);
                    outlook.peers.get_or_insert_default().extend(peer);
                }
                crate::definitions::COLLECTION => outlook.workers = part.remove("mark"),
                // There are no other parts.
                _ => {}
            }
        }
        outlook
    }

    /// Takes note of a time `left` milliseconds from now.
    fn comes(&mut self, left: Option<i64>) {
        match left {
            Some(left) if left < 0 => self.due = true,
            Some(left) => {
                // It is past only when the server's clock has gone beyond it.
                let left = Duration::from_millis(left.unsigned_abs().saturating_add(1));
                self.next = Some(self.next.map_or(left, |next| next.min(left)));
            }
            None => {}
        }
    }
}

impl Store {
    #[operation]
    pub async fn look_around(&self, question: &Question<'_>) -> Result<Outlook, StoreError> {
        match self.look(question, |_| true).await {
            // Users that Perl Disbatch made know three collections. For them the others are empty.
            Err(error) if error.is_forbidden() => {
                self.look(question, |collection| OF_DISBATCH.contains(&collection)).await
            }
            outlook => outlook,
        }
    }

    async fn look(&self, question: &Question<'_>, may: impl Fn(&str) -> bool) -> Result<Outlook, StoreError> {
        // Those that are about collections that the user may read.
        let parts = self.parts(question).into_iter().filter(|(collection, _)| may(collection));
        let found = collect(self.tasks().aggregate(in_one(parts))).await?;
        let outlook = Outlook::of(question, found);
        if let Some(queues) = &outlook.queues {
            self.measure_queues(queues);
        }
        Ok(outlook)
    }

    /// Those of these queues that have a task which could be claimed, whatever their policies are.
    #[operation(queues = queues.len())]
    pub async fn queues_with_tasks(&self, queues: &[QueueId]) -> Result<HashSet<QueueId>, StoreError> {
        let any = |queue: &QueueId| {
            let id = self.not_left_alone(doc! { "$gte": ObjectId::from_bytes([0; 12]) });
            let pipeline = vec![
                doc! { "$match": with(claimable(*queue), doc! { "_id": id }) },
                doc! { "$limit": 1 },
                doc! { "$project": { "_id": 0, "queue": { "$literal": *queue } } },
            ];
            (TASKS.name, pipeline)
        };
        let mut found = HashSet::new();
        for some in queues.chunks(IN_A_COMMAND) {
            let tasks = collect(self.tasks().aggregate(in_one(some.iter().map(any)))).await?;
            found.extend(tasks.iter().filter_map(|task| task.get_object_id("queue").ok()).map(QueueId));
        }
        Ok(found)
    }

    /// Those of `tasks` that exist and are neither claimed nor running.
    #[operation]
    pub async fn without_run(&self, tasks: &[TaskId]) -> Result<Vec<Task>, StoreError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let filter = doc! { "_id": { "$in": tasks }, "status": { "$nin": [-1, 0] } };
        let only = doc! { "queue": 1, "status": 1, "attempt": 1 };
        let found = collect(self.tasks().find(filter).projection(only)).await?;
        Ok(found.into_iter().filter_map(|task| typed(TASKS.name, task).ok()).collect())
    }

    fn parts_for_all(&self, lease: Duration) -> Vec<Part> {
        let deferred = doc! { "status": Status::Deferred };
        let mut parts = vec![
            first("run_at", (TASKS.name, deferred), "run_at", Duration::ZERO),
            first("deadline", (TASKS.name, waiting()), "deadline", Duration::ZERO),
            any("stale slots", TASKS.name, stale_slots()),
            any("silent nodes", NODES.name, silent_nodes_to_find(lease / 2)),
            any("gates", TASKS.name, crate::keys::left(self.now())),
            any("unsettled", TASKS.name, crate::schedules::may_be_unsettled()),
            (INBOX.name, crate::inbox::age_of_first().into()),
        ];
        let at_gates = crate::gates::to_look_at().into_iter();
        parts.extend(at_gates.map(|(collection, filter)| any("gates", collection, filter)));
        let of_schedules = crate::schedules::times().into_iter();
        parts.extend(
            of_schedules.map(|(field, later)| first("schedule", (SCHEDULES.name, doc! {}), field, later)),
        );
        parts
    }

    fn parts(&self, question: &Question<'_>) -> Vec<Part> {
        let mut parts = vec![any("occupied", TASKS.name, occupying(question.node))];
        if question.occupied || question.for_all {
            parts.push(first("lease", (TASKS.name, taken()), "lease_until", Duration::ZERO));
            parts.push(any("stale claims", TASKS.name, stale_claims(question.node, self.now())));
        }
        if question.for_all {
            parts.extend(self.parts_for_all(question.lease));
        }
        // Whoever has the lease for it does it alone.
        parts.push(any("arrays", ARRAYS.name, crate::arrays::to_look_at()));
        if let Some(holder) = question.holder.filter(|_| question.for_all) {
            parts.push(any("held", SLOTS.name, doc! { "holder": { "$ne": holder.0 } }));
        }
        if !question.claim_from.is_empty() {
            let mut free = with(claimable_of_any(), doc! { "queue": { "$in": question.claim_from } });
            let id = self.not_left_alone(Document::new());
            put(&mut free, "_id", (!id.is_empty()).then_some(id));
            parts.push(any("claimable", TASKS.name, free));
        }
        if question.queues {
            let as_they_are = doc! { "$project": { "_id": 0, "what": "queue", "queue": "$$ROOT" } };
            parts.push((QUEUES.name, vec![as_they_are]));
            parts.push((crate::definitions::COLLECTION, Definition::mark()));
        }
        if question.peers {
            let mut pipeline = shares::peer_pipeline();
            pipeline.push(doc! { "$project": { "_id": 0, "what": "peer", "peer": "$$ROOT" } });
            parts.push(("nodes", pipeline));
            parts.push(any("strangers", NODES.name, crate::node::strangers()));
        }
        parts
    }
}

/// A part of the look: a pipeline, and of which collection it is.
type Part = (&'static str, Vec<Document>);

fn any(what: &str, collection: &'static str, filter: Document) -> Part {
    let pipeline = vec![
        doc! { "$match": filter },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "what": what } },
    ];
    (collection, pipeline)
}

/// How long it is until `later` after the first time in `field` of the documents that `filter` matches.
fn first(what: &str, (collection, filter): (&'static str, Document), field: &str, later: Duration) -> Part {
    let pipeline = vec![
        doc! { "$match": with(filter, doc! { field: { "$type": "date" } }) },
        doc! { "$sort": { field: 1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "what": what, "in": left_until(field, later) } },
    ];
    (collection, pipeline)
}

/// How long it is until `later` after the time in a field, in milliseconds. A list of times counts as past, as it does where tasks are
/// compared with the time: no document breaks the look off for all others.
fn left_until(field: &str, later: Duration) -> Document {
    let time = format!("${field}");
    let is_time = doc! { "$and": [
        { "$eq": [{ "$type": &time }, "date"] },
        { "$gt": [&time, DateTime::from_millis(-FARTHEST)] }, { "$lt": [&time, DateTime::from_millis(FARTHEST)] },
    ] };
    let left = doc! { "$subtract": [{ "$add": [&time, millis(later)] }, "$$NOW"] };
    // One in the far future is no reason to look again; one in the far past is due.
    let beyond = doc! { "$cond": [{ "$gt": [&time, "$$NOW"] }, FARTHEST, -1_i64] };
    let odd = doc! { "$cond": [{ "$eq": [{ "$type": time }, "date"] }, beyond, -1_i64] };
    doc! { "$cond": [is_time, left, odd] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(node: &NodeName, queues: bool) -> Question<'_> {
        let lease = Duration::from_secs(30);
        let (occupied, for_all) = (true, true);
        Question { node, lease, occupied, for_all, claim_from: &[], queues, peers: false, holder: None }
    }

    #[test]
    fn the_next_time_is_the_nearest_that_is_not_past() {
        let node = NodeName::new("n");
        let question = question(&node, false);
        let outlook = |parts: &[(&str, i64)]| {
            let parts = parts.iter().map(|(what, left)| doc! { "what": *what, "in": *left }).collect();
            Outlook::of(&question, parts)
        };
        assert_eq!(outlook(&[]), Outlook::default());
        let far = outlook(&[("run_at", 5_000), ("deadline", 2_000), ("lease", 20_000)]);
        assert_eq!((far.due, far.lapsed, far.next), (false, false, Some(Duration::from_millis(2_001))));
        let due = outlook(&[("run_at", -1), ("deadline", 2_000)]);
        assert_eq!((due.due, due.lapsed, due.next), (true, false, Some(Duration::from_millis(2_001))));
        let lapsed = outlook(&[("lease", -7)]);
        assert_eq!((lapsed.due, lapsed.lapsed, lapsed.next), (true, true, None));
        let now = outlook(&[("run_at", 0)]);
        assert_eq!((now.due, now.next), (false, Some(Duration::from_millis(1))));
        let schedules = outlook(&[("schedule", 700), ("schedule", 90)]);
        assert_eq!((schedules.schedules, schedules.next), (false, Some(Duration::from_millis(91))));
        let schedules = outlook(&[("schedule", 0), ("schedule", 90)]);
        assert_eq!((schedules.schedules, schedules.due), (true, false));
    }

    #[test]
    fn a_queue_that_cannot_be_read_is_left_out() {
        let node = NodeName::new("n");
        let question = question(&node, true);
        let id = ObjectId::new();
        let found = vec![
            doc! { "what": "queue", "queue": { "_id": "no id", "name": "a" } },
            doc! { "what": "queue", "queue": { "_id": id, "name": "b", "plugin": "P" } },
        ];
        let outlook = Outlook::of(&question, found);
        assert_eq!(outlook.workers, None);
        let queues = outlook.queues.unwrap();
        assert_eq!(queues.iter().map(|queue| queue.id).collect::<Vec<_>>(), [QueueId(id)]);
        assert_eq!(Outlook::of(&question, Vec::new()).queues, Some(Vec::new()));
        let mark = Outlook::of(&question, vec![doc! { "what": "workers", "mark": [1, 2] }]).workers;
        assert_eq!(mark, Some(vec![Bson::from(1), Bson::from(2)].into()));
    }
}
