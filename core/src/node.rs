//! Nodes: the heartbeat of a DEN and the limit that operators put on it.

mod removal;
pub mod shares;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use crate::model::{Labels, Node, NodeName, QueueId, Selector, number};
use crate::plugin::{self, Engine};
use crate::slots::Holder;
use crate::store::collections::NODES;
use crate::store::error::typed;
use crate::store::{
    Altered, Store, StoreError, collect, count_of, integer, millis, put, texts_in, with, without_null,
};
use crate::task::archive::server_time_before;

pub use disbatch_wire::nodes::NodeStats as Stats;
pub use removal::{Death, Removed};
pub use shares::Peer;

/// So many addresses of each kind are told: hosts of containers have hundreds.
const MOST_ADDRESSES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// Documents that matched: 0 or 1.
    pub matched: u64,
    /// Documents that changed: 0 or 1.
    pub modified: u64,
}

/// What an operator changes of a node; at least one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeChange {
    /// How many tasks may run on it at once; null for no limit.
    pub maxthreads: Option<Bson>,
    pub draining: Option<Draining>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draining {
    No,
    /// What runs goes on.
    Yes,
    /// What runs goes on elsewhere, if its plugin can be interrupted.
    Interrupt,
}

/// What a DEN says of itself with each heartbeat.
#[derive(Debug, Clone, Default)]
pub struct Beat {
    /// This start of the DEN.
    pub instance: String,
    /// How long it may be silent before others take it for dead.
    pub lease: Duration,
    pub draining: bool,
    /// How many runners of its own live.
    pub running: usize,
    pub plugins: Vec<String>,
    /// Their versions, as `Name@version`.
    pub versions: Vec<String>,
    /// Those of them that the database defines.
    pub workers: Vec<String>,
    /// Those that say that they can run without effects.
    pub shadows: Vec<String>,
    pub problems: Vec<plugin::Report>,
    pub engines: Vec<plugin::Engine>,
    /// The queues that its configuration restricts it to, and those that it leaves out.
    pub serves: Document,
    /// Whether its operator has others fire schedules.
    pub fires_no_schedules: bool,
    /// The queues of which it would run more at once if there were a free slot.
    pub wants: Vec<QueueId>,
    pub labels: Labels,
    pub addresses: Addresses,
    /// Another DEN that uses its name, too.
    pub rival: Option<String>,
    /// How many tasks it leaves alone for now, as nothing can be done with them.
    pub aside: usize,
    pub stats: Stats,
    /// As what it holds slots. `None`: it may not.
    pub holder: Option<Holder>,
}

/// When each of the holders of a node has shown itself last: see [`crate::slots`].
pub const HOLDERS: &str = "holders";

/// A holder that has been silent for so long is not told of any more, in milliseconds.
const FORGOTTEN_MS: i64 = 600_000;

/// A node that was seen so long after it has shown itself as a holder does not do so any more, in milliseconds.
const LEFT_OFF_MS: i64 = 5_000;

/// When a holder of a node has shown itself last, as its entry tells.
pub fn beat_of(entry: &Node, holder: Holder) -> Option<DateTime> {
    entry.rest.get_document(HOLDERS).ok()?.get_datetime(holder.0.to_hex()).ok().copied()
}

/// When each holder of a node has shown itself last.
pub(crate) fn beats(node: &Document) -> Vec<(Holder, DateTime)> {
    let told = node.get_document(HOLDERS).into_iter().flatten();
    told.filter_map(|(holder, at)| Some((Holder(holder.parse().ok()?), *at.as_datetime()?))).collect()
}

pub fn stats_of(node: &Document) -> Stats {
    let Ok(stats) = node.get_document("stats") else { return Stats::default() };
    Stats {
        load: stats.get("load").and_then(number),
        cpus: count_of(stats, "cpus"),
        memory: count_of(stats, "memory"),
        memory_available: count_of(stats, "memory_available"),
    }
}

fn stats_document(stats: &Stats) -> Document {
    without_null(bson::serialize_to_document(stats).unwrap_or_default())
}

/// An update that removes these fields, too.
fn with_unset(mut update: Document, unset: Document) -> Document {
    put(&mut update, "$unset", (!unset.is_empty()).then_some(unset));
    update
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offered {
    /// The plugins that their files and configurations have, in order. Those that the database defines are not among them.
    pub plugins: BTreeSet<String>,
    /// All versions of plugins that they have, as `Name@version`.
    pub versions: BTreeSet<String>,
    pub engines: BTreeSet<Engine>,
    pub shadows: BTreeSet<String>,
}

/// The field of a node that names plugins which say that they can run without effects.
const SHADOWS: &str = "shadow_plugins";

impl Offered {
    fn of(nodes: &[Document]) -> Self {
        let mut offered = Self::default();
        for node in nodes {
            let of_workers: Vec<String> = texts_in(node, "workers").collect();
            let own = texts_in(node, "plugins").filter(|name| !of_workers.contains(name));
            offered.plugins.extend(own);
            offered.versions.extend(texts_in(node, plugin::VERSIONS));
            offered.shadows.extend(texts_in(node, SHADOWS));
            let engines = texts_in(node, "engines").filter_map(|engine| engine.parse::<Engine>().ok());
            offered.engines.extend(engines);
        }
        offered
    }
}

/// Where the host of a node is to be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Those of its own network.
    pub private: Vec<String>,
    /// All others, and names.
    pub public: Vec<String>,
}

