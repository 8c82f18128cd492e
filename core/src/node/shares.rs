//! Fair shares: how the concurrency limit of a queue is divided among the nodes that could run its tasks, and what a node says of itself
//! that tells whether it could.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::{Stats, stats_of, until_silent};
use crate::model::{Labels, Node, NodeSelector, Queue, QueueId, drawn};
use crate::plugin::VERSIONS;
use crate::store::error::typed;
use crate::store::{count_of, ids_in, texts_in};
use crate::task::archive::server_time_before;

/// How long free slots beyond its own share are left by a node to others that run less than theirs.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Who was not heard of for so long has nothing left to it, although it may be alive.
const SILENT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Contender {
    /// How many tasks of the queue its `maxthreads` leaves it. `None`: it has none.
    pub room: Option<u64>,
    /// More than that it has shown not to take.
    pub most: Option<u64>,
    pub power: Option<u64>,
}

impl Contender {
    fn limit(&self) -> u64 {
        self.room.unwrap_or(u64::MAX).min(self.most.unwrap_or(u64::MAX))
    }
}

/// How much a host can do: its processors, of which a loaded one counts fewer, a quarter of them at least. In thousandths.
/// `None`: that is not known.
fn power(stats: Stats) -> Option<u64> {
    let cpus = stats.cpus.filter(|cpus| *cpus > 0)?.min(1 << 20);
    #[expect(clippy::cast_precision_loss, reason = "there are not that many processors")]
    let of_each = stats.load.unwrap_or(0.0) * 100.0 / cpus as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 300")]
    let of_each = of_each.clamp(0.0, 300.0) as u64;
    Some((cpus * 100_000 / (100 + of_each)).max(1))
}

/// The share of each of the contenders, in their order, whose sum is `threads` where they can run as many, and no more unless there are more
/// contenders: see the end. Where all of them
/// have room by `maxthreads` it goes by that, otherwise by processors and load, and where these are not known, each has as
/// much as any other. Who can run anything has a share of at least 1: where there are more nodes than `threads`, whoever is
/// first has one.
pub fn shares(threads: u64, contenders: &[Contender]) -> Vec<u64> {
    let weights = weights(contenders);
    let mut shares = vec![0; contenders.len()];
    let mut open: Vec<usize> = (0..contenders.len()).filter(|at| contenders[*at].limit() > 0).collect();
    let mut left = threads;
    loop {
        let sum: u128 = open.iter().map(|at| u128::from(weights[*at])).sum();
        let part = |at: usize| u128::from(left) * u128::from(weights[at]);
        // Who can run no more than its part leaves the rest to the others.
        let (full, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|at| u128::from(contenders[**at].limit()) * sum <= part(**at));
        if full.is_empty() {
            divide(left, &others, &weights, &mut shares);
            break;
        }
        for at in full {
            shares[at] = contenders[at].limit();
            left = left.saturating_sub(shares[at]);
        }
        open = others;
    }
    let at_least = u64::from(threads > 0);
    let mut shares: Vec<u64> =
        shares.iter().zip(contenders).map(|(share, of)| (*share).max(at_least).min(of.limit())).collect();
    // Who has more leaves one to who would have none.
    let mut above =
        shares.iter().fold(0, |sum: u64, share| sum.saturating_add(*share)).saturating_sub(threads);
    while above > 0
        && let Some(most) = shares.iter_mut().max().filter(|most| **most > 1)
    {
        *most -= 1;
        above -= 1;
    }
    shares
}

/// Divides by weights, in whole numbers: those that are rounded down the most have what is left.
fn divide(threads: u64, among: &[usize], weights: &[u64], shares: &mut [u64]) {
    let sum: u128 = among.iter().map(|at| u128::from(weights[*at])).sum();
    if sum == 0 {
        return;
    }
    let part = |at: usize| u128::from(threads) * u128::from(weights[at]);
    let mut left = threads;
    for at in among {
        shares[*at] = u64::try_from(part(*at) / sum).unwrap_or(u64::MAX);
        left = left.saturating_sub(shares[*at]);
    }
    let mut by_rest = among.to_vec();
    by_rest.sort_by_key(|at| std::cmp::Reverse(part(*at) % sum));
    for at in by_rest.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        shares[at] += 1;
    }
}

fn weights(contenders: &[Contender]) -> Vec<u64> {
    let all =
        |weight: fn(&Contender) -> Option<u64>| contenders.iter().map(weight).collect::<Option<Vec<u64>>>();
    all(|contender| contender.room)
        .or_else(|| all(|contender| contender.power))
        .unwrap_or_else(|| vec![1; contenders.len()])
}

