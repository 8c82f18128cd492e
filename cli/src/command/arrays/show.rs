//! `disbatch array show ID`

use serde_json::Value;

use super::strip::Strip;
use super::{ended, state};
use crate::api::{Client, query};
use crate::args::{ListingOptions, ShownArray};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, plain, print, shows_marks, visible};
use crate::status;

const ELEMENTS: Table = Table {
    columns: &[
        Column { title: "Place", cell: |element| plain(element.get("index")), cut: Cut::Never },
        Column { title: "Task", cell: |element| plain(element.get("id")), cut: Cut::Late },
        Column { title: "Value", cell: |element| plain(element.get("value")), cut: Cut::Early },
        Column { title: "Status", cell: standing, cut: Cut::Never },
    ],
    noun: "elements",
};

/// Prints what a person wants to know of an array, and its tasks if that is asked for.
pub async fn run(client: &Client, shown: &ShownArray, options: &ListingOptions) -> anyhow::Result<()> {
    let array = client.get(&address(shown, options.limit), None).await.map_err(advise)?;
    let text = |array: &Value| {
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
fn text(array: &Value, in_unicode: bool) -> String {
    let field = |name: &str| plain(array.get(name));
    let strip = Strip::of(array);
    let drawn = strip.as_ref().map(|strip| format!("{} ", strip.draw(in_unicode))).unwrap_or_default();
    let lines = [
        ("Array", field("id")),
        ("Queue", field("queue")),
        ("Elements", field("items")),
        ("Parameter", field("key")),
        ("At once", field("cap")),
        ("State", state(array)),
        ("Progress", format!("{drawn}{} ended", ended(array))),
    ];
    let legend = strip.map(|strip| strip.legend(in_unicode)).unwrap_or_default();
    let rest = [
        ("Final task", last(array.get("final"))),
        ("Created", field("created")),
        ("Ended", field("ended")),
        ("Owner", field("owner")),
        ("Tenant", field("tenant")),
    ];
    let lines = lines.into_iter().chain(legend.into_iter().map(|line| ("", line))).chain(rest);
    let lines = lines.filter(|(_, text)| !text.is_empty());
    lines.map(|(title, text)| format!("{title:<12}{}\n", visible(&text))).collect()
}

/// The task that comes after all others: `6b0003bb686c8275d8013335 blocked, when all have succeeded`.
fn last(last: Option<&Value>) -> String {
    let Some(last) = last.filter(|last| last.is_object()) else { return String::new() };
    let when = match last.get("when").and_then(Value::as_str) {
        Some("succeeded") => "when all have succeeded",
        Some("finished") => "when all have ended",
        _ => return plain(last.get("id")), // Nothing that is known here.
    };
    format!("{} {}, {when}", plain(last.get("id")), standing(last))
}

/// The status of a task in a word.
fn standing(task: &Value) -> String {
    Some(status::of(task)).filter(|word| !word.is_empty()).unwrap_or_else(|| "not there".to_owned())
}

fn elements(array: &Value, screen: Screen) -> String {
    let shown = array.get("elements").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let next = shown.last().and_then(|last| last.get("index")?.as_u64()).map(|last| last + 1);
    let next = next.filter(|next| array.get("count").and_then(Value::as_u64) > Some(*next));
    let next = next.map(|next| format!("There are more: --from {next}\n")).unwrap_or_default();
    format!("\n{}{next}", ELEMENTS.render(shown, screen))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn array() -> Value {
        json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "inserted": 100, "cap": 5, "key": "frame",
            "state": "open", "succeeded": null, "created": "2026-11-20T08:24:27", "ended": null, "owner": "an\nna",
            "done": 75, "final": { "id": "8d", "when": "finished", "status": -4 },
            "counts": [
                { "status": -2, "tasks": 20 }, { "status": 0, "tasks": 5 }, { "status": 1, "tasks": 70 },
                { "status": 2, "tasks": 5 },
            ],
            "elements": [{ "id": "9e", "index": 0, "value": "a.tif", "status": 2 }, { "id": "9f", "index": 1 }],
        })
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
        let mut array = array();
        (array["counts"], array["done"], array["final"]) = (Value::Null, Value::Null, Value::Null);
        let text = text(&array, false);
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
        let mut whole = array();
        whole["count"] = 2.into();
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
