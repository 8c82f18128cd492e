//! `disbatch schedule ..` and `disbatch calendar ..`

mod import;
mod show;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use disbatch_values::json::to_strict;
use disbatch_wire::calendars::Calendar;
use disbatch_wire::liberal::Set;
use disbatch_wire::options::field_names;
use disbatch_wire::schedules::{Schedule, ScheduleChange, ScheduleRun};
use serde_json::{Map, Value, json};

use crate::api::{self, Client, given, read, segment};
use crate::args::{
    CalendarCommand, CalendarRules, NewSchedule, ScheduleCommand, ScheduleSettings, ScheduleUpdate,
};
use crate::command::Session;
use crate::input;
use crate::output::{Column, Cut, Table, known, print, shown_name, visible};

pub async fn run(session: &Session, command: ScheduleCommand) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        ScheduleCommand::List(filter) => show::schedules(session, &filter).await?,
        ScheduleCommand::Show(one) => session.print_document(&path(&one.schedule)?, show::text).await?,
        ScheduleCommand::Create(new) => create(client, *new).await?,
        ScheduleCommand::Update(change) => update(client, *change).await?,
        ScheduleCommand::Delete(one) => delete(client, &one.schedule).await?,
        ScheduleCommand::Pause(one) => pause(client, &one.schedule, true).await?,
        ScheduleCommand::Resume(one) => pause(client, &one.schedule, false).await?,
        ScheduleCommand::Runs(options) => show::runs(session, &options).await?,
        ScheduleCommand::Run(one) => run_now(client, &one.schedule).await?,
        ScheduleCommand::Backfill(options) => return show::backfill(session, &options).await,
        ScheduleCommand::Preview(options) => show::preview(session, &options).await?,
        ScheduleCommand::Import(options) => import::run(client, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn path(schedule: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!schedule.is_empty(), "Schedule name not given");
    Ok(format!("/schedules/{}", segment(schedule)))
}

async fn create(client: &Client, new: NewSchedule) -> anyhow::Result<()> {
    let settings = new.settings.with_secure_params()?;
    let mut body = fields_of(&settings, file_of(&settings)?)?;
    body.insert("name".to_owned(), new.name.into());
    let made: Schedule = read(client.post("/schedules", &body).await?)?;
    print(&format!("Created schedule {}: {}\n{}", shown_name(&made.name), made.id, next(&made)))
}

async fn update(client: &Client, change: ScheduleUpdate) -> anyhow::Result<()> {
    let settings = change.settings.with_secure_params()?;
    let mut file = file_of(&settings)?;
    if !settings.param.is_empty() && !file.contains_key("params") {
        // The API replaces all parameters: those that are not named stay as they are in this revision.
        let now: Schedule = read(client.get(&path(&change.schedule)?, None).await?)?;
        file.extend([("params".to_owned(), now.params), (".rev".to_owned(), now.rev.into())]);
    }
    let mut body = fields_of(&settings, file)?;
    // What is in a file is what it is called there, unless it is said here.
    body.extend(change.rename.map(|name| ("name".to_owned(), Value::from(name))));
    unset(&mut body, &change.unset)?;
    anyhow::ensure!(!body.is_empty(), "nothing is to be changed: see disbatch schedule update --help");
    body.extend(change.rev.map(|rev| (".rev".to_owned(), Value::from(rev))));
    let changed: Schedule = read(client.post(&path(&change.schedule)?, &body).await?)?;
    let (name, rev) = (shown_name(&changed.name), changed.rev);
    print(&format!("Updated schedule {name}, revision {rev}\n{}", next(&changed)))
}

async fn delete(client: &Client, schedule: &str) -> anyhow::Result<()> {
    client.delete(&path(schedule)?).await?;
    print(&format!("Deleted schedule {schedule}; its tasks are still there\n"))
}

async fn pause(client: &Client, schedule: &str, paused: bool) -> anyhow::Result<()> {
    let (act, done) = if paused { ("pause", "Paused") } else { ("resume", "Resumed") };
    let path = format!("{}/{act}", path(schedule)?);
    let changed = read(client.post(&path, &json!({})).await?)?;
    print(&format!("{done} schedule {schedule}\n{}", next(&changed)))
}

/// Prints the task alone, so that other commands can take it.
async fn run_now(client: &Client, schedule: &str) -> anyhow::Result<()> {
    let path = format!("{}/run", path(schedule)?);
    let answer = client.post(&path, &json!({})).await?;
    let ScheduleRun { task, .. } =
        serde_json::from_value(answer).context("the DCI did not say which task it has created")?;
    print(&format!("{task}\n"))
}