/// A node with a DEN of this release, as far as it matters to the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    pub name: String,
    /// Its last heartbeat, by the server's clock.
    pub seen: Option<DateTime>,
    power: Option<u64>,
    maxthreads: Option<u64>,
    running: u64,
    is_draining: bool,
    /// In which versions, too, as `Name@version`.
    plugins: HashSet<String>,
    active: Option<HashSet<ObjectId>>,
    ignored: HashSet<ObjectId>,
    wants: HashSet<ObjectId>,
    labels: Labels,
    pub fires_schedules: bool,
}

impl Peer {
    /// As its entry tells. `None`: the entry is that of another program, which does not tell.
    pub fn of(node: &Node) -> Option<Self> {
        node.rest.get_array("plugins").ok()?;
        let serves = node.rest.get("serves").and_then(Bson::as_document);
        let active = serves.filter(|serves| serves.contains_key("active"));
        Some(Self {
            name: node.node.as_str()?.to_owned(),
            seen: node.rest.get("seen").and_then(Bson::as_datetime).copied(),
            power: power(stats_of(&node.rest)),
            maxthreads: node.thread_limit(),
            running: count_of(&node.rest, "running").unwrap_or(0),
            is_draining: node.is_draining() || node.state() != Some("alive"),
            plugins: texts_in(&node.rest, "plugins").chain(texts_in(&node.rest, VERSIONS)).collect(),
            active: active.map(|serves| ids_in(serves, "active").collect()),
            ignored: serves.map(|serves| ids_in(serves, "ignored").collect()).unwrap_or_default(),
            wants: ids_in(&node.rest, "wants").collect(),
            labels: node.labels(),
            fires_schedules: node.rest.get("schedules").and_then(Bson::as_bool) != Some(false),
        })
    }

    /// Whether it would claim tasks of `queue` if it had room.
    pub fn could_run(&self, queue: &Queue) -> bool {
        !self.is_draining
            && self.active.as_ref().is_none_or(|active| active.contains(&queue.id.0))
            && (self.active.is_some() || !self.ignored.contains(&queue.id.0))
            && NodeSelector::of(queue).is_none_or(|nodes| nodes.admits(&self.name, &self.labels))
            && (self.wants(queue.id) || self.has_plugin_of(queue))
    }

    /// Whether it runs as much as its `maxthreads` lets it.
    pub fn is_full(&self) -> bool {
        self.room(self.running, 0) == Some(0)
    }

    /// Its place among nodes in this hour, from 0 to 1: the same whoever asks.
    pub fn turn(&self, hour: i64) -> f64 {
        drawn([self.name.as_bytes(), &hour.to_be_bytes()])
    }

    /// Whether it found no free slot of the queue lately, although it runs less than its share.
    pub fn wants(&self, queue: QueueId) -> bool {
        self.wants.contains(&queue.0)
    }

    /// What it competes with, where it runs so many tasks of a queue.
    pub fn contender(&self, of_queue: u64) -> Contender {
        Contender { room: self.room(self.running, of_queue), most: None, power: self.power }
    }

    /// The same if it runs `running` tasks in all, which its entry may not tell yet.
    pub fn contender_running(&self, running: u64, of_queue: u64) -> Contender {
        Contender { room: self.room(running, of_queue), ..self.contender(of_queue) }
    }

    fn room(&self, running: u64, of_queue: u64) -> Option<u64> {
        Some(self.maxthreads?.saturating_sub(running.saturating_sub(of_queue)))
    }

    fn has_plugin_of(&self, queue: &Queue) -> bool {
        let needed = queue.needed_plugins().unwrap_or_default();
        !needed.is_empty() && needed.iter().all(|plugin| self.plugins.contains(plugin.as_str()))
    }
}

/// Reads the nodes whose DENs have been heard of within the last seconds and do not drain.
pub(crate) fn peer_pipeline() -> Vec<Document> {
    let only = doc! {
        "node": 1, "seen": 1, "state": 1, "draining": 1, "maxthreads": 1, "running": 1, "plugins": 1,
        VERSIONS: 1, "serves": 1, "stats": 1, "wants": 1, "labels": 1, "schedules": 1,
    };
    vec![
        doc! { "$match": {
            "state": "alive", "seen": { "$type": "date" }, "$expr": { "$and": [
                { "$gte": ["$seen", server_time_before("$$NOW", SILENT)] },
                { "$gte": [until_silent(), "$$NOW"] },
            ] },
        } },
        doc! { "$project": only },
    ]
}

