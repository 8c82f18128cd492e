//! `disbatch schedule list`, `show`, `runs`, `preview` and `backfill`

use std::process::ExitCode;

use disbatch_wire::schedules::{
    Backfill, Backfilled, CalendarUse, ClockChange, LastTime, MissingTime, NextTime, RunOfSchedule,
    RunsOfSchedule, Schedule, SchedulePreview,
};
use serde_json::{Value, json};

use super::{path, uses};
use crate::api::{given, query, read};
use crate::args::{BackfillOptions, PreviewOptions, RunsOptions, ScheduleFilter, seconds};
use crate::command::Session;
use crate::command::life::agreed;
use crate::output::{self, Column, Cut, Screen, Table, facts, known, plain, print, visible};

const SCHEDULES: Table<Schedule> = Table {
    columns: &[
        Column { title: "ID", cell: |schedule| schedule.id.clone(), cut: Cut::Late },
        Column { title: "Name", cell: |schedule| schedule.name.clone(), cut: Cut::Early },
        Column { title: "Queue", cell: queue, cut: Cut::Early },
        Column { title: "When", cell: cron, cut: Cut::Early },
        Column { title: "Zone", cell: |schedule| schedule.zone.clone(), cut: Cut::Never },
        Column { title: "Next (UTC)", cell: next, cut: Cut::Never },
        Column { title: "Last", cell: last, cut: Cut::Never },
    ],
    noun: "schedules",
};

/// Prints all of them, unless so many are asked for.
pub async fn schedules(session: &Session, filter: &ScheduleFilter) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    let mut all: Vec<Value> = Vec::new();
    loop {
        let last = all.last().map(|last| plain(last.get("name")));
        let page = client.get(&address(filter, listing.limit, last), None).await?;
        let page: Vec<Value> = serde_json::from_value(page)?;
        // One of a page that cannot be read is left out, so a short page need not be the last one. One that begins anew is the first again.
        let has_more = !page.is_empty() && page.last() != all.last();
        if has_more {
            all.extend(page);
        }
        if !has_more || listing.limit.is_some() {
            return SCHEDULES.print(&Value::from(all), listing);
        }
    }
}

fn address(filter: &ScheduleFilter, limit: Option<i64>, after: Option<String>) -> String {
    let paused = (filter.paused || filter.active).then_some(filter.paused);
    let pairs = [
        ("queue", filter.queue.clone()),
        ("tenant", filter.tenant.clone()),
        ("paused", paused.map(|paused| paused.to_string())),
        (".limit", limit.map(|limit| limit.to_string())),
        (".after", after),
    ];
    format!("/schedules{}", query(pairs))
}

fn queue(schedule: &Schedule) -> String {
    schedule.queue_name.as_ref().unwrap_or(&schedule.queue).clone()
}

fn next(schedule: &Schedule) -> String {
    if schedule.paused { "paused".to_owned() } else { known(&schedule.next) }
}

