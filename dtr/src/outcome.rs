//! What came out of an attempt, and what that means for the task.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_core::clock;
use disbatch_core::model::{Rules, Status, Task};
use disbatch_core::output;
use disbatch_core::recordings::Recorded;
use disbatch_core::task::{Pause, commit_note};
use nix::sys::signal::Signal;

use crate::capture::{Capture, Captures};
use crate::facts::{self, ExitFacts};
use crate::plugin::Ended;
use crate::supervision::Reason;

#[derive(Debug)]
pub struct Verdict {
    /// The status that the task ends with, unless there are more steps.
    pub status: Status,
    pub result: Option<Document>,
    /// How the plugin ended, and what it used, with those of earlier steps.
    pub facts: Option<ExitFacts>,
    /// Why it ended like that, where that is not the plugin's doing.
    pub note: Option<String>,
    /// Whether the private folder has been left by everyone.
    pub has_left: bool,
    /// A web service has taken the task, which goes on there.
    pub detached: bool,
    /// Why the task goes on in another attempt, without an outcome.
    pub pause: Option<Pause>,
    /// What the task's `exit` has besides.
    pub more: Document,
    /// Values that standard output and standard error are stored as in place of their text.
    pub held: [Option<Held>; 2],
    reason: Option<Reason>,
}

/// A value that a stream is stored as in the task, in place of its text, as long as it is of that length: nothing has been
/// added to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub value: Bson,
    /// The length of the text in bytes.
    pub length: u64,
}

impl Verdict {
    pub fn of(ended: Ended) -> Self {
        let status = facts::final_status(ended.exit, ended.control.status.as_ref());
        Self::with(ended, status)
    }

    /// The same of one that has this status unless it was made to end.
    pub fn with(ended: Ended, status: Status) -> Self {
        ended.facts.log();
        let reason = ended.facts.reason;
        let (mut status, note) = match reason {
            Some(Reason::Runner) | None => (status, reason.map(|reason| ordered(reason).1)),
            Some(reason) => {
                let (status, note) = ordered(reason);
                (status, Some(note))
            }
        };
        let mut note = note.map(str::to_owned);
        let mut pause = None;
        match paused(&ended, status) {
            Some(Ok(Pause::Interrupted)) if !ended.control.told_to_stop => {
                let why = "its plugin says that it was interrupted, but nobody had told it to stop";
                (status, note) = (Status::Failed, Some(why.to_owned()));
            }
            Some(Ok(why)) => {
                (status, note) = (Status::Deferred, Some(why.note()));
                pause = Some(why);
            }
            Some(Err(why)) => {
                (status, note) = (Status::Failed, Some(format!("its plugin cannot ask this: {why}")));
            }
            None => {}
        }
        let more = ended.control.facts.map(|facts| doc! { "engine": facts }).unwrap_or_default();
        Self {
            result: ended.control.result,
            pause,
            has_left: ended.facts.exit.alone,
            detached: ended.control.detach && ended.exit.success() && reason.is_none(),
            more,
            facts: Some(ended.facts),
            reason,
            ..Self::without_plugin(status, note)
        }
    }

    /// Whether the plugin ended by itself, as far as the runner knows.
    pub fn is_its_own(&self) -> bool {
        matches!(self.reason, None | Some(Reason::Runner))
    }

    /// What the task's `exit` has, if there was a plugin.
    pub fn exit(&self) -> Option<Document> {
        let mut document = self.facts.as_ref().map(exit)?;
        document.extend(self.more.clone());
        Some(document)
    }

    /// What comes of a step that is not begun with, because the task has to end.
    pub fn ordered(reason: Reason) -> Self {
        let (status, note) = ordered(reason);
        Self { reason: Some(reason), ..Self::without_plugin(status, Some(note.to_owned())) }
    }

    pub fn unable_to_start(why: String) -> Self {
        Self::without_plugin(Status::Failed, Some(why))
    }

    fn without_plugin(status: Status, note: Option<String>) -> Self {
        Self {
            status,
            result: None,
            facts: None,
            note,
            has_left: true,
            detached: false,
            pause: None,
            more: Document::new(),
            held: [None, None],
            reason: None,
        }
    }

    /// The same after what came of the steps before, if there were any.
    pub fn after(self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier else { return self };
        let facts = match (self.facts, earlier.facts) {
            (Some(own), Some(before)) => Some(own.after(&before)),
            (own, before) => own.or(before),
        };
        let mut more = earlier.more;
        more.extend(self.more);
        Self {
            result: self.result.or(earlier.result),
            has_left: self.has_left && earlier.has_left,
            facts,
            more,
            ..self
        }
    }
}

