//! Which free slots of a queue this node leaves to the others for a moment, so that a backlog is spread over the nodes. Pure:
//! times and what was seen in, the number of claims out.
//!
//! A node takes its fair share of a queue's `threads` at once. What is free beyond that it leaves to the nodes that run less
//! than their shares, until these have taken it or have left it for a second; then it is anybody's, and for a while nothing
//! more is left to who does not take it. A node that finds no free slot says so with its heartbeat, and is reckoned with again.
//! None of this keeps a limit: slots do.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bson::DateTime;
use disbatch_core::model::{NodeName, Queue, QueueId};
use disbatch_core::node::Peer;
use disbatch_core::node::shares::{Contender, PATIENCE, shares};

/// How long nothing is left to a node that has not taken what was.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The same if it says that it wants more.
const AT_LEAST_REMEMBERED: Duration = Duration::from_secs(2);

/// For so long a node that found no free slot looks every [`HURRY`]; after that it looks as usual.
const HURRIES: Duration = Duration::from_secs(5);

const HURRY: Duration = Duration::from_millis(500);

/// How long it is said with heartbeats that there was no free slot.
const SAID: Duration = Duration::from_millis(2_500);

/// So many of the nodes that could run a task wait for it, so that one of them starts it at once. The others look now and then: each that waits
/// costs the server something for all that is written, and all but one of them are too late.
const PROMPT: usize = 4;

/// The first [`PROMPT`] nodes look for what any node may do; each of the others does so after this time, or longer where there are many.
const FOR_ALL: Duration = Duration::from_secs(5);

/// Where there are many, one of the others does so often.
const ONE_FOR_ALL: Duration = Duration::from_millis(100);

/// What is known of the other nodes, and what is left to them.
#[derive(Debug, Default)]
pub struct Sharing {
    peers: Vec<Peer>,
    read: Option<Instant>,
    /// When it mattered last what the others do.
    mattered: Option<Instant>,
    queues: HashMap<QueueId, Shared>,
    /// When this node looked for what any node may do.
    looked_for_all: Option<Instant>,
    /// The queues that it wanted when it was last asked whether these are others.
    wished: HashSet<QueueId>,
}

/// What was seen of a queue.
#[derive(Debug)]
pub struct View<'a> {
    /// When it was looked what others run.
    pub seen: Instant,
    /// How many tasks of the queue this node has claimed or running.
    pub mine: u64,
    /// How many of all queues.
    pub on_node: u64,
    /// How many of the queue all nodes have.
    pub running: u64,
    /// How many each of the others has.
    pub nodes: &'a HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Nodes that run less than was left to them.
    short: HashMap<String, Short>,
    /// This node runs less than its share, and there is no free slot: since when, and when that was seen last.
    wish: Option<(Instant, Instant)>,
    /// When to look again.
    next: Option<Instant>,
    /// This node runs more than its share, and others want theirs.
    is_above: bool,
}

/// A node that runs less than its share.
#[derive(Debug)]
struct Short {
    since: Instant,
    /// The most that it was seen to run since then.
    most: u64,
    /// It has had the time to take more: since when it counts with what it runs, and its heartbeat of then.
    passive: Option<(Instant, Option<DateTime>)>,
}

impl Sharing {
    /// Whether it is time to read which nodes there are. With many nodes that is done less often.
    pub fn wants_peers(&self, now: Instant) -> bool {
        let matters = self.mattered.is_some_and(|at| now.saturating_duration_since(at) < SAID);
        let each = if matters { 20 } else { 40 };
        let many = u64::try_from(self.peers.len()).unwrap_or(u64::MAX);
        let every = Duration::from_millis(many.saturating_mul(each).max(1_000));
        // A little less, so that a look every second finds it due.
        self.read.is_none_or(|read| now.saturating_duration_since(read) >= every * 9 / 10)
    }

    /// These are the nodes, this one included.
    pub fn set_peers(&mut self, peers: Vec<Peer>, now: Instant) {
        if peers.len() != self.peers.len() {
            tracing::debug!(nodes = peers.len(), "so many nodes are at work");
        }
        self.peers = peers;
        self.peers.sort_by(|one, other| one.name.cmp(&other.name));
        self.read = Some(now);
    }

    /// When it was looked for other nodes, and there was none.
    pub fn alone(&self, me: &NodeName) -> Option<Instant> {
        self.read.filter(|_| self.peers.iter().all(|peer| peer.name == me.as_str()))
    }

