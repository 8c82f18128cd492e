//! `disbatch schedule ..` and `disbatch calendar ..`

mod fields;
mod import;
mod show;
mod times;

use std::process::ExitCode;

use anyhow::Context;
use disbatch_wire::calendars::Calendar;
use disbatch_wire::schedules::{Schedule, ScheduleRun};
use serde_json::{Map, Value, json};

use crate::api::{Client, read, segment};
use crate::args::{CalendarCommand, ListingOptions, NewSchedule, ScheduleCommand, ScheduleUpdate};
use crate::command::life::advise;
use crate::output::{Column, Cut, Table, document, print, shown_name, visible};

pub async fn run(
    client: &Client,
    command: ScheduleCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        ScheduleCommand::List(filter) => show::list(client, &filter, listing).await?,
        ScheduleCommand::Show { schedule } => show::show(client, &schedule, listing).await?,
        ScheduleCommand::Create(new) => create(client, *new).await?,
        ScheduleCommand::Update(change) => update(client, *change).await?,
        ScheduleCommand::Delete { schedule } => delete(client, &schedule).await?,
        ScheduleCommand::Pause { schedule } => pause(client, &schedule, true).await?,
        ScheduleCommand::Resume { schedule } => pause(client, &schedule, false).await?,
        ScheduleCommand::Runs(options) => show::runs(client, &options, listing).await?,
        ScheduleCommand::Run { schedule } => run_now(client, &schedule).await?,
        ScheduleCommand::Backfill(options) => return times::backfill(client, &options, listing).await,
        ScheduleCommand::Preview(options) => times::preview(client, &options, listing).await?,
        ScheduleCommand::Import(options) => import::run(client, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a schedule is.
fn path(schedule: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!schedule.is_empty(), "Schedule name not given");
    Ok(format!("/schedules/{}", segment(schedule)))
}

async fn create(client: &Client, new: NewSchedule) -> anyhow::Result<()> {
    let mut body = fields::of(&new.settings.with_secure_params()?)?;
    body.insert("name".to_owned(), new.name.into());
    let made: Schedule = read(client.post("/schedules", &Value::Object(body)).await.map_err(advise)?)?;
    print(&format!("Created schedule {}: {}\n{}", shown_name(&made.name), made.id, next(&made)))
}

async fn update(client: &Client, change: ScheduleUpdate) -> anyhow::Result<()> {
    let mut body = fields::of(&change.settings.with_secure_params()?)?;
    // What is in a file is what it is called there, unless it is said here.
    body.extend(change.rename.map(|name| ("name".to_owned(), Value::from(name))));
    fields::unset(&mut body, &change.unset)?;
    anyhow::ensure!(!body.is_empty(), "nothing is to be changed: see disbatch schedule update --help");
    body.extend(change.rev.map(|rev| (".rev".to_owned(), Value::from(rev))));
    let changed = client.post(&path(&change.schedule)?, &Value::Object(body)).await.map_err(advise)?;
    let changed: Schedule = read(changed)?;
    let (name, rev) = (shown_name(&changed.name), changed.rev);
    print(&format!("Updated schedule {name}, revision {rev}\n{}", next(&changed)))
}

async fn delete(client: &Client, schedule: &str) -> anyhow::Result<()> {
    client.delete(&path(schedule)?).await.map_err(advise)?;
    print(&format!("Deleted schedule {schedule}; its tasks are still there\n"))
}

async fn pause(client: &Client, schedule: &str, paused: bool) -> anyhow::Result<()> {
    let (act, done) = if paused { ("pause", "Paused") } else { ("resume", "Resumed") };
    let path = format!("{}/{act}", path(schedule)?);
    let answer = client.post(&path, &json!({})).await.map_err(advise)?;
    print(&format!("{done} schedule {schedule}\n{}", next(&read(answer)?)))
}

/// Prints the task alone, so that other commands can take it.
async fn run_now(client: &Client, schedule: &str) -> anyhow::Result<()> {
    let path = format!("{}/run", path(schedule)?);
    let answer = client.post(&path, &json!({})).await.map_err(advise)?;
    let ScheduleRun { task, .. } =
        serde_json::from_value(answer).context("the DCI did not say which task it has created")?;
    print(&format!("{task}\n"))
}

/// When the next task is made, if one is.
fn next(schedule: &Schedule) -> String {
    match &schedule.next {
        _ if schedule.paused => "It is paused, and makes no tasks by itself.\n".to_owned(),
        None => "It makes no more tasks by itself.\n".to_owned(),
        Some(next) => format!("The next task is made at {next} UTC.\n"),
    }
}

/// A body with what is not null.
fn given(fields: Vec<(&str, Option<Value>)>) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

const TABLE: Table<Calendar> = Table {
    columns: &[
        Column { title: "Name", cell: |c| c.name.clone(), cut: Cut::Early },
        Column { title: "Days", cell: |c| c.dates.len().to_string(), cut: Cut::Never },
        Column { title: "Every year", cell: |c| c.recurring.len().to_string(), cut: Cut::Never },
        Column { title: "Zone", cell: |c| c.zone.clone().unwrap_or_default(), cut: Cut::Never },
    ],
    noun: "calendars",
};

pub async fn run_calendar(
    client: &Client,
    command: CalendarCommand,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    match command {
        CalendarCommand::List => {
            let all = client.get("/calendars", None).await.map_err(advise)?;
            TABLE.print(&all, listing)
        }
        CalendarCommand::Show { calendar } => {
            let found = client.get(&calendar_path(&calendar)?, None).await.map_err(advise)?;
            print(&document(&found, listing, calendar_text)?)
        }
        CalendarCommand::Set { calendar, days } => {
            client.post(&calendar_path(&calendar)?, &serde_json::to_value(&days)?).await.map_err(advise)?;
            let count = days.dates.len() + days.recurring.len();
            print(&format!("Set calendar {calendar}: {count} days\n"))
        }
        CalendarCommand::Delete { calendar } => {
            client.delete(&calendar_path(&calendar)?).await.map_err(advise)?;
            print(&format!("Deleted calendar {calendar}\n"))
        }
    }
}

fn calendar_path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Calendar name not given");
    Ok(format!("/calendars/{}", segment(name)))
}

