//! What is run when a node has died, once for each death, by one DEN: the command `on_dead_node` of its configuration.

use std::process::Stdio;
use std::time::Duration;

use disbatch_core::config::Hook;
use disbatch_core::node::Death;
use disbatch_core::store::{Store, StoreError};

use crate::launch::program;
use crate::node::Node;

/// After so long the command is killed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    /// Runs the command for each death that nobody looks after yet, beside all else that the node does.
    pub(crate) async fn look_after_deaths(&self) -> Result<(), StoreError> {
        let Some(hook) = &self.config.on_dead_node else { return Ok(()) };
        for death in self.store.take_deaths(&self.name).await? {
            tokio::spawn(look_after(self.store.clone(), hook.clone(), death));
        }
        Ok(())
    }
}

async fn look_after(store: Store, hook: Hook, death: Death) {
    let outcome = match tokio::time::timeout(PATIENCE, run(&hook, &death)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => format!("cannot be started: {error}"),
        Err(_) => format!("killed after {} s", PATIENCE.as_secs()),
    };
    tracing::warn!(node = death.node, program = hook.program, outcome, "on_dead_node has run");
    if let Err(error) = store.note_hook(&death, &outcome).await {
        tracing::warn!(%error, node = death.node, "cannot note what came of on_dead_node");
    }
}

async fn run(hook: &Hook, death: &Death) -> std::io::Result<String> {
    let addresses: Vec<&str> = death.addresses.all().collect();
    let status = program(&hook.program)
        .args(&hook.arguments)
        .env("DISBATCH_NODE", &death.node)
        .env("DISBATCH_INSTANCE", &death.instance)
        .env("DISBATCH_ADDRESSES", addresses.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    Ok(status.to_string())
}
