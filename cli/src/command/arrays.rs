//! `disbatch array ..`

use std::process::ExitCode;

use disbatch_values::status::Status;
use disbatch_wire::arrays::{Array, ArrayElement, ArrayFinal};
use reqwest::StatusCode;

use crate::api::{ApiError, Client, address, read};
use crate::args::{ArrayAct, ArrayCommand, BulkAction, ShownArray};
use crate::command::Session;
use crate::command::life::{carry_out, with_reason};
use crate::output::{Column, Cut, Screen, Table, facts, known, plain, shows_marks};
use crate::status;

pub async fn run(session: &Session, command: ArrayCommand) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        ArrayCommand::List(filter) => {
            session.print_list(&address("/arrays", &filter, session.listing.limit)?, &TABLE).await?;
        }
        ArrayCommand::Show(shown) => show(session, &shown).await?,
        ArrayCommand::Cancel(which) => return act(client, BulkAction::Cancel, &which).await,
        ArrayCommand::Retry(which) => return act(client, BulkAction::Retry, &which).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn act(client: &Client, action: BulkAction, which: &ArrayAct) -> anyhow::Result<ExitCode> {
    let path = format!("/arrays/{}/{}", which.id, action.as_str());
    carry_out(client, (&path, &with_reason(which.reason.as_deref())), action, which.detach).await
}