/// A line for each day.
fn calendar_text(calendar: &Calendar) -> String {
    let zone = calendar.zone.as_deref().unwrap_or("of the schedule");
    let mut text = format!("{}, zone {}\n", visible(&calendar.name), visible(zone));
    for (days, after) in [(&calendar.dates, ""), (&calendar.recurring, " every year")] {
        text.extend(days.iter().map(|day| format!("  {}{after}\n", visible(day))));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches, Subcommand};
    use disbatch_wire::calendars::CalendarDays;

    use super::*;
    use crate::output::Screen;

    /// The command that stands in these words.
    pub fn command(words: &[&str]) -> ScheduleCommand {
        let group = ScheduleCommand::augment_subcommands(Command::new("schedule").no_binary_name(true));
        let read = group.try_get_matches_from(words).unwrap();
        ScheduleCommand::from_arg_matches(&read).unwrap()
    }

    #[test]
    fn what_is_next_is_told() {
        let at = "2026-11-20T08:24:27";
        let next = |next, paused| super::next(&read(json!({ "next": next, "paused": paused })).unwrap());
        assert_eq!(next(Some(at), false), format!("The next task is made at {at} UTC.\n"));
        assert!(next(Some(at), true).starts_with("It is paused"));
        assert!(next(None, false).starts_with("It makes no more tasks"));
    }

    #[test]
    fn names_are_segments() {
        assert_eq!(path("my night/ly").unwrap(), "/schedules/my%20night%2Fly");
        assert!(path("").is_err());
    }

    #[test]
    fn a_calendar_is_its_days() {
        let calendar = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": null });
        let expected =
            "holidays, zone of the schedule\n  2026-12-24\n  12-25 every year\n  12-26 every year\n";
        let calendar: Calendar = read(calendar).unwrap();
        assert_eq!(calendar_text(&calendar), expected);
        let table = TABLE.render(&[calendar], Screen::default());
        assert!(table.contains("holidays | 1    | 2          |      | \n"), "{table}");
    }

    #[test]
    fn setting_days_leaves_no_others() {
        let days = CalendarDays { dates: vec!["2026-12-24".into()], ..CalendarDays::default() };
        let body = serde_json::to_value(days).unwrap();
        assert_eq!(body, json!({ "dates": ["2026-12-24"], "recurring": [], "zone": null }));
        assert_eq!(calendar_path("a/b").unwrap(), "/calendars/a%2Fb");
    }
}
