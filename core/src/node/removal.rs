//! Nodes that are not alive: their removal, and who looks after a death.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::Addresses;
use crate::model::{NodeName, Selector};
use crate::store::{Store, StoreError, collect, with};
use crate::task::archive::server_time_before;

/// A node of Perl's that was not heard of for so long is gone.
const PERL_SILENCE: Duration = Duration::from_secs(60);

/// Nodes that died longer ago have nothing run for them: the hook may be new.
const RECENT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, PartialEq)]
pub enum Removed {
    Gone(Document),
    /// Its DEN is alive: it would come back at once.
    Alive,
    Unknown,
}

/// The death of a node, which nobody else looks after.
#[derive(Debug, Clone, PartialEq)]
pub struct Death {
    id: ObjectId,
    /// Its last heartbeat: two deaths of a node differ in it.
    seen: DateTime,
    pub node: String,
    pub instance: String,
    pub addresses: Addresses,
}

impl Store {
    /// Removes a node whose DEN is not alive. What is its own in the database, as tasks and numbers, stays.
    #[operation]
    pub async fn delete_node(&self, selector: &Selector) -> Result<Removed, StoreError> {
        let filter = with(selector.filter("node"), doc! { "$expr": is_gone() });
        if let Some(gone) = self.nodes().find_one_and_delete(filter).await? {
            return Ok(Removed::Gone(gone.into()));
        }
        let is_there = self.find_node(selector).await?.is_some();
        Ok(if is_there { Removed::Alive } else { Removed::Unknown })
    }

    /// The names of all nodes but those that are gone.
    #[operation]
    pub(crate) async fn nodes_not_gone(&self) -> Result<Vec<Bson>, StoreError> {
        let alive = doc! { "$expr": { "$not": [is_gone()] } };
        let found = collect(self.nodes().find(alive).projection(doc! { "node": 1 })).await?;
        Ok(found.into_iter().filter_map(|mut node| node.remove("node")).collect())
    }

    /// Deaths of which nobody has said yet that it looks after them. From now on `by` does: one conditional update each
    /// decides between several who ask.
    #[operation]
    pub async fn take_deaths(&self, by: &NodeName) -> Result<Vec<Death>, StoreError> {
        let open = doc! {
            "state": "dead", "seen": { "$type": "date" }, "$expr": { "$and": [
                { "$gte": ["$seen", server_time_before("$$NOW", RECENT)] },
                { "$ne": ["$hook.of", "$seen"] },
            ] },
        };
        let found = collect(self.nodes().find(open.clone())).await?;
        let mut deaths = Vec::new();
        for death in found.iter().filter_map(Death::of) {
            let still = with(open.clone(), doc! { "_id": death.id, "seen": death.seen });
            let hook = doc! { "of": death.seen, "by": by, "at": self.now() };
            let taken = self.nodes().update_one(still, doc! { "$set": { "hook": hook } }).await?;
            if taken.matched_count == 1 {
                deaths.push(death);
            }
        }
        Ok(deaths)
    }

    /// Notes at the node what came of the hook that was run for its death.
    #[operation]
    pub async fn note_hook(&self, death: &Death, outcome: &str) -> Result<(), StoreError> {
        let same = doc! { "_id": death.id, "hook.of": death.seen };
        let set = doc! { "$set": { "hook.outcome": outcome, "hook.ended": self.now() } };
        self.nodes().update_one(same, set).await?;
        Ok(())
    }
}

impl Death {
    fn of(node: &Document) -> Option<Self> {
        Some(Self {
            id: node.get_object_id("_id").ok()?,
            seen: *node.get_datetime("seen").ok()?,
            node: node.get_str("node").ok()?.to_owned(),
            instance: node.get_str("instance").unwrap_or_default().to_owned(),
            addresses: Addresses::of_node(node),
        })
    }
}

/// Whether a node is not alive, by its heartbeat and the server's clock; for one of Perl's by the time that it told.
fn is_gone() -> Document {
    let as_a = |field: &str, to: &str, otherwise: Bson| {
        doc! { "$convert": { "input": field, "to": to, "onError": &otherwise, "onNull": otherwise } }
    };
    let silent = server_time_before("$$NOW", PERL_SILENCE);
    let of_perl = doc! { "$lt": [as_a("$timestamp", "date", Bson::Null), silent] };
    let until = doc! { "$add": ["$seen", as_a("$lease_ms", "long", Bson::Int64(0))] };
    let of_ours = doc! { "$or": [
        { "$ne": [{ "$type": "$seen" }, "date"] },
        { "$lt": [until, "$$NOW"] },
    ] };
    doc! { "$cond": [{ "$eq": [{ "$type": "$instance" }, "missing"] }, of_perl, of_ours] }
}
