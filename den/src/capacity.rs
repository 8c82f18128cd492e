//! How many further tasks this node may start, and in which slots: what its own runners have, what others have, and what limits, shares
//! and rates leave.
//!
//! What is known of the slots of others comes from the last look and may be a second old. That costs time at most: a slot that is taken
//! after all is not given twice, and what is too much is given back.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use disbatch_core::config::Config;
use disbatch_core::model::{NodeName, Queue, QueueId};
use disbatch_core::queue::Look;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{Ahead, Claim, Share};

use crate::launch::Launcher;
use crate::limits::{Limits, Seen};
use crate::queues::Queues;
use crate::schedule::{Demand, Round};
use crate::sharing::{Sharing, View};
use crate::starts::Starts;

/// How old may be what is known of the slots of others, where they have some.
const FRESH: Duration = Duration::from_secs(1);

/// For so long a node prefers slots that it had: others look for other ones meanwhile.
const LATELY: Duration = Duration::from_secs(2);

/// What others have of a queue: other DENs, and runners that an earlier DEN of this node has started.
#[derive(Debug)]
pub struct Others {
    seen: Instant,
    running: u64,
    /// How many each node has.
    nodes: HashMap<String, u64>,
    slots: Vec<u64>,
}

impl Others {
    /// What is seen of a queue, without what is our own.
    fn of(look: &Look, own: &BTreeSet<u64>, node: &NodeName, seen: Instant) -> Self {
        // Where no index keeps them apart, others may have the same.
        let mut own = own.clone();
        let (ours, slots): (Vec<u64>, Vec<u64>) = look.slots.iter().partition(|slot| own.remove(slot));
        let ours = ours.len() as u64;
        let mut nodes = look.nodes.clone();
        if let Some(here) = nodes.get_mut(node.as_str()) {
            *here = here.saturating_sub(ours);
        }
        Self { seen, running: look.running.saturating_sub(ours), nodes, slots }
    }

    fn is_fresh(&self) -> bool {
        self.seen.elapsed() < FRESH
    }

    /// Whether some of their tasks have no slot.
    fn have_no_slots(&self) -> bool {
        self.running > self.slots.len() as u64
    }
}

/// What is known of the room for further tasks.
#[derive(Debug)]
pub struct Capacity {
    node: NodeName,
    /// The operator's limit as of the last heartbeat.
    pub maxthreads: Option<u64>,
    /// How many tasks of this node earlier DENs have started that still run.
    pub inherited: u64,
    pub others: HashMap<QueueId, Others>,
    pub sharing: Sharing,
    /// Whether limits are kept by slots alone.
    pub limits: Limits,
    /// What was started lately, and what rates allow.
    pub starts: Starts,
    /// The slots of each queue that this node had, and when it had them last.
    had: HashMap<QueueId, HashMap<u64, Instant>>,
    /// Whose turn it is first in the next round.
    turn: usize,
    /// Where to begin among the free slots of a queue: another number for each DEN.
    spread: u64,
}

impl Capacity {
    /// Nothing is known yet. `instance`: this start of the DEN.
    pub fn new(config: &Config, node: &NodeName, instance: ObjectId) -> Self {
        Self {
            node: node.clone(),
            maxthreads: None,
            inherited: 0,
            others: HashMap::new(),
            sharing: Sharing::default(),
            limits: Limits::default(),
            starts: Starts::new(config),
            had: HashMap::new(),
            turn: 0,
            spread: random_part(instance),
        }
    }

    /// Whether it is known well enough what others have of a queue.
    pub fn is_known(&self, queue: QueueId, now: Instant) -> bool {
        let Some(others) = self.others.get(&queue) else { return false };
        let is_alone =
            self.limits.are_ours() && self.sharing.alone(&self.node).is_some() && others.running == 0;
        is_alone || (others.is_fresh() && !self.sharing.must_look(queue, others.seen, now))
    }

    /// Looks what others have of these queues, where that is not known well enough.
    pub async fn look_at_others(
        &mut self,
        store: &Store,
        mut queues: Vec<QueueId>,
        launcher: &Launcher,
    ) -> Result<(), StoreError> {
        let now = Instant::now();
        queues.retain(|id| !self.is_known(*id, now));
        if !queues.is_empty() {
            let looks = store.look_at_queues(&queues).await?;
            self.note(&looks, (launcher, &[]), now);
        }
        Ok(())
    }

    /// Remembers what others have of queues, as asked for at `seen`. `batch`: claims of ours that no runner has yet.
    pub fn note(
        &mut self,
        looks: &HashMap<QueueId, Look>,
        (launcher, batch): (&Launcher, &[Claim]),
        seen: Instant,
    ) {
        for (id, look) in looks {
            let of_batch = batch.iter().filter(|claim| claim.queue == *id).filter_map(Claim::slot);
            let own = launcher.places(*id).1.into_iter().chain(of_batch).collect();
            self.others.insert(*id, Others::of(look, &own, &self.node, seen));
        }
    }

