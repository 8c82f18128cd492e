//! Which attempt a task is in, and how many of those have failed that it had. Only failures count towards its bound: an attempt that was
//! interrupted, given back or ended by hand costs none, so that there may be more attempts than that.

use bson::Document;
use disbatch_core::model::{Status, whole_number};

use super::life::status;

/// `6 · failure 2 of 4`: the attempt, and what is known of failures. `most`: so many end the task.
pub fn words(task: &Document, most: Option<i64>) -> Option<String> {
    let attempt = task.get("attempt").and_then(whole_number).filter(|attempt| *attempt >= 1);
    let parts: Vec<String> =
        [attempt.map(|n| n.to_string()), failures(task, most)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// `failure 2 of 4` if the last attempt has failed, `1 of 4 failures` if others had. Nothing of an only attempt, or where none has failed.
pub fn failures(task: &Document, most: Option<i64>) -> Option<String> {
    let earlier = task.get("failures").and_then(whole_number).unwrap_or(0).max(0);
    let timed_out = || {
        task.get_document("exit").is_ok_and(|exit| exit.get_str("reason").is_ok_and(|why| why == "timeout"))
    };
    // The failure that ends a task is not counted among those after which it was tried again.
    let (count, is_last) = match status(task) {
        Some(Status::Failed) => (earlier.saturating_add(1), true),
        Some(Status::Terminated) if timed_out() => (earlier.saturating_add(1), true),
        Some(Status::Deferred) => (earlier, true),
        _ => (earlier, false), // It goes on, has succeeded, or ended by what is no failure of its plugin.
    };
    // The bound may have been lowered since.
    let most = most.filter(|most| *most >= 2 && *most >= count);
    match (count, is_last, most) {
        (0, ..) => None,
        (_, true, None) if earlier == 0 => None,
        (count, true, Some(most)) => Some(format!("failure {count} of {most}")),
        (count, true, None) => Some(format!("failure {count}")),
        (count, false, Some(most)) => Some(format!("{count} of {most} failures")),
        (count, false, None) => Some(format!("{count} failure{}", if count == 1 { "" } else { "s" })),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_counts_towards_the_bound_is_failures() {
        let of = |task: Document, most: Option<i64>| words(&task, most).unwrap_or_default();
        let task = |status: i32, failures: i64| doc! { "status": status, "attempt": 6, "failures": failures };
        assert_eq!(of(task(2, 1), Some(4)), "6 · failure 2 of 4", "four others were given back");
        assert_eq!(of(task(2, 1), None), "6 · failure 2");
        assert_eq!(of(task(2, 4), Some(3)), "6 · failure 5", "the bound was lowered");
        assert_eq!(of(task(-7, 2), Some(4)), "6 · failure 2 of 4");
        assert_eq!(of(task(0, 2), Some(4)), "6 · 2 of 4 failures");
        assert_eq!(of(task(1, 1), None), "6 · 1 failure");
        assert_eq!(of(task(-6, 2), Some(3)), "6 · 2 of 3 failures", "who has died has not failed");
        assert_eq!(of(doc! { "status": 2, "attempt": 1 }, None), "1");
        assert_eq!(of(task(-7, 1), None), "6 · failure 1");
        assert_eq!(of(doc! { "status": 2, "attempt": 1 }, Some(3)), "1 · failure 1 of 3");
        let timed_out = doc! { "status": -3, "attempt": 2, "failures": 1, "exit": { "reason": "timeout" } };
        assert_eq!(of(timed_out, Some(2)), "2 · failure 2 of 2");
        let cancelled = doc! { "status": -3, "attempt": 2, "failures": 1, "exit": { "reason": "cancel" } };
        assert_eq!(of(cancelled, Some(2)), "2 · 1 of 2 failures");
        assert_eq!(words(&doc! { "attempt": "x", "failures": "y" }, Some(2)), None);
    }
}