    /// Whether the node `me` is one of the first [`PROMPT`] of those that could run tasks of one of `queues`. Those that have room come before
    /// those that are full, and each hour they have another order.
    pub fn is_prompt(&self, me: &NodeName, queues: &[Queue], hour: i64) -> bool {
        let Some(own) = self.peers.iter().find(|peer| peer.name == me.as_str()) else { return true };
        if self.peers.len() <= PROMPT {
            return true;
        }
        let turn = |peer: &Peer| (peer.is_full(), peer.turn(hour));
        let mine = turn(own);
        let before: Vec<&Peer> = self.peers.iter().filter(|peer| turn(peer) < mine).collect();
        let is_first =
            |queue: &Queue| before.iter().filter(|peer| peer.could_run(queue)).take(PROMPT).count() < PROMPT;
        queues.iter().any(is_first)
    }

    /// Whether the node `me` looks now for what any node may do: what is due, deadlines, schedules, gates, silent nodes. Those from which schedules
    /// fire come first.
    pub fn looks_for_all(&self, me: &NodeName, hour: i64, now: Instant) -> bool {
        let many = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        let every = ONE_FOR_ALL.saturating_mul(many).max(FOR_ALL);
        if self.looked_for_all.is_none_or(|last| now.saturating_duration_since(last) >= every) {
            return true;
        }
        let Some(own) = self.peers.iter().find(|peer| peer.name == me.as_str()) else { return true };
        let mine = own.turn(hour);
        let before = self.peers.iter().filter(|peer| peer.fires_schedules && peer.turn(hour) < mine);
        before.take(PROMPT).count() < PROMPT
    }

    pub fn looked_for_all(&mut self, now: Instant) {
        self.looked_for_all = Some(now);
    }

    /// Others are to be looked for anew.
    pub fn look_again(&mut self) {
        self.mattered = Some(Instant::now());
        self.read = None;
    }

    /// The queues of which this node would run more if there were a free slot.
    pub fn wants(&self, now: Instant) -> Vec<QueueId> {
        let is_wanted =
            |shared: &Shared| shared.wish.is_some_and(|(_, last)| now.saturating_duration_since(last) < SAID);
        let wanted = self.queues.iter().filter(|(_, shared)| is_wanted(shared));
        wanted.map(|(queue, _)| *queue).collect()
    }

    /// Whether it has to be looked at the queue again before [`Sharing::allowance`] is asked: it was last at `seen`.
    pub fn must_look(&self, queue: QueueId, seen: Instant, now: Instant) -> bool {
        let Some(shared) = self.queues.get(&queue) else { return false };
        let in_vain = |short: &Short| {
            let until = short.since + PATIENCE;
            short.passive.is_none() && until <= now && seen < until
        };
        let hurries = shared.is_in_hurry(now) && now.saturating_duration_since(seen) >= HURRY * 8 / 10;
        hurries || shared.short.values().any(in_vain)
    }

    /// When to look again at what was left to others.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.queues.values().filter_map(|shared| shared.next).filter(|next| *next > now).min()
    }

    /// Forgets what concerns queues in which nothing waits, but not who does not take what is left to it.
    pub fn keep_only(&mut self, waits: impl Fn(QueueId) -> bool, now: Instant) {
        self.queues.retain(|queue, shared| {
            if waits(*queue) {
                return true;
            }
            (shared.wish, shared.next) = (None, None);
            shared.short.retain(|_, short| short.is_passive(now));
            !shared.short.is_empty()
        });
    }

    /// Whether this node may keep all slots of `queue` that it has: it runs no more than its share, as far as others want theirs.
    pub fn may_keep(&self, queue: QueueId) -> bool {
        self.queues.get(&queue).is_none_or(|shared| !shared.is_above)
    }

    /// Whether it wants other queues than when this was asked last.
    pub fn has_new_wish(&mut self, now: Instant) -> bool {
        let wants: HashSet<QueueId> = self.wants(now).into_iter().collect();
        let is_new = !wants.is_subset(&self.wished);
        self.wished = wants;
        is_new
    }

    /// Whether another node found no free slot of the queue lately.
    pub fn is_wanted(&self, queue: QueueId) -> bool {
        self.peers.iter().any(|peer| peer.wants(queue))
    }

    /// How many of the free slots of `queue` the node `me` may take now.
    pub fn allowance(&mut self, me: &NodeName, queue: &Queue, view: &View<'_>, now: Instant) -> u64 {
        let threads = queue.claim_limit();
        let (own, others): (Vec<&Peer>, Vec<&Peer>) =
            self.peers.iter().partition(|peer| peer.name == me.as_str());
        let others: Vec<(&Peer, u64)> = others
            .into_iter()
            .filter(|peer| peer.could_run(queue))
            .map(|peer| (peer, view.nodes.get(&peer.name).copied().unwrap_or(0)))
            .collect();
        let Some(own) = own.first().filter(|_| !others.is_empty()) else {
            self.queues.remove(&queue.id);
            return u64::MAX;
        };
        let mut contenders = vec![own.contender_running(view.on_node, view.mine)];
        contenders.extend(others.iter().map(|(peer, running)| peer.contender(*running)));
        let before = others.iter().filter(|(peer, _)| peer.name.as_str() < me.as_str()).count();
        let fair = own_first(threads, &contenders, before);
        let shared = self.queues.entry(queue.id).or_default();
        shared.observe(queue.id, &others, &fair[1..], now);
        let free = threads.saturating_sub(view.running);
        let allowed = loop {
            for (contender, (peer, _)) in contenders[1..].iter_mut().zip(&others) {
                contender.most = shared.most_of(&peer.name);
            }
            let shares = own_first(threads, &contenders, before);
            let short = || others.iter().zip(&shares[1..]).filter(|((_, running), share)| running < *share);
            let left: u64 = short().map(|((_, running), share)| share - running).fold(0, u64::saturating_add);
            let allowed = shares[0].saturating_sub(view.mine).max(free.saturating_sub(left)).min(free);
            shared.wish = (free == 0 && view.mine < shares[0])
                .then(|| (shared.wish.map_or(now, |(since, _)| since), now));
            shared.is_above = view.mine > shares[0];
            if allowed == free {
                shared.short.retain(|_, short| short.passive.is_some());
                break allowed;
            }
            let short: Vec<(&Peer, u64)> = short().map(|(other, _)| *other).collect();
            if !shared.wait_for(&short, view.seen, now) {
                break allowed;
            }
        };
        shared.next = shared.next_look(allowed < free, now);
        if allowed < free || view.mine > fair[0] {
            self.mattered = Some(now);
        }
        allowed
    }
}

