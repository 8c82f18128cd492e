//! Schedules and calendars.

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json as value};

use crate::ID;
use crate::server::{Reply, Server, json};

/// A schedule as a DCI answers it.
fn nightly() -> Value {
    value!({
        "id": ID, "name": "nightly", "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "cron": ["0 3 * * *"],
        "zone": "Europe/Berlin", "gap": "after", "fold": "first", "jitter": 0, "calendars": [], "overlap": "skip",
        "catch_up": 0, "params": { "a": 1 }, "options": {}, "paused": false, "next": "2026-11-21T02:00:00",
        "last": { "outcome": "succeeded", "task": ID }, "counts": { "fired": 1, "skipped": 0 }, "rev": 3,
    })
}

/// A schedule with several settings.
const CREATE: [&str; 15] = [
    "schedule",
    "create",
    "nightly",
    "--queue",
    "mail",
    "--cron",
    "0 3 * * *",
    "--zone",
    "Europe/Berlin",
    "--param",
    "to=all",
    "--timeout",
    "1h",
    "--exclude",
    "holidays",
];

#[tokio::test]
async fn schedules_are_made_and_changed_as_the_options_say() -> anyhow::Result<()> {
    let one = "POST /schedules/my%20night";
    let cases: [(&[&str], &str, Value, &str); 7] = [
        (
            &CREATE,
            "POST /schedules",
            value!({
                "name": "nightly", "queue": "mail", "cron": ["0 3 * * *"], "zone": "Europe/Berlin",
                "params": { "to": "all" }, "options": { "timeout": 3600 },
                "calendars": [{ "name": "holidays", "use": "exclude" }],
            }),
            "Created schedule nightly: 6b0003bb686c8275d8013333\nThe next task is made at 2026-11-21T02:00:00 UTC.\n",
        ),
        (
            &["schedule", "update", "my night", "--catch-up", "6h", "--unset", "end", "--rev", "2"],
            one,
            value!({ "catch_up": 21_600, "end": null, ".rev": 2 }),
            "Updated schedule nightly, revision 3\n",
        ),
        (&["schedule", "update", "my night", "--rename", "x"], one, value!({ "name": "x" }), "Updated"),
        (
            &["schedule", "pause", "my night"],
            "POST /schedules/my%20night/pause",
            value!({}),
            "Paused schedule my night",
        ),
        (&["schedule", "resume", "my night"], "POST /schedules/my%20night/resume", value!({}), "Resumed"),
        (
            &["calendar", "set", "a/b", "--dates", "2026-12-24,2026-12-31", "--recurring", "12-25"],
            "POST /calendars/a%2Fb",
            value!({ "dates": ["2026-12-24", "2026-12-31"], "recurring": ["12-25"], "zone": null }),
            "Set calendar a/b: 3 days\n",
        ),
        (
            &["schedule", "backfill", "my night", "--from", "2026-11-01", "--most", "5", "--yes"],
            "POST /schedules/my%20night/backfill",
            value!({ "from": "2026-11-01", "limit": 5 }),
            "Created",
        ),
    ];
    for (arguments, line, body, text) in cases {
        let server = Server::start(vec![(line, vec![json(nightly())])]).await?;
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains(text), "{arguments:?} {outcome:?} {}", outcome.text());
        ensure!(server.body(line)? == body, "{arguments:?} {:?}", server.asked());
    }
    Ok(())
}

#[tokio::test]
async fn a_parameter_that_is_changed_leaves_the_others() -> anyhow::Result<()> {
    let one = "/schedules/nightly";
    for (arguments, body) in [
        (&["--param", "b=2"][..], value!({ "params": { "a": 1, "b": "2" }, ".rev": 3 })),
        (&["--param", "a=2", "--rev", "2"], value!({ "params": { "a": "2" }, ".rev": 2 })),
        (&["--params", "{\"b\":2}"], value!({ "params": { "b": 2 } })),
    ] {
        let post = format!("POST {one}");
        let server = Server::start(vec![
            (&format!("GET {one}"), vec![json(nightly())]),
            (&post, vec![json(nightly())]),
        ])
        .await?;
        server.expect(&[&["schedule", "update", "nightly"], arguments].concat(), 0).await?;
        ensure!(server.body(&post)? == body, "{arguments:?} {:?}", server.asked());
    }
    Ok(())
}

