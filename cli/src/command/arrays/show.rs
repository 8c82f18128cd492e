//! `disbatch array show ID`

use disbatch_wire::arrays::{Array, ArrayElement, ArrayFinal};

use super::strip::Strip;
use super::{ended, standing, state};
use crate::api::{Client, query};
use crate::args::{ListingOptions, ShownArray};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, known, plain, print, shows_marks, visible};

const ELEMENTS: Table<ArrayElement> = Table {
    columns: &[
        Column { title: "Place", cell: |e| e.index.to_string(), cut: Cut::Never },
        Column { title: "Task", cell: |e| e.id.clone(), cut: Cut::Late },
        Column { title: "Value", cell: |e| plain(e.value.as_ref()), cut: Cut::Early },
        Column { title: "Status", cell: |e| standing(e.status), cut: Cut::Never },
    ],
    noun: "elements",
};

/// Prints what a person wants to know of an array, and its tasks if that is asked for.
pub async fn run(client: &Client, shown: &ShownArray, options: &ListingOptions) -> anyhow::Result<()> {
    let array = client.get(&address(shown, options.limit), None).await.map_err(advise)?;
    let text = |array: &Array| {
        let facts = text(array, shows_marks());
        if shown.elements { facts + &elements(array, Screen::of_stdout()) } else { facts }
    };
    print(&document(&array, options, text)?)
}

fn address(shown: &ShownArray, limit: Option<i64>) -> String {
    let pairs = [
        (".from", shown.from.map(|from| from.to_string())),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/arrays/{}{}", shown.id, query(pairs))
}

/// A line for each fact; those that are not known have none.
fn text(array: &Array, in_unicode: bool) -> String {
    let strip = Strip::of(array);
    let drawn = strip.as_ref().map(|strip| format!("{} ", strip.draw(in_unicode))).unwrap_or_default();
    let lines = [
        ("Array", array.id.clone()),
        ("Queue", array.queue.clone()),
        ("Elements", array.items.clone()),
        ("Parameter", array.key.clone()),
        ("At once", array.cap.map(|cap| cap.to_string()).unwrap_or_default()),
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
    let lines = lines.into_iter().chain(legend.into_iter().map(|line| ("", line))).chain(rest);
    let lines = lines.filter(|(_, text)| !text.is_empty());
    lines.map(|(title, text)| format!("{title:<12}{}\n", visible(&text))).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::read;

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
    fn only_what_is_asked_for_is_in_the_address() {
        let mut shown = ShownArray { id: "6b".into(), elements: false, from: None };
        assert_eq!(address(&shown, None), "/arrays/6b");
        (shown.elements, shown.from) = (true, Some(200));
        assert_eq!(address(&shown, Some(50)), "/arrays/6b?.from=200&.limit=50");
    }
}
