//! `disbatch schedule backfill NAME --from WHEN`

use std::process::ExitCode;

use serde_json::{Map, Value};

use super::fields::point;
use super::{given, path, times};
use crate::api::Client;
use crate::args::{BackfillOptions, ListingOptions};
use crate::command::life::{advise, agreed};
use crate::output::{Screen, document, plain, print};

/// Makes the tasks that are missing between two times: shows which, asks, and prints their ids.
pub async fn run(
    client: &Client,
    options: &BackfillOptions,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    let path = format!("{}/backfill", path(&options.schedule)?);
    let body = body(options);
    if options.preview || !options.yes {
        let mut preview = body.clone();
        preview.insert(".preview".to_owned(), true.into());
        let answer = client.post(&path, &Value::Object(preview)).await.map_err(advise)?;
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
    let answer = client.post(&path, &Value::Object(body)).await.map_err(advise)?;
    print(&document(&answer, listing, |answer| told(answer, &options.schedule))?)?;
    Ok(ExitCode::SUCCESS)
}

fn body(options: &BackfillOptions) -> Map<String, Value> {
    given(vec![
        ("from", Some(point(&options.from))),
        ("to", options.to.as_deref().map(point)),
        ("limit", options.most.map(Value::from)),
    ])
}

fn told(answer: &Value, schedule: &str) -> String {
    let tasks = answer.get("tasks").and_then(Value::as_array);
    let lines: String = tasks.into_iter().flatten().map(|id| format!("{}\n", plain(Some(id)))).collect();
    format!("Created {} tasks of schedule {schedule}\n{lines}", plain(answer.get("count")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stretch_is_sent_as_it_was_given() {
        let mut options = BackfillOptions {
            schedule: "nightly".into(),
            from: "2026-11-01".into(),
            to: None,
            most: None,
            preview: false,
            yes: true,
        };
        assert_eq!(Value::Object(body(&options)), json!({ "from": "2026-11-01" }));
        (options.to, options.most) = (Some("1795163067".into()), Some(10));
        let expected = json!({ "from": "2026-11-01", "to": 1_795_163_067, "limit": 10 });
        assert_eq!(Value::Object(body(&options)), expected);
    }

    #[test]
    fn new_tasks_are_lines() {
        let answer = json!({ "count": 2, "tasks": ["6b", "7c"] });
        assert_eq!(told(&answer, "nightly"), "Created 2 tasks of schedule nightly\n6b\n7c\n");
    }
}
