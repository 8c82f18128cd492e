//! `disbatch schedule list`, `show` and `runs`

use serde_json::Value;

use super::path;
use crate::api::{Client, query};
use crate::args::{ListingOptions, RunsOptions, ScheduleFilter, seconds};
use crate::command::life::advise;
use crate::output::{self, Column, Cut, Table, document, plain, print, visible};

const SCHEDULES: Table = Table {
    columns: &[
        Column { title: "ID", cell: |schedule| plain(schedule.get("id")), cut: Cut::Late },
        Column { title: "Name", cell: |schedule| plain(schedule.get("name")), cut: Cut::Early },
        Column { title: "Queue", cell: queue, cut: Cut::Early },
        Column { title: "When", cell: cron, cut: Cut::Early },
        Column { title: "Zone", cell: |schedule| plain(schedule.get("zone")), cut: Cut::Never },
        Column { title: "Next (UTC)", cell: next, cut: Cut::Never },
        Column { title: "Last", cell: last, cut: Cut::Never },
    ],
    noun: "schedules",
};

pub async fn list(client: &Client, filter: &ScheduleFilter, options: &ListingOptions) -> anyhow::Result<()> {
    let schedules = client.get(&address(filter, options.limit), None).await.map_err(advise)?;
    SCHEDULES.print(&schedules, options)
}

