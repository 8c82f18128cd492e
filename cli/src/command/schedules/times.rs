//! `disbatch schedule preview` and `backfill`

use std::process::ExitCode;

use serde_json::{Value, json};

use super::fields::uses;
use super::{given, path};
use crate::api::{Client, query};
use crate::args::{BackfillOptions, ListingOptions, PreviewOptions};
use crate::command::life::{advise, agreed};
use crate::output::{Column, Cut, Screen, Table, document, plain, print, visible};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |time| plain(time.get("at")), cut: Cut::Never },
        Column { title: "There", cell: |time| plain(time.get("local")), cut: Cut::Never },
        Column { title: "Offset", cell: |time| plain(time.get("offset")), cut: Cut::Never },
    ],
    noun: "times",
};

/// Prints when a schedule makes its next tasks, or when one of these times would.
pub async fn preview(
    client: &Client,
    options: &PreviewOptions,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let answer = match &options.schedule {
        Some(schedule) => {
            let pairs = [(".limit", Some(options.next.to_string())), (".after", options.after.clone())];
            client.get(&format!("{}/preview{}", path(schedule)?, query(pairs)), None).await
        }
        None => {
            let body = given(vec![
                ("cron", Some(json!(options.cron))),
                ("zone", options.zone.clone().map(Value::from)),
                ("calendars", uses(&options.calendars)),
                (".limit", Some(options.next.into())),
                (".after", options.after.clone().map(Value::from)),
            ]);
            client.post("/schedules/preview", &Value::Object(body)).await
        }
    };
    print(&document(&answer.map_err(advise)?, listing, |answer| text(answer, Screen::of_stdout()))?)
}

fn text(answer: &Value, screen: Screen) -> String {
    let mut text = times(answer.get("times"), screen);
    for change in answer.get("changes").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| visible(&plain(change.get(name)));
        text.push_str(&format!(
            "At {} UTC the offset of {} goes from {} to {}.\n",
            part("at"),
            visible(&plain(answer.get("zone"))),
            part("before"),
            part("after")
        ));
    }
    text
}

fn times(times: Option<&Value>, screen: Screen) -> String {
    TABLE.render(times.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default(), screen)
}

/// Makes the tasks that are missing between two times: shows which, asks, and prints their ids.
pub async fn backfill(
    client: &Client,
    options: &BackfillOptions,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    let path = format!("{}/backfill", path(&options.schedule)?);
    if options.preview || !options.yes {
        let mut body = serde_json::to_value(&options.times)?;
        body[".preview"] = true.into();
        let answer = client.post(&path, &body).await.map_err(advise)?;
        if options.preview {
            let text = |answer: &Value| times(answer.get("times"), Screen::of_stdout());
            print(&document(&answer, listing, text)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let count = plain(answer.get("count"));
        if count == "0" {
            print("0 tasks: nothing is missing\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        if !agreed(&format!("make {count} tasks of schedule {}", options.schedule))? {
            eprintln!("Nothing was done.");
            return Ok(ExitCode::from(crate::status::FAILED));
        }
    }
    let answer = client.post(&path, &serde_json::to_value(&options.times)?).await.map_err(advise)?;
    print(&document(&answer, listing, |answer| told(answer, &options.schedule))?)?;
    Ok(ExitCode::SUCCESS)
}

fn told(answer: &Value, schedule: &str) -> String {
    let tasks = answer.get("tasks").and_then(Value::as_array);
    let lines: String = tasks.into_iter().flatten().map(|id| format!("{}\n", plain(Some(id)))).collect();
    format!("Created {} tasks of schedule {schedule}\n{lines}", plain(answer.get("count")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ScheduleCommand;
    use crate::command::schedules::tests::command;

    #[test]
    fn times_and_changes_of_the_clock_are_told() {
        let answer = json!({
            "zone": "Europe/Berlin",
            "times": [{ "at": "2027-03-27T01:30:00", "local": "2027-03-27T02:30:00", "offset": "+01:00" }],
            "changes": [{ "at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00" }],
        });
        let told = text(&answer, Screen::default());
        assert!(told.contains("2027-03-27T01:30:00 | 2027-03-27T02:30:00 | +01:00 | \n"), "{told}");
        let end = "1 total times.\nAt 2027-03-28T01:00:00 UTC the offset of Europe/Berlin goes from +01:00 to +02:00.\n";
        assert!(told.ends_with(end), "{told}");
        assert!(text(&json!({}), Screen::default()).ends_with("0 total times.\n"));
    }

    #[test]
    fn the_stretch_is_sent_as_it_was_given() {
        let body = |words: &[&str]| {
            let words = [&["backfill", "nightly", "--from", "2026-11-01"], words].concat();
            let ScheduleCommand::Backfill(options) = command(&words) else { panic!() };
            serde_json::to_value(&options.times).unwrap()
        };
        assert_eq!(body(&[]), json!({ "from": "2026-11-01" }));
        let expected = json!({ "from": "2026-11-01", "to": 1_795_163_067, "limit": 10 });
        assert_eq!(body(&["--to", "1795163067", "--most", "10"]), expected);
    }

    #[test]
    fn new_tasks_are_lines() {
        let answer = json!({ "count": 2, "tasks": ["6b", "7c"] });
        assert_eq!(told(&answer, "nightly"), "Created 2 tasks of schedule nightly\n6b\n7c\n");
    }
}