fn next(schedule: &Schedule) -> String {
    match &schedule.next {
        _ if schedule.paused => "It is paused, and makes no tasks by itself.\n".to_owned(),
        None => "It makes no more tasks by itself.\n".to_owned(),
        Some(next) => format!("The next task is made at {next} UTC.\n"),
    }
}

fn file_of(settings: &ScheduleSettings) -> anyhow::Result<Map<String, Value>> {
    Ok(settings.file.as_deref().map(read_file).transpose()?.unwrap_or_default())
}

/// The fields of a schedule that are to be sent: those of `body`, and those of the command line in place of them.
fn fields_of(
    settings: &ScheduleSettings,
    mut body: Map<String, Value>,
) -> anyhow::Result<Map<String, Value>> {
    let before = body.get("params").and_then(Value::as_object);
    let set = |value: Option<Value>| value.map(|value| Set(Some(value)));
    let fields = ScheduleChange {
        cron: set((!settings.cron.is_empty()).then(|| json!(settings.cron))),
        calendars: set(uses(&settings.calendars)),
        params: set(params(settings, before)?),
        ..settings.fields.clone()
    };
    body.extend(api::fields(&fields)?);
    let secure = settings.secure_params.as_ref().map(|params| params.value().clone());
    body.extend(given([(".secure_params", secure)]));
    let options = api::fields(&settings.options)?;
    if !options.is_empty() {
        options_of(&mut body)?.extend(options);
    }
    Ok(body)
}

fn options_of(body: &mut Map<String, Value>) -> anyhow::Result<&mut Map<String, Value>> {
    let options = body.entry("options").or_insert_with(|| json!({}));
    options.as_object_mut().context("options of the file must be an object")
}

/// Sets fields to null, which takes them back to the default. A dot leads into the options.
fn unset(body: &mut Map<String, Value>, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let (object, key) = match name.strip_prefix("options.") {
            None => (&mut *body, name.as_str()),
            Some(key) => (options_of(body)?, key),
        };
        ensure!(object.insert(key.to_owned(), Value::Null).is_none(), "'{name}' is set and unset");
    }
    Ok(())
}

fn uses(CalendarRules { exclude, only }: &CalendarRules) -> Option<Value> {
    let of = |names: &[String], how: &str| -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name, "use": how })).collect()
    };
    let all = [of(exclude, "exclude"), of(only, "only")].concat();
    (!all.is_empty()).then(|| Value::from(all))
}

/// All of `--params`, or those that there were with each `--param` in its place.
fn params(settings: &ScheduleSettings, before: Option<&Map<String, Value>>) -> anyhow::Result<Option<Value>> {
    if let Some(text) = &settings.params {
        let value: Value = serde_json::from_str(text)
            .with_context(|| format!("the parameters are no JSON object: '{text}'"))?;
        ensure!(value.is_object(), "the parameters are no JSON object: '{text}'");
        return Ok(Some(value));
    }
    if settings.param.is_empty() {
        return Ok(None);
    }
    let mut params = before.cloned().unwrap_or_default();
    for word in &settings.param {
        let (name, text) = word
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .with_context(|| format!("'{word}' is no parameter: write name=text"))?;
        params.insert(name.to_owned(), text.into());
    }
    Ok(Some(Value::Object(params)))
}

/// An object in a file, without what is only told of a schedule that there is.
fn read_file(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    let text = input::contents(path).with_context(|| format!("cannot read --file {name}"))?;
    let value: Value = serde_json::from_str(&to_strict(&text))
        .with_context(|| format!("--file {name} must have a JSON object"))?;
    let Value::Object(mut object) = value else { bail!("--file {name} must have a JSON object") };
    let (told, set) = (field_names::<Schedule>(), field_names::<ScheduleChange>());
    let is_told = |key: &str| told.contains(&key) && !set.contains(&key);
    // What is not set is as good as not there.
    object.retain(|key, value| !is_told(key) && !value.is_null());
    Ok(object)
}

const TABLE: Table<Calendar> = Table {
    columns: &[
        Column { title: "Name", cell: |c| c.name.clone(), cut: Cut::Early },
        Column { title: "Days", cell: |c| c.dates.len().to_string(), cut: Cut::Never },
        Column { title: "Every year", cell: |c| c.recurring.len().to_string(), cut: Cut::Never },
        Column { title: "Zone", cell: |c| known(&c.zone), cut: Cut::Never },
    ],
    noun: "calendars",
};

