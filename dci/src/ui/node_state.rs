//! How a node is doing, for people, and what it is doing now: its entry tells what its DEN said last, which for one that has ended
//! is of another time.

use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Moment, Node};
use disbatch_core::store::StoreError;

use crate::state::State;
use crate::ui::parts::Pill;

/// A node of Perl's that was not seen for so many seconds is shown as gone, as `/monitoring` counts.
const STALE_SECONDS: i64 = 60;

/// The time by the two clocks that nodes' times are of.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// That of the database.
    pub server: DateTime,
    pub host: DateTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Its DEN works.
    Alive,
    /// It works, and claims nothing more.
    Draining,
    /// Its DEN has said that it ends.
    Stopped,
    /// Its DEN was not heard of for longer than its lease.
    Dead,
    /// One of Perl's that was not heard of for a minute.
    Gone,
}

impl NodeState {
    pub const ALL: [Self; 5] = [Self::Alive, Self::Draining, Self::Stopped, Self::Dead, Self::Gone];

    /// By its heartbeat and the clock of the server; by the time that it told for one of Perl's.
    pub fn of(document: &Document, now: &Now) -> Self {
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        Self::of_node(node.as_ref(), document.get("timestamp"), now)
    }

    /// The same of a node that has been read, if it could be, and the time that it told.
    pub fn of_node(node: Option<&Node>, seen: Option<&Bson>, now: &Now) -> Self {
        let ours = node.filter(|node| node.is_ours());
        let alive = match (ours, ours.and_then(Node::last_beat)) {
            (_, Some((seen, lease))) => {
                let silence = now.server.timestamp_millis().saturating_sub(seen.timestamp_millis());
                silence <= i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
            }
            (Some(_), None) => return Self::Stopped,
            (None, None) => {
                let at = seen.and_then(|value| Moment(value.clone()).get());
                let age =
                    at.map(|at| now.host.timestamp_millis().saturating_sub(at.timestamp_millis()) / 1000);
                age.is_some_and(|age| age <= STALE_SECONDS)
            }
        };
        let draining = ours.is_some_and(|node| node.is_draining() || node.state() == Some("draining"));
        match (alive, draining) {
            (false, _) if ours.is_none() => Self::Gone,
            (false, _) => Self::Dead,
            (true, true) => Self::Draining,
            (true, false) => Self::Alive,
        }
    }

    /// Whether tasks may run there.
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Alive | Self::Draining)
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Gone => "gone",
        }
    }

    pub const fn pill(self) -> Pill {
        Pill { tone: self.word(), word: self.word() }
    }
}

/// The entries, with `state` by heartbeats and the clock of the server, and, of those whose DENs are not alive, with as many as
/// `running` as they really have; and when that was so.
pub async fn as_they_are(
    state: &State,
    mut nodes: Vec<Document>,
) -> Result<(Vec<Document>, Now), StoreError> {
    let now = Now { server: state.store.server_time().await?, host: state.store.now() };
    let states: Vec<NodeState> = nodes.iter().map(|node| NodeState::of(node, &now)).collect();
    let silent = nodes.iter().zip(&states).filter(|(_, state)| !state.is_up());
    let silent = silent.filter_map(|(node, _)| node.get("node").cloned()).collect();
    let running = state.store.tasks_by_node(silent).await?;
    for (node, is) in nodes.iter_mut().zip(states) {
        node.insert("state", is.pill().word);
        if !is.is_up() {
            let name = node.get("node").and_then(Bson::as_str).unwrap_or_default();
            let tasks = running.get(name).copied().unwrap_or(0);
            node.insert("running", i64::try_from(tasks).unwrap_or(i64::MAX));
            node.remove("rival");
        }
    }
    Ok((nodes, now))
}

/// The same of one.
pub async fn as_it_is(state: &State, node: Document) -> Result<(Document, Now), StoreError> {
    let (mut nodes, now) = as_they_are(state, vec![node]).await?;
    Ok((nodes.pop().unwrap_or_default(), now))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_node_is_as_its_den_says_and_the_server_counts() {
        let (now, late) = (DateTime::from_millis(1_795_163_067_344), DateTime::from_millis(0));
        let both = Now { server: now, host: now };
        let word = |fields: Document| {
            let mut node = doc! { "_id": bson::oid::ObjectId::new(), "node": "n", "timestamp": now };
            node.extend(fields);
            NodeState::of(&node, &both).pill().word
        };
        let ours =
            |seen: DateTime| doc! { "instance": "i", "seen": seen, "lease_ms": 30_000, "state": "alive" };
        assert_eq!(word(ours(now)), "alive");
        assert_eq!(word(ours(late)), "dead");
        let mut draining = ours(now);
        draining.insert("draining", true);
        assert_eq!(word(draining), "draining");
        assert_eq!(word(doc! { "instance": "i", "state": "stopped" }), "stopped");
        assert_eq!(word(doc! {}), "alive");
        assert_eq!(word(doc! { "timestamp": late }), "gone");
        assert_eq!(NodeState::of(&doc! { "node": 5 }, &both), NodeState::Gone);
    }
}
