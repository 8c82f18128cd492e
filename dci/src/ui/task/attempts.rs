//! The attempts of a task, of which one's output is shown; and why a task has failed, on top of its page: one sentence, what led to it, and
//! the last lines that it wrote to stderr.

use askama::Template;
use bson::{Bson, Document};
use disbatch_core::model::{Status, TaskId, number};
use disbatch_core::output::StreamName;
use disbatch_core::store::{Store, StoreError};

use super::facts::QueueLink;
use super::output::{Of, without_controls};
use crate::ui::names::Link;
use crate::ui::parts::{When, cut, limit_span, precise_seconds};
use crate::ui::{StatusView, in_document, integer, plain};

/// The last so many have a tab; there may be thousands.
const MOST: usize = 20;

#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub of: Of,
    pub earlier: Option<&'a Document>,
    /// Whether somebody has chosen it, so that it stays what comes next.
    pub fixed: bool,
}

impl<'a> Choice<'a> {
    /// The one that is asked for, or else the last one. As long as a task waits for its next attempt, that is an earlier one. `None`:
    /// there is no such attempt.
    pub fn of(task: &Document, attempts: &'a [Document], asked: Option<i64>) -> Option<Self> {
        let named = asked.and_then(|asked| attempts.iter().find(|attempt| number_of(attempt) == asked));
        let is_last = |asked| has_own(task) && asked == number_of(task);
        if named.is_none() && !asked.is_none_or(is_last) {
            return None;
        }
        let earlier = named.or_else(|| attempts.last().filter(|_| !has_own(task)));
        let of = match earlier {
            Some(earlier) => Of::Earlier(number_of(earlier)),
            None if Status::stored(task) == Some(Status::Running) => Of::Running(number_of(task)),
            None => Of::Task,
        };
        Some(Self { of, earlier, fixed: named.is_some() })
    }

    pub fn earlier_number(&self) -> Option<i64> {
        self.earlier.map(number_of)
    }

    pub fn number(&self, task: &Document) -> Option<i64> {
        self.earlier_number().or_else(|| has_own(task).then(|| number_of(task)))
    }
}

/// Whether a task itself tells of an attempt: it runs, or has ended. What was cancelled between two attempts has the output of none.
fn has_own(task: &Document) -> bool {
    let status = Status::stored(task).filter(|status| *status != Status::Cancelled);
    status.is_some_and(|status| status == Status::Running || status.has_ended())
}

