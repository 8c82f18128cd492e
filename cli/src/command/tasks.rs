//! `disbatch tasks [FILTER]`, or `disbatch tasks --queue QUEUE ..`, and `disbatch search [FILTER]`

use anyhow::{Context, bail};
use disbatch_wire::search::FoundTasks;
use serde_json::{Value, json};

use crate::api::{self, fields, given, read};
use crate::args::{Format, ListingOptions, TaskFilter, When, seconds};
use crate::command::{Session, in_perls_words, oid};
use crate::output::{Column, Cut, Screen, Table, list, plain, pretty, print, say, shown_json};
use crate::status;

const DEFAULT_LIMIT: i64 = 100;

/// Prints the tasks that a JSON object or options name. Without any of them, but with a format, the newest of all queues.
pub async fn run(session: &Session, filter: Option<String>, which: &TaskFilter) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    if which.is_given() || (filter.is_none() && options.format.is_some()) {
        return find(session, which).await;
    }
    let body = request(filter.as_deref(), options)?;
    show(&client.get("/tasks", Some(&body)).await.map_err(in_perls_words)?, options)
}

pub fn show(answer: &Value, options: &ListingOptions) -> anyhow::Result<()> {
    match answer.get("count") {
        None if options.format.is_some_and(|format| format != Format::Json) => {
            // One task comes without a list, and none as an empty object.
            let tasks = match answer {
                Value::Object(none) if none.is_empty() => json!([]),
                Value::Object(_) => json!([answer]),
                tasks => tasks.clone(),
            };
            print(&table(&tasks, options)?)
        }
        Some(count) if options.count => print(&format!("{} tasks\n", plain(Some(count)))),
        // The DCI ends JSON for people with a line break of its own.
        _ if options.pretty => print(&shown_json(format!("{}\n\n", pretty(answer)?))),
        _ => print(&shown_json(format!("{answer}\n"))),
    }
}

/// The filter with the options as keys that start with a dot. Such keys in the filter win.
fn request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
    let flag = |on: bool| on.then(|| json!(1));
    let mut body = given([
        (".limit", Some(json!(options.limit.unwrap_or(DEFAULT_LIMIT)))),
        (".skip", options.skip.map(Value::from)),
        (".fields", options.fields.clone().map(Value::from)),
        (".count", flag(options.count)),
        (".epoch", flag(options.epoch)),
        (".full", flag(options.full)),
        (".terse", flag(options.terse)),
    ]);
    if let Some(text) = filter {
        match serde_json::from_str(text) {
            Ok(Value::Object(filter)) => body.extend(filter),
            _ => bail!("Invalid filter is not a JSON object: '{text}'"),
        }
    }
    Ok(Value::Object(body))
}

pub async fn search(session: &Session, filter: Option<String>) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    let body = search_request(filter.as_deref(), options)?;
    show(&client.post("/tasks/search", &body).await.map_err(in_perls_words)?, options)
}

/// What to look for. What is not an object is for the DCI to refuse, as long as it is JSON that Perl takes.
fn search_request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
    let parsed = |what: &str, text: &str| {
        structure(text).with_context(|| format!("Invalid {what} is not JSON: '{text}'"))
    };
    let terse = (options.terse || options.noterse).then(|| json!(i32::from(options.terse)));
    Ok(Value::Object(given([
        ("filter", Some(parsed("filter", filter.unwrap_or("{}"))?)),
        ("options", options.options.as_deref().map(|text| parsed("--options", text)).transpose()?),
        ("count", options.count.then(|| json!(1))),
        ("terse", terse),
    ])))
}

fn structure(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value| matches!(value, Value::Object(_) | Value::Array(_)))
}

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

async fn find(session: &Session, which: &TaskFilter) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    check(options)?;
    let found: FoundTasks = read(client.get(&address(which, options.limit)?, None).await?)?;
    let more = more(&found);
    let tasks = Value::from(found.tasks);
    print(&table(&tasks, options)?)?;
    match more {
        Some(more) if options.format() == Format::Table => print(&more)?,
        Some(more) => say(more.trim_end()),
        None => {}
    }
    Ok(())
}

