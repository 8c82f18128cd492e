//! Other DENs that use the name of this node. Both then write its entry in turn, so each finds what the other wrote.

use std::time::{Duration, Instant};

use disbatch_core::model::Node;

/// So long after it was found it is told with heartbeats.
const TOLD: Duration = Duration::from_secs(10);

/// It is logged again after so long.
const REMINDED: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub struct Rivals {
    /// This DEN has written the entry: what another one has written since then is of one that is alive.
    has_written: bool,
    last: Option<(String, Instant)>,
    logged: Option<Instant>,
}

impl Rivals {
    /// This is the entry as it was before a heartbeat of `own`.
    pub fn found(&mut self, own: &str, before: &Node, now: Instant) {
        let has_written = std::mem::replace(&mut self.has_written, true);
        // One that drains is about to end, and another one may have taken its place.
        let other = before.instance().filter(|other| *other != own && before.state() == Some("alive"));
        let Some(other) = other.filter(|_| has_written) else { return };
        if self.logged.is_none_or(|at| now.saturating_duration_since(at) >= REMINDED) {
            tracing::warn!(
                node = %before.node, instance = own, other,
                "another DEN uses the name of this node: give each a name of its own with --node"
            );
            self.logged = Some(now);
        }
        self.last = Some((other.to_owned(), now));
    }

    /// The one that was found a moment ago.
    pub fn now(&self, now: Instant) -> Option<String> {
        let recent = self.last.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) < TOLD);
        recent.map(|(other, _)| other.clone())
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn entry(instance: &str, state: &str) -> Node {
        let node = doc! { "_id": ObjectId::new(), "node": "n", "instance": instance, "state": state };
        bson::deserialize_from_document(node).unwrap()
    }

    #[test]
    fn who_writes_between_own_heartbeats_is_a_rival() {
        let now = Instant::now();
        let mut rivals = Rivals::default();
        rivals.found("me", &entry("before me", "alive"), now);
        assert_eq!(rivals.now(now), None, "that of the last start");
        rivals.found("me", &entry("me", "alive"), now);
        rivals.found("me", &entry("old", "draining"), now);
        assert_eq!(rivals.now(now), None, "it is about to end");
        rivals.found("me", &entry("other", "alive"), now);
        assert_eq!(rivals.now(now).as_deref(), Some("other"));
        rivals.found("me", &entry("me", "alive"), now);
        assert_eq!((rivals.now(now).is_some(), rivals.now(now + TOLD)), (true, None));
    }
}