/// The array with this id, where `error` says that there is no task with it. `None`: there is no such array, either.
pub(super) async fn in_place_of_task(
    client: &Client,
    id: &str,
    error: &ApiError,
) -> Result<Option<Array>, ApiError> {
    if error.status() != Some(StatusCode::NOT_FOUND) {
        return Ok(None);
    }
    match client.get(&format!("/arrays/{id}?.limit=1"), None).await {
        Ok(array) => Ok(read(array).ok()),
        Err(error) if error.status().is_some_and(|status| status.is_client_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn what(array: &Array) -> String {
    format!("an array of {} tasks", array.count)
}

/// How its tasks have ended: `3 succeeded, 1 failed`; its state where nobody can count them.
pub(super) fn summary(array: &Array) -> String {
    let counts = array.counts.iter().flatten();
    let told = counts.map(|count| format!("{} {}", count.tasks, status::word(count.status)));
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() { state(array) } else { told }
}

/// The status that tells how the whole array has ended: that of its first tasks that did not succeed.
pub(super) fn worst(array: &Array) -> i64 {
    if array.succeeded == Some(true) {
        return Status::Succeeded.code();
    }
    let statuses = array.counts.iter().flatten().map(|count| count.status);
    let bad = statuses.filter(|status| *status != Status::Succeeded.code());
    bad.min_by_key(|status| (*status != Status::Failed.code(), *status)).unwrap_or(Status::Failed.code())
}

/// How many of the tasks have ended: `70 of 100`. Where there are too many to be counted, nobody knows.
fn ended(array: &Array) -> String {
    let done = array.done.map_or_else(|| "?".to_owned(), |done| done.to_string());
    format!("{done} of {}", array.count)
}

fn state(Array { state, succeeded, .. }: &Array) -> String {
    match succeeded {
        Some(true) => format!("{state}, all succeeded"),
        Some(false) => format!("{state}, not all succeeded"),
        None => state.clone(),
    }
}

pub(super) fn standing(status: Option<i64>) -> String {
    status.map_or_else(|| "not there".to_owned(), status::word)
}

const TABLE: Table<Array> = Table {
    columns: &[
        Column { title: "ID", cell: |a| a.id.clone(), cut: Cut::Late },
        Column { title: "Queue", cell: |a| a.queue.clone(), cut: Cut::Late },
        Column { title: "Elements", cell: |a| a.items.clone(), cut: Cut::Early },
        Column { title: "Ended", cell: ended, cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Created (UTC)", cell: |a| known(&a.created), cut: Cut::Never },
    ],
    noun: "arrays",
};

const ELEMENTS: Table<ArrayElement> = Table {
    columns: &[
        Column { title: "Place", cell: |e| e.index.to_string(), cut: Cut::Never },
        Column { title: "Task", cell: |e| e.id.clone(), cut: Cut::Late },
        Column { title: "Value", cell: |e| plain(e.value.as_ref()), cut: Cut::Early },
        Column { title: "Status", cell: |e| standing(e.status), cut: Cut::Never },
    ],
    noun: "elements",
};

pub(super) async fn show(session: &Session, shown: &ShownArray) -> anyhow::Result<()> {
    let text = |array: &Array| {
        let facts = text(array, shows_marks());
        if shown.elements { facts + &elements(array, Screen::of_stdout()) } else { facts }
    };
    let path = address(&format!("/arrays/{}", shown.id), shown, session.listing.limit)?;
    session.print_document(&path, text).await
}

fn text(array: &Array, in_unicode: bool) -> String {
    let strip = Strip::of(array);
    let drawn = strip.as_ref().map(|strip| format!("{} ", strip.draw(in_unicode))).unwrap_or_default();
    let lines = [
        ("Array", array.id.clone()),
        ("Queue", array.queue.clone()),
        ("Elements", array.items.clone()),
        ("Parameter", array.key.clone()),
        ("At once", known(&array.cap)),
        ("State", state(array)),
        ("Progress", format!("{drawn}{} ended", ended(array))),
    ];
    let legend = strip.map(|strip| strip.legend(in_unicode)).unwrap_or_default();
    let rest = [
        ("Final task", array.r#final.as_ref().map(last).unwrap_or_default()),
        ("Created", known(&array.created)),
        ("Ended", known(&array.ended)),
        ("Owner", known(&array.owner)),
        ("Tenant", known(&array.tenant)),
    ];
    facts(lines.into_iter().chain(legend.into_iter().map(|line| ("", line))).chain(rest))
}

/// The task that comes after all others: `6b0003bb686c8275d8013335 blocked, when all have succeeded`.
fn last(last: &ArrayFinal) -> String {
    let when = match &*last.when {
        "succeeded" => "when all have succeeded",
        "finished" => "when all have ended",
        _ => return last.id.clone(), // Nothing that is known here.
    };
    format!("{} {}, {when}", last.id, standing(last.status.flatten()))
}

fn elements(array: &Array, screen: Screen) -> String {
    let shown = array.elements.as_deref().unwrap_or_default();
    let next = shown.last().map(|last| last.index + 1).filter(|next| *next < array.count);
    let next = next.map(|next| format!("There are more: --from {next}\n")).unwrap_or_default();
    format!("\n{}{next}", ELEMENTS.render(shown, screen))
}

const WIDTH: usize = 40;

const KINDS: [Kind; 5] = [Kind::Succeeded, Kind::Ended, Kind::Runs, Kind::Waits, Kind::Missing];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Succeeded,
    Ended,
    Runs,
    Waits,
    /// It was not created yet, or is gone.
    Missing,
}

impl Kind {
    fn of(code: i64) -> Self {
        match Status::from_code(code) {
            Status::Succeeded => Self::Succeeded,
            Status::Claimed | Status::Running => Self::Runs,
            status if status.has_ended() => Self::Ended,
            _ => Self::Waits, // For whatever it may be.
        }
    }

    const fn mark(self, in_unicode: bool) -> &'static str {
        match (self, in_unicode) {
            (Self::Succeeded, true) => "█",
            (Self::Succeeded, false) => "#",
            (Self::Ended, true) => "✗",
            (Self::Ended, false) => "x",
            (Self::Runs, true) => "▸",
            (Self::Runs, false) => ">",
            (Self::Waits, true) => "·",
            (Self::Waits, false) => ".",
            (Self::Missing, _) => " ",
        }
    }
}

/// What is known of the elements of an array: how many are in which status, with its word, in the order of the strip.
#[derive(Debug)]
struct Strip(Vec<(Kind, usize, String)>);

impl Strip {
    /// The strip of an array; none where its elements are too many to be counted.
    fn of(array: &Array) -> Option<Self> {
        let counts = array.counts.as_ref()?.iter();
        let counts = counts.map(|one| (one.status, usize::try_from(one.tasks).unwrap_or(0)));
        Some(Self::new(counts, usize::try_from(array.count).unwrap_or(0)))
    }

    fn new(counts: impl Iterator<Item = (i64, usize)>, count: usize) -> Self {
        let part = |(code, tasks): (i64, usize)| (Kind::of(code), tasks, status::word(code));
        let mut parts: Vec<(Kind, usize, String)> = counts.map(part).collect();
        let there: usize = parts.iter().map(|(_, tasks, _)| tasks).sum();
        parts.push((Kind::Missing, count.saturating_sub(there), standing(None)));
        parts.retain(|(_, tasks, _)| *tasks > 0);
        parts.sort_by_key(|(kind, ..)| *kind);
        Self(parts)
    }

    /// The strip. What there is of a kind has one mark at least.
    fn draw(&self, in_unicode: bool) -> String {
        let tasks = |kind: Kind| {
            self.0.iter().filter(|(own, ..)| *own == kind).map(|(_, tasks, _)| tasks).sum::<usize>()
        };
        let marks = spread(&KINDS.map(tasks));
        let marks = KINDS.iter().zip(marks).map(|(kind, marks)| kind.mark(in_unicode).repeat(marks));
        format!("[{}]", marks.collect::<String>())
    }

    /// Which mark stands for what, and how much of it there is, a line each.
    fn legend(&self, in_unicode: bool) -> Vec<String> {
        let line =
            |(kind, tasks, word): &(Kind, usize, String)| format!("{} {tasks} {word}", kind.mark(in_unicode));
        self.0.iter().map(line).collect()
    }
}

/// How many of the marks each has. The largest one gives what is missing because small ones have a whole mark.
fn spread(tasks: &[usize; KINDS.len()]) -> [usize; KINDS.len()] {
    let total: usize = tasks.iter().sum();
    let share = |tasks: usize| (tasks.saturating_mul(WIDTH) / total.max(1)).max(usize::from(tasks > 0));
    let mut marks = tasks.map(share);
    let drawn: usize = marks.iter().sum();
    if let Some(largest) = marks.iter_mut().max().filter(|_| total > 0) {
        *largest = (*largest + WIDTH).saturating_sub(drawn);
    }
    marks
}

#[cfg(test)]
mod tests {
    use disbatch_wire::arrays::ArrayCount;
    use serde_json::json;

    use super::*;
    use crate::args::ArrayFilter;

    #[test]
    fn an_array_that_cannot_be_counted_has_no_number() {
        assert_eq!(ended(&Array { done: Some(70), count: 100, ..Array::default() }), "70 of 100");
        assert_eq!(ended(&Array { count: 100_000, ..Array::default() }), "? of 100000");
    }

    #[test]
    fn an_array_ends_as_its_tasks_do() {
        let array = |succeeded, counts: &[(i64, i64)]| {
            let count = |&(status, tasks): &(i64, i64)| ArrayCount { status, tasks, ..ArrayCount::default() };
            let counts = Some(counts.iter().map(count).collect());
            Array { state: "done".to_owned(), succeeded: Some(succeeded), counts, ..Array::default() }
        };
        let mixed = array(false, &[(-5, 1), (1, 3), (2, 2)]);
        assert_eq!((summary(&mixed).as_str(), worst(&mixed)), ("1 cancelled, 3 succeeded, 2 failed", 2));
        let good = array(true, &[(1, 3)]);
        assert_eq!((summary(&good).as_str(), worst(&good)), ("3 succeeded", 1));
        let lost = array(false, &[(-6, 1)]);
        assert_eq!(worst(&lost), -6);
        let unknown = Array { counts: None, ..array(false, &[]) };
        assert_eq!((summary(&unknown).as_str(), worst(&unknown)), ("done, not all succeeded", 2));
    }

    #[test]
    fn how_an_array_ended_is_in_its_state() {
        let of =
            |text: &str, succeeded| state(&Array { state: text.to_owned(), succeeded, ..Array::default() });
        assert_eq!(of("open", None), "open");
        assert_eq!(of("done", Some(true)), "done, all succeeded");
        assert_eq!(of("done", Some(false)), "done, not all succeeded");
    }

    #[test]
    fn arrays_are_lines() {
        let array = json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "inserted": 100, "key": "item", "done": 70, "state": "open",
            "succeeded": null, "created": "2026-11-20T08:24:27",
        });
        let text = TABLE.render(&[read(array).unwrap()], Screen::default());
        let line = "6b | 7c    | 0-99     | 70 of 100 | open  | 2026-11-20T08:24:27 | \n";
        assert!(text.contains(line) && text.ends_with("\n1 total arrays.\n"), "{text}");
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address() {
        assert_eq!(address("/arrays", &ArrayFilter::default(), None).unwrap(), "/arrays");
        let filter =
            ArrayFilter { queue: Some("a b".into()), state: Some("open".into()), before: Some("6b".into()) };
        let address = address("/arrays", &filter, Some(5)).unwrap();
        assert_eq!(address, "/arrays?.before=6b&.limit=5&queue=a%20b&state=open");
    }

    fn array() -> Array {
        let array = json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "inserted": 100, "cap": 5, "key": "frame",
            "state": "open", "succeeded": null, "created": "2026-11-20T08:24:27", "ended": null, "owner": "an\nna",
            "done": 75, "final": { "id": "8d", "when": "finished", "status": -4 },
            "counts": [
                { "status": -2, "word": "queued", "tasks": 20 }, { "status": 0, "word": "running", "tasks": 5 },
                { "status": 1, "word": "succeeded", "tasks": 70 }, { "status": 2, "word": "failed", "tasks": 5 },
            ],
            "elements": [{ "id": "9e", "index": 0, "value": "a.tif", "status": 2 }, { "id": "9f", "index": 1 }],
        });
        read(array).unwrap()
    }

    #[test]
    fn an_array_is_told_in_lines_with_a_strip() {
        let expected = "Array       6b\nQueue       7c\nElements    0-99\nParameter   frame\nAt once     5\n\
                        State       open\n\
                        Progress    [############################xx>>........] 75 of 100 ended\n\
                        \u{20}           # 70 succeeded\n\
                        \u{20}           x 5 failed\n\
                        \u{20}           > 5 running\n\
                        \u{20}           . 20 queued\n\
                        Final task  8d blocked, when all have ended\nCreated     2026-11-20T08:24:27\n\
                        Owner       an\u{fffd}na\n";
        assert_eq!(text(&array(), false), expected);
    }

    #[test]
    fn an_array_that_cannot_be_counted_has_no_strip() {
        let text = text(&Array { counts: None, done: None, r#final: None, ..array() }, false);
        assert!(text.contains("Progress    ? of 100 ended\nCreated "), "{text}");
    }

    #[test]
    fn elements_are_lines_and_it_is_said_that_there_are_more() {
        let told = elements(&array(), Screen::default());
        assert!(
            told.contains("\n0     | 9e   | a.tif | failed    | \n1     | 9f   |       | not there | \n"),
            "{told}"
        );
        assert!(told.ends_with("2 total elements.\nThere are more: --from 2\n"), "{told}");
        let whole = Array { count: 2, ..array() };
        assert!(elements(&whole, Screen::default()).ends_with("2 total elements.\n"));
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address_of_an_array() {
        let mut shown = ShownArray { id: "6b".into(), elements: false, from: None };
        assert_eq!(address("/arrays/6b", &shown, None).unwrap(), "/arrays/6b");
        (shown.elements, shown.from) = (true, Some(200));
        assert_eq!(address("/arrays/6b", &shown, Some(50)).unwrap(), "/arrays/6b?.from=200&.limit=50");
    }

    fn strip(counts: &[(i64, usize)], count: usize) -> Strip {
        Strip::new(counts.iter().copied(), count)
    }

    #[test]
    fn every_kind_has_its_part_of_the_strip() {
        let strip = strip(&[(-5, 5), (-4, 20), (-1, 1), (0, 4), (1, 50), (2, 10)], 100);
        assert_eq!(strip.draw(false), "[####################xxxxxx>>........    ]");
        assert_eq!(strip.draw(true).chars().count(), WIDTH + 2);
        let expected = [
            "# 50 succeeded",
            "x 5 cancelled",
            "x 10 failed",
            "> 1 claimed",
            "> 4 running",
            ". 20 blocked",
            "  10 not there",
        ];
        assert_eq!(strip.legend(false), expected);
        assert_eq!(strip.legend(true)[1], "✗ 5 cancelled");
    }

    #[test]
    fn one_of_many_is_seen() {
        let all = strip(&[(-2, 1), (0, 1), (1, 99_996), (2, 1)], 100_000);
        assert_eq!(all.draw(false), format!("[{}x>. ]", "#".repeat(WIDTH - 4)));
        assert_eq!(strip(&[(1, 3)], 3).draw(false), format!("[{}]", "#".repeat(WIDTH)));
        assert_eq!(strip(&[], 5).draw(false), format!("[{}]", " ".repeat(WIDTH)));
    }

    #[test]
    fn what_is_not_counted_is_not_drawn() {
        assert!(Strip::of(&Array { count: 5, ..Array::default() }).is_none());
        assert_eq!(strip(&[], 0).draw(false), "[]");
    }
}
