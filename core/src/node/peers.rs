//! What a node says of itself that tells whether it could run tasks of a queue.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::shares::Contender;
use super::{Stats, until_silent};
use crate::model::{Labels, Node, NodeSelector, Queue, QueueId, drawn, whole_number};
use crate::plugin::VERSIONS;
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// Who was not heard of for so long has nothing left to it, although it may be alive.
const SILENT: Duration = Duration::from_secs(5);

/// A node with a DEN of this release, as far as it matters to the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    pub name: String,
    /// Its last heartbeat, by the server's clock.
    pub seen: Option<DateTime>,
    /// What its host can do.
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
    /// Whether schedules fire from it.
    pub fires_schedules: bool,
}

impl Peer {
    /// As its entry tells. `None`: the entry is that of another program, which does not tell.
    pub fn of(node: &Node) -> Option<Self> {
        let texts = |field| -> Option<HashSet<String>> {
            let texts = node.rest.get(field).and_then(Bson::as_array)?.iter();
            Some(texts.filter_map(Bson::as_str).map(str::to_owned).collect())
        };
        let serves = node.rest.get("serves").and_then(Bson::as_document);
        let running = node.rest.get("running").and_then(whole_number);
        Some(Self {
            name: node.node.as_str()?.to_owned(),
            seen: node.rest.get("seen").and_then(Bson::as_datetime).copied(),
            power: Stats::of_node(&node.rest).power(),
            maxthreads: node.thread_limit(),
            running: running.and_then(|running| u64::try_from(running).ok()).unwrap_or(0),
            is_draining: node.is_draining() || node.state() != Some("alive"),
            plugins: texts("plugins")?.into_iter().chain(texts(VERSIONS).unwrap_or_default()).collect(),
            active: serves.filter(|serves| serves.contains_key("active")).map(|serves| ids(serves, "active")),
            ignored: serves.map(|serves| ids(serves, "ignored")).unwrap_or_default(),
            wants: ids(&node.rest, "wants"),
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

fn ids(of: &Document, field: &str) -> HashSet<ObjectId> {
    let ids = of.get_array(field).map(Vec::as_slice).unwrap_or_default();
    ids.iter().filter_map(Bson::as_object_id).collect()
}

/// Reads the nodes of which something was heard a moment ago.
pub(crate) fn pipeline() -> Vec<Document> {
    let silent = i64::try_from(SILENT.as_millis()).unwrap_or(i64::MAX);
    let fields = [
        "node",
        "seen",
        "state",
        "draining",
        "maxthreads",
        "running",
        "plugins",
        VERSIONS,
        "serves",
        "stats",
        "wants",
        "labels",
        "schedules",
    ];
    let only: Document = fields.into_iter().map(|field| (field.to_owned(), Bson::from(1))).collect();
    vec![
        doc! { "$match": {
            "state": "alive", "seen": { "$type": "date" }, "$expr": { "$and": [
                { "$gte": ["$seen", { "$subtract": ["$$NOW", silent] }] },
                { "$gte": [until_silent(), "$$NOW"] },
            ] },
        } },
        doc! { "$project": only },
    ]
}

impl Store {
    /// The nodes whose DENs have been heard of within the last seconds and do not drain.
    #[operation]
    pub async fn peers(&self) -> Result<Vec<Peer>, StoreError> {
        let found: Vec<Document> = self.nodes().aggregate(pipeline()).await?.try_collect().await?;
        Ok(found.into_iter().filter_map(peer).collect())
    }
}

/// A node that [`pipeline`] has found.
pub(crate) fn peer(node: Document) -> Option<Peer> {
    Peer::of(&typed("nodes", node).ok()?)
}
