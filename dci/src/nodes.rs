//! What nodes are doing now: their entries tell what their DENs said last, which for one that has ended is of another time.

use bson::{Bson, Document};
use disbatch_core::store::StoreError;

use crate::state::State;
use crate::ui::node_state::{NodeState, Now};

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