#[tokio::test]
async fn schedules_are_shown_deleted_and_run() -> anyhow::Result<()> {
    let task = value!({ "id": ID, "task": "6b0003bb686c8275d8013334" });
    let preview = value!({
        "zone": "UTC", "changes": [], "times": [{
            "at": "2026-11-21T00:00:00", "local": "2026-11-21T00:00:00", "offset": "+00:00", "moved": false, "twice": false,
        }],
    });
    let server = Server::start(vec![
        ("GET /schedules?queue=mail&paused=true", vec![json(value!([nightly()]))]),
        (
            "GET /schedules?queue=mail&paused=true&.after=nightly",
            vec![json(value!([{ "id": ID, "name": "second" }]))],
        ),
        ("GET /schedules?queue=mail&paused=true&.after=second", vec![json(value!([]))]),
        ("GET /schedules?.limit=1", vec![json(value!([nightly()]))]),
        ("GET /schedules/nightly", vec![json(nightly())]),
        ("DELETE /schedules/nightly", vec![json(value!({ "deleted": true }))]),
        ("POST /schedules/nightly/run", vec![json(task)]),
        ("GET /schedules/nightly/preview?.limit=20&.after=2027-03-25", vec![json(preview.clone())]),
        ("POST /schedules/preview", vec![json(preview)]),
        (
            "GET /calendars",
            vec![json(value!([{ "name": "holidays", "dates": ["2026-12-24"], "recurring": [] }]))],
        ),
        ("DELETE /calendars/holidays", vec![json(value!({ "deleted": true }))]),
    ])
    .await?;
    for (arguments, text) in [
        (
            &["schedule", "list", "--queue", "mail", "--paused"][..],
            "| nightly | mail  | 0 3 * * * | Europe/Berlin |",
        ),
        (&["schedule", "list", "--queue", "mail", "--paused"], "2 total schedules.\n"),
        (&["schedule", "list", "--limit", "1"], "1 total schedules.\n"),
        (&["schedule", "show", "nightly"], "Zone        Europe/Berlin\n"),
        (&["schedule", "show", "nightly", "--format", "json"], "\"rev\":3"),
        (&["schedule", "delete", "nightly"], "Deleted schedule nightly; its tasks are still there\n"),
        (&["schedule", "run", "nightly"], "6b0003bb686c8275d8013334\n"),
        (
            &["schedule", "preview", "nightly", "--after", "2027-03-25"],
            "2026-11-21T00:00:00 | 2026-11-21T00:00:00 | +00:00",
        ),
        (&["schedule", "preview", "--cron", "@daily", "--next", "1"], "1 total times."),
        (&["calendar", "list"], "holidays"),
        (&["calendar", "delete", "holidays"], "Deleted calendar holidays\n"),
    ] {
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains(text), "{arguments:?} {outcome:?} {}", outcome.text());
    }
    assert_eq!(server.body("POST /schedules/preview")?, value!({ "cron": ["@daily"], ".limit": 1 }));
    Ok(())
}

#[tokio::test]
async fn nothing_is_made_up_for_before_somebody_agrees() -> anyhow::Result<()> {
    let times =
        value!({ "count": 2, "times": [{ "at": "2026-11-01T03:00:00" }, { "at": "2026-11-02T03:00:00" }] });
    let line = "POST /schedules/nightly/backfill";
    let server = Server::start(vec![(line, vec![json(times)])]).await?;
    let backfill = ["schedule", "backfill", "nightly", "--from", "2026-11-01"];
    let shown = server.expect(&[&backfill[..], &["--preview"]].concat(), 0).await?;
    ensure!(shown.text().ends_with("2 total times.\n"), "{}", shown.text());
    // Nobody sits there who could be asked.
    let asked = server.expect(&backfill, 255).await?;
    ensure!(asked.stderr.contains("make 2 tasks of schedule nightly: add --yes"), "{asked:?}");
    ensure!(server.asked().iter().all(|asked| asked.body[".preview"] == true), "{:?}", server.asked());
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_schedule_is_told() -> anyhow::Result<()> {
    let refused =
        Reply::Json(409, value!({ "error": "the schedule was changed meanwhile: its revision is 4" }));
    let server = Server::start(vec![("POST /schedules/nightly", vec![refused])]).await?;
    let stale = server.expect(&["schedule", "update", "nightly", "--zone", "UTC", "--rev", "3"], 255).await?;
    ensure!(stale.stderr == "the schedule was changed meanwhile: its revision is 4\n", "{stale:?}");
    let nothing = server.expect(&["schedule", "update", "nightly"], 255).await?;
    ensure!(nothing.stderr.contains("nothing is to be changed"), "{nothing:?}");
    for wrong in [
        &["schedule"][..],
        &["schedule", "create", "x", "--jitter", "soon"],
        &["schedule", "list", "--bogus"],
        &["--bogus", "schedule", "delete", "nightly"],
        &["calendar", "set"],
    ] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == 1, "{:?}", server.lines());
    Ok(())
}