/// A node that [`peer_pipeline`] has found.
pub(crate) fn peer(node: Document) -> Option<Peer> {
    Peer::of(&typed("nodes", node).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_room(room: u64) -> Contender {
        Contender { room: Some(room), ..Contender::default() }
    }

    fn host(cpus: u64, load: f64) -> Contender {
        let stats = Stats { cpus: Some(cpus), load: Some(load), ..Stats::default() };
        Contender { power: power(stats), ..Contender::default() }
    }

    #[test]
    fn who_has_little_room_gets_one_of_few() {
        assert_eq!(shares(4, &[with_room(1), with_room(8)]), [1, 3]);
        assert_eq!(shares(3, &[with_room(1), with_room(100), with_room(1)]), [1, 1, 1]);
        assert_eq!(shares(2, &[with_room(1), with_room(100), with_room(1)]), [1, 1, 1], "whoever is first");
    }

    #[test]
    fn alike_nodes_have_alike_shares() {
        assert_eq!(shares(40, &[Contender::default(); 4]), [10; 4]);
        assert_eq!(shares(40, &[host(2, 0.5); 4]), [10; 4]);
        assert_eq!(shares(42, &[host(2, 0.5); 4]), [11, 11, 10, 10]);
        assert_eq!(shares(40, &[Contender::default()]), [40]);
        assert_eq!(shares(0, &[Contender::default(); 2]), [0, 0]);
        assert_eq!(shares(2, &[Contender::default(); 4]), [1; 4], "whoever is first");
        assert_eq!(shares(u64::MAX, &[host(1 << 40, f64::MAX); 2]), [1 << 63, u64::MAX >> 1]);
        assert!(shares(3, &[]).is_empty());
    }

    #[test]
    fn it_goes_by_maxthreads_if_all_have_one_and_otherwise_by_processors_and_load() {
        assert_eq!(shares(20, &[with_room(10), with_room(30)]), [5, 15]);
        assert_eq!(shares(100, &[with_room(10), with_room(30)]), [10, 30], "no more than they can run");
        assert_eq!(shares(20, &[with_room(0), with_room(30)]), [0, 20]);
        assert_eq!(shares(40, &[host(2, 0.0), host(6, 0.0)]), [10, 30]);
        assert_eq!(shares(30, &[host(4, 0.0), host(4, 4.0)]), [20, 10], "a load of one for each processor");
        assert_eq!(shares(50, &[host(4, 0.0), host(4, 900.0)]), [40, 10], "never less than a quarter");
        assert_eq!(shares(40, &[Contender { room: Some(6), ..host(4, 0.0) }, host(4, 0.0)]), [6, 34]);
        assert_eq!(shares(40, &[Contender::default(), host(4, 0.0)]), [20, 20], "one of them is not known");
    }

    #[test]
    fn what_a_node_does_not_take_is_the_others() {
        let passive = Contender { most: Some(0), ..Contender::default() };
        assert_eq!(shares(40, &[Contender::default(), passive, Contender::default()]), [20, 0, 20]);
        let slow = Contender { most: Some(4), ..with_room(20) };
        assert_eq!(shares(40, &[with_room(20), slow, with_room(20)]), [18, 4, 18]);
    }

    fn contender() -> impl Strategy<Value = Contender> {
        let some = |most: u64| prop::option::of(0..most);
        (some(60), some(60), some(9), prop::option::of(0.0..40.0)).prop_map(|(room, most, cpus, load)| {
            Contender { room, most, power: power(Stats { cpus, load, ..Stats::default() }) }
        })
    }

    proptest! {
        #[test]
        fn shares_use_all_that_can_be_used_and_no_more(
            threads in 0_u64..200,
            contenders in prop::collection::vec(contender(), 0..9),
        ) {
            let shares = shares(threads, &contenders);
            let able = contenders.iter().filter(|contender| contender.limit() > 0).count() as u64;
            let sum: u64 = shares.iter().sum();
            let possible = contenders.iter().fold(0_u64, |sum, each| sum.saturating_add(each.limit()));
            prop_assert!(sum >= threads.min(possible), "nothing is left idle");
            prop_assert!(sum <= threads.max(able), "no more than threads, but for one of each that would have none");
            for (share, contender) in shares.iter().zip(&contenders) {
                prop_assert!(*share <= contender.limit());
                prop_assert!(*share > 0 || contender.limit() == 0 || threads == 0, "nobody is left out");
            }
        }

        #[test]
        fn who_is_alike_differs_by_one_at_most(threads in 0_u64..200, contender in contender(), count in 1_usize..9) {
            let shares = shares(threads, &vec![contender; count]);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