impl Addresses {
    /// Sorts addresses and names by whom they are for. Those by which only the host itself is reached are left out.
    pub fn sorted<'a>(all: impl IntoIterator<Item = &'a str>) -> Self {
        let mut addresses = Self::default();
        for address in all {
            let of = match address.parse::<IpAddr>() {
                Ok(ip) if is_local(ip) => continue,
                Ok(ip) if is_private(ip) => &mut addresses.private,
                Ok(_) | Err(_) => &mut addresses.public,
            };
            if of.len() < MOST_ADDRESSES && !of.iter().any(|known| known == address) {
                of.push(address.to_owned());
            }
        }
        addresses
    }

    pub fn of_node(node: &Document) -> Self {
        let all = node.get_document("addresses").ok();
        let of = |kind: &str| all.into_iter().flat_map(|all| texts_in(all, kind)).collect();
        Self { private: of("private"), public: of("public") }
    }

    /// All of them, those of its own network first.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.private.iter().chain(&self.public).map(String::as_str)
    }

    pub fn document(&self) -> Document {
        doc! { "private": &self.private, "public": &self.public }
    }
}

fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        // Also those that providers share between customers.
        IpAddr::V4(ip) => ip.is_private() || (ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64),
        IpAddr::V6(ip) => ip.segments()[0] & 0xfe00 == 0xfc00,
    }
}

impl Store {
    /// Records that the DEN of `node` is alive, and reads its entry as it was before, limit included, in the same operation.
    #[operation]
    pub async fn heartbeat(&self, node: &NodeName, beat: &Beat) -> Result<Node, StoreError> {
        let mut fields = doc! {
            "timestamp": self.now(),
            "instance": &beat.instance,
            "version": env!("CARGO_PKG_VERSION"),
            "lease_ms": millis(beat.lease),
            "state": if beat.draining { "draining" } else { "alive" },
            "running": integer(beat.running),
            "plugins": &beat.plugins,
            "workers": &beat.workers,
            plugin::PROBLEMS: plugin::documents(&beat.problems),
            "engines": beat.engines.iter().map(|engine| engine.as_str()).collect::<Vec<_>>(),
            "serves": &beat.serves,
            "labels": beat.labels.document(),
            "addresses": beat.addresses.document(),
            "wants": beat.wants.iter().map(|queue| Bson::from(queue.0)).collect::<Vec<_>>(),
            "aside": integer(beat.aside),
        };
        let mut unset = Document::new();
        let mut only_if = |name: &str, value: Option<Bson>| match value {
            Some(value) => drop(fields.insert(name, value)),
            None => drop(unset.insert(name, "")),
        };
        only_if("schedules", beat.fires_no_schedules.then_some(Bson::from(false)));
        only_if(plugin::VERSIONS, (!beat.versions.is_empty()).then(|| beat.versions.clone().into()));
        only_if(SHADOWS, (!beat.shadows.is_empty()).then(|| Bson::from(beat.shadows.clone())));
        only_if("rival", beat.rival.as_ref().map(Bson::from));
        if beat.holder.is_none() {
            unset.insert(HOLDERS, "");
        }
        let stats = stats_document(&beat.stats);
        put(&mut fields, "stats", (!stats.is_empty()).then_some(stats));
        // `seen` is the server's time: it decides, and `timestamp` is for people and Perl programs.
        let mut dates = doc! { "seen": true };
        let own = beat.holder.map(|holder| format!("{HOLDERS}.{}", holder.0));
        own.iter().for_each(|own| drop(dates.insert(own, true)));
        let update = with_unset(doc! { "$set": fields, "$currentDate": dates }, unset);
        let this = doc! { "node": node };
        let before = self.nodes().find_one_and_update(this.clone(), update).upsert(true).await?;
        let before = before.map(Document::from);
        let knows =
            |before: &Document| beat.holder.is_none_or(|own| beats(before).iter().any(|(of, _)| *of == own));
        let entry = match before {
            Some(before) if knows(&before) => Some(before),
            // It is new, or has a new holder.
            before => {
                let now = self.nodes().find_one(this.clone()).await?.map(Document::from);
                before.map(|before| with_holders(before, now.as_ref())).or(now)
            }
        };
        if let Some(entry) = &entry {
            self.forget_holders(this, entry).await?;
        }
        self.note_node(node, beat.running, &beat.stats);
        // Somebody may have removed it at once.
        let entry = entry.unwrap_or_else(|| doc! { "_id": ObjectId::new(), "node": node });
        typed(NODES.name, entry)
    }

