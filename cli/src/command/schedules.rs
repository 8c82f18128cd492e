//! `disbatch schedule ..`

mod backfill;
mod fields;
mod import;
mod list;
mod preview;
mod runs;
mod show;

use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::api::{Client, segment};
use crate::args::{ListingOptions, NewSchedule, ScheduleChange, ScheduleCommand};
use crate::command::life::advise;
use crate::output::{plain, print, shown_name};

use preview::times;

/// Does what the command asks for.
pub async fn run(
    client: &Client,
    command: ScheduleCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        ScheduleCommand::List(filter) => list::run(client, &filter, listing).await?,
        ScheduleCommand::Show(which) => show::run(client, &which.schedule, listing).await?,
        ScheduleCommand::Create(new) => create(client, *new).await?,
        ScheduleCommand::Update(change) => update(client, *change).await?,
        ScheduleCommand::Delete(which) => delete(client, &which.schedule).await?,
        ScheduleCommand::Pause(which) => pause(client, &which.schedule, true).await?,
        ScheduleCommand::Resume(which) => pause(client, &which.schedule, false).await?,
        ScheduleCommand::Runs(options) => runs::run(client, &options, listing).await?,
        ScheduleCommand::Run(which) => run_now(client, &which.schedule).await?,
        ScheduleCommand::Backfill(options) => return backfill::run(client, &options, listing).await,
        ScheduleCommand::Preview(options) => preview::run(client, &options, listing).await?,
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

async fn update(client: &Client, change: ScheduleChange) -> anyhow::Result<()> {
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

/// A body with what is not null.
fn given(fields: Vec<(&str, Option<Value>)>) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn times_and_outcomes_are_lines() {
        assert_eq!(cron(&json!({ "cron": ["0 3 * * *", "@monthly"] })), "0 3 * * *; @monthly");
        assert_eq!(cron(&json!({ "cron": "@daily" })), "@daily");
        assert_eq!(last(&json!({ "last": { "outcome": "succeeded", "task": "6b" } })), "succeeded");
        assert_eq!(
            (last(&json!({ "last": { "task": "6b" } })), last(&json!({}))),
            ("6b".into(), String::new())
        );
    }

    #[test]
    fn names_are_segments() {
        assert_eq!(path("my night/ly").unwrap(), "/schedules/my%20night%2Fly");
        assert!(path("").is_err());
    }
}
