//! The pages of schedules, and what their forms do without script.

use anyhow::{Context, bail, ensure};
use bson::{DateTime, Document, doc};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, World, id_of, next};

/// Reads an answer until it contains `wanted`.
async fn until(response: &mut Response, wanted: &str) -> anyhow::Result<()> {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = timeout(PATIENCE, response.chunk()).await.with_context(|| format!("only {text:?}"))??;
        let Some(chunk) = chunk else { bail!("{wanted:?} does not come after {text:?}") };
        text.push_str(std::str::from_utf8(&chunk)?);
    }
    Ok(())
}

#[tokio::test]
async fn pages_show_schedules_and_escape_what_they_show() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (_, empty) = world.page("/schedules").await?;
    assert!(empty.contains("There are no schedules yet."), "{empty}");
    let id = id_of(&world.nightly().await?)?;
    let at = DateTime::from_millis(1_795_163_067_000);
    let task = doc! {
        "queue": world.mail, "schedule": id, "scheduled_for": at, "status": 2, "node": "<vm>", "params": {}, "ctime": at,
        "mtime": at, "started": at,
    };
    world.database.database.collection::<Document>("tasks").insert_one(task).await?;
    for (path, parts) in [
        (
            "/schedules".to_owned(),
            &["nightly", "Europe/Berlin", "The last run: 1 failed.", "data-live=\"/ui/schedules"][..],
        ),
        ("/schedules?paused=true".to_owned(), &["No schedule is like that."]),
        (
            format!("/schedules/{id}"),
            &[
                "The next 20 times are from",
                "&#60;all&#62;",
                "&#60;vm&#62;",
                "2026-11-20 09:24:27 Europe/Berlin",
                "Run now",
            ],
        ),
        (
            "/schedules/nightly/edit".to_owned(),
            &["name=\".rev\" value=\"1\"", "0 3 * * *</textarea>", "The next 20 times are from"],
        ),
        (
            "/schedules/new".to_owned(),
            &["Fill in the times", "&#60;mail&#62;</option>", "<option value=\"Europe/Berlin\">"],
        ),
        (format!("/schedules/new?queue={}", world.mail), &["selected>&#60;mail&#62;"]),
        ("/calendars".to_owned(), &["New calendar"]),
    ] {
        let (status, html) = world.page(&path).await?;
        assert_eq!(status, 200, "{path}");
        for part in parts {
            assert!(html.contains(part), "{path}: {part} is not in {html}");
        }
        for odd in ["<mail>", "<all>", "<vm>", " style=", "<script>"] {
            assert!(!html.contains(odd), "{path}: {odd}");
        }
    }
    let (status, missing) = world.page("/schedules/nosuch").await?;
    ensure!(status == 404 && missing.contains("no schedule &#39;nosuch&#39;"), "{missing}");
    world.end().await
}

#[tokio::test]
async fn a_schedule_is_made_and_changed_by_forms_without_script() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mail = world.mail.to_string();
    let filled = [
        (".then", "/schedules/{id}"),
        ("name", "nightly"),
        ("queue", mail.as_str()),
        ("params", "{\"n\": 1}"),
        ("zone", "Europe/Berlin"),
        ("options.timeout", "60"),
        ("end", ""),
        ("calendars.exclude", ""),
    ];
    let with = |more: &[(&'static str, &'static str)]| [&filled[..], more].concat();
    // What is wrong is told above the form, which has what was typed.
    let wrong = world.form("/schedules", &with(&[("cron", "61 * * * *")])).await?;
    assert_eq!(wrong.status(), 400);
    let html = wrong.text().await?;
    for part in [
        "role=\"alert\">cron: the field minute",
        "61 * * * *</textarea>",
        "value=\"nightly\"",
        "value=\"60\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    // The button for browsers without script.
    let preview = world.form("/schedules/preview", &with(&[("cron", "0 3 * * *\r\n@monthly")])).await?;
    assert_eq!(preview.status(), 200);
    let html = preview.text().await?;
    ensure!(html.contains("The next 20 times") && html.contains("value=\"nightly\""), "{html}");
    assert_eq!(world.call(Method::GET, "/schedules", Value::Null).await?.1, json!([]), "it is not stored");
    let made = world.form("/schedules", &with(&[("cron", "0 3 * * *\r\n@monthly")])).await?;
    let place = next(&made)?;
    assert_eq!(made.status(), 303);
    let (_, schedule) = world.call(Method::GET, &place, Value::Null).await?;
    assert_eq!(
        (&schedule["cron"], &schedule["params"]),
        (&json!(["0 3 * * *", "@monthly"]), &json!({ "n": 1 }))
    );
    assert_eq!(schedule["options"], json!({ "timeout": 60 }));
    let change = |rev: &'static str| {
        let place = place.clone();
        let form = [
            (".then", "/schedules"),
            (".schedule", "x"),
            (".rev", rev),
            ("cron", "@hourly"),
            ("options.timeout", ""),
        ];
        let world = &world;
        async move { world.form(&place, &form).await }
    };
    let changed = change("1").await?;
    assert_eq!((changed.status().as_u16(), next(&changed)?.as_str()), (303, "/schedules"));
    let stale = change("1").await?;
    assert_eq!(stale.status(), 409);
    assert!(stale.text().await?.contains("changed meanwhile"));
    let (_, schedule) = world.call(Method::GET, &place, Value::Null).await?;
    assert_eq!((&schedule["cron"], &schedule["options"]), (&json!(["@hourly"]), &json!({})));
    world.end().await
}

