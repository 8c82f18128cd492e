//! `disbatch calendar ..`

use serde_json::{Value, json};

use crate::api::{Client, segment};
use crate::args::{CalendarCommand, CalendarDays, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, plain, print, visible};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Name", cell: |calendar| plain(calendar.get("name")), cut: Cut::Early },
        Column { title: "Days", cell: |calendar| count(calendar.get("dates")), cut: Cut::Never },
        Column { title: "Every year", cell: |calendar| count(calendar.get("recurring")), cut: Cut::Never },
        Column { title: "Zone", cell: |calendar| plain(calendar.get("zone")), cut: Cut::Never },
    ],
    noun: "calendars",
};

/// Does what the command asks for.
pub async fn run(client: &Client, command: CalendarCommand, listing: &ListingOptions) -> anyhow::Result<()> {
    match command {
        CalendarCommand::List => {
            let all = client.get("/calendars", None).await.map_err(advise)?;
            print(&list(&all, listing, |all| TABLE.render(all, Screen::of_stdout()))?)
        }
        CalendarCommand::Show(which) => {
            let found = client.get(&path(&which.calendar)?, None).await.map_err(advise)?;
            print(&document(&found, listing, text)?)
        }
        CalendarCommand::Set(days) => {
            client.post(&path(&days.calendar)?, &body(&days)).await.map_err(advise)?;
            let count = days.dates.len() + days.recurring.len();
            print(&format!("Set calendar {}: {count} days\n", days.calendar))
        }
        CalendarCommand::Delete(which) => {
            client.delete(&path(&which.calendar)?).await.map_err(advise)?;
            print(&format!("Deleted calendar {}\n", which.calendar))
        }
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Calendar name not given");
    Ok(format!("/calendars/{}", segment(name)))
}

/// All of it: what is not named is none.
fn body(days: &CalendarDays) -> Value {
    json!({ "dates": days.dates, "recurring": days.recurring, "zone": days.zone })
}

fn count(days: Option<&Value>) -> String {
    days.and_then(Value::as_array).map_or(0, Vec::len).to_string()
}

/// A line for each day.
fn text(calendar: &Value) -> String {
    let zone = plain(calendar.get("zone"));
    let zone = if zone.is_empty() { "of the schedule".to_owned() } else { zone };
    let mut text = format!("{}, zone {}\n", visible(&plain(calendar.get("name"))), visible(&zone));
    for (name, after) in [("dates", ""), ("recurring", " every year")] {
        for day in calendar.get(name).and_then(Value::as_array).into_iter().flatten() {
            text.push_str(&format!("  {}{after}\n", visible(&plain(Some(day)))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_is_its_days() {
        let calendar = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": null });
        let expected =
            "holidays, zone of the schedule\n  2026-12-24\n  12-25 every year\n  12-26 every year\n";
        assert_eq!(text(&calendar), expected);
        let table = TABLE.render(&[calendar], Screen::default());
        assert!(table.contains("holidays | 1    | 2          |      | \n"), "{table}");
    }

    #[test]
    fn setting_days_leaves_no_others() {
        let days = CalendarDays {
            calendar: "holidays".into(),
            dates: vec!["2026-12-24".into()],
            recurring: vec![],
            zone: None,
        };
        assert_eq!(body(&days), json!({ "dates": ["2026-12-24"], "recurring": [], "zone": null }));
        assert_eq!(path("a/b").unwrap(), "/calendars/a%2Fb");
    }
}
