//! What containers of tasks are known by.

use std::collections::BTreeMap;

use crate::input::ContainerInput;
use crate::process::{Process, namespace};

pub const TASK: &str = "disbatch.task";
pub const ATTEMPT: &str = "disbatch.attempt";
pub const NODE: &str = "disbatch.node";
/// The database of the task, if that is known.
pub const DATABASE: &str = "disbatch.database";
/// The process that looks after the container.
pub const ADAPTER: &str = "disbatch.adapter";
/// Among which processes that is.
pub const NAMESPACE: &str = "disbatch.namespace";

/// Those of a container of this adapter.
pub fn of(told: &ContainerInput, adapter: &Process) -> BTreeMap<&'static str, String> {
    let mut labels = BTreeMap::from([
        (TASK, told.task_id.clone()),
        (ATTEMPT, told.attempt.to_string()),
        (NODE, told.node.clone()),
        (ADAPTER, adapter.to_string()),
        (NAMESPACE, namespace()),
    ]);
    if let Some(database) = &told.worker.database {
        labels.insert(DATABASE, database.clone());
    }
    labels
}
