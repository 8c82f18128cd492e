//! How many further tasks this node may start, and in which slots: what its own runners have, what others have, and what limits, shares
//! and rates leave.
//!
//! What is known of the slots of others comes from the last look and may be a second old. That costs time at most: a slot that is held
//! after all is not given twice, and what is too much is given back. Tasks themselves are looked at only where some may run in slots that nobody holds: when a
//! queue is seen first, and where other programs run some.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use disbatch_core::config::Config;
use disbatch_core::model::{NodeName, Queue, QueueId, TaskId};
use disbatch_core::queue::Look;
use disbatch_core::slots::HeldSlot;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{Ahead, Claim, Share};

use crate::holdings::{Holdings, Watch};
use crate::launch::Launcher;
use crate::limits::{Limits, Seen};
use crate::queues::Queues;
use crate::schedule::{Demand, Round};
use crate::sharing::{Sharing, View};
use crate::starts::Starts;

/// How old may be what is known of the slots of others, where they have some.
const FRESH: Duration = Duration::from_secs(1);

/// What others have of a queue: other DENs, and what this node held before.
#[derive(Debug)]
pub struct Others {
    seen: Instant,
    running: u64,
    nodes: HashMap<String, u64>,
    slots: Vec<u64>,
    held: Vec<HeldSlot>,
    /// How many tasks have no slot, and whether some have one that nobody holds, as was seen last.
    without: u64,
    has_strays: bool,
}

impl Others {
    /// What is seen of a queue: the slots that others hold, and what else runs, without what is our own. `own`: the slots of our tasks, of which this node may
    /// have held some as another holder.
    fn of(
        mut held: Vec<HeldSlot>,
        look: Option<&Look>,
        own: &BTreeSet<u64>,
        node: &NodeName,
        seen: Instant,
    ) -> Self {
        held.retain(|slot| !own.contains(&slot.number));
        let mut nodes: HashMap<String, u64> = HashMap::new();
        held.iter().for_each(|slot| *nodes.entry(slot.node.clone()).or_default() += 1);
        let mut slots: Vec<u64> = held.iter().map(|slot| slot.number).collect();
        let (mut without, mut has_strays) = (0, false);
        if let Some(look) = look {
            // Where tasks are counted, others may have the same.
            let mut left: BTreeSet<u64> = own.iter().chain(&slots).copied().collect();
            let strays: Vec<u64> = look.slots.iter().copied().filter(|slot| !left.remove(slot)).collect();
            without = look.running.saturating_sub(look.slots.len() as u64);
            has_strays = !strays.is_empty();
            slots.extend(strays);
            for (name, tasks) in &look.nodes {
                let ours = if name == node.as_str() { own.len() as u64 } else { 0 };
                let of_node = nodes.entry(name.clone()).or_default();
                *of_node = (*of_node).max(tasks.saturating_sub(ours));
            }
        }
        Self { seen, running: slots.len() as u64 + without, nodes, slots, held, without, has_strays }
    }
}

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
    pub starts: Starts,
    pub holdings: Holdings,
    /// Other holders, and slots of which it is not known whether they are free.
    pub watch: Watch,
    /// Queues in which all that runs was seen to be in slots that somebody holds.
    clear: HashSet<QueueId>,
    turn: usize,
    /// Queues that the last round has not come to: they come first in the next.
    pub passed_over: HashSet<QueueId>,
    pub round_begun: Option<Instant>,
    /// Where to begin among the free slots of a queue: another number for each DEN.
    spread: u64,
}

impl Capacity {
    /// Nothing is known yet. `instance`: this start of the DEN.
    pub fn new(config: &Config, node: &NodeName, instance: ObjectId, holdings: Holdings) -> Self {
        Self {
            node: node.clone(),
            maxthreads: None,
            inherited: 0,
            others: HashMap::new(),
            sharing: Sharing::default(),
            limits: Limits::default(),
            starts: Starts::new(config),
            holdings,
            watch: Watch::default(),
            clear: HashSet::new(),
            turn: 0,
            passed_over: HashSet::new(),
            round_begun: None,
            spread: random_part(instance),
        }
    }

    /// Whether it is known well enough what others have of a queue.
    pub fn is_known(&self, queue: QueueId, now: Instant) -> bool {
        let Some(others) = self.others.get(&queue) else { return false };
        let is_alone =
            self.limits.are_ours() && self.sharing.alone(&self.node).is_some() && others.running == 0;
        is_alone || (others.seen.elapsed() < FRESH && !self.sharing.must_look(queue, others.seen, now))
    }

    /// Looks who holds slots of these queues, and what runs of those in which not all may be in held ones.
    pub async fn look(&mut self, store: &Store, queues: Vec<QueueId>) -> Result<Sight, StoreError> {
        if !self.limits.are_ours() {
            self.clear.clear();
        }
        let unclear: Vec<QueueId> = queues.iter().copied().filter(|id| !self.clear.contains(id)).collect();
        let tasks = async {
            if unclear.is_empty() { Ok(HashMap::new()) } else { store.look_at_queues(&unclear).await }
        };
        let held = async {
            StoreError::unless_forbidden(store.held_slots(&queues).await).map(Option::unwrap_or_default)
        };
        let (tasks, held) = futures::try_join!(tasks, held)?;
        Ok(Sight { queues, tasks, held })
    }