/// A file with two jobs of another scheduler, of which the second has what is secret.
fn jobs_in(folder: &Path) -> anyhow::Result<String> {
    let file = folder.join("jobs.json");
    let jobs = value!([
        { "_id": "a", "job": { "name": "a", "worker": "csv", "cron": "@daily" } },
        { "_id": "b", "job": { "name": "b", "worker": "csv", "cron": "@daily", "secureParameters": "x" } },
    ]);
    std::fs::write(&file, jobs.to_string())?;
    Ok(file.to_string_lossy().into_owned())
}

/// The queues that their worker has.
fn tables() -> (&'static str, Vec<Reply>) {
    let queues = value!([{ "id": "q1", "name": "tables", "plugin": "csv", "tenant": null }]);
    ("GET /queues?.details=true", vec![json(queues)])
}

fn made(id: &str) -> Reply {
    json(value!({ "id": id, "name": "x" }))
}

#[tokio::test]
async fn jobs_of_another_scheduler_become_schedules_all_or_none() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = jobs_in(folder.path())?;
    let import = ["schedule", "import", file.as_str()];
    let server = Server::start(vec![
        tables(),
        ("POST /schedules", vec![made("1"), made("2")]),
        ("POST /schedules/1/resume", vec![made("1")]),
    ])
    .await?;
    let done = server.expect(&import, 0).await?;
    let text = done.text();
    ensure!(text.starts_with("Created: a, b\nPaused until they have") && text.ends_with(": b\n"), "{text}");
    let bodies: Vec<Value> = server
        .asked()
        .iter()
        .filter(|asked| asked.line == "POST /schedules")
        .map(|asked| asked.body.clone())
        .collect();
    ensure!(bodies.len() == 2 && bodies.iter().all(|body| body["paused"] == true), "{bodies:?}");

    let refused = Reply::Json(400, value!({ "error": "cron: no" }));
    let server = Server::start(vec![
        tables(),
        ("POST /schedules", vec![made("1"), refused]),
        ("DELETE /schedules/1", vec![json(value!({ "deleted": true }))]),
    ])
    .await?;
    let told = server.expect(&import, 255).await?;
    ensure!(
        told.stderr.contains("nothing is made, because of job b") && told.stderr.contains("cron: no"),
        "{told:?}"
    );
    ensure!(server.lines().last().is_some_and(|line| line == "DELETE /schedules/1"), "{:?}", server.lines());
    Ok(())
}

#[tokio::test]
async fn an_import_that_breaks_off_says_what_is_still_paused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = jobs_in(folder.path())?;
    let import = ["schedule", "import", file.as_str()];
    let taken = Reply::Json(409, value!({ "error": "another schedule has the name" }));
    let away = Reply::Json(503, value!({ "error": "the database is away" }));
    let server = Server::start(vec![
        tables(),
        ("POST /schedules", vec![made("1"), taken.clone()]),
        ("POST /schedules/1/resume", vec![away]),
    ])
    .await?;
    let broken_off = server.expect(&import, 255).await?;
    let text = broken_off.text();
    ensure!(text.ends_with("\nStill paused (`schedule resume` has them make tasks): a\n"), "{text}");
    ensure!(broken_off.stderr.starts_with("not all of them are resumed: "), "{broken_off:?}");
    // What it has made is left alone the next time.
    let server = Server::start(vec![
        tables(),
        ("POST /schedules", vec![taken]),
        ("GET /schedules/a", vec![json(value!({ "name": "a", "paused": true }))]),
        ("GET /schedules/b", vec![json(value!({ "name": "b", "paused": false }))]),
    ])
    .await?;
    let text = server.expect(&import, 0).await?.text();
    ensure!(text.starts_with("Left alone, ") && text.ends_with("has them make tasks): a\n"), "{text}");
    Ok(())
}