fn address(filter: &ScheduleFilter, limit: Option<i64>) -> String {
    let paused = match (filter.paused, filter.active) {
        (true, _) => Some("true".to_owned()),
        (false, true) => Some("false".to_owned()),
        (false, false) => None,
    };
    let pairs = [
        ("queue", filter.queue.clone()),
        ("tenant", filter.tenant.clone()),
        ("paused", paused),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/schedules{}", query(pairs))
}

/// By name, if it has one.
fn queue(schedule: &Value) -> String {
    let name = plain(schedule.get("queue_name"));
    if name.is_empty() { plain(schedule.get("queue")) } else { name }
}

fn next(schedule: &Value) -> String {
    if schedule.get("paused") == Some(&Value::Bool(true)) {
        return "paused".to_owned();
    }
    plain(schedule.get("next"))
}

/// Prints what a person wants to know of a schedule.
pub async fn show(client: &Client, schedule: &str, options: &ListingOptions) -> anyhow::Result<()> {
    let found = client.get(&path(schedule)?, None).await.map_err(advise)?;
    print(&document(&found, options, text)?)
}

/// A line for each fact; those that are not known have none.
fn text(schedule: &Value) -> String {
    let field = |name: &str| plain(schedule.get(name));
    let part = |name: &str, part: &str| plain(schedule.get(name).and_then(|value| value.get(part)));
    let time = |name: &str| {
        let seconds = schedule.get(name).and_then(Value::as_f64).filter(|seconds| *seconds > 0.0);
        seconds.map(seconds::words).unwrap_or_default()
    };
    let is_paused = schedule.get("paused") == Some(&Value::Bool(true));
    let lines = [
        ("Schedule", field("name")),
        ("Id", field("id")),
        ("For", field("description")),
        ("Queue", [field("queue_name"), field("queue")].join(" ").trim_start().to_owned()),
        ("State", if is_paused { "paused" } else { "active" }.to_owned()),
        ("When", cron(schedule)),
        ("Zone", field("zone")),
        ("Clock", format!("gap: {}, fold: {}", field("gap"), field("fold"))),
        ("Jitter", time("jitter")),
        ("Start", field("start")),
        ("End", field("end")),
        ("Calendars", schedule.get("calendars").map(calendar_rules).unwrap_or_default()),
        ("Overlap", field("overlap")),
        ("Catch up", time("catch_up")),
        ("Next", field("next")),
        ("Last", told_last(schedule)),
        ("Succeeded", part("last_success", "finish")),
        ("Made", format!("{} tasks, {} skipped", part("counts", "fired"), part("counts", "skipped"))),
        ("Parameters", field("params")),
        ("Options", filled(schedule.get("options"))),
        ("Owner", field("owner")),
        ("Tenant", field("tenant")),
        ("Revision", field("rev")),
        ("Changed", field("changed")),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    lines.map(|(title, text)| format!("{title:<12}{}\n", visible(&text))).collect()
}

fn told_last(schedule: &Value) -> String {
    let part = |name: &str| plain(schedule.get("last").and_then(|last| last.get(name)));
    let parts = [("", last(schedule)), ("for ", part("for")), ("task ", part("task")), ("", part("why"))];
    let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
    parts.map(|(before, text)| format!("{before}{text}")).collect::<Vec<_>>().join(", ")
}

fn calendar_rules(all: &Value) -> String {
    let one = |one: &Value| format!("{} {}", plain(one.get("use")), plain(one.get("name")));
    all.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// An object that has something in it.
fn filled(value: Option<&Value>) -> String {
    plain(value.filter(|value| value.as_object().is_none_or(|object| !object.is_empty())))
}

const RUNS: Table = Table {
    columns: &[
        Column { title: "Task", cell: |run| plain(run.get("task")), cut: Cut::Never },
        Column { title: "For (UTC)", cell: |run| plain(run.get("for")), cut: Cut::Never },
        Column { title: "Status", cell: |run| plain(run.get("word")), cut: Cut::Never },
        Column { title: "Started", cell: |run| plain(run.get("started")), cut: Cut::Late },
        Column { title: "Ended", cell: |run| plain(run.get("ended")), cut: Cut::Late },
        Column { title: "Node", cell: |run| plain(run.get("node")), cut: Cut::Early },
    ],
    noun: "runs",
};

/// Prints the runs of a schedule, the latest first.
pub async fn runs(client: &Client, options: &RunsOptions, listing: &ListingOptions) -> anyhow::Result<()> {
    let pairs =
        [(".limit", listing.limit.map(|limit| limit.to_string())), (".before", options.before.clone())];
    let address = format!("{}/runs{}", path(&options.schedule)?, query(pairs));
    let mut answer = client.get(&address, None).await.map_err(advise)?;
    let runs = answer.get_mut("runs").map(Value::take).unwrap_or_default();
    RUNS.print(&runs, listing)?;
    if let Some(next) = answer.get("next").and_then(Value::as_str) {
        output::say(&format!("there are earlier ones: --before {next}"));
    }
    Ok(())
}

/// What is said of when a schedule makes tasks, as one line.
fn cron(schedule: &Value) -> String {
    match schedule.get("cron") {
        Some(Value::Array(all)) if all.is_empty() => "manual".to_owned(),
        Some(Value::Array(all)) => all.iter().map(|one| plain(Some(one))).collect::<Vec<_>>().join("; "),
        one => plain(one),
    }
}

/// What became of the last task.
fn last(schedule: &Value) -> String {
    let Some(last) = schedule.get("last").filter(|last| last.is_object()) else { return String::new() };
    let part = |name: &str| plain(last.get(name));
    match part("outcome") {
        none if none.is_empty() => part("task"),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn schedules_are_lines() {
        let schedule = json!({
            "id": "6b", "name": "nightly", "queue": "7c", "queue_name": "mail", "cron": ["@daily"], "zone": "UTC",
            "next": "2026-11-20T00:00:00", "paused": false, "last": { "outcome": "succeeded" },
        });
        let text = SCHEDULES.render(std::slice::from_ref(&schedule), Screen::default());
        let line = "6b | nightly | mail  | @daily | UTC  | 2026-11-20T00:00:00 | succeeded | \n";
        assert!(text.contains(line), "{text}");
        let mut paused = schedule;
        (paused["paused"], paused["queue_name"]) = (true.into(), Value::Null);
        assert_eq!((next(&paused), queue(&paused)), ("paused".to_owned(), "7c".to_owned()));
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address() {
        assert_eq!(address(&ScheduleFilter::default(), None), "/schedules");
        let filter = ScheduleFilter { queue: Some("a b".into()), active: true, ..ScheduleFilter::default() };
        assert_eq!(address(&filter, Some(5)), "/schedules?queue=a%20b&paused=false&.limit=5");
    }

    #[test]
    fn a_schedule_is_told_in_lines() {
        let schedule = json!({
            "id": "6b", "name": "night\nly", "queue": "7c", "queue_name": "mail", "cron": ["0 3 * * *"],
            "zone": "Europe/Berlin", "gap": "after", "fold": "first", "jitter": 300, "catch_up": 0, "overlap": "skip",
            "calendars": [{ "name": "holidays", "use": "exclude" }], "paused": false, "params": { "a": 1 },
            "options": {}, "next": "2026-11-20T02:00:00", "rev": 3, "counts": { "fired": 4, "skipped": 1 },
            "last": { "outcome": "failed", "for": "2026-11-19T02:00:00", "task": "8d" },
        });
        let expected = "Schedule    night\u{fffd}ly\nId          6b\nQueue       mail 7c\nState       active\n\
                        When        0 3 * * *\nZone        Europe/Berlin\nClock       gap: after, fold: first\n\
                        Jitter      5 min\nCalendars   exclude holidays\nOverlap     skip\n\
                        Next        2026-11-20T02:00:00\nLast        failed, for 2026-11-19T02:00:00, task 8d\n\
                        Made        4 tasks, 1 skipped\nParameters  {\"a\":1}\nRevision    3\n";
        assert_eq!(text(&schedule), expected);
    }

    #[test]
    fn runs_are_lines() {
        let run = json!({
            "task": "8d", "for": "2026-11-20T02:00:00Z", "word": "succeeded", "started": "2026-11-20T02:00:01",
            "ended": null, "node": "vm",
        });
        let text = RUNS.render(std::slice::from_ref(&run), Screen::default());
        assert!(
            text.contains("8d") && text.contains("2026-11-20T02:00:00Z") && text.contains("succeeded"),
            "{text}"
        );
    }

    #[test]
    fn times_and_outcomes_are_lines() {
        assert_eq!(cron(&json!({ "cron": ["0 3 * * *", "@monthly"] })), "0 3 * * *; @monthly");
        assert_eq!(cron(&json!({ "cron": "@daily" })), "@daily");
        assert_eq!(last(&json!({ "last": { "outcome": "succeeded", "task": "6b" } })), "succeeded");
        assert_eq!(
            (last(&json!({ "last": { "task": "6b" } })), last(&json!({}))),
            ("6b".into(), String::new())
        );
    }
}