fn number_of(document: &Document) -> i64 {
    integer(document, "attempt").unwrap_or(0)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/attempts.html")]
pub struct Tabs {
    id: String,
    tabs: Vec<Tab>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tab {
    number: i64,
    status: StatusView,
    /// Whether it is kept apart from the task.
    earlier: bool,
    is_chosen: bool,
}

impl Tabs {
    /// `chosen`: the earlier one that is shown; else the last one is.
    pub fn of(id: &str, task: &Document, attempts: &[Document], chosen: Option<i64>) -> Self {
        let tab = |of: &Document, number: i64, earlier: bool| Tab {
            number,
            status: StatusView::of(of),
            earlier,
            is_chosen: chosen.map_or(!earlier, |chosen| number == chosen),
        };
        let earlier = attempts.iter().map(|attempt| tab(attempt, number_of(attempt), true));
        let last = has_own(task).then(|| tab(task, number_of(task).max(1), false));
        let mut tabs: Vec<Tab> = earlier.chain(last).collect();
        tabs.drain(..tabs.len().saturating_sub(MOST));
        if tabs.len() < 2 {
            tabs.clear();
        }
        Self { id: id.to_owned(), tabs }
    }
}

/// `6 · failure 2 of 4`: the attempt, and what is known of failures. `most`: so many end the task.
pub fn words(task: &Document, most: Option<i64>) -> Option<String> {
    let attempt = integer(task, "attempt").filter(|attempt| *attempt >= 1).map(|attempt| attempt.to_string());
    let parts: Vec<String> = attempt.into_iter().chain(failures(task, most)).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// `failure 2 of 4` if the last attempt has failed, `1 of 4 failures` if others had. Nothing of an only attempt, or where none has failed.
/// Only failures count towards the bound: an attempt that was interrupted, given back or ended by hand costs none, so that there may be more attempts than that.
pub fn failures(task: &Document, most: Option<i64>) -> Option<String> {
    let earlier = integer(task, "failures").unwrap_or(0).max(0);
    let timed_out = || in_document(task, "exit", "reason").and_then(Bson::as_str) == Some("timeout");
    // The failure that ends a task is not counted among those after which it was tried again.
    let (count, is_last) = match Status::stored(task) {
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

/// So many lines of stderr are shown,
const LINES: usize = 5;

/// of so many characters each,
const CHARACTERS: usize = 300;

/// and looked for in so many bytes at its end.
const BYTES: usize = 4096;

const CULPRITS: usize = 3;

/// The box; nothing of a task that has not failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/failed.html")]
pub struct Failed {
    sentence: String,
    /// What the history says of it, if that is more.
    note: String,
    because_of: Vec<Culprit>,
    more: usize,
    lines: Vec<String>,
    ended: When,
}

/// A task that has ended without success, so that those that come after it are cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    pub task: Link,
    pub how: &'static str,
}

impl Culprit {
    /// What became of a task with this status; without one it is not there any more.
    pub fn how(status: Option<Status>) -> &'static str {
        match status {
            None => "is gone",
            Some(Status::Failed) => "failed",
            Some(Status::Cancelled) => "was cancelled",
            Some(Status::Terminated) => "was ended early",
            Some(Status::Orphaned) => "was lost",
            Some(_) => "did not succeed", // A plugin has invented what it is.
        }
    }
}

impl Failed {
    pub fn of(task: &Document, queue: &QueueLink, stderr: &str, mut because_of: Vec<Culprit>) -> Self {
        let Some(status) = Status::stored(task).filter(|status| is_bad(*status)) else {
            return Self::default();
        };
        let sentence = sentence(status, task, queue.most_attempts(task));
        let end = end(task);
        let note = plain(end.and_then(|end| end.get("note")));
        // Whom somebody has cancelled, no other task has.
        if status != Status::Cancelled || task.contains_key("cancel") {
            because_of.clear();
        }
        let is_said = note.is_empty()
            || !because_of.is_empty()
            || sentence.to_lowercase().contains(&note.to_lowercase());
        let more = because_of.len().saturating_sub(CULPRITS);
        because_of.truncate(CULPRITS);
        let sentence = match because_of[..] {
            [] => sentence,
            _ => sentence.trim_end_matches('.').to_owned(), // It goes on.
        };
        Self {
            note: if is_said { String::new() } else { note },
            because_of,
            more,
            lines: last_lines(stderr),
            ended: When::of(end.and_then(|end| end.get("at")).or(task.get("mtime"))),
            sentence,
        }
    }

    /// Reads the end of what a failed task has written to stderr; nothing of another one.
    pub async fn stderr(store: &Store, id: TaskId, task: &Document) -> Result<String, StoreError> {
        if !has_failed(task) {
            return Ok(String::new());
        }
        let bytes = match store.task_output(id, StreamName::Stderr).await? {
            Some(Bson::ObjectId(file)) => match store.read_output_end(file, BYTES).await {
                Ok(end) => end.bytes,
                // The output itself says so.
                Err(StoreError::DamagedOutput { .. }) => Vec::new(),
                Err(error) => return Err(error),
            },
            value => plain(value.as_ref()).into_bytes(),
        };
        let last = bytes.get(bytes.len().saturating_sub(BYTES)..).unwrap_or_default();
        Ok(String::from_utf8_lossy(last).into_owned())
    }
}

/// Whether a task or an attempt has not done what it should.
pub fn has_failed(document: &Document) -> bool {
    Status::stored(document).is_some_and(is_bad)
}

fn is_bad(status: Status) -> bool {
    matches!(status, Status::Failed | Status::Cancelled | Status::Terminated | Status::Orphaned)
}

fn sentence(status: Status, task: &Document, most: Option<i64>) -> String {
    let exit = task.get_document("exit").ok();
    let asked = task.get_document("cancel").ok();
    let said = |before: &str, value: Option<&Bson>| match plain(value) {
        none if none.is_empty() => none,
        text => format!("{before}{text}"),
    };
    let by = said(" by ", asked.and_then(|asked| asked.get("by")));
    let why = said(": ", asked.and_then(|asked| asked.get("reason")));
    let on = said(" on ", task.get("node"));
    let after = after(task);
    let how = match (status, plain(exit.and_then(|exit| exit.get("reason"))).as_str()) {
        (Status::Cancelled, _) => format!("Cancelled{by} before it ran{why}"),
        (Status::Orphaned, _) => format!("Lost{after}: its runner or its node{on} died"),
        (_, "timeout") => {
            let limit = task.get("timeout").and_then(number);
            let limit = limit.map(|seconds| format!(" (limit {})", limit_span(seconds)));
            format!("Timed out{after}{on}{}", limit.unwrap_or_default())
        }
        (_, "deadline") => format!("Ended{after}{on}, as its deadline had passed"),
        (_, "cancel") => format!("Cancelled{by}{after} while it ran{on}{why}"),
        (Status::Terminated, _) => format!("Ended{after} while it ran{on}"),
        _ => format!("Failed{after}{on}{}", exit_words(exit)),
    };
    format!("{how}.{}", attempts(task, most))
}

/// ` after 12.0 s`
fn after(task: &Document) -> String {
    let seconds = in_document(task, "exit", "duration").and_then(number);
    seconds.map(|seconds| format!(" after {}", precise_seconds(seconds))).unwrap_or_default()
}

/// `: exit code 1`, `: killed by SIGKILL, out of memory`
fn exit_words(exit: Option<&Document>) -> String {
    let Some(exit) = exit else { return String::new() };
    let how = match (integer(exit, "code"), integer(exit, "signal")) {
        (_, Some(signal)) => Some(format!("killed by {}", signal_name(signal))),
        (code, None) => code.map(|code| format!("exit code {code}")),
    };
    let memory = exit.get_bool("oom").is_ok_and(|oom| oom).then(|| "out of memory".to_owned());
    let limit = Some(plain(exit.get("limit"))).filter(|limit| !limit.is_empty());
    let parts: Vec<String> =
        [how, memory, limit.map(|limit| format!("over its limit {limit}"))].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

fn signal_name(signal: i64) -> String {
    let name = match signal {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        11 => "SEGV",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        24 => "XCPU",
        25 => "XFSZ",
        31 => "SYS",
        other => return format!("signal {other}"),
    };
    format!("SIG{name}")
}

/// ` Attempt 6 · failure 2 of 4.`, if there may have been several.
fn attempts(task: &Document, most: Option<i64>) -> String {
    match words(task, most) {
        Some(words) if words != "1" && Status::stored(task) != Some(Status::Cancelled) => {
            format!(" Attempt {words}.")
        }
        _ => String::new(), // The only one, or one that never began.
    }
}

/// The last entry of its history, if that is about its end.
fn end(task: &Document) -> Option<&Document> {
    let last = task.get_array("history").ok().and_then(|history| history.last()).and_then(Bson::as_document);
    last.filter(|last| last.get("status") == task.get("status"))
}

fn last_lines(text: &str) -> Vec<String> {
    let text = without_controls(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(LINES);
    lines.into_iter().skip(first).map(|line| cut(line, CHARACTERS)).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_last_attempt_is_shown_unless_another_is_asked_for() {
        let attempts = [doc! { "attempt": 1, "status": 2 }, doc! { "attempt": 2, "status": 2 }];
        let choice = |task: Document, asked| {
            let choice = Choice::of(&task, &attempts, asked).unwrap();
            (choice.of, choice.earlier_number(), choice.fixed)
        };
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, None), (Of::Running(3), None, false));
        assert_eq!(choice(doc! { "status": 2, "attempt": 3 }, None), (Of::Task, None, false));
        for waiting in [-7, -4, -2, -1, -5] {
            let shown = choice(doc! { "status": waiting, "attempt": 2 }, None);
            assert_eq!(shown, (Of::Earlier(2), Some(2), false), "{waiting}");
        }
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, Some(1)), (Of::Earlier(1), Some(1), true));
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, Some(3)), (Of::Running(3), None, false));
        assert_eq!(Choice::of(&doc! { "status": -2 }, &[], None).unwrap().of, Of::Task);
    }

    #[test]
    fn there_is_no_attempt_that_was_not_made() {
        let attempts = [doc! { "attempt": 1, "status": 2 }];
        let is_there = |task: Document, asked| Choice::of(&task, &attempts, Some(asked)).is_some();
        let running = doc! { "status": 0, "attempt": 2 };
        assert_eq!(
            [0, 1, 2, 3, -1].map(|asked| is_there(running.clone(), asked)),
            [false, true, true, false, false]
        );
        assert!(!is_there(doc! { "status": -7, "attempt": 2 }, 2), "it waits for it");
        assert!(Choice::of(&doc! { "status": -2 }, &[], Some(1)).is_none());
    }

    #[test]
    fn each_attempt_has_a_tab() {
        let attempts = [doc! { "attempt": 1, "status": 2 }, doc! { "attempt": 2, "status": -3 }];
        let task = doc! { "status": 0, "attempt": 3 };
        let html = Tabs::of("6b", &task, &attempts, Some(2)).render().unwrap();
        assert!(
            html.contains(
                "<a href=\"/tasks/6b?.attempt=2#output\" data-attempt=\"2\" aria-current=\"true\">"
            ),
            "{html}"
        );
        assert_eq!(html.matches("<a ").count(), 3);
        assert_eq!(html.matches("aria-current").count(), 1);
        let running = Tabs::of("6b", &task, &attempts, None).render().unwrap();
        assert!(
            running.contains("<a href=\"/tasks/6b#output\" data-attempt=\"3\" aria-current=\"true\">"),
            "{running}"
        );
        let waiting = Tabs::of("6b", &doc! { "status": -7, "attempt": 2 }, &attempts, None);
        assert_eq!(waiting.tabs.len(), 2);
        let alone = Tabs::of("6b", &doc! { "status": 1 }, &[], None).render().unwrap();
        assert!(alone.contains("id=\"task-attempts\"") && !alone.contains("<a "), "{alone}");
    }

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

    fn said(task: Document) -> String {
        Failed::of(&task, &QueueLink::default(), "", Vec::new()).sentence
    }

    #[test]
    fn one_sentence_says_why() {
        let exit = doc! { "code": 1, "duration": 12.0 };
        let task =
            doc! { "status": 2, "node": "vm", "attempt": 6, "failures": 1, "max_attempts": 4, "exit": exit };
        assert_eq!(said(task), "Failed after 12.0 s on vm: exit code 1. Attempt 6 · failure 2 of 4.");
        let exit = doc! { "signal": 15, "reason": "timeout", "duration": 7200.01 };
        let task = doc! { "status": -3, "timeout": 7200, "exit": exit };
        assert_eq!(said(task), "Timed out after 2 h 0 min (limit 2 h).");
        let killed = doc! { "status": 2, "exit": { "signal": 9, "oom": true } };
        assert_eq!(said(killed), "Failed: killed by SIGKILL, out of memory.");
        let cancel = doc! { "by": "ann", "reason": "wrong file" };
        assert_eq!(
            said(doc! { "status": -5, "cancel": cancel.clone() }),
            "Cancelled by ann before it ran: wrong file."
        );
        let exit = doc! { "signal": 15, "reason": "cancel", "duration": 2 };
        assert_eq!(
            said(doc! { "status": -3, "cancel": { "by": "ann" }, "exit": exit }),
            "Cancelled by ann after 2.0 s while it ran."
        );
        assert_eq!(said(doc! { "status": -6, "node": "vm" }), "Lost: its runner or its node on vm died.");
        for other in [doc! { "status": 1 }, doc! { "status": 0 }, doc! { "status": 17 }, doc! {}] {
            assert_eq!(
                Failed::of(&other, &QueueLink::default(), "x", Vec::new()),
                Failed::default(),
                "{other}"
            );
        }
    }

    #[test]
    fn who_was_cancelled_because_of_others_is_told_which() {
        let history = vec![doc! { "status": -5, "note": "a task that it comes after ended as failed (2)" }];
        let task = doc! { "status": -5, "history": history };
        let culprit = |name: &str, status| {
            let address = (!name.is_empty()).then(|| format!("/tasks/{name}"));
            Culprit { task: Link { name: format!("import <{name}>"), address }, how: Culprit::how(status) }
        };
        let html = |task: &Document, because_of: Vec<Culprit>| {
            Failed::of(task, &QueueLink::default(), "", because_of).render().unwrap()
        };
        let one = html(&task, vec![culprit("a", Some(Status::Failed))]);
        let sentence = "Cancelled before it ran, as <a href=\"/tasks/a\">import &#60;a&#62;</a> failed.</h2>";
        assert!(one.contains(sentence) && !one.contains("ended as"), "{one}");
        let all = [Some(Status::Failed), None, Some(Status::Orphaned), Some(Status::Failed), None];
        let many = html(
            &task,
            ["a", "", "c", "d", "e"]
                .into_iter()
                .zip(all)
                .map(|(name, status)| culprit(name, status))
                .collect(),
        );
        for part in
            ["</a> failed, import &#60;&#62; is gone, <a", "&#60;c&#62;</a> was lost and 2 more.</h2>"]
        {
            assert!(many.contains(part), "{part} is not in {many}");
        }
        let by_hand = doc! { "status": -5, "cancel": { "by": "ann" } };
        let by_hand = html(&by_hand, vec![culprit("a", Some(Status::Failed))]);
        assert!(by_hand.contains("Cancelled by ann before it ran.</h2>"), "{by_hand}");
    }

    #[test]
    fn the_box_has_what_led_to_it_and_the_last_lines() {
        let history = vec![doc! { "status": 2, "note": "its <disk> is full" }];
        let mtime = bson::DateTime::from_millis(1_795_163_067_344);
        let task = doc! { "status": 2, "mtime": mtime, "history": history };
        let stderr = "1\n2\n\x1b[31m3 <b>\x1b[0m\n\n4\n5\n6\n";
        let html = Failed::of(&task, &QueueLink::default(), stderr, Vec::new()).render().unwrap();
        for part in [
            "its &#60;disk&#62; is full",
            "2\n3 &#60;b&#62;\n4\n5\n6</pre>",
            "href=\"#log-stderr\"",
            "<a href=\"/moments?at=2026-11-20T08:24:27Z\">What else happened then</a>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("1\n"), "{html}");
    }

    #[test]
    fn odd_tasks_have_a_box_too() {
        let nasty = "<script>".repeat(1_000);
        let task = doc! { "status": 2, "exit": &nasty, "node": &nasty, "history": [&nasty], "cancel": 1 };
        let html = Failed::of(&task, &QueueLink::default(), &nasty, Vec::new()).render().unwrap();
        assert!(!html.contains("<script"), "{html}");
        assert!(Failed::default().render().unwrap().contains("id=\"task-failed\""));
    }
}
