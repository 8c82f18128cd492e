//! `disbatch at TIME`

use serde_json::{Map, Value};

use crate::api::Client;
use crate::args::{AtOptions, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, date, document, print, visible};

const EVENTS: Table = Table {
    columns: &[
        Column { title: "When", cell: |event| time(&event["at"]), cut: Cut::Never },
        Column { title: "Of", cell: |event| text(&event["kind"]), cut: Cut::Never },
        Column { title: "What", cell: |event| text(&event["words"]), cut: Cut::Late },
        Column { title: "Queue", cell: |event| text(&event["queue_name"]), cut: Cut::Late },
        Column { title: "Task", cell: |event| text(&event["task"]), cut: Cut::Never },
        Column { title: "Who", cell: |event| text(&event["by"]), cut: Cut::Late },
    ],
    noun: "events",
};

const RUNNING: Table = Table {
    columns: &[
        Column { title: "Task", cell: |ran| text(&ran["task"]), cut: Cut::Never },
        Column { title: "Attempt", cell: |ran| text(&ran["attempt"]), cut: Cut::Never },
        Column { title: "Queue", cell: |ran| text(&ran["queue_name"]), cut: Cut::Late },
        Column { title: "Node", cell: |ran| text(&ran["node"]), cut: Cut::Late },
        Column { title: "Since", cell: |ran| time(&ran["since"]), cut: Cut::Never },
        Column { title: "Until", cell: |ran| time(&ran["until"]), cut: Cut::Never },
    ],
    noun: "running",
};

/// Prints what is known of a moment.
pub async fn run(client: &Client, which: &AtOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let given = [("around", &which.around), ("queue", &which.queue), ("node", &which.node)];
    let mut asked = Map::from_iter([("at".to_owned(), Value::from(which.time.as_str()))]);
    asked.extend(
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.as_deref()?.into()))),
    );
    let found = client.get("/moments", Some(&asked.into())).await.map_err(advise)?;
    print(&document(&found, options, |found| told(found, Screen::of_stdout()))?)
}

fn told(found: &Value, screen: Screen) -> String {
    let list = |name: &str| found[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (running, waiting) = (list("running"), found["waiting"].as_u64());
    let waiting = waiting.map_or_else(String::new, |waiting| format!(", {waiting} waiting"));
    let mut told = format!("{}: {} running{waiting}\n", time(&found["at"]), running.len());
    for limit in list("limits") {
        let known = if limit["known"] == false { " (the audit does not reach so far)" } else { "" };
        let settings = visible(&limit["settings"].to_string());
        told.push_str(&format!(
            "{} {}: {settings}{known}\n",
            text(&limit["kind"]),
            visible(&text(&limit["name"]))
        ));
    }
    if !running.is_empty() {
        told.push_str(&format!("\n{}", RUNNING.render(running, screen)));
    }
    told.push_str(&format!("\n{}", EVENTS.render(list("events"), screen)));
    for gap in list("gaps") {
        told.push_str(&format!("{}\n", visible(&text(gap))));
    }
    told
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn time(value: &Value) -> String {
    date(Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_moment_is_told_from_its_numbers_to_what_is_not_known() {
        let found = json!({
            "at": "2026-11-20T03:12:00Z", "waiting": 2, "gaps": ["Not all was read."],
            "running": [{ "task": "a", "attempt": 3, "queue_name": "mail", "node": "n1", "since": "2026-11-20T03:11:00Z", "until": null }],
            "limits": [{ "kind": "queue", "name": "mail", "settings": { "threads": 4 }, "known": false }],
            "events": [{ "at": "2026-11-20T03:12:05Z", "kind": "task", "words": "a task ended as failed", "task": "a", "queue_name": "mail", "by": null }],
        });
        let told = told(&found, Screen::default());
        assert!(told.contains(": 1 running, 2 waiting\nqueue mail: {\"threads\":4} (the audit"), "{told}");
        assert!(told.contains("a task ended as failed") && told.ends_with("Not all was read.\n"), "{told}");
    }
}
