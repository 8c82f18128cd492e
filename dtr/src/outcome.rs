//! What came out of an attempt, and what that means for the task.

use std::time::Duration;

use bson::{Document, doc};
use disbatch_core::clock;
use disbatch_core::model::{Rules, Status, Task};

use crate::capture::Capture;
use crate::facts::ExitFacts;
use crate::plugin::Ended;
use crate::supervision::Reason;
use crate::verdict;

/// What is to be stored.
#[derive(Debug)]
pub struct Outcome {
    /// The final status.
    pub status: Status,
    /// Standard output.
    pub stdout: Capture,
    /// Standard error.
    pub stderr: Capture,
    /// The structured result.
    pub result: Option<Document>,
    /// How the plugin ended.
    pub exit: Option<Document>,
    /// Why it ended like that, where that is not the plugin's doing.
    pub note: Option<String>,
    /// The task is to be tried again after this time.
    pub again: Option<Duration>,
    /// Whether its private folder has been left by everyone.
    pub has_left: bool,
    reason: Option<Reason>,
}

/// The end of a task that need not run any more: it was cancelled after it had been claimed, or its deadline
/// has passed.
pub fn needless(task: &Task, until_deadline: Option<Duration>) -> Option<Outcome> {
    let note = if task.is_to_be_cancelled() {
        "cancelled before it ran"
    } else if until_deadline.is_some_and(|left| left.is_zero()) {
        "its deadline passed before it ran"
    } else {
        return None;
    };
    Some(Outcome { note: Some(note.to_owned()), ..Outcome::without_plugin(Status::Cancelled, "", "") })
}

impl Outcome {
    /// What came out of a plugin.
    pub fn of(mut ended: Ended) -> Self {
        for failure in [ended.stdout.failure(), ended.stderr.failure()].into_iter().flatten() {
            tracing::error!("{failure}");
            ended.stderr.note(&format!("disbatch: {failure}\n"));
        }
        ended.facts.log();
        let reason = ended.facts.reason;
        let by_reason = reason.map(status_by_reason);
        let status = by_reason
            .and_then(|(status, _)| status)
            .unwrap_or_else(|| verdict::final_status(ended.exit, ended.control.status.as_ref()));
        Self {
            status,
            stdout: ended.stdout,
            stderr: ended.stderr,
            result: ended.control.result,
            exit: Some(document(&ended.facts)),
            note: by_reason.map(|(_, note)| note.to_owned()),
            again: None,
            has_left: ended.facts.alone,
            reason,
        }
    }

    /// Perl Disbatch's words for a task whose plugin never ran.
    pub fn unable_to_start(why: &str) -> Self {
        Self::without_plugin(Status::Failed, "Unable to start", why)
    }

    /// The same for a task that was to end before its plugin could be started.
    pub fn not_begun(reason: Reason, why: &str) -> Self {
        let (status, note) = status_by_reason(reason);
        let outcome = Self::unable_to_start(why);
        Self {
            status: status.unwrap_or(outcome.status),
            note: Some(note.to_owned()),
            reason: Some(reason),
            ..outcome
        }
    }

    fn without_plugin(status: Status, stdout: &str, stderr: &str) -> Self {
        let capture = |text: &str| {
            let mut capture = Capture::new(std::env::temp_dir());
            capture.push(text.as_bytes());
            capture
        };
        Self {
            status,
            stdout: capture(stdout),
            stderr: capture(stderr),
            result: None,
            exit: None,
            note: None,
            again: None,
            has_left: true,
            reason: None,
        }
    }

    /// With the time of the next attempt, if there is to be one: after a failure and after a timeout, and,
    /// by the rule for dead runners, when the lease was lost. A status of the plugin's own above 2 is final,
    /// and so are a cancel and a deadline.
    pub fn with_retry(self, rules: &Rules, failures: i64) -> Self {
        let again = match self.reason {
            Some(Reason::LeaseLost) => rules.after_death(failures, clock::chance()),
            Some(Reason::Cancel | Reason::Deadline) => None,
            Some(Reason::Timeout) => rules.after_failure(failures, clock::chance()),
            Some(Reason::Runner) | None if self.status == Status::Failed => {
                rules.after_failure(failures, clock::chance())
            }
            Some(Reason::Runner) | None => None,
        };
        Self { again, ..self }
    }
}

/// What a task has become whose plugin was made to end, if not the plugin says so, and why.
fn status_by_reason(reason: Reason) -> (Option<Status>, &'static str) {
    match reason {
        Reason::Cancel => (Some(Status::Terminated), "cancelled"),
        Reason::Timeout => (Some(Status::Terminated), "it took longer than its timeout"),
        Reason::Deadline => (Some(Status::Terminated), "its deadline passed"),
        Reason::LeaseLost => (Some(Status::Orphaned), "its lease ran out, so its runner stopped the plugin"),
        Reason::Runner => (None, "its runner was told to end"),
    }
}

/// As tasks have it in `exit`: times in seconds, memory in bytes.
fn document(facts: &ExitFacts) -> Document {
    let mut exit = Document::new();
    if let Some(code) = facts.code {
        exit.insert("code", code);
    }
    if let Some(signal) = facts.signal {
        exit.insert("signal", signal);
    }
    if let Some(reason) = facts.reason {
        exit.insert("reason", reason.as_str());
    }
    if let Some(limit) = facts.limit {
        exit.insert("limit", limit.key());
    }
    exit.extend(doc! {
        "oom": facts.oom,
        "duration": facts.duration.as_secs_f64(),
        "cpu": facts.cpu.as_secs_f64(),
        "peak_memory": i64::try_from(facts.peak_memory).unwrap_or(i64::MAX),
    });
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_was_to_end_before_it_began_ends_like_those_that_had_begun() {
        for (reason, status, note) in [
            (Reason::Cancel, Status::Terminated, "cancelled"),
            (Reason::Timeout, Status::Terminated, "it took longer than its timeout"),
            (Reason::Deadline, Status::Terminated, "its deadline passed"),
            (Reason::LeaseLost, Status::Orphaned, "its lease ran out, so its runner stopped the plugin"),
            (Reason::Runner, Status::Failed, "its runner was told to end"),
        ] {
            let outcome = Outcome::not_begun(reason, "too many processes");
            assert_eq!((outcome.status, outcome.note.as_deref()), (status, Some(note)));
            assert_eq!(outcome.stderr.text().await.unwrap(), "too many processes");
            assert!(outcome.exit.is_none() && outcome.has_left);
        }
    }
}
