//! A task's history as a picture and as a table: which states it has been in, and for how long; and its steps: a strip that shows how far
//! they are, and a table.

use askama::Template;
use bson::{Bson, DateTime, Document};
use disbatch_core::model::{STEPS, Status};
use disbatch_core::output::StreamName;
use disbatch_core::task::Submission;

use super::attempts::has_failed;
use super::life::exit;
use crate::ui::parts::{When, cut, precise, time_of};
use crate::ui::{self, StatusView, plain};

const WIDTH: i64 = 1000;

/// No state is narrower: it would not be seen.
const LEAST: i64 = 8;

#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/timeline.html")]
pub struct Timeline {
    stretches: Vec<Stretch>,
    steps: Vec<Step>,
    words: String,
    /// When the last attempt ended, or else began; nothing of a task that has failed.
    then: When,
}

#[derive(Debug, Clone, PartialEq)]
struct Stretch {
    left: i64,
    width: i64,
    tone: &'static str,
    title: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at: When,
    /// None: nobody knows which.
    status: Option<StatusView>,
    lasted: String,
    attempt: String,
    node: String,
    note: String,
}

struct Change<'a> {
    at: Option<i64>,
    status: Option<Status>,
    entry: Option<&'a Document>,
    lasted: Option<i64>,
}

impl Timeline {
    pub fn of(task: &Document, now: DateTime) -> Self {
        let mut changes = changes(task);
        let has_ended = changes.last().and_then(|last| last.status).is_some_and(Status::has_ended);
        let mut until = (!has_ended).then_some(now.timestamp_millis());
        for change in changes.iter_mut().rev() {
            change.lasted = change.at.zip(until).map(|(from, until)| until.saturating_sub(from).max(0));
            // How long it was what it was before a change that nobody has noted, nobody knows.
            until = change.at.filter(|_| change.entry.is_some());
        }
        let mut steps: Vec<Step> = changes.iter().map(|change| step(change, task)).collect();
        // Of the status that it has now, the task tells more.
        let current = Status::stored(task);
        let is_current = current.is_some() && changes.last().is_some_and(|last| last.status == current);
        if let Some(last) = steps.last_mut().filter(|_| is_current) {
            last.status = Some(StatusView::of(task));
        }
        let began = changes.iter().rposition(|change| change.status == Some(Status::Running));
        // Of one that has failed, the box on top leads there.
        let then = began.filter(|_| !has_failed(task));
        let then = then.and_then(|began| steps.get(began + 1).or(steps.get(began)));
        let then = then.map(|step| step.at.clone()).unwrap_or_default();
        Self { stretches: stretches(&changes), words: words(&changes), then, steps }
    }
}

/// From its birth on, the oldest first.
fn changes(task: &Document) -> Vec<Change<'_>> {
    let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
    let change = |at, status, entry| Change { at, status, entry, lasted: None };
    let entry = |entry| change(millis(entry, "at"), Status::stored(entry), Some(entry));
    let mut changes: Vec<Change<'_>> = history.iter().filter_map(Bson::as_document).map(entry).collect();
    let has_history = !changes.is_empty();
    let submission = Submission::of(task);
    if let Some(Submission { at, status }) = submission {
        changes.insert(0, change(Some(at.timestamp_millis()), Some(status), None));
    }
    let now = Status::stored(task);
    let has_more = now.is_some() && now != submission.map(|submission| submission.status);
    if !has_history
        && has_more
        && let Some(at) = millis(task, "mtime")
    {
        changes.push(change(Some(at), now, None));
    }
    changes
}

fn millis(document: &Document, field: &str) -> Option<i64> {
    time_of(document.get(field)).map(DateTime::timestamp_millis)
}

fn step(change: &Change<'_>, task: &Document) -> Step {
    let field = |name: &str| plain(change.entry.and_then(|entry| entry.get(name)));
    let is_first = change.entry.is_none() && change.at == millis(task, "ctime");
    Step {
        at: match change.entry {
            Some(entry) => When::exact(entry.get("at")),
            None => When::exact(change.at.map(|at| Bson::DateTime(DateTime::from_millis(at))).as_ref()),
        },
        status: match (change.status, change.entry) {
            (Some(status), _) => Some(StatusView::from_code(status.code())),
            (None, Some(entry)) => Some(StatusView::of(entry)),
            (None, None) => None,
        },
        lasted: change.lasted.map(precise).unwrap_or_default(),
        attempt: field("attempt"),
        node: field("node"),
        note: if is_first { Submission::NOTE.to_owned() } else { field("note") },
    }
}

