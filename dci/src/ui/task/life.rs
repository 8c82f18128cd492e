//! A task's life on its page: what can be done with it, what it waits for, how its plugin ended, and its earlier attempts.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::explain::Explanation;
use disbatch_core::model::Status;

use crate::ui::spans::precise;
use crate::ui::{StatusView, parts, plain};

/// What it is called, how it is, and what can be done with it.
#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "task/head.html")]
pub struct Head {
    id: String,
    status: StatusView,
    ended: bool,
    waiting: bool,
    /// Whether somebody has asked for its end, and why.
    asked: Option<String>,
    may_be_cancelled: bool,
    may_be_retried: bool,
    /// Whether it is deferred, and may run before its time.
    may_run_now: bool,
    /// Whether it waits, and may wait before or behind others.
    may_be_prioritised: bool,
    may_be_changed: bool,
}

impl HtmlSafe for Head {}

/// Why a task does not run, or how it does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/why.html")]
pub struct Why {
    question: &'static str,
    summary: String,
    gates: Vec<(bool, String)>,
}

impl HtmlSafe for Why {}

/// How far the plugin says it is.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/progress.html")]
pub struct Progress {
    /// Whether that is still to be told.
    live: bool,
    percent: Option<f64>,
    message: String,
}

impl HtmlSafe for Progress {}

impl Head {
    /// That of a task. `queue_is_there`: another one can be submitted to its queue.
    pub fn of(id: &str, task: &Document, queue_is_there: bool) -> Self {
        let status = status(task);
        let has_ended = status.is_some_and(Status::has_ended);
        let running = status == Some(Status::Running);
        let live = status.is_some_and(|status| Status::LIVE.contains(&status));
        let asked = task.get_document("cancel").ok().filter(|_| running);
        let asked = asked.map(who_and_why);
        Self {
            id: id.to_owned(),
            status: StatusView::of(task),
            ended: has_ended,
            waiting: !has_ended && !running && status != Some(Status::Claimed),
            // Asking twice changes nothing.
            may_be_cancelled: live && asked.is_none(),
            // What is in the archive stays as it is.
            may_be_retried: has_ended && !task.contains_key("archived"),
            may_run_now: status == Some(Status::Deferred),
            may_be_prioritised: matches!(status, Some(Status::Queued | Status::Blocked | Status::Deferred)),
            may_be_changed: queue_is_there,
            asked,
        }
    }
}

/// Who has asked for a task's end, and why.
pub(super) fn who_and_why(cancel: &Document) -> String {
    let (by, reason) = (plain(cancel.get("by")), plain(cancel.get("reason")));
    [by, reason].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}

impl Why {
    /// What keeps a task of this status from running, or how it runs. Nothing of one that has ended.
    pub fn of(explanation: Option<Explanation>) -> Self {
        let is_told = |explained: &Explanation| {
            !explained.status.has_ended() || explained.gates.iter().any(|gate| gate.name == "aside")
        };
        let Some(explanation) = explanation.filter(is_told) else {
            return Self::default();
        };
        let question = match explanation.status {
            Status::Running => "How is it running?",
            ended if ended.has_ended() => "How has it ended?",
            _ => "Why is it not running?", // Nothing else runs.
        };
        let summary = explanation.summary;
        // What the summary says is not said twice.
        let gates = explanation.gates.into_iter().filter(|gate| gate.text != summary);
        Self { question, gates: gates.map(|gate| (gate.open, gate.text)).collect(), summary }
    }
}

impl Progress {
    /// So far, of a task that has not ended.
    pub fn of(task: &Document) -> Self {
        let progress = task.get_document("progress").ok();
        let percent =
            progress.and_then(|progress| progress.get("percent")).and_then(disbatch_core::model::number);
        Self {
            live: status(task).is_some_and(|status| !status.has_ended()),
            percent: percent.filter(|percent| percent.is_finite()),
            message: plain(progress.and_then(|progress| progress.get("message"))),
        }
    }
}

/// How the plugin of an earlier attempt ended.
pub fn exit_words(attempt: &Document) -> String {
    let exit = attempt.get_document("exit").map(exit).unwrap_or_default();
    exit.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

/// The streams of which something is kept of an earlier attempt.
pub fn outputs(attempt: &Document) -> impl Iterator<Item = &'static str> {
    let has_output = |stream: &&str| !matches!(attempt.get(stream), None | Some(Bson::Null));
    ["stdout", "stderr"].into_iter().filter(has_output)
}

/// The status of a task, if it is a number.
pub fn status(task: &Document) -> Option<Status> {
    task.get("status").and_then(disbatch_core::model::whole_number).map(Status::from_code)
}