    /// What may be claimed of these queues, as far as it is known now.
    pub fn round(&mut self, queues: &[Queue], launcher: &Launcher) -> Round {
        let on_node = launcher.running() as u64 + self.inherited;
        let demands: Vec<Demand> =
            queues.iter().map(|queue| self.demand(queue, on_node, launcher.places(queue.id))).collect();
        self.turn = self.turn.wrapping_add(1);
        let mut round = Round::new(self.maxthreads, on_node, &demands, self.turn, self.spread);
        for queue in queues {
            self.note_slots(queue.id, launcher);
            round.prefer(queue.id, self.had.get(&queue.id).into_iter().flat_map(HashMap::keys).copied());
        }
        round.of_at_most(self.starts.room(Instant::now()))
    }

    /// Remembers which slots of a queue this node has: it prefers them for a moment.
    pub fn note_slots(&mut self, queue: QueueId, launcher: &Launcher) {
        let now = Instant::now();
        let had = self.had.entry(queue).or_default();
        had.extend(launcher.places(queue).1.into_iter().map(|slot| (slot, now)));
        had.retain(|_, last| now.saturating_duration_since(*last) < LATELY);
    }

    /// What may be claimed of a queue. `on_node`: how many tasks this node has.
    fn demand(&mut self, queue: &Queue, on_node: u64, (mut running, mut taken): (u64, Vec<u64>)) -> Demand {
        let now = Instant::now();
        let mut starts = self.starts.room_of(queue.id, now);
        if let Some(others) = self.others.get(&queue.id) {
            let mine = running + others.nodes.get(self.node.as_str()).copied().unwrap_or(0);
            running += others.running;
            taken.extend(&others.slots);
            let view = View { seen: others.seen, mine, on_node, running, nodes: &others.nodes };
            starts = starts.min(self.sharing.allowance(&self.node, queue, &view, now));
        }
        Demand { queue: queue.id, threads: queue.claim_limit(), running, taken, starts }
    }

    /// Has `ahead` try the part of a queue that is for this node, of which it runs so many, where others run some, too. Parts are about as
    /// large as what is run, and change seldom, so that all know the same of them.
    pub fn divide(&self, ahead: &mut Ahead, queue: QueueId, running: u64) {
        let Some(others) = self.others.get(&queue) else { return };
        let size = |running: u64| running.max(1).next_power_of_two();
        let (mut before, mut all) = (0, size(running));
        for (name, running) in &others.nodes {
            if *running > 0 && name != self.node.as_str() {
                all += size(*running);
                before += if name.as_str() < self.node.as_str() { size(*running) } else { 0 };
            }
        }
        ahead.divide(queue, Share::new(before, size(running), all));
    }

    /// Whether tasks of a queue that were claimed have to be counted (`limits.rs`).
    pub fn must_count(&self, queue: QueueId, queues: &Queues) -> bool {
        let has_others = self.others.get(&queue).is_none_or(Others::have_no_slots);
        let (read, alone) = (queues.read_at(), self.sharing.alone(&self.node));
        self.limits.must_count(queue, Seen { read, has_others, alone }, Instant::now())
    }

    /// Whether no more tasks of the queue run than may, as far as slots do not see to that. `ours`: how many we have, and their slots.
    pub fn is_within_limit(&self, queue: &Queue, ours: (u64, Vec<u64>), queues: &Queues) -> bool {
        let Some(others) = self.others.get(&queue.id) else { return false };
        let (running, slots) = ours;
        let limit = queue.claim_limit();
        // A slot that is handed over is free for a moment. Who looks then must not have seen a task above the limit leave it.
        let none_above = slots.iter().chain(&others.slots).all(|slot| *slot < limit);
        self.is_known(queue.id, Instant::now())
            && !self.must_count(queue.id, queues)
            && running + others.running <= limit
            && none_above
    }

    /// Whether a node that runs so many tasks may keep the slots that it has.
    pub fn may_keep_slots(&self, running: usize) -> bool {
        let running = running as u64 + self.inherited;
        self.starts.are_unlimited() && self.maxthreads.is_none_or(|limit| running <= limit)
    }

    /// There are these queues and no others. Returns whether a limit of one is lower than before, or new.
    pub fn keep_only(&mut self, queues: &[Queue]) -> bool {
        let is_kept = |id: &QueueId| queues.iter().any(|queue| queue.id == *id);
        self.others.retain(|id, _| is_kept(id));
        self.had.retain(|id, _| is_kept(id));
        let is_lower = self.limits.heard(queues, Instant::now());
        if is_lower {
            self.sharing.look_again();
        }
        is_lower
    }
}

/// What differs between any two ids, on different hosts and in different processes.
fn random_part(id: ObjectId) -> u64 {
    let [_, _, _, _, rest @ ..] = id.bytes();
    u64::from_be_bytes(rest)
}
