//! Whether what a web service was told is so.

use super::Evidence;

/// Tasks that have not succeeded although their service was told that its success was taken, and services that never came to
/// an end.
pub fn ends(evidence: &Evidence<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for served in evidence.served.iter().filter(|served| served.finished) {
        let task = evidence.tasks.get(&served.task);
        let end = task.map(|task| (Evidence::status(task), Evidence::attempt(task)));
        if end != Some((1, served.attempt)) {
            violations.push(format!(
                "task {}: the success of attempt {} was taken, and it is {end:?} (status, attempt)",
                served.task, served.attempt
            ));
        }
    }
    if !evidence.world.service.is_idle() {
        violations.push("the service still calls back, and is not told that it is over".to_owned());
    }
    violations
}