    /// Removes what is told of holders that have long been silent.
    async fn forget_holders(&self, this: Document, entry: &Document) -> Result<(), StoreError> {
        let all = beats(entry);
        let Some(newest) = all.iter().map(|(_, at)| at.timestamp_millis()).max() else { return Ok(()) };
        let is_old = |at: &DateTime| newest.saturating_sub(at.timestamp_millis()) > FORGOTTEN_MS;
        let old = all.iter().filter(|(_, at)| is_old(at));
        let unset: Document = old.map(|(of, _)| (format!("{HOLDERS}.{}", of.0), Bson::from(""))).collect();
        if !unset.is_empty() {
            self.nodes().update_one(this, doc! { "$unset": unset }).await?;
        }
        Ok(())
    }

    /// Says that the DEN of `node` has ended on purpose, unless another one has the name by now.
    #[operation]
    pub async fn leave(&self, node: &NodeName, instance: &str) -> Result<(), StoreError> {
        let ended = doc! { "$set": { "state": "stopped" }, "$unset": { "seen": "" } };
        self.nodes().update_one(doc! { "node": node, "instance": instance }, ended).await?;
        Ok(())
    }

    /// Marks nodes as dead whose DEN has been silent for longer than its lease, by the server's clock, and was at `known`: a time that
    /// is known to have come, also if the clock jumps ahead now. Returns their names.
    #[operation]
    pub async fn mark_dead_nodes(&self, known: DateTime) -> Result<Vec<String>, StoreError> {
        let silent = silent_nodes(known);
        let mut found = self.nodes().find(silent.clone()).projection(doc! { "node": 1 }).await?;
        let mut dead = Vec::new();
        while let Some(node) = found.try_next().await? {
            let still = with(silent.clone(), doc! { "_id": node.get("_id").cloned() });
            let marked = self.nodes().update_one(still, doc! { "$set": { "state": "dead" } }).await?;
            if marked.matched_count == 1 {
                dead.push(node.get("node").map(ToString::to_string).unwrap_or_default());
            }
        }
        if !dead.is_empty() {
            // What they had not written yet is lost.
            self.doubt_counters();
        }
        Ok(dead)
    }

    /// The nodes whose DEN is alive by its heartbeat and the server's clock.
    #[operation]
    pub async fn living_nodes(&self) -> Result<HashSet<NodeName>, StoreError> {
        let found = collect(self.nodes().find(alive()).projection(doc! { "node": 1 })).await?;
        Ok(found.iter().filter_map(|node| node.get_str("node").ok()).map(NodeName::new).collect())
    }

    #[operation]
    pub async fn offered(&self) -> Result<Offered, StoreError> {
        let only = doc! { "plugins": 1, plugin::VERSIONS: 1, "workers": 1, "engines": 1, SHADOWS: 1 };
        let nodes = collect(self.nodes().find(alive()).projection(only)).await?;
        Ok(Offered::of(&nodes))
    }

    /// All nodes as stored, in order of name.
    #[operation]
    pub async fn list_nodes(&self) -> Result<Vec<Document>, StoreError> {
        collect(self.nodes().find(doc! {}).sort(doc! { "node": 1 })).await
    }

    #[operation]
    pub async fn find_node(&self, selector: &Selector) -> Result<Option<Document>, StoreError> {
        Ok(self.nodes().find_one(selector.filter("node")).await?.map(Document::from))
    }

    /// Sets what an operator may set of a node. Values are stored as given; the caller has validated them. `None`:
    /// there is no such node.
    #[operation]
    pub async fn update_node(
        &self,
        selector: &Selector,
        change: NodeChange,
    ) -> Result<Option<Altered>, StoreError> {
        let (mut fields, mut unset) = (Document::new(), Document::new());
        put(&mut fields, "maxthreads", change.maxthreads);
        if let Some(draining) = change.draining {
            fields.insert("draining", draining != Draining::No);
            match draining {
                Draining::Interrupt => drop(fields.insert("interrupt", true)),
                Draining::No | Draining::Yes => drop(unset.insert("interrupt", "")),
            }
        }
        let update = with_unset(doc! { "$set": fields.clone() }, unset);
        let before = self.nodes().find_one_and_update(selector.filter("node"), update).await?;
        Ok(before.map(|before| Altered::by_setting(Some(before.into()), fields)))
    }
}

/// An entry as it was, with what is told of holders now.
fn with_holders(mut before: Document, now: Option<&Document>) -> Document {
    put(&mut before, HOLDERS, now.and_then(|now| now.get(HOLDERS)));
    before
}