fn table(tasks: &Value, options: &ListingOptions) -> anyhow::Result<String> {
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

/// Where these tasks are. An age has a parameter of its own.
fn address(which: &TaskFilter, limit: Option<i64>) -> serde_json::Result<String> {
    let mut search = fields(which)?;
    for (when, at, ago) in [(&which.since, "since", "newer_than"), (&which.until, "until", "older_than")] {
        let changed = when.as_ref().map(|when| match when {
            When::At(time) => (at.to_owned(), Value::from(time.as_str())),
            When::Ago(age) => (ago.to_owned(), seconds::value(*age)),
        });
        search.extend(changed);
    }
    api::address("/tasks/find", &search, limit)
}

/// How to go on where the list has an end and the tasks have not.
fn more(FoundTasks { tasks, looked_at, next }: &FoundTasks) -> Option<String> {
    let next = next.as_ref()?;
    Some(if *looked_at > tasks.len() as u64 {
        format!("Looked at the newest {looked_at} tasks; go on with --after {next}\n")
    } else {
        format!("There are more: --after {next}\n")
    })
}

fn queue(task: &Value) -> String {
    Some(plain(task.get("queue_name")))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| oid(task.get("queue")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::args::{CreatedFilter, TagFilter};

    #[test]
    fn options_become_keys_with_a_dot_and_the_filter_wins() {
        let options = ListingOptions { limit: Some(5), count: true, skip: Some(2), ..Default::default() };
        let body = request(Some(r#"{"queue":"q",".limit":1}"#), &options).unwrap();
        assert_eq!(body, json!({"queue": "q", ".limit": 1, ".count": 1, ".skip": 2}));
        assert_eq!(request(None, &ListingOptions::default()).unwrap(), json!({".limit": 100}));
    }

    #[test]
    fn a_filter_is_an_object() {
        let error = request(Some("[]"), &ListingOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "Invalid filter is not a JSON object: '[]'");
    }

    #[test]
    fn only_what_was_said_is_sent() {
        let none = ListingOptions::default();
        assert_eq!(search_request(None, &none).unwrap(), json!({"filter": {}}));
        let options = ListingOptions {
            count: true,
            noterse: true,
            options: Some(r#"{"limit":1}"#.into()),
            ..Default::default()
        };
        assert_eq!(
            search_request(Some(r#"{"a":1}"#), &options).unwrap(),
            json!({"filter": {"a": 1}, "options": {"limit": 1}, "count": 1, "terse": 0})
        );
    }

    #[test]
    fn what_is_no_json_is_not_sent() {
        let none = ListingOptions::default();
        assert_eq!(
            search_request(Some("\"x\""), &none).unwrap_err().to_string(),
            "Invalid filter is not JSON: '\"x\"'"
        );
        assert_eq!(search_request(Some("[]"), &none).unwrap(), json!({"filter": []}));
        let options = ListingOptions { options: Some("{".into()), ..none };
        assert_eq!(
            search_request(None, &options).unwrap_err().to_string(),
            "Invalid --options is not JSON: '{'"
        );
    }

    #[test]
    fn what_is_given_is_in_the_address() {
        assert_eq!(address(&TaskFilter::default(), None).unwrap(), "/tasks/find");
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
            address(&which, Some(5)).unwrap(),
            "/tasks/find?.limit=5&created_since=60s&newer_than=3600&queue=a%20b&status=2%2C-6&tags=%5B%22a%3D1%22%2C%22b%22%5D&until=2026-11-20T00:00:00Z"
        );
    }

    #[test]
    fn it_is_said_how_to_go_on() {
        let more = |looked_at, next: Option<&str>| {
            more(&FoundTasks { tasks: vec![json!({})], looked_at, next: next.map(str::to_owned) })
        };
        assert_eq!(more(1, None), None);
        assert_eq!(more(1, Some("6b")).as_deref(), Some("There are more: --after 6b\n"));
        let looked = more(5_000, Some("6b")).unwrap();
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