    /// Remembers what others have of queues, as asked for at `seen`. `batch`: claims of ours that no runner has yet.
    pub fn note(&mut self, sight: &Sight, of: (&Launcher, &[Claim]), seen: Instant) {
        let holder = self.holdings.holder();
        for id in &sight.queues {
            let is_its = |slot: &&HeldSlot| slot.queue == *id && slot.holder != holder;
            let held = sight.held.iter().filter(is_its).cloned().collect();
            self.note_queue(*id, held, sight.tasks.get(id), of, seen);
        }
    }

    /// The same of tasks alone, as counted at `seen`.
    pub fn note_tasks(&mut self, looks: &HashMap<QueueId, Look>, of: (&Launcher, &[Claim]), seen: Instant) {
        for (id, look) in looks {
            let held = self.others.remove(id).map(|others| others.held).unwrap_or_default();
            self.note_queue(*id, held, Some(look), of, seen);
        }
    }

    fn note_queue(
        &mut self,
        id: QueueId,
        held: Vec<HeldSlot>,
        look: Option<&Look>,
        (launcher, batch): (&Launcher, &[Claim]),
        seen: Instant,
    ) {
        let of_batch = batch.iter().filter(|claim| claim.queue == id).filter_map(Claim::slot);
        let own = launcher.places(id).1.into_iter().chain(of_batch).collect();
        let others = Others::of(held, look, &own, &self.node, seen);
        if look.is_some() && others.without == 0 && !others.has_strays {
            self.clear.insert(id);
        }
        self.others.insert(id, others);
    }

    /// Others have more of the queue than was known: tasks may be in slots that nobody holds.
    pub fn was_wrong(&mut self, queue: QueueId) {
        self.others.remove(&queue);
        self.clear.remove(&queue);
    }

    /// There are nodes that do not hold the slots which they use.
    pub fn met_strangers(&mut self) {
        self.clear.clear();
    }

    /// What may be claimed of these queues, as far as it is known now.
    pub fn round(&mut self, queues: &[Queue], launcher: &Launcher) -> Round {
        let on_node = launcher.running() as u64 + self.inherited;
        let demands: Vec<Demand> =
            queues.iter().map(|queue| self.demand(queue, on_node, launcher.places(queue.id))).collect();
        self.turn = self.turn.wrapping_add(1);
        let mut round = Round::new(self.maxthreads, on_node, &demands, self.turn, self.spread);
        self.round_begun = Some(Instant::now());
        round.begin_with(&std::mem::take(&mut self.passed_over));
        for queue in queues {
            round.prefer(queue.id, self.holdings.of(queue.id));
        }
        round.of_at_most(self.starts.room(Instant::now()))
    }

    /// What may be claimed of a queue. `on_node`: how many tasks this node has.
    fn demand(&mut self, queue: &Queue, on_node: u64, (mut running, mut taken): (u64, Vec<u64>)) -> Demand {
        let now = Instant::now();
        let mut starts = self.starts.room_of(queue.id, now);
        let of_queue = |((id, slot), _): ((QueueId, u64), TaskId)| (id == queue.id).then_some(slot);
        let doubtful: Vec<u64> = self.watch.doubtful().filter_map(of_queue).collect();
        if let Some(others) = self.others.get(&queue.id) {
            let mine = running + others.nodes.get(self.node.as_str()).copied().unwrap_or(0);
            running += others.running;
            taken.extend(&others.slots);
            let view = View { seen: others.seen, mine, on_node, running, nodes: &others.nodes };
            starts = starts.min(self.sharing.allowance(&self.node, queue, &view, now));
        }
        let in_doubt = doubtful.iter().filter(|slot| !taken.contains(slot)).count();
        running += in_doubt as u64;
        taken.extend(doubtful);
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
        let has_others = self.others.get(&queue).is_none_or(|others| others.without > 0 || others.has_strays);
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
        self.clear.retain(is_kept);
        let is_lower = self.limits.heard(queues, Instant::now());
        if is_lower {
            self.sharing.look_again();
        }
        is_lower
    }
}

#[derive(Debug, Default)]
pub struct Sight {
    queues: Vec<QueueId>,
    tasks: HashMap<QueueId, Look>,
    held: Vec<HeldSlot>,
}

/// What differs between any two ids, on different hosts and in different processes.
fn random_part(id: ObjectId) -> u64 {
    let [_, _, _, _, rest @ ..] = id.bytes();
    u64::from_be_bytes(rest)
}

#[cfg(test)]
mod tests {
    use disbatch_core::slots::Holder;

    use super::*;

    #[test]
    fn own_tasks_are_not_others_whoever_held_their_slots() {
        let (queue, node) = (QueueId([1; 12].into()), NodeName::new("n1"));
        let held =
            |number, node: &str| HeldSlot { queue, number, holder: Holder::drawn(), node: node.to_owned() };
        let all = vec![held(0, "n1"), held(1, "n1"), held(2, "n2")];
        let others = Others::of(all, None, &BTreeSet::from([0]), &node, Instant::now());
        assert_eq!((others.running, others.nodes["n1"], others.nodes["n2"]), (2, 1, 1));
        assert_eq!(others.slots, [1, 2]);
    }
}