/// How a plugin ended: what, and how much of it.
pub fn exit(exit: &Document) -> Vec<(&'static str, String)> {
    let number = |field: &str| exit.get(field).and_then(disbatch_core::model::number);
    #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates, which is what is wanted")]
    let seconds = |field: &str| number(field).map(|seconds| precise((seconds * 1000.0) as i64));
    let text = |field: &str| exit.get(field).map(|value| plain(Some(value))).filter(|text| !text.is_empty());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is what is wanted"
    )]
    let memory = number("peak_memory").map(|bytes| parts::bytes(bytes as u64));
    let no_memory = exit.get("oom").and_then(Bson::as_bool).filter(|oom| *oom).map(|_| "yes".to_owned());
    let facts = [
        ("Exit code", text("code")),
        ("Ended by signal", text("signal")),
        ("Ended because of", text("reason")),
        ("Killed for want of memory", no_memory),
        ("Ended by the limit", text("limit")),
        ("Took", seconds("duration")),
        ("Processor time", seconds("cpu")),
        ("Most memory", memory),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use disbatch_core::explain::Gate;

    use super::*;

    #[test]
    fn what_can_be_done_depends_on_the_status() {
        let can = |task: Document| {
            let head = Head::of("6b0003bb686c8275d8013333", &task, true);
            let html = head.render().unwrap();
            assert_eq!(html.contains("href=\"#cancel\""), head.may_be_cancelled, "{html}");
            assert_eq!(html.contains("href=\"#retry\""), head.may_be_retried, "{html}");
            assert_eq!(html.contains("href=\"#now\""), head.may_run_now, "{html}");
            assert_eq!(html.contains("href=\"#priority\""), head.may_be_prioritised, "{html}");
            let status = status(&task).map(Status::code);
            assert_eq!(head.may_be_prioritised, matches!(status, Some(-7 | -4 | -2)), "{html}");
            assert_eq!(head.may_run_now, status == Some(-7), "{html}");
            (head.may_be_cancelled, head.may_be_retried)
        };
        for live in [-7, -4, -2, -1, 0] {
            assert_eq!(can(doc! { "status": live }), (true, false), "{live}");
        }
        for ended in [-3, -5, -6, 1, 2, 17] {
            assert_eq!(can(doc! { "status": ended }), (false, true), "{ended}");
        }
        assert_eq!(can(doc! { "status": 0, "cancel": {} }), (false, false));
        assert_eq!(can(doc! { "status": 1, "archived": DateTime::MAX }), (false, false));
        assert_eq!(can(doc! { "status": "odd" }), (false, false));
    }

    #[test]
    fn the_head_tells_scripts_where_the_task_stands() {
        let tells = |task: Document, wanted: &str| {
            let html = Head::of("6b0003bb686c8275d8013333", &task, false).render().unwrap();
            assert!(html.contains(wanted), "{wanted} is not in {html}");
            assert!(!html.contains("#again"), "its queue is gone: {html}");
        };
        tells(doc! { "status": -2 }, "data-ended=\"false\" data-waiting=\"true\"");
        tells(doc! { "status": -1 }, "data-ended=\"false\" data-waiting=\"false\"");
        tells(doc! { "status": 2 }, "data-ended=\"true\" data-waiting=\"false\"");
        tells(
            doc! { "status": 0, "cancel": { "by": "<me>", "reason": "why" } },
            "asked for by &#60;me&#62;: why",
        );
    }

    #[test]
    fn how_a_plugin_ended_is_in_words() {
        let exit = exit(&doc! {
            "signal": 9, "reason": "timeout", "oom": false, "duration": 1.26, "peak_memory": 3_145_728,
        });
        let exit: Vec<(&str, &str)> = exit.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            ("Ended by signal", "9"),
            ("Ended because of", "timeout"),
            ("Took", "1.2 s"),
            ("Most memory", "3.0 MiB"),
        ];
        assert_eq!(exit, expected);
        assert!(self::exit(&doc! { "duration": "x", "peak_memory": -5.0, "oom": 1 }).len() <= 1);
    }

    #[test]
    fn only_what_goes_on_is_explained() {
        let explained = |status| {
            let gate = |text: &str| Gate { name: "x", open: false, text: text.into() };
            let gates = vec![gate("Because of &."), gate("It is <paused>.")];
            Why::of(Some(Explanation { status, summary: "Because of &.".into(), gates })).render().unwrap()
        };
        let html = explained(Status::Queued);
        for part in ["Why is it not running?", "Because of &#38;.", "✗</span> It is &#60;paused&#62;."] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("Because of").count(), 1, "the summary is not repeated: {html}");
        assert!(explained(Status::Running).contains("How is it running?"));
        for none in [explained(Status::Failed), Why::of(None).render().unwrap()] {
            assert!(none.contains("id=\"task-why\"") && !none.contains("<h2"), "{none}");
        }
    }

    #[test]
    fn progress_is_shown_until_the_end() {
        let shown = |task: Document| Progress::of(&task).render().unwrap();
        let html = shown(doc! { "status": 0, "progress": { "percent": 12.5, "message": "a <b>" } });
        assert!(html.contains("value=\"12.5\"") && html.contains("a &#60;b&#62;"), "{html}");
        let third = shown(doc! { "status": 0, "progress": { "percent": 100.0 / 3.0 } });
        assert!(third.contains(" 33.3 %"), "{third}");
        assert!(!shown(doc! { "status": 1, "progress": { "percent": 12.5 } }).contains("<progress"));
        assert!(!shown(doc! { "status": 0, "progress": { "percent": f64::NAN } }).contains("<progress"));
        assert!(!shown(doc! { "status": -7 }).contains("<progress"));
    }
}
