//! `disbatch schedule show NAME`

use serde_json::Value;

use super::{cron, last, path};
use crate::api::Client;
use crate::args::{ListingOptions, seconds};
use crate::command::life::advise;
use crate::output::{document, plain, print, visible};

/// Prints what a person wants to know of a schedule.
pub async fn run(client: &Client, schedule: &str, options: &ListingOptions) -> anyhow::Result<()> {
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
        ("Calendars", schedule.get("calendars").map(calendars).unwrap_or_default()),
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

fn calendars(all: &Value) -> String {
    let one = |one: &Value| format!("{} {}", plain(one.get("use")), plain(one.get("name")));
    all.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// An object that has something in it.
fn filled(value: Option<&Value>) -> String {
    plain(value.filter(|value| value.as_object().is_none_or(|object| !object.is_empty())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
}
