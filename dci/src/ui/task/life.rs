//! A task's life on its page: what can be done with it, what it waits for, what has happened to it, how its plugin
//! ended, and its earlier attempts.

use bson::{Bson, Document};
use disbatch_core::model::Status;

use crate::api::{explain_task, task_action};
use crate::error::HttpError;
use crate::state::State;
use crate::ui::{StatusView, plain, time};

/// All of it.
#[derive(Default)]
pub(super) struct Life {
    /// Whether it can be cancelled.
    pub may_be_cancelled: bool,
    /// Whether it can be queued again.
    pub may_be_retried: bool,
    /// What it waits for, or how it runs, and the question that this answers.
    pub explained: Option<Explained>,
    /// What has happened, the newest first.
    pub history: Vec<Entry>,
    /// How its plugin ended: what, and how much of it.
    pub exit: Vec<(&'static str, String)>,
    /// Attempts before this one.
    pub attempts: Vec<Attempt>,
}

/// Why a task does not run, or how it does.
pub(super) struct Explained {
    pub question: &'static str,
    pub summary: String,
    pub gates: Vec<(bool, String)>,
}

/// A change of its status.
pub(super) struct Entry {
    pub at: String,
    pub status: StatusView,
    pub attempt: String,
    pub node: String,
    pub note: String,
}

/// An earlier attempt.
pub(super) struct Attempt {
    pub number: String,
    pub status: StatusView,
    pub node: String,
    pub started: String,
    pub ended: String,
    pub note: String,
    /// The parts of addresses under which its output is.
    pub outputs: Vec<&'static str>,
}

impl Life {
    /// What the task itself tells.
    pub fn of(task: &Document) -> Self {
        let status = status(task);
        let has_ended = status.is_some_and(Status::has_ended);
        let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
        let running = status == Some(Status::Running);
        let live = status.is_some_and(|status| Status::LIVE.contains(&status));
        Self {
            // Asking twice changes nothing.
            may_be_cancelled: live && !(running && task.get_document("cancel").is_ok()),
            may_be_retried: has_ended,
            history: history.iter().rev().filter_map(Bson::as_document).map(entry).collect(),
            exit: task.get_document("exit").map(exit).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// With what has to be asked for.
    ///
    /// # Errors
    /// The database cannot be reached, or the task is gone.
    pub async fn with_more(mut self, state: &State, id: &str, task: &Document) -> Result<Self, HttpError> {
        let attempts = state.store.list_attempts(task_action::id(id)?).await?;
        self.attempts = attempts.iter().map(attempt).collect();
        // A status that is no number cannot be explained.
        let Some(status) = status(task).filter(|status| !status.has_ended()) else { return Ok(self) };
        let question =
            if status == Status::Running { "How is it running?" } else { "Why is it not running?" };
        let explanation = explain_task::find(state, id).await?;
        let gates = explanation.gates.into_iter().map(|gate| (gate.open, gate.text)).collect();
        self.explained = Some(Explained { question, summary: explanation.summary, gates });
        Ok(self)
    }
}

fn status(task: &Document) -> Option<Status> {
    task.get("status").and_then(disbatch_core::model::whole_number).map(Status::from_code)
}

fn entry(entry: &Document) -> Entry {
    Entry {
        at: time(entry.get("at")),
        status: StatusView::of(entry),
        attempt: plain(entry.get("attempt")),
        node: plain(entry.get("node")),
        note: plain(entry.get("note")),
    }
}

fn attempt(attempt: &Document) -> Attempt {
    let has_output = |stream: &&str| !matches!(attempt.get(stream), None | Some(Bson::Null));
    Attempt {
        number: plain(attempt.get("attempt")),
        status: StatusView::of(attempt),
        node: plain(attempt.get("node")),
        started: time(attempt.get("started")),
        ended: time(attempt.get("ended")),
        note: plain(attempt.get("note")),
        outputs: ["stdout", "stderr"].into_iter().filter(has_output).collect(),
    }
}

fn exit(exit: &Document) -> Vec<(&'static str, String)> {
    let number = |field: &str| exit.get(field).and_then(disbatch_core::model::number);
    let seconds = |field: &str| number(field).map(|seconds| format!("{seconds:.1} s"));
    let text = |field: &str| exit.get(field).map(|value| plain(Some(value))).filter(|text| !text.is_empty());
    let memory = number("peak_memory").map(|bytes| format!("{:.1} MiB", bytes / 1_048_576.0));
    let no_memory = exit.get("oom").and_then(Bson::as_bool).filter(|oom| *oom).map(|_| "yes".to_owned());
    let facts = [
        ("Exit code", text("code")),
        ("Ended by signal", text("signal")),
        ("Ended because of", text("reason")),
        ("Killed for want of memory", no_memory),
        ("Took", seconds("duration")),
        ("Processor time", seconds("cpu")),
        ("Most memory", memory),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn what_can_be_done_depends_on_the_status() {
        let can = |task: Document| {
            let life = Life::of(&task);
            (life.may_be_cancelled, life.may_be_retried)
        };
        for live in [-7, -4, -2, -1, 0] {
            assert_eq!(can(doc! { "status": live }), (true, false), "{live}");
        }
        for ended in [-3, -5, -6, 1, 2, 17] {
            assert_eq!(can(doc! { "status": ended }), (false, true), "{ended}");
        }
        assert_eq!(can(doc! { "status": 0, "cancel": {} }), (false, false));
        assert_eq!(can(doc! { "status": "odd" }), (false, false));
    }

    #[test]
    fn history_and_exit_are_in_words() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let life = Life::of(&doc! {
            "status": 2,
            "history": [{ "at": at, "status": -1, "node": "vm" }, { "at": at, "status": 2, "note": "late" }],
            "exit": { "signal": 9, "reason": "timeout", "oom": false, "duration": 1.26, "peak_memory": 3_145_728 },
        });
        assert_eq!((life.history[0].note.as_str(), life.history[1].node.as_str()), ("late", "vm"));
        assert_eq!(life.history[0].at, "2026-11-20 08:24:27");
        let exit: Vec<(&str, &str)> = life.exit.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            ("Ended by signal", "9"),
            ("Ended because of", "timeout"),
            ("Took", "1.3 s"),
            ("Most memory", "3.0 MiB"),
        ];
        assert_eq!(exit, expected);
    }
}
