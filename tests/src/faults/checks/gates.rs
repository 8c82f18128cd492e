//! Tasks with locks and tasks that come after others: which plugins ran together, and which before others.

use std::collections::HashMap;

use bson::{Bson, Document};
use disbatch_core::model::TaskId;

use super::Evidence;
use crate::faults::records::{self, Run};

/// Plugins that ran together although their locks forbid it.
pub fn locks(evidence: &Evidence<'_>) -> Vec<String> {
    let mut held: HashMap<String, Vec<(String, &Run)>> = HashMap::new();
    for run in &evidence.runs {
        let Some(task) = evidence.tasks.get(&run.task) else { continue };
        for lock in texts(task, "locks") {
            let (name, mode) = lock.split_once('/').unwrap_or((lock.as_str(), ""));
            held.entry(name.to_owned()).or_default().push((mode.to_owned(), run));
        }
    }
    let mut violations = Vec::new();
    for (name, runs) in &held {
        for (mode, run) in runs {
            // Those that were alive when it began: of any two, one began later.
            let beside = |(_, other): &&(String, &Run)| {
                other.task != run.task && other.started <= run.started && run.started < other.last
            };
            let beside: Vec<&(String, &Run)> = runs.iter().filter(beside).collect();
            if !may_be_beside(mode, &beside) {
                let others: Vec<String> = beside.iter().map(|(_, other)| describe(other)).collect();
                violations.push(format!("lock {name}: {} began beside {}", describe(run), others.join("; ")));
            }
        }
    }
    violations
}

fn may_be_beside(mode: &str, others: &[&(String, &Run)]) -> bool {
    match mode {
        "" => others.is_empty(),
        "shared" => others.iter().all(|(mode, _)| mode == "shared"),
        places => places.parse().is_ok_and(|places: usize| others.len() < places),
    }
}

/// Plugins of tasks that began before those that they come after had ended.
pub fn order(evidence: &Evidence<'_>) -> Vec<String> {
    let runs = records::by_task(&evidence.runs);
    let mut violations = Vec::new();
    for (id, task) in &evidence.tasks {
        let Some(first) = runs.get(id).and_then(|runs| runs.first()) else { continue };
        let parents = task.get_array("after").map(Vec::as_slice).unwrap_or_default();
        for parent in parents.iter().filter_map(Bson::as_object_id).map(TaskId) {
            let late = runs.get(&parent).into_iter().flatten().find(|run| run.last > first.started);
            if let Some(late) = late {
                violations.push(format!("{} began before the end of {}", describe(first), describe(late)));
            }
        }
    }
    violations
}

/// Tasks that ran although one that they need has not succeeded, or were not let in although all have.
pub fn successes(evidence: &Evidence<'_>) -> Vec<String> {
    let runs = records::by_task(&evidence.runs);
    let mut violations = Vec::new();
    for (id, task) in &evidence.tasks {
        let parents = task.get_array("after").map(Vec::as_slice).unwrap_or_default();
        if parents.is_empty() || task.get_str("after_when").is_ok_and(|when| when != "succeeded") {
            continue;
        }
        let has_succeeded = |parent: &Bson| {
            let parent = parent.as_object_id().and_then(|id| evidence.tasks.get(&TaskId(id)));
            parent.is_some_and(|parent| Evidence::status(parent) == 1)
        };
        let all_have = parents.iter().all(has_succeeded);
        // One that was cancelled by hand has a request.
        let is_let_in = Evidence::status(task) != -5 || task.contains_key("cancel");
        match (runs.get(id).and_then(|runs| runs.first()), all_have) {
            (Some(run), false) => {
                violations.push(format!("{} without the success of those before it", describe(run)));
            }
            (None, true) if !is_let_in => violations.push(format!("task {id} was cancelled for no reason")),
            _ => {}
        }
    }
    violations
}

fn describe(run: &Run) -> String {
    format!("task {}, {}", run.task, run.describe())
}

fn texts(task: &Document, field: &str) -> Vec<String> {
    let all = task.get_array(field).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Bson::as_str).map(str::to_owned).collect()
}