#[tokio::test]
async fn a_schedule_is_deleted_by_a_form_without_script() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = id_of(&world.nightly().await?)?;
    let gone = world.form(&format!("/ui/schedules/{id}/delete"), &[]).await?;
    assert_eq!((gone.status().as_u16(), next(&gone)?.as_str()), (303, "/schedules"));
    let again = world.form(&format!("/ui/schedules/{id}/delete"), &[]).await?;
    assert_eq!(again.status(), 404);
    world.end().await
}

#[tokio::test]
async fn forms_without_script_run_pause_and_make_up_for_the_past() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = id_of(&world.nightly().await?)?;
    let place = format!("/schedules/{id}");
    let then = (".then", place.as_str());
    for form in [("run", &[then][..]), ("pause", &[then]), ("resume", &[then])] {
        let answer = world.form(&format!("{place}/{}", form.0), form.1).await?;
        assert_eq!((answer.status().as_u16(), next(&answer)?), (303, place.clone()), "{}", form.0);
    }
    let switched = world.form(&place, &[(".then", "/schedules"), ("paused", "true")]).await?;
    assert_eq!((switched.status().as_u16(), next(&switched)?.as_str()), (303, "/schedules"));
    assert_eq!(world.call(Method::GET, &place, Value::Null).await?.1["paused"], json!(true));
    let backfill = format!("{place}/backfill");
    let stretch = [("from", "2025-03-01"), ("to", "2025-03-03"), ("limit", "")];
    let asked = world.form(&backfill, &[&[(".preview", "1")][..], &stretch[..]].concat()).await?;
    assert_eq!(asked.status(), 200);
    let html = asked.text().await?;
    for part in
        ["Create 2 tasks of nightly?", "2025-03-01 03:00:00", "name=\"from\" value=\"2025-03-01T00:00:00Z\""]
    {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert_eq!(world.tasks(doc! { "schedule": id }).await?, 1, "that which was run by hand");
    let made = world.form(&backfill, &stretch).await?;
    assert_eq!((made.status().as_u16(), next(&made)?), (303, place.clone()));
    assert_eq!(world.tasks(doc! { "schedule": id }).await?, 3);
    let wrong = world.form(&backfill, &[("from", "soon")]).await?;
    ensure!(wrong.status() == 400 && wrong.text().await?.contains("<!DOCTYPE html>"));
    world.end().await
}

#[tokio::test]
async fn pages_tell_what_changes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = id_of(&world.nightly().await?)?;
    let mut list = world.server.request(Method::GET, "/ui/schedules").send().await?;
    let mut one = world.server.request(Method::GET, &format!("/ui/schedules/{id}")).send().await?;
    until(&mut list, "</table>").await?;
    until(&mut one, "schedule-settings").await?;
    world.call(Method::POST, "/schedules/nightly/pause", json!({})).await?;
    until(&mut list, "<span class=\"status paused\">paused</span>").await?;
    until(&mut one, "It is paused.").await?;
    let (_, run) = world.call(Method::POST, "/schedules/nightly/run", json!({})).await?;
    until(&mut one, run["task"].as_str().context("no task")?).await?;
    world.call(Method::DELETE, "/schedules/nightly", json!({})).await?;
    until(&mut one, "event: trouble").await?;
    world.end().await
}