pub fn text(schedule: &Schedule) -> String {
    let time = |seconds: u64| if seconds == 0 { String::new() } else { seconds::words(seconds as f64) };
    let calendar = |one: &CalendarUse| format!("{} {}", known(&one.rule), one.name);
    let counts = &schedule.counts;
    let success = schedule.last_success.as_ref().and_then(|success| success.finish.clone());
    let options = Some(&schedule.options).filter(|options| !options.is_empty());
    facts([
        ("Schedule", schedule.name.clone()),
        ("Id", schedule.id.clone()),
        ("For", schedule.description.clone()),
        ("Queue", [known(&schedule.queue_name).as_str(), &schedule.queue].join(" ").trim_start().to_owned()),
        ("State", if schedule.paused { "paused" } else { "active" }.to_owned()),
        ("When", cron(schedule)),
        ("Zone", schedule.zone.clone()),
        ("Clock", format!("gap: {}, fold: {}", schedule.gap, schedule.fold)),
        ("Jitter", time(schedule.jitter)),
        ("Start", known(&schedule.start)),
        ("End", known(&schedule.end)),
        ("Calendars", schedule.calendars.iter().map(calendar).collect::<Vec<_>>().join(", ")),
        ("Overlap", schedule.overlap.clone()),
        ("Catch up", time(schedule.catch_up)),
        ("Next", known(&schedule.next)),
        ("Last", schedule.last.as_ref().map(told_last).unwrap_or_default()),
        ("Succeeded", success.unwrap_or_default()),
        ("Made", format!("{} tasks, {} skipped", counts.fired, counts.skipped)),
        ("Parameters", plain(Some(&schedule.params))),
        ("Options", options.map(|options| Value::from(options.clone()).to_string()).unwrap_or_default()),
        ("Owner", known(&schedule.owner)),
        ("Tenant", known(&schedule.tenant)),
        ("Revision", schedule.rev.to_string()),
        ("Changed", known(&schedule.changed)),
    ])
}

fn told_last(last: &LastTime) -> String {
    let parts = [
        ("", outcome(last)),
        ("for ", known(&last.time)),
        ("task ", known(&last.task)),
        ("", known(&last.why)),
    ];
    let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
    parts.map(|(before, text)| format!("{before}{text}")).collect::<Vec<_>>().join(", ")
}

const RUNS: Table<RunOfSchedule> = Table {
    columns: &[
        Column { title: "Task", cell: |run| known(&run.task), cut: Cut::Never },
        Column { title: "For (UTC)", cell: |run| known(&run.time), cut: Cut::Never },
        Column { title: "Status", cell: |run| known(&run.word), cut: Cut::Never },
        Column { title: "Started", cell: |run| known(&run.started), cut: Cut::Late },
        Column { title: "Ended", cell: |run| known(&run.ended), cut: Cut::Late },
        Column { title: "Node", cell: |run| known(&run.node), cut: Cut::Early },
    ],
    noun: "runs",
};

pub async fn runs(session: &Session, options: &RunsOptions) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    let pairs =
        [(".limit", listing.limit.map(|limit| limit.to_string())), (".before", options.before.clone())];
    let address = format!("{}/runs{}", path(&options.schedule)?, query(pairs));
    let RunsOfSchedule { runs, next } = serde_json::from_value(client.get(&address, None).await?)?;
    RUNS.print(&serde_json::to_value(runs)?, listing)?;
    if let Some(next) = next {
        output::say(&format!("there are earlier ones: --before {next}"));
    }
    Ok(())
}

fn cron(schedule: &Schedule) -> String {
    if schedule.cron.is_empty() { "manual".to_owned() } else { schedule.cron.join("; ") }
}

fn last(schedule: &Schedule) -> String {
    schedule.last.as_ref().map(outcome).unwrap_or_default()
}

fn outcome(last: &LastTime) -> String {
    if last.outcome.is_empty() { known(&last.task) } else { last.outcome.clone() }
}

const TIMES: Table<MissingTime> = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |time| known(&time.at), cut: Cut::Never },
        Column { title: "There", cell: |time| known(&time.local), cut: Cut::Never },
        Column { title: "Offset", cell: |time| known(&time.offset), cut: Cut::Never },
    ],
    noun: "times",
};

pub async fn preview(session: &Session, options: &PreviewOptions) -> anyhow::Result<()> {
    let client = &session.client;
    let answer = match &options.schedule {
        Some(schedule) => {
            let pairs = [(".limit", Some(options.next.to_string())), (".after", options.after.clone())];
            client.get(&format!("{}/preview{}", path(schedule)?, query(pairs)), None).await
        }
        None => {
            let body = given([
                ("cron", Some(json!(options.cron))),
                ("zone", options.zone.clone().map(Value::from)),
                ("calendars", uses(&options.calendars)),
                (".limit", Some(options.next.into())),
                (".after", options.after.clone().map(Value::from)),
            ]);
            client.post("/schedules/preview", &body).await
        }
    };
    session.print(&answer?, |answer| preview_text(answer, Screen::of_stdout()))
}