/// The states side by side. Short ones are wider than their share, so that they can be seen.
fn stretches(changes: &[Change<'_>]) -> Vec<Stretch> {
    let all: Vec<(Option<Status>, i64)> =
        changes.iter().filter_map(|change| Some((change.status, change.lasted?))).collect();
    let total: i128 = all.iter().map(|(_, lasted)| i128::from(*lasted)).sum();
    let count = i128::try_from(all.len()).unwrap_or(i128::MAX);
    let free = (i128::from(WIDTH) - count * i128::from(LEAST)).max(0);
    let mut left = 0;
    let mut found = Vec::new();
    for (status, lasted) in all {
        let share = i128::from(lasted) * free / total.max(1);
        let width = i64::try_from(share).unwrap_or(WIDTH) + LEAST;
        let title = format!("{}, {}", status.map_or("unknown", ui::word), precise(lasted));
        let tone = status.map_or("", Status::word);
        found.push(Stretch { left, width, tone, title });
        left += width;
    }
    found
}

fn words(changes: &[Change<'_>]) -> String {
    let mut sums: Vec<(Status, i64)> = Vec::new();
    for change in changes {
        let (Some(status), Some(lasted)) = (change.status, change.lasted) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == status) {
            Some((_, sum)) => *sum = sum.saturating_add(lasted),
            None => sums.push((status, lasted)),
        }
    }
    let of = |(status, lasted): &(Status, i64)| {
        let verb = match *status {
            Status::Queued => "waited",
            Status::Deferred => "waited for its time for",
            Status::Claimed => "started for",
            Status::Running => "ran",
            other => return format!("was {} for {}", ui::word(other), precise(*lasted)),
        };
        format!("{verb} {}", precise(*lasted))
    };
    let parts: Vec<String> = sums.iter().map(of).collect();
    if parts.is_empty() { String::new() } else { format!("It {}.", parts.join(", ")) }
}

const SHOWN: usize = 200;

/// The strip and the table; nothing of a task without steps.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/steps.html")]
pub struct Steps<'a> {
    rows: Vec<Row<'a>>,
    words: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Row<'a> {
    step: &'a Document,
    left: i64,
    width: i64,
    tone: &'static str,
    status: StatusView,
    lasted: String,
    /// Where its output begins in that of the task, in both streams.
    output_at: Option<[String; 2]>,
}