/// The status of a task that is made to end for this reason, unless its plugin has one of its own, and why.
fn ordered(reason: Reason) -> (Status, &'static str) {
    match reason {
        Reason::Cancel => (Status::Terminated, "cancelled"),
        Reason::Timeout => (Status::Terminated, "it took longer than its timeout"),
        Reason::Deadline => (Status::Terminated, "its deadline passed"),
        Reason::LeaseLost => (Status::Orphaned, "its lease ran out, so its runner stopped the plugin"),
        Reason::Runner => (Status::Failed, "its runner was told to end"),
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub stdout: Capture,
    pub stderr: Capture,
    pub exit: Option<Document>,
    /// The task is to be tried again after this time.
    pub again: Option<Duration>,
    /// How many bytes were written into the task while it ran, besides its progress.
    pub written: u64,
    pub recorded: Option<Box<Recorded>>,
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
    Some(Outcome::new(Verdict::without_plugin(Status::Cancelled, Some(note.to_owned())), ["", ""].map(text)))
}

impl Outcome {
    pub fn of(mut verdict: Verdict, captures: Captures) -> Self {
        let Captures { stdout, mut stderr } = captures;
        for failure in [stdout.failure(), stderr.failure()].into_iter().flatten() {
            tracing::error!("{failure}");
            stderr.note(&format!("disbatch: {failure}\n"));
        }
        for (held, stream) in verdict.held.iter_mut().zip([&stdout, &stderr]) {
            held.take_if(|held| held.length != stream.len());
        }
        Self::new(verdict, [stdout, stderr])
    }

    fn new(verdict: Verdict, [stdout, stderr]: [Capture; 2]) -> Self {
        let exit = verdict.exit();
        Self { verdict, stdout, stderr, exit, again: None, written: 0, recorded: None }
    }

    /// With the times of its output in `exit`, if that took a while.
    pub fn timed(mut self) -> Self {
        if let Some(exit) = &mut self.exit {
            let marks = [&self.stdout, &self.stderr].map(|stream| &stream.marks);
            exit.extend(output::timed(self.stdout.began(), marks).unwrap_or_default());
        }
        self
    }

    /// Perl Disbatch's words for a task whose plugin never ran.
    pub fn unable_to_start(why: &str) -> Self {
        Self::not_begun(None, why)
    }

    /// The same; `reason`: what it was to end for before its plugin could be started, if it was.
    pub fn not_begun(reason: Option<Reason>, why: &str) -> Self {
        let verdict = reason.map_or_else(|| Verdict::without_plugin(Status::Failed, None), Verdict::ordered);
        Self::new(verdict, ["Unable to start", why].map(text))
    }

    /// With the time of the next attempt, if there is to be one: after a failure and after a timeout, and,
    /// by the rule for dead runners, when the lease was lost. A status of the plugin's own above 2 is final,
    /// and so are a cancel and a deadline. One that pauses waits for what it needs in place of a time.
    pub fn with_retry(self, rules: &Rules, failures: i64) -> Self {
        let again = match self.verdict.reason {
            None | Some(Reason::Runner) if self.verdict.pause.is_some() => Some(Duration::ZERO),
            Some(Reason::LeaseLost) => rules.after_death(failures, clock::chance()),
            Some(Reason::Cancel | Reason::Deadline) => None,
            Some(Reason::Timeout) => rules.after_failure(failures, clock::chance()),
            Some(Reason::Runner) | None if self.verdict.status == Status::Failed => {
                rules.after_failure(failures, clock::chance())
            }
            Some(Reason::Runner) | None => None,
        };
        Self { again, ..self }
    }

    /// With the status that the plugin has committed, whatever became of it after that.
    pub fn committed(self, status: Status) -> Self {
        let Verdict { status: own, pause, note, .. } = &self.verdict;
        let note = if *own == status && pause.is_none() {
            note.clone()
        } else {
            Some(commit_note(status, note.as_deref().unwrap_or("its plugin ended otherwise")))
        };
        let verdict = Verdict { status, note, pause: None, detached: false, ..self.verdict };
        Self { verdict, again: None, ..self }
    }
}

fn text(text: &str) -> Capture {
    let mut capture = Capture::new(std::env::temp_dir());
    capture.push(text.as_bytes());
    capture
}

/// Why a plugin that came to `status` is to go on in another attempt, if it is. Who has failed, or was made to end, is not any more.
fn paused(ended: &Ended, status: Status) -> Option<Result<Pause, String>> {
    let pause = match ended.facts.reason {
        None | Some(Reason::Runner) if was_stopped(ended) => return Some(Ok(Pause::Interrupted)),
        None => ended.control.pause.clone(),
        // It was told to stop, because its runner was.
        Some(Reason::Runner) => ended.control.pause.clone().filter(|pause| *pause == Ok(Pause::Interrupted)),
        Some(_) => None,
    };
    pause.filter(|_| status == Status::Succeeded)
}

/// Whether a plugin that can be interrupted was ended by the signal that tells it to stop.
fn was_stopped(ended: &Ended) -> bool {
    ended.control.told_to_stop && ended.exit.signal() == Some(Signal::SIGTERM as i32)
}

/// As tasks have it in `exit`: times in seconds, memory in bytes.
pub fn exit(facts: &ExitFacts) -> Document {
    let known = [
        ("code", facts.code().map(Bson::from)),
        ("signal", facts.signal().map(Bson::from)),
        ("reason", facts.reason.map(|reason| reason.as_str().into())),
        ("limit", facts.exit.limit.map(|limit| limit.key().into())),
    ];
    let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut exit: Document = known.collect();
    exit.extend(doc! {
        "oom": facts.exit.oom,
        "duration": facts.exit.duration.as_secs_f64(),
        "cpu": facts.exit.cpu.as_secs_f64(),
        "peak_memory": i64::try_from(facts.exit.peak_memory).unwrap_or(i64::MAX),
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
            let outcome = Outcome::not_begun(Some(reason), "too many processes");
            let verdict = &outcome.verdict;
            assert_eq!((verdict.status, verdict.note.as_deref()), (status, Some(note)));
            assert_eq!(outcome.stderr.text().await.unwrap(), "too many processes");
            assert!(outcome.exit.is_none() && verdict.has_left);
        }
    }
}