fn preview_text(SchedulePreview { zone, times, changes }: &SchedulePreview, screen: Screen) -> String {
    let time = |NextTime { at, local, offset, .. }| MissingTime { at, local, offset };
    let mut text = TIMES.render(&times.iter().cloned().map(time).collect::<Vec<_>>(), screen);
    for ClockChange { at, before, after } in changes {
        let [at, zone, before, after] = [&known(at), zone, before, after].map(|text| visible(text));
        text.push_str(&format!("At {at} UTC the offset of {zone} goes from {before} to {after}.\n"));
    }
    text
}

pub async fn backfill(session: &Session, options: &BackfillOptions) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    let path = format!("{}/backfill", path(&options.schedule)?);
    if options.preview || !options.yes {
        let preview = Backfill { preview: Some(true.into()), ..options.times.clone() };
        let answer = client.post(&path, &preview).await?;
        if options.preview {
            let text = |missing: &Backfilled| {
                TIMES.render(missing.times.as_deref().unwrap_or_default(), Screen::of_stdout())
            };
            session.print(&answer, text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let Backfilled { count, .. } = read(answer)?;
        if count == 0 {
            print("0 tasks: nothing is missing\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        if !agreed(&format!("make {count} tasks of schedule {}", options.schedule))? {
            eprintln!("Nothing was done.");
            return Ok(ExitCode::from(crate::status::FAILED));
        }
    }
    let answer = client.post(&path, &options.times).await?;
    session.print(&answer, |answer| told(answer, &options.schedule))?;
    Ok(ExitCode::SUCCESS)
}

fn told(made: &Backfilled, schedule: &str) -> String {
    let lines: String = made.tasks.iter().flatten().map(|id| format!("{id}\n")).collect();
    format!("Created {} tasks of schedule {schedule}\n{lines}", made.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ScheduleCommand;
    use crate::command::schedules::tests::command;

    #[test]
    fn schedules_are_lines() {
        let schedule = json!({
            "id": "6b", "name": "nightly", "queue": "7c", "queue_name": "mail", "cron": ["@daily"], "zone": "UTC",
            "next": "2026-11-20T00:00:00", "paused": false, "last": { "for": null, "task": null, "at": null, "outcome": "succeeded" },
        });
        let schedule: Schedule = read(schedule).unwrap();
        let text = SCHEDULES.render(std::slice::from_ref(&schedule), Screen::default());
        let line = "6b | nightly | mail  | @daily | UTC  | 2026-11-20T00:00:00 | succeeded | \n";
        assert!(text.contains(line), "{text}");
        let paused = Schedule { paused: true, queue_name: None, ..schedule };
        assert_eq!((next(&paused), queue(&paused)), ("paused".to_owned(), "7c".to_owned()));
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address() {
        assert_eq!(address(&ScheduleFilter::default(), None, None), "/schedules");
        let filter = ScheduleFilter { queue: Some("a b".into()), active: true, ..ScheduleFilter::default() };
        assert_eq!(address(&filter, Some(5), None), "/schedules?queue=a%20b&paused=false&.limit=5");
    }

    #[test]
    fn a_schedule_is_told_in_lines() {
        let schedule = json!({
            "id": "6b", "name": "night\nly", "queue": "7c", "queue_name": "mail", "cron": ["0 3 * * *"],
            "zone": "Europe/Berlin", "gap": "after", "fold": "first", "jitter": 300, "catch_up": 0, "overlap": "skip",
            "calendars": [{ "name": "holidays", "use": "exclude" }], "paused": false, "params": { "a": 1 },
            "options": {}, "next": "2026-11-20T02:00:00", "rev": 3, "counts": { "fired": 4, "skipped": 1 },
            "last": { "outcome": "failed", "for": "2026-11-19T02:00:00", "task": "8d", "at": "2026-11-19T02:00:00" },
        });
        let expected = "Schedule    night\u{fffd}ly\nId          6b\nQueue       mail 7c\nState       active\n\
                        When        0 3 * * *\nZone        Europe/Berlin\nClock       gap: after, fold: first\n\
                        Jitter      5 min\nCalendars   exclude holidays\nOverlap     skip\n\
                        Next        2026-11-20T02:00:00\nLast        failed, for 2026-11-19T02:00:00, task 8d\n\
                        Made        4 tasks, 1 skipped\nParameters  {\"a\":1}\nRevision    3\n";
        assert_eq!(text(&read(schedule).unwrap()), expected);
    }

    #[test]
    fn runs_are_lines() {
        let run = json!({
            "task": "8d", "for": "2026-11-20T02:00:00Z", "word": "succeeded", "started": "2026-11-20T02:00:01",
            "ended": null, "node": "vm", "asked_for": false,
        });
        let text = RUNS.render(&[read(run).unwrap()], Screen::default());
        assert!(
            text.contains("8d") && text.contains("2026-11-20T02:00:00Z") && text.contains("succeeded"),
            "{text}"
        );
    }

    #[test]
    fn times_and_outcomes_are_lines() {
        let crons = ["0 3 * * *".to_owned(), "@monthly".to_owned()];
        assert_eq!(cron(&Schedule { cron: crons.into(), ..Schedule::default() }), "0 3 * * *; @monthly");
        assert_eq!(cron(&Schedule::default()), "manual");
        let last_of = |outcome: &str| {
            let time = LastTime {
                time: None,
                task: Some("6b".to_owned()),
                at: None,
                outcome: outcome.to_owned(),
                why: None,
            };
            last(&Schedule { last: Some(time), ..Schedule::default() })
        };
        assert_eq!((last_of("succeeded").as_str(), last_of("").as_str()), ("succeeded", "6b"));
        assert_eq!(last(&Schedule::default()), "");
    }

    #[test]
    fn times_and_changes_of_the_clock_are_told() {
        let answer = json!({
            "zone": "Europe/Berlin",
            "times": [{
                "at": "2027-03-27T01:30:00", "local": "2027-03-27T02:30:00", "offset": "+01:00", "moved": false, "twice": false,
            }],
            "changes": [{ "at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00" }],
        });
        let told = preview_text(&read(answer).unwrap(), Screen::default());
        assert!(told.contains("2027-03-27T01:30:00 | 2027-03-27T02:30:00 | +01:00 | \n"), "{told}");
        let end = "1 total times.\nAt 2027-03-28T01:00:00 UTC the offset of Europe/Berlin goes from +01:00 to +02:00.\n";
        assert!(told.ends_with(end), "{told}");
        assert!(preview_text(&SchedulePreview::default(), Screen::default()).ends_with("0 total times.\n"));
    }

    #[test]
    fn the_stretch_is_sent_as_it_was_given() {
        let body = |words: &[&str]| {
            let words = [&["backfill", "nightly", "--from", "2026-11-01"], words].concat();
            let ScheduleCommand::Backfill(options) = command(&words) else { panic!() };
            serde_json::to_value(&options.times).unwrap()
        };
        assert_eq!(body(&[]), json!({ "from": "2026-11-01" }));
        let expected = json!({ "from": "2026-11-01", "to": 1_795_163_067, "limit": 10 });
        assert_eq!(body(&["--to", "1795163067", "--most", "10"]), expected);
    }

    #[test]
    fn new_tasks_are_lines() {
        let answer = json!({ "count": 2, "tasks": ["6b", "7c"] });
        assert_eq!(told(&read(answer).unwrap(), "nightly"), "Created 2 tasks of schedule nightly\n6b\n7c\n");
    }
}
