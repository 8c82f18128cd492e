//! Whether each time of the schedule has made one task.

use std::collections::BTreeMap;

use disbatch_core::model::TaskId;

use super::Evidence;

/// Times that have no task or several, and tasks of times that there are not.
pub fn times(evidence: &Evidence<'_>) -> Vec<String> {
    let mut made: BTreeMap<i64, Vec<TaskId>> = BTreeMap::new();
    for (id, task) in &evidence.tasks {
        if let (Ok(_), Ok(time)) = (task.get_object_id("schedule"), task.get_datetime("scheduled_for")) {
            made.entry(time.timestamp_millis()).or_default().push(*id);
        }
    }
    let mut violations = Vec::new();
    for time in evidence.ticking.times() {
        match made.remove(&time).unwrap_or_default().as_slice() {
            [_] => {}
            [] => violations.push(format!("nothing was made at {time} ms")),
            several => violations.push(format!("several tasks were made at {time} ms: {several:?}")),
        }
    }
    let odd = made.iter().map(|(time, tasks)| format!("{time} ms is no time of the schedule: {tasks:?}"));
    violations.extend(odd);
    violations
}