/// Nodes that take tasks without holding slots, as far as is known: programs of Perl Disbatch, and DENs of releases before there were any, also where one has
/// taken the place of a later one.
pub(crate) fn strangers() -> Document {
    let beats = doc! { "$map": { "input": { "$objectToArray": format!("${HOLDERS}") }, "in": "$$this.v" } };
    let has_left_off = doc! { "$lt": [{ "$max": beats }, { "$subtract": ["$seen", LEFT_OFF_MS] }] };
    doc! { "state": { "$ne": "stopped" }, "$or": [
        { HOLDERS: { "$not": { "$type": "object" } } },
        { "seen": { "$type": "date" }, "$expr": has_left_off },
    ] }
}

fn alive() -> Document {
    doc! { "seen": { "$type": "date" }, "$expr": { "$gte": [until_silent(), "$$NOW"] } }
}

/// A condition: the DEN of the node was heard of within half of its lease.
pub(crate) fn is_heard_in_half_a_lease() -> Document {
    let is_time = doc! { "$eq": [{ "$type": "$seen" }, "date"] };
    doc! { "$and": [is_time, { "$gte": [until_part_of_lease(2), "$$NOW"] }] }
}

/// Of an odd entry it is the time itself, so that no entry is in the way of the others.
fn until_silent() -> Document {
    until_part_of_lease(1)
}

fn until_part_of_lease(divisor: i32) -> Document {
    let lease = doc! { "$convert": { "input": "$lease_ms", "to": "int", "onError": 0, "onNull": 0 } };
    let until = doc! { "$add": ["$seen", { "$divide": [lease, divisor] }] };
    doc! { "$cond": [{ "$eq": [{ "$type": "$seen" }, "date"] }, until, "$$NOW"] }
}

fn silent_nodes(known: DateTime) -> Document {
    let now = doc! { "$min": ["$$NOW", known] };
    doc! {
        "seen": { "$type": "date" }, "lease_ms": { "$type": "number" }, "state": { "$ne": "dead" },
        "$expr": { "$lt": [until_silent(), now] },
    }
}

/// The same for a look that must not read every node: by an index, of those that have been silent for `least`.
pub(crate) fn silent_nodes_to_find(least: Duration) -> Document {
    doc! {
        "state": { "$in": ["alive", "draining"] }, "seen": { "$type": "date" },
        "lease_ms": { "$type": "number" },
        "$expr": { "$and": [
            { "$lt": ["$seen", server_time_before("$$NOW", least)] },
            { "$lt": [until_silent(), "$$NOW"] },
        ] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_offer_is_theirs_and_not_the_databases() {
        let nodes = [
            doc! { "plugins": ["A", "W", 5], "workers": ["W"], "engines": ["exec", "odd"] },
            doc! { "plugins": "odd" },
            doc! { "plugins": ["B", "A"], "engines": ["http"] },
        ];
        let offered = Offered::of(&nodes);
        assert_eq!(offered.plugins, ["A", "B"].map(str::to_owned).into());
        assert_eq!(offered.engines, [Engine::Exec, Engine::Http].into());
    }

    #[test]
    fn what_a_host_is_like_is_read_as_it_was_written() {
        let stats =
            Stats { load: Some(0.5), cpus: Some(2), memory: Some(1 << 33), memory_available: Some(0) };
        for stats in [stats, Stats { memory: None, load: None, ..stats }, Stats::default()] {
            assert_eq!(stats_of(&doc! { "stats": stats_document(&stats) }), stats);
        }
        assert!(stats_document(&Stats::default()).is_empty());
        let odd = doc! { "stats": { "load": "high", "cpus": -1, "memory": 1.5 } };
        assert_eq!(stats_of(&odd), Stats::default());
        assert_eq!(stats_of(&doc! { "stats": 1 }), Stats::default());
    }

    #[test]
    fn addresses_are_private_public_or_of_the_host_alone() {
        let all = [
            "127.0.0.1",
            "::1",
            "fe80::1",
            "169.254.3.4",
            "10.1.2.3",
            "192.168.0.7",
            "100.64.0.1",
            "fd00::5",
            "203.0.113.9",
            "2001:db8::1",
            "node1.example.com",
            "10.1.2.3",
        ];
        let addresses = Addresses::sorted(all);
        assert_eq!(addresses.private, ["10.1.2.3", "192.168.0.7", "100.64.0.1", "fd00::5"]);
        assert_eq!(addresses.public, ["203.0.113.9", "2001:db8::1", "node1.example.com"]);
        assert_eq!(Addresses::of_node(&doc! { "addresses": addresses.document() }), addresses);
        assert_eq!(Addresses::of_node(&doc! { "addresses": ["10.0.0.1"] }), Addresses::default());
    }
}
