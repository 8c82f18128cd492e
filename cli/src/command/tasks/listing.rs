//! `disbatch tasks --queue QUEUE --status STATUS ..`

use anyhow::bail;
use serde_json::Value;

use crate::api::{Client, query};
use crate::args::{Format, ListingOptions, TagFilter, TaskFilter, When, seconds};
use crate::command::life::advise;
use crate::command::oid;
use crate::output::{Column, Cut, Screen, Table, list, plain, print, say};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |task| oid(task.get("id").or(task.get("_id"))), cut: Cut::Late },
        Column { title: "Queue", cell: queue, cut: Cut::Early },
        Column { title: "Status", cell: status::of, cut: Cut::Never },
        Column { title: "Node", cell: |task| plain(task.get("node")), cut: Cut::Early },
        Column { title: "Created (UTC)", cell: |task| plain(task.get("ctime")), cut: Cut::Never },
        Column { title: "Changed (UTC)", cell: |task| plain(task.get("mtime")), cut: Cut::Never },
        Column { title: "Parameters", cell: |task| plain(task.get("params")), cut: Cut::Early },
    ],
    noun: "tasks",
};

/// Prints tasks of one queue or all, the newest first.
pub async fn run(client: &Client, which: &TaskFilter, options: &ListingOptions) -> anyhow::Result<()> {
    check(options)?;
    let answer = client.get(&address(which, options.limit), None).await.map_err(advise)?;
    let tasks = answer.get("tasks").cloned().unwrap_or_default();
    let more = more(&answer);
    match (options.format(), more) {
        (Format::Table, more) => print(&(table(&tasks, options)? + &more.unwrap_or_default())),
        (Format::Json | Format::Yaml, more) => {
            print(&table(&tasks, options)?)?;
            if let Some(more) = more {
                say(more.trim_end());
            }
            Ok(())
        }
    }
}

/// Tasks in the format that was asked for.
pub fn table(tasks: &Value, options: &ListingOptions) -> anyhow::Result<String> {
    list(tasks, options, |tasks| TABLE.render(tasks, Screen::of_stdout()))
}

/// What is for a JSON filter alone is not left out without a word.
fn check(options: &ListingOptions) -> anyhow::Result<()> {
    let of_filter = [
        ("--count", options.count),
        ("--fields", options.fields.is_some()),
        ("--skip", options.skip.is_some()),
        ("--epoch", options.epoch),
        ("--terse", options.terse),
        ("--noterse", options.noterse),
        ("--full", options.full),
    ];
    match of_filter.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            bail!("{option} goes with a JSON object alone: disbatch tasks '{{..}}' {option}")
        }
        None => Ok(()),
    }
}

fn address(which: &TaskFilter, limit: Option<i64>) -> String {
    let at = |when: &Option<When>| match when {
        Some(When::At(time)) => Some(time.clone()),
        _ => None, // An age has a parameter of its own.
    };
    let ago = |when: &Option<When>| match when {
        Some(When::Ago(age)) => Some(seconds::value(*age).to_string()),
        _ => None, // Likewise a time.
    };
    let statuses: Vec<String> = which.status.iter().map(ToString::to_string).collect();
    let pairs = [
        ("queue", which.queue.clone()),
        ("status", Some(statuses.join(",")).filter(|statuses| !statuses.is_empty())),
        ("node", which.node.clone()),
        ("tags", TagFilter::json(&which.tags.tag)),
        ("any_tags", TagFilter::json(&which.tags.any_tag)),
        ("created_since", which.created.created_since.as_ref().map(When::text)),
        ("created_until", which.created.created_until.as_ref().map(When::text)),
        ("since", at(&which.since)),
        ("newer_than", ago(&which.since)),
        ("until", at(&which.until)),
        ("older_than", ago(&which.until)),
        ("text", which.text.clone()),
        (".after", which.after.clone()),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/tasks/find{}", query(pairs))
}

/// How to go on where the list has an end and the tasks have not.
fn more(answer: &Value) -> Option<String> {
    let next = answer.get("next").and_then(Value::as_str)?;
    let found = answer.get("tasks").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let looked_at = answer.get("looked_at").and_then(Value::as_u64).unwrap_or(found);
    Some(if looked_at > found {
        format!("Looked at the newest {looked_at} tasks; go on with --after {next}\n")
    } else {
        format!("There are more: --after {next}\n")
    })
}

/// The queue's name, or its id where nobody knows the name.
fn queue(task: &Value) -> String {
    Some(plain(task.get("queue_name")))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| oid(task.get("queue")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::args::CreatedFilter;

    #[test]
    fn what_is_given_is_in_the_address() {
        assert_eq!(address(&TaskFilter::default(), None), "/tasks/find");
        let which = TaskFilter {
            queue: Some("a b".into()),
            status: vec![2, -6],
            tags: TagFilter { tag: vec!["a=1".into(), "b".into()], ..TagFilter::default() },
            created: CreatedFilter {
                created_since: Some(When::Ago(Duration::from_secs(60))),
                created_until: None,
            },
            since: Some(When::Ago(Duration::from_secs(3_600))),
            until: Some(When::At("2026-11-20T00:00:00Z".into())),
            ..TaskFilter::default()
        };
        assert_eq!(
            address(&which, Some(5)),
            "/tasks/find?queue=a%20b&status=2%2C-6&tags=%5B%22a%3D1%22%2C%22b%22%5D&created_since=60s&newer_than=3600&until=2026-11-20T00:00:00Z&.limit=5"
        );
    }

    #[test]
    fn it_is_said_how_to_go_on() {
        let answer =
            |looked_at: u64, next: Value| json!({ "tasks": [{}], "looked_at": looked_at, "next": next });
        assert_eq!(more(&answer(1, Value::Null)), None);
        assert_eq!(more(&answer(1, json!("6b"))).as_deref(), Some("There are more: --after 6b\n"));
        let looked = more(&answer(5_000, json!("6b"))).unwrap();
        assert_eq!(looked, "Looked at the newest 5000 tasks; go on with --after 6b\n");
    }

    #[test]
    fn tasks_of_both_forms_are_lines() {
        let ours =
            json!({ "id": "6b", "queue": "7c", "queue_name": "mail", "status": 2, "params": { "a": 1 } });
        let perls = json!({ "_id": { "$oid": "6b" }, "queue": { "$oid": "7c" }, "status": -2, "node": null });
        let text = TABLE.render(&[ours, perls], Screen::default());
        assert!(text.contains("6b | mail  | failed |"), "{text}");
        assert!(text.contains("6b | 7c    | queued |") && text.contains("{\"a\":1}"), "{text}");
    }

    #[test]
    fn options_of_a_filter_are_not_swallowed() {
        assert!(check(&ListingOptions::default()).is_ok());
        let error = check(&ListingOptions { skip: Some(3), ..ListingOptions::default() }).unwrap_err();
        assert!(error.to_string().starts_with("--skip goes with a JSON object alone"), "{error}");
    }
}
