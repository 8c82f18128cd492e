//! `disbatch schedule list`

use serde_json::Value;

use super::{cron, last};
use crate::api::{Client, query};
use crate::args::{ListingOptions, ScheduleFilter};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print};

const TABLE: Table = Table {
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

/// Prints the schedules that there are.
pub async fn run(client: &Client, filter: &ScheduleFilter, options: &ListingOptions) -> anyhow::Result<()> {
    let schedules = client.get(&address(filter, options.limit), None).await.map_err(advise)?;
    print(&list(&schedules, options, |schedules| TABLE.render(schedules, Screen::of_stdout()))?)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schedules_are_lines() {
        let schedule = json!({
            "id": "6b", "name": "nightly", "queue": "7c", "queue_name": "mail", "cron": ["@daily"], "zone": "UTC",
            "next": "2026-11-20T00:00:00", "paused": false, "last": { "outcome": "succeeded" },
        });
        let text = TABLE.render(std::slice::from_ref(&schedule), Screen::default());
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
}
