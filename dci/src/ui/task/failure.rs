//! Why a task has failed, on top of its page: one sentence, what led to it, and the last lines that it wrote to stderr.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::model::{Status, TaskId, number, whole_number};
use disbatch_core::output::StreamName;
use disbatch_core::store::{Store, StoreError};

use super::attempts;
use super::facts::QueueLink;
use super::life::status;
use super::output::without_controls;
use crate::ui::parts::{When, cut, limit_span, precise};
use crate::ui::plain;

/// So many lines of stderr are shown,
const LINES: usize = 5;

/// of so many characters each,
const CHARACTERS: usize = 300;

/// and looked for in so many bytes at its end.
const BYTES: usize = 4096;

/// So many tasks are named because of which one was cancelled.
const CULPRITS: usize = 3;

/// The box; nothing of a task that has not failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/failed.html")]
pub struct Failed {
    sentence: String,
    /// What the history says of it, if that is more.
    note: String,
    /// Tasks because of which it was cancelled: the sentence goes on with them.
    because_of: Vec<Culprit>,
    /// How many more there are of them.
    more: usize,
    /// The last lines of stderr.
    lines: Vec<String>,
    ended: When,
}

impl HtmlSafe for Failed {}

/// A task that has ended without success, so that those that come after it are cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Its page; empty if it has none for who looks.
    pub address: String,
    pub name: String,
    /// What became of it.
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
    /// Why this task has failed, with the end of what it has written to stderr.
    pub fn of(task: &Document, queue: &QueueLink, stderr: &str, mut because_of: Vec<Culprit>) -> Self {
        let Some(status) = status(task).filter(|status| is_bad(*status)) else { return Self::default() };
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
    status(document).is_some_and(is_bad)
}

/// Whether a status is the end of a task that has not done what it should.
fn is_bad(status: Status) -> bool {
    matches!(status, Status::Failed | Status::Cancelled | Status::Terminated | Status::Orphaned)
}

fn sentence(status: Status, task: &Document, most: Option<i64>) -> String {
    let exit = task.get_document("exit").ok();
    let text = |field: &str| plain(exit.and_then(|exit| exit.get(field)));
    let asked = task.get_document("cancel").ok();
    let by = plain(asked.and_then(|asked| asked.get("by")));
    let by = if by.is_empty() { by } else { format!(" by {by}") };
    let why = plain(asked.and_then(|asked| asked.get("reason")));
    let why = if why.is_empty() { why } else { format!(": {why}") };
    let after = after(task);
    let node = plain(task.get("node"));
    let on = if node.is_empty() { String::new() } else { format!(" on {node}") };
    let how = match (status, text("reason").as_str()) {
        (Status::Cancelled, _) => format!("Cancelled{by} before it ran{why}"),
        (Status::Orphaned, _) => format!("Lost{after}: its runner or its node{on} died"),
        (_, "timeout") => {
            let limit = task
                .get("timeout")
                .and_then(number)
                .map(|seconds| format!(" (limit {})", limit_span(seconds)));
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
    let seconds = task.get_document("exit").ok().and_then(|exit| exit.get("duration")).and_then(number);
    #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates, which is what is wanted")]
    seconds.map(|seconds| format!(" after {}", precise((seconds * 1000.0) as i64))).unwrap_or_default()
}

/// `: exit code 1`, `: killed by SIGKILL, out of memory`
fn exit_words(exit: Option<&Document>) -> String {
    let Some(exit) = exit else { return String::new() };
    let integer = |field: &str| exit.get(field).and_then(whole_number);
    let how = match (integer("code"), integer("signal")) {
        (_, Some(signal)) => Some(format!("killed by {}", signal_name(signal))),
        (Some(code), None) => Some(format!("exit code {code}")),
        (None, None) => None,
    };
    let memory = exit.get_bool("oom").is_ok_and(|oom| oom).then(|| "out of memory".to_owned());
    let limit = Some(plain(exit.get("limit"))).filter(|limit| !limit.is_empty());
    let parts: Vec<String> =
        [how, memory, limit.map(|limit| format!("over its limit {limit}"))].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

/// What a signal is called; those that plugins end by.
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
    match attempts::words(task, most) {
        Some(words) if words != "1" && status(task) != Some(Status::Cancelled) => {
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
        let culprit = |name: &str, status| Culprit {
            address: if name.is_empty() { String::new() } else { format!("/tasks/{name}") },
            name: format!("import <{name}>"),
            how: Culprit::how(status),
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
