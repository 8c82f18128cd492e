//! The steps of a task: a strip that shows how far they are, and a table.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Moment, STEPS, Status};
use disbatch_core::output::StreamName;

use super::life::{exit, status};
use crate::ui::parts::precise;
use crate::ui::{self, StatusView, plain};

/// How wide the strip is, in its own units.
const WIDTH: i64 = 1000;

/// Parameters of a step are shown up to so many characters.
const SHOWN: usize = 200;

/// The strip and the table; nothing of a task without steps.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/steps.html")]
pub struct Steps {
    rows: Vec<Row>,
    /// The strip in words.
    words: String,
}

impl HtmlSafe for Steps {}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    number: usize,
    left: i64,
    width: i64,
    tone: &'static str,
    name: String,
    /// Empty: that of the queue.
    plugin: String,
    params: String,
    status: StatusView,
    lasted: String,
    how: String,
    /// Where its output begins in that of the task, in both streams.
    output_at: Option<[String; 2]>,
}

impl Steps {
    pub fn of(task: &Document, now: DateTime) -> Self {
        let steps: Vec<&Document> =
            task.get_array(STEPS).into_iter().flatten().filter_map(Bson::as_document).collect();
        let count = i64::try_from(steps.len()).unwrap_or(i64::MAX).max(1);
        let edge = |index: usize| i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(WIDTH) / count;
        let is_over = status(task).is_some_and(Status::has_ended);
        let row = |(index, step): (usize, &&Document)| Row {
            number: index + 1,
            left: edge(index),
            width: edge(index + 1) - edge(index),
            tone: tone(status(step)),
            name: plain(step.get("name")),
            plugin: plain(step.get("plugin")),
            params: params(step),
            status: match status(step) {
                Some(Status::Queued) if is_over => StatusView { word: "not run", ..StatusView::of(step) },
                _ => StatusView::of(step),
            },
            lasted: lasted(step, now),
            how: how(step),
            output_at: step
                .get_document("output_at")
                .ok()
                .map(|at| StreamName::BOTH.map(|stream| plain(at.get(stream.as_str())))),
        };
        Self { rows: steps.iter().enumerate().map(row).collect(), words: words(&steps) }
    }
}

/// What was asked for of the steps of a task, as the option `.steps` has it; empty if it has none.
pub fn asked_for(task: &Document) -> String {
    let only = |step: &Document| -> Document {
        let given = ["name", "plugin", "params"].into_iter();
        given.filter_map(|key| Some((key.to_owned(), step.get(key)?.clone()))).collect()
    };
    let steps = task.get_array(STEPS).into_iter().flatten().filter_map(Bson::as_document);
    let steps: Vec<Bson> = steps.map(|step| only(step).into()).collect();
    if steps.is_empty() { String::new() } else { plain(Some(&Bson::Array(steps))) }
}

/// The word for its colour: one that waits has none.
fn tone(status: Option<Status>) -> &'static str {
    match status {
        None | Some(Status::Queued) => "waiting",
        Some(status) => status.word(),
    }
}