pub async fn run_calendar(session: &Session, command: CalendarCommand) -> anyhow::Result<()> {
    let client = &session.client;
    match command {
        CalendarCommand::List => session.print_list("/calendars", &TABLE).await,
        CalendarCommand::Show { calendar } => {
            session.print_document(&calendar_path(&calendar)?, calendar_text).await
        }
        CalendarCommand::Set { calendar, days } => {
            client.post(&calendar_path(&calendar)?, &days).await?;
            let count = days.dates.len() + days.recurring.len();
            print(&format!("Set calendar {calendar}: {count} days\n"))
        }
        CalendarCommand::Delete { calendar } => {
            client.delete(&calendar_path(&calendar)?).await?;
            print(&format!("Deleted calendar {calendar}\n"))
        }
    }
}

fn calendar_path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Calendar name not given");
    Ok(format!("/calendars/{}", segment(name)))
}

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

    fn settings(words: &[&str]) -> ScheduleSettings {
        let ScheduleCommand::Create(new) = command(&[&["create", "a"], words].concat()) else { panic!() };
        new.settings
    }

    fn sent(settings: &ScheduleSettings) -> anyhow::Result<Map<String, Value>> {
        fields_of(settings, file_of(settings)?)
    }

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(sent(&settings(&[])).unwrap().is_empty());
        let words = ["--queue", "mail", "--cron", "0 3 * * *", "--param", "to=a=b", "--jitter", "5m"];
        let times = ["--start", "2026-12-01", "--end", "1795163067", "--exclude", "holidays"];
        let more = ["--only", "workdays", "--timeout", "60", "--lock", "db/shared", "--paused"];
        let some = settings(&[&words[..], &times, &more].concat());
        let expected = json!({
            "queue": "mail", "cron": ["0 3 * * *"], "params": { "to": "a=b" }, "jitter": 300,
            "start": "2026-12-01", "end": 1_795_163_067, "paused": true,
            "calendars": [{ "name": "holidays", "use": "exclude" }, { "name": "workdays", "use": "only" }],
            "options": { "timeout": 60, "locks": ["db/shared"] },
        });
        assert_eq!(Value::Object(sent(&some).unwrap()), expected);
    }

    #[test]
    fn a_schedule_that_was_shown_can_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule.json");
        let shown = json!({
            "id": "6b0003bb686c8275d8014444", "name": "nightly", "queue": "6b0003bb686c8275d70dc2f1",
            "queue_name": "mail", "cron": ["@daily"], "zone": "UTC", "end": null, "rev": 3, "next": "2026-11-20T08:24:27",
            "options": { "timeout": 5 }, "last": null, "counts": { "fired": 1, "skipped": 0 },
        });
        std::fs::write(&path, shown.to_string()).unwrap();
        let words = ["--file", path.to_str().unwrap(), "--priority", "7", "--zone", "Europe/Berlin"];
        let again = settings(&words);
        let expected = json!({
            "name": "nightly", "queue": "6b0003bb686c8275d70dc2f1", "cron": ["@daily"], "zone": "Europe/Berlin",
            "options": { "timeout": 5, "priority": 7 },
        });
        assert_eq!(Value::Object(sent(&again).unwrap()), expected);
        std::fs::write(&path, "[1]").unwrap();
        assert!(sent(&again).unwrap_err().to_string().contains("must have a JSON object"));
    }

    #[test]
    fn what_is_unset_is_null_and_not_set() {
        let mut body = sent(&settings(&["--timeout", "5"])).unwrap();
        unset(&mut body, &["end".into(), "options.group".into()]).unwrap();
        assert_eq!(
            Value::Object(body.clone()),
            json!({ "end": null, "options": { "timeout": 5, "group": null } })
        );
        let error = unset(&mut body, &["options.timeout".into()]).unwrap_err().to_string();
        assert_eq!(error, "'options.timeout' is set and unset");
    }

    #[test]
    fn parameters_are_an_object_or_words() {
        let of = |json: Option<&str>, words: &[&str]| {
            let settings = ScheduleSettings {
                params: json.map(str::to_owned),
                param: words.iter().map(|word| (*word).to_owned()).collect(),
                ..ScheduleSettings::default()
            };
            params(&settings, json!({ "m": 2, "n": 2 }).as_object())
        };
        assert_eq!(of(Some("{\"n\":1}"), &[]).unwrap(), Some(json!({ "n": 1 })));
        assert_eq!(of(None, &[]).unwrap(), None);
        assert_eq!(of(None, &["n=1"]).unwrap(), Some(json!({ "m": 2, "n": "1" })));
        assert!(of(Some("[1]"), &[]).is_err() && of(Some("{"), &[]).is_err());
        assert!(of(None, &["x"]).is_err() && of(None, &["=x"]).is_err());
    }
}
