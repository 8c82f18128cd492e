//! `disbatch calendar ..`

use disbatch_wire::calendars::Calendar;

use crate::api::{Client, segment};
use crate::args::{CalendarCommand, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, of, print, visible};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Name", cell: |json| of(json, |c: Calendar| c.name), cut: Cut::Early },
        Column {
            title: "Days",
            cell: |json| of(json, |c: Calendar| c.dates.len().to_string()),
            cut: Cut::Never,
        },
        Column {
            title: "Every year",
            cell: |json| of(json, |c: Calendar| c.recurring.len().to_string()),
            cut: Cut::Never,
        },
        Column {
            title: "Zone",
            cell: |json| of(json, |c: Calendar| c.zone.unwrap_or_default()),
            cut: Cut::Never,
        },
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
        CalendarCommand::Show { calendar } => {
            let found = client.get(&path(&calendar)?, None).await.map_err(advise)?;
            print(&document(&found, listing, |found| of(found, |calendar| text(&calendar)))?)
        }
        CalendarCommand::Set { calendar, days } => {
            client.post(&path(&calendar)?, &serde_json::to_value(&days)?).await.map_err(advise)?;
            let count = days.dates.len() + days.recurring.len();
            print(&format!("Set calendar {calendar}: {count} days\n"))
        }
        CalendarCommand::Delete { calendar } => {
            client.delete(&path(&calendar)?).await.map_err(advise)?;
            print(&format!("Deleted calendar {calendar}\n"))
        }
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Calendar name not given");
    Ok(format!("/calendars/{}", segment(name)))
}

/// A line for each day.
fn text(calendar: &Calendar) -> String {
    let zone = calendar.zone.as_deref().unwrap_or("of the schedule");
    let mut text = format!("{}, zone {}\n", visible(&calendar.name), visible(zone));
    for (days, after) in [(&calendar.dates, ""), (&calendar.recurring, " every year")] {
        text.extend(days.iter().map(|day| format!("  {}{after}\n", visible(day))));
    }
    text
}

#[cfg(test)]
mod tests {
    use disbatch_wire::calendars::CalendarDays;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_calendar_is_its_days() {
        let calendar = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": null });
        let expected =
            "holidays, zone of the schedule\n  2026-12-24\n  12-25 every year\n  12-26 every year\n";
        assert_eq!(of(&calendar, |calendar| text(&calendar)), expected);
        let table = TABLE.render(&[calendar], Screen::default());
        assert!(table.contains("holidays | 1    | 2          |      | \n"), "{table}");
    }

    #[test]
    fn setting_days_leaves_no_others() {
        let days = CalendarDays { dates: vec!["2026-12-24".into()], ..CalendarDays::default() };
        let body = serde_json::to_value(days).unwrap();
        assert_eq!(body, json!({ "dates": ["2026-12-24"], "recurring": [], "zone": null }));
        assert_eq!(path("a/b").unwrap(), "/calendars/a%2Fb");
    }
}