impl<'a> Steps<'a> {
    pub fn of(task: &'a Document, now: DateTime) -> Self {
        let steps: Vec<&'a Document> =
            task.get_array(STEPS).into_iter().flatten().filter_map(Bson::as_document).collect();
        let count = i64::try_from(steps.len()).unwrap_or(i64::MAX).max(1);
        let edge = |index: usize| i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(WIDTH) / count;
        let is_over = Status::stored(task).is_some_and(Status::has_ended);
        let rows = steps.iter().copied().enumerate().map(|(index, step)| Row {
            step,
            left: edge(index),
            width: edge(index + 1) - edge(index),
            tone: tone(Status::stored(step)),
            status: match Status::stored(step) {
                Some(Status::Queued) if is_over => StatusView { word: "not run", ..StatusView::of(step) },
                _ => StatusView::of(step),
            },
            lasted: lasted(step, now),
            output_at: step
                .get_document("output_at")
                .ok()
                .map(|at| StreamName::ALL.map(|stream| plain(at.get(stream.as_str())))),
        });
        Self { rows: rows.collect(), words: steps_in_words(&steps) }
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
    cut(&plain(step.get("params").filter(has_some)), SHOWN)
}

fn lasted(step: &Document, now: DateTime) -> String {
    let runs = Status::stored(step) == Some(Status::Running);
    match (millis(step, "started"), millis(step, "ended").or(runs.then_some(now.timestamp_millis()))) {
        (Some(from), Some(until)) => precise(until.saturating_sub(from)),
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
fn steps_in_words(steps: &[&Document]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let succeeded = steps.iter().filter(|step| Status::stored(step) == Some(Status::Succeeded)).count();
    let other = steps.iter().find_map(|step| match Status::stored(step) {
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

    const MADE: i64 = 1_795_163_067_344;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(MADE + seconds * 1000)
    }

    fn of(task: Document) -> Timeline {
        Timeline::of(&task, at(1000))
    }

    fn states(timeline: &Timeline) -> Vec<(&str, &str)> {
        let word = |step: &Step| step.status.as_ref().map_or("", |status| status.word);
        timeline.steps.iter().map(|step| (word(step), step.lasted.as_str())).collect()
    }

    #[test]
    fn states_last_until_the_next_one() {
        let timeline = of(doc! {
            "ctime": at(0), "status": 2, "mtime": at(77),
            "history": [
                { "at": at(12), "status": -1, "attempt": 1, "node": "vm" }, { "at": at(12), "status": 0, "node": "vm" },
                { "at": at(77), "status": 2, "note": "<late>" },
            ],
        });
        let expected =
            [("queued", "12.0 s"), ("starting", "0.00 s"), ("running", "1 min 5 s"), ("failed", "")];
        assert_eq!(states(&timeline), expected);
        assert_eq!(timeline.words, "It waited 12.0 s, started for 0.00 s, ran 1 min 5 s.");
        assert!(timeline.then.is_empty(), "the box on top leads there");
        assert_eq!((timeline.steps[0].note.as_str(), timeline.steps[1].node.as_str()), ("submitted", "vm"));
        assert!(timeline.render().unwrap().contains(" data-exact>2026-11-20 08:24:27<"));
        let html = timeline.render().unwrap();
        for part in [
            "&#60;late&#62;",
            "class=\"running\"",
            "<title>running, 1 min 5 s</title>",
            "aria-label=\"It waited",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("<rect").count(), 3, "{html}");
    }

    #[test]
    fn what_goes_on_lasts_until_now() {
        let waiting = of(doc! { "ctime": at(0), "mtime": at(0), "status": -2 });
        assert_eq!(states(&waiting), [("queued", "16 min 40 s")]);
        let history = doc! { "at": at(900), "status": -2, "note": "its time has come" };
        let due = of(doc! { "ctime": at(0), "status": -2, "run_at": at(900), "history": [history] });
        assert_eq!(states(&due), [("scheduled", "15 min 0 s"), ("queued", "1 min 40 s")]);
        assert_eq!(due.words, "It waited for its time for 15 min 0 s, waited 1 min 40 s.");
    }

    #[test]
    fn it_leads_to_what_else_happened_when_the_last_attempt_ended_or_began() {
        let then = |history: &[i32], status: i32| {
            let entry = |(n, status)| doc! { "at": at(n), "status": status };
            let history: Vec<Document> = (1..).zip(history).map(entry).collect();
            of(doc! { "ctime": at(0), "status": status, "history": history }).then
        };
        assert_eq!(then(&[-1, 0, 1], 1), When::exact(Some(&at(3).into())));
        assert_eq!(then(&[-1, 0, -7, -1, 0], 0), When::exact(Some(&at(5).into())));
        assert_eq!(then(&[-1, 0, -7, -2], -2), When::exact(Some(&at(3).into())));
        assert_eq!([then(&[], -2), then(&[-5], -5)], [When::default(), When::default()]);
        let html =
            of(doc! { "ctime": at(0), "status": 1, "history": [{ "at": at(1), "status": 0 }] }).render();
        assert!(html.unwrap().contains("<a href=\"/moments?at=2026-11-20T08:24:28Z\">What else"));
    }

    #[test]
    fn tasks_without_a_history_have_a_beginning_and_an_end() {
        let perl = of(doc! { "ctime": 1_795_163_067_i64, "mtime": 1_795_163_069_i64, "status": 1 });
        assert_eq!(states(&perl), [("queued", ""), ("succeeded", "")]);
        assert_eq!(perl.words, "");
        assert_eq!(perl.stretches.len(), 0, "how long it waited, and how long it ran, is not known");
    }

    #[test]
    fn every_state_can_be_seen_and_none_is_beyond_the_end() {
        let short = (0..49).map(|n| doc! { "at": at(n), "status": n % 3 - 2 });
        let history: Vec<Document> = short.chain([doc! { "at": at(999_999), "status": 0 }]).collect();
        let timeline =
            Timeline::of(&doc! { "ctime": at(-5), "status": 0, "history": history }, at(9_999_999));
        assert!(timeline.stretches.iter().all(|stretch| stretch.width >= LEAST));
        let last = timeline.stretches.last().unwrap();
        assert!(last.left + last.width <= WIDTH, "{last:?}");
    }

    #[test]
    fn odd_histories_are_told_as_far_as_they_can_be() {
        let nasty = "<script>".repeat(10_000);
        for history in [
            Bson::from("x"),
            Bson::from(vec![
                Bson::from(1),
                Bson::Document(doc! { "at": "soon", "status": "odd", "note": &nasty }),
            ]),
            Bson::from(vec![Bson::Document(doc! { "at": DateTime::MAX, "status": 0 })]),
            Bson::from(vec![
                Bson::Document(doc! { "at": DateTime::MIN, "status": 0 }),
                Bson::Document(doc! {}),
            ]),
        ] {
            let html = of(doc! { "status": 0, "ctime": at(0), "history": history }).render().unwrap();
            assert!(!html.contains("<script"), "{html}");
        }
        assert!(of(doc! {}).steps.is_empty());
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
            let task = doc! { "status": status, "steps": steps.to_vec() };
            let steps = Steps::of(&task, at(0));
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
        let task = doc! { "steps": [step] };
        let steps = Steps::of(&task, at(0));
        assert_eq!(how(steps.rows[0].step), "no <disk>, Exit code: 3");
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
