//! `disbatch schedule ..`

mod fields;
mod import;
mod show;
mod times;

use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::api::{Client, segment};
use crate::args::{ListingOptions, NewSchedule, ScheduleCommand, ScheduleUpdate};
use crate::command::life::advise;
use crate::output::{plain, print, shown_name};

/// Does what the command asks for.
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
    let made = client.post("/schedules", &Value::Object(body)).await.map_err(advise)?;
    let (name, id) = (plain(made.get("name")), plain(made.get("id")));
    print(&format!("Created schedule {}: {id}\n{}", shown_name(&name), next(&made)))
}

async fn update(client: &Client, change: ScheduleUpdate) -> anyhow::Result<()> {
    let mut body = fields::of(&change.settings.with_secure_params()?)?;
    // What is in a file is what it is called there, unless it is said here.
    body.extend(change.rename.map(|name| ("name".to_owned(), Value::from(name))));
    fields::unset(&mut body, &change.unset)?;
    anyhow::ensure!(!body.is_empty(), "nothing is to be changed: see disbatch schedule update --help");
    body.extend(change.rev.map(|rev| (".rev".to_owned(), Value::from(rev))));
    let changed = client.post(&path(&change.schedule)?, &Value::Object(body)).await.map_err(advise)?;
    let (name, rev) = (plain(changed.get("name")), plain(changed.get("rev")));
    print(&format!("Updated schedule {}, revision {rev}\n{}", shown_name(&name), next(&changed)))
}

async fn delete(client: &Client, schedule: &str) -> anyhow::Result<()> {
    client.delete(&path(schedule)?).await.map_err(advise)?;
    print(&format!("Deleted schedule {schedule}; its tasks are still there\n"))
}

async fn pause(client: &Client, schedule: &str, paused: bool) -> anyhow::Result<()> {
    let (act, done) = if paused { ("pause", "Paused") } else { ("resume", "Resumed") };
    let path = format!("{}/{act}", path(schedule)?);
    let answer = client.post(&path, &json!({})).await.map_err(advise)?;
    print(&format!("{done} schedule {schedule}\n{}", next(&answer)))
}

/// Prints the task alone, so that other commands can take it.
async fn run_now(client: &Client, schedule: &str) -> anyhow::Result<()> {
    let path = format!("{}/run", path(schedule)?);
    let answer = client.post(&path, &json!({})).await.map_err(advise)?;
    let task = answer.get("task").and_then(Value::as_str);
    print(&format!("{}\n", task.context("the DCI did not say which task it has created")?))
}

/// When the next task is made, if one is.
fn next(schedule: &Value) -> String {
    let next = plain(schedule.get("next"));
    match (next.is_empty(), schedule.get("paused") == Some(&Value::Bool(true))) {
        (_, true) => "It is paused, and makes no tasks by itself.\n".to_owned(),
        (true, false) => "It makes no more tasks by itself.\n".to_owned(),
        (false, false) => format!("The next task is made at {next} UTC.\n"),
    }
}

/// A body with what is not null.
fn given(fields: Vec<(&str, Option<Value>)>) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches, Subcommand};

    use super::*;

    /// The command that stands in these words.
    pub fn command(words: &[&str]) -> ScheduleCommand {
        let group = ScheduleCommand::augment_subcommands(Command::new("schedule").no_binary_name(true));
        let read = group.try_get_matches_from(words).unwrap();
        ScheduleCommand::from_arg_matches(&read).unwrap()
    }

    #[test]
    fn what_is_next_is_told() {
        let at = "2026-11-20T08:24:27";
        assert_eq!(
            next(&json!({ "next": at, "paused": false })),
            format!("The next task is made at {at} UTC.\n")
        );
        assert!(next(&json!({ "next": at, "paused": true })).starts_with("It is paused"));
        assert!(next(&json!({ "next": null, "paused": false })).starts_with("It makes no more tasks"));
    }

    #[test]
    fn names_are_segments() {
        assert_eq!(path("my night/ly").unwrap(), "/schedules/my%20night%2Fly");
        assert!(path("").is_err());
    }
}