fn params(step: &Document) -> String {
    let has_some = |params: &&Bson| params.as_document().is_none_or(|params| !params.is_empty());
    let text = plain(step.get("params").filter(has_some));
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn lasted(step: &Document, now: DateTime) -> String {
    let at = |field: &str| step.get(field).and_then(|value| Moment(value.clone()).get());
    let runs = status(step) == Some(Status::Running);
    match (at("started"), at("ended").or(runs.then_some(now))) {
        (Some(from), Some(until)) => {
            precise(until.timestamp_millis().saturating_sub(from.timestamp_millis()))
        }
        _ => String::new(), // It has not begun, or nobody knows when it ended.
    }
}

fn how(step: &Document) -> String {
    let ended = step.get_document("exit").map(exit).unwrap_or_default();
    let ended = ended.iter().filter(|(name, _)| !matches!(*name, "Run time" | "CPU time" | "Peak memory"));
    let ended = ended.map(|(name, value)| format!("{name}: {value}"));
    let message = Some(plain(step.get("message"))).filter(|message| !message.is_empty());
    message.into_iter().chain(ended).collect::<Vec<_>>().join(", ")
}

/// How far they are: `2 of 3 steps have succeeded; convert is running.`
fn words(steps: &[&Document]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let succeeded = steps.iter().filter(|step| status(step) == Some(Status::Succeeded)).count();
    let other = steps.iter().find_map(|step| match status(step) {
        None | Some(Status::Succeeded | Status::Queued) => None,
        Some(Status::Running) => Some(format!("; {} is running", plain(step.get("name")))),
        Some(status) => Some(format!("; {}: {}", plain(step.get("name")), ui::word(status))),
    });
    format!("{succeeded} of {} steps have succeeded{}.", steps.len(), other.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_344 + seconds * 1000)
    }

    #[test]
    fn steps_tell_how_far_they_are() {
        let task = doc! { "steps": [
            { "name": "get", "params": {}, "status": 1, "started": at(0), "ended": at(5),
                "output_at": { "stdout": 0_i64, "stderr": 0_i64 }, "exit": { "code": 0, "duration": 5.0 } },
            { "name": "<convert>", "plugin": "My::Convert", "params": { "to": "<png>" }, "status": 0, "started": at(5),
                "output_at": { "stdout": 17_i64, "stderr": 0_i64 } },
            { "name": "send", "params": {}, "status": -2 },
        ] };
        let steps = Steps::of(&task, at(95));
        assert_eq!(steps.words, "1 of 3 steps have succeeded; <convert> is running.");
        let rows: Vec<_> = steps.rows.iter().map(|row| (row.tone, row.left, row.lasted.as_str())).collect();
        assert_eq!(rows, [("succeeded", 0, "5.0 s"), ("running", 333, "1 min 30 s"), ("waiting", 666, "")]);
        assert_eq!(steps.rows.iter().map(|row| row.width).sum::<i64>(), WIDTH);
        let html = steps.render().unwrap();
        for part in [
            "id=\"task-steps\"",
            "class=\"running\"",
            "&#60;convert&#62;",
            "My::Convert",
            "&#60;png&#62;",
            "Exit code: 0",
            "aria-label=\"1 of 3 steps",
            "data-stdout=\"17\" data-stderr=\"0\" data-step=\"2. &#60;convert&#62;\" data-about=\"running, 1 min 30 s\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<png>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn steps_that_never_ran_are_not_queued_when_their_task_has_ended() {
        let steps = [doc! { "name": "a", "status": 2 }, doc! { "name": "b", "status": -2 }];
        let words = |status: i32| {
            let steps = Steps::of(&doc! { "status": status, "steps": steps.to_vec() }, at(0));
            steps.rows.iter().map(|row| row.status.word).collect::<Vec<_>>()
        };
        assert_eq!(words(2), ["failed", "not run"]);
        assert_eq!(words(-7), ["failed", "queued"], "they follow with the next attempt");
    }

    #[test]
    fn what_was_asked_for_can_be_asked_for_again() {
        let steps = doc! { "steps": [{ "name": "a", "plugin": "B", "params": { "$x": 1 }, "status": 1, "ended": at(0) }] };
        assert_eq!(asked_for(&steps), r#"[{"name":"a","params":{"$x":1},"plugin":"B"}]"#);
        assert_eq!(asked_for(&doc! {}), "");
    }

    #[test]
    fn what_went_wrong_is_said() {
        let step =
            doc! { "name": "get", "status": 2, "message": "no <disk>", "exit": { "code": 3, "duration": 1 } };
        let steps = Steps::of(&doc! { "steps": [step] }, at(0));
        assert_eq!(steps.rows[0].how, "no <disk>, Exit code: 3");
        assert_eq!(steps.words, "0 of 1 steps have succeeded; get: failed.");
    }

    #[test]
    fn ordinary_and_odd_tasks_have_an_empty_place() {
        let nasty = "<script>".repeat(10_000);
        for task in [doc! {}, doc! { "steps": &nasty }, doc! { "steps": [] }, doc! { "steps": [1, null] }] {
            let html = Steps::of(&task, at(0)).render().unwrap();
            assert!(html.contains("id=\"task-steps\"") && !html.contains("<h2"), "{html}");
        }
        let odd =
            doc! { "name": &nasty, "status": &nasty, "started": &nasty, "exit": &nasty, "params": &nasty };
        let html = Steps::of(&doc! { "steps": [odd] }, at(0)).render().unwrap();
        assert!(!html.contains("<script"), "{html}");
    }
}