/// Shares where the own contender is the first, and `before` of the others come before it by name. What is left of a division goes by
/// that order: else every node would have it for itself, and the last one nothing.
fn own_first(threads: u64, contenders: &[Contender], before: usize) -> Vec<u64> {
    let mut by_name = contenders.to_vec();
    by_name[..=before].rotate_left(1);
    let mut shares = shares(threads, &by_name);
    shares[..=before].rotate_right(1);
    shares
}

impl Shared {
    /// Takes note of what others run, and of what they would have by their fair shares.
    fn observe(&mut self, queue: QueueId, others: &[(&Peer, u64)], fair: &[u64], now: Instant) {
        self.short.retain(|name, _| others.iter().any(|(peer, _)| peer.name == *name));
        for ((peer, running), fair) in others.iter().zip(fair) {
            let Some(short) = self.short.get_mut(&peer.name) else { continue };
            short.most = short.most.max(*running);
            let asks = peer.wants(queue) && short.is_due_again(peer.seen, now);
            if running >= fair || asks || (short.passive.is_some() && !short.is_passive(now)) {
                self.short.remove(&peer.name);
            }
        }
    }

    /// What a node is known not to take more of.
    fn most_of(&self, node: &str) -> Option<u64> {
        self.short.get(node).filter(|short| short.passive.is_some()).map(|short| short.most)
    }

    /// Something is left to these nodes. Returns whether one of them has left it for too long.
    fn wait_for(&mut self, short: &[(&Peer, u64)], seen: Instant, now: Instant) -> bool {
        let mut any = false;
        for (peer, running) in short {
            let fresh = || Short { since: now, most: *running, passive: None };
            let short = self.short.entry(peer.name.clone()).or_insert_with(fresh);
            if short.passive.is_none() && seen >= short.since + PATIENCE {
                short.passive = Some((now, peer.seen));
                any = true;
            }
        }
        any
    }

    fn is_in_hurry(&self, now: Instant) -> bool {
        self.wish.is_some_and(|(since, _)| now.saturating_duration_since(since) < HURRIES)
    }

    fn next_look(&self, leaves: bool, now: Instant) -> Option<Instant> {
        if leaves {
            let waited_for = self.short.values().filter(|short| short.passive.is_none());
            return waited_for.map(|short| short.since + PATIENCE).min();
        }
        self.is_in_hurry(now).then(|| now + HURRY)
    }
}

impl Short {
    fn is_passive(&self, now: Instant) -> bool {
        self.passive.is_some_and(|(at, _)| now.saturating_duration_since(at) < REMEMBERED)
    }

    /// Whether a heartbeat at `seen` is of a time when it could have taken what was left to it before.
    fn is_due_again(&self, seen: Option<DateTime>, now: Instant) -> bool {
        self.passive
            .is_some_and(|(at, then)| seen > then && now.saturating_duration_since(at) >= AT_LEAST_REMEMBERED)
    }
}

#[cfg(test)]
mod tests;
