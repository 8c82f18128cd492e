//! What programs do with schedules.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{World, id_of};

#[tokio::test]
async fn a_schedule_is_made_found_changed_and_deleted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let made = world.nightly().await?;
    let id = id_of(&made)?.to_hex();
    for (field, value) in [
        ("name", json!("nightly")),
        ("queue", json!(world.mail.to_string())),
        ("queue_name", json!("<mail>")),
        ("cron", json!(["0 3 * * *"])),
        ("zone", json!("Europe/Berlin")),
        ("params", json!({ "to": "<all>" })),
        ("overlap", json!("skip")),
        ("paused", json!(false)),
        ("owner", Value::Null),
        ("rev", json!(1)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert!(made["next"].is_string(), "{made}");
    for path in [format!("/schedules/{id}"), "/schedules/nightly".to_owned()] {
        assert_eq!(world.call(Method::GET, &path, Value::Null).await?, (200, made.clone()), "{path}");
    }
    let change = json!({ "cron": "@hourly", "options": { "timeout": 60 }, "description": "x", ".rev": 1 });
    let (status, changed) = world.call(Method::POST, "/schedules/nightly", change.clone()).await?;
    assert_eq!((status, &changed["cron"], &changed["rev"]), (200, &json!(["@hourly"]), &json!(2)));
    assert_eq!((&changed["params"], &changed["zone"]), (&made["params"], &made["zone"]), "they stay");
    // It was made from a revision that is gone.
    let (status, stale) = world.call(Method::POST, "/schedules/nightly", change).await?;
    assert_eq!((status, &stale["rev"]), (409, &json!(2)));
    let more = json!({ "options": { "max_attempts": 3 }, "zone": null });
    let (_, changed) = world.call(Method::POST, "/schedules/nightly", more).await?;
    assert_eq!(changed["options"], json!({ "max_attempts": 3, "timeout": 60 }));
    assert_eq!((&changed["zone"], &changed["rev"]), (&json!("UTC"), &json!(3)));
    let same = json!({ "zone": "UTC", "description": "x" });
    let (_, same) = world.call(Method::POST, "/schedules/nightly", same).await?;
    assert_eq!(same["rev"], json!(3), "nothing has changed");
    let renamed = world.call(Method::POST, &format!("/schedules/{id}"), json!({ "name": "daily/x" })).await?;
    assert_eq!(renamed.1["name"], json!("daily/x"));
    let (status, gone) = world.call(Method::DELETE, "/schedules/daily%2Fx", json!({})).await?;
    assert_eq!((status, gone), (200, json!({ "id": id, "name": "daily/x", "deleted": true })));
    assert_eq!(world.call(Method::GET, &format!("/schedules/{id}"), Value::Null).await?.0, 404);
    assert_eq!(world.call(Method::DELETE, &format!("/schedules/{id}"), json!({})).await?.0, 404);
    world.end().await
}

#[tokio::test]
async fn the_list_is_limited_to_what_is_asked_for() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.nightly().await?;
    for (name, paused) in [("b", true), ("c", false)] {
        let body = json!({ "name": name, "queue": "reports", "cron": "@daily", "paused": paused });
        assert_eq!(world.call(Method::POST, "/schedules", body).await?.0, 201);
    }
    let reports = world.reports.to_string();
    for (query, expected) in [
        ("", &["b", "c", "nightly"][..]),
        ("?queue=reports", &["b", "c"]),
        (&format!("?queue={reports}&paused=false"), &["c"]),
        ("?paused=true", &["b"]),
        ("?.limit=2", &["b", "c"]),
        ("?.after=b&.limit=1", &["c"]),
        ("?tenant=acme", &[]),
        ("?queue=&paused=", &["b", "c", "nightly"]),
    ] {
        let (status, found) = world.call(Method::GET, &format!("/schedules{query}"), Value::Null).await?;
        let names: Vec<&str> =
            found.as_array().context("no list")?.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!((status, names.as_slice()), (200, expected), "{query}");
    }
    for wrong in ["?queue=nosuch", "?paused=perhaps", "?.limit=0", "?colour=red"] {
        assert_eq!(
            world.call(Method::GET, &format!("/schedules{wrong}"), Value::Null).await?.0,
            400,
            "{wrong}"
        );
    }
    world.end().await
}

#[tokio::test]
async fn rubbish_is_refused_by_name() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.nightly().await?;
    let with = |field: &str, value: Value| {
        let mut body = json!({ "name": "x", "queue": "<mail>", "cron": "@daily" });
        body[field] = value;
        body
    };
    for (body, status, part) in [
        (json!({}), 400, "queue must be given"),
        (with("queue", json!("nosuch")), 400, "queue not found"),
        (with("queue", json!([1])), 400, "queue not found"),
        (with("cron", json!("61 * * * *")), 400, "cron: the field minute: '61'"),
        (with("cron", json!("0 0 30 2 *")), 400, "cron: "),
        (with("zone", json!("Mars/Crater")), 400, "zone: 'Mars/Crater' is no time zone"),
        (with("calendars", json!([{ "name": "nosuch" }])), 400, "there is no calendar 'nosuch'"),
        (with("options", json!({ "run_at": 1 })), 400, "unknown param in options"),
        (with("options", json!({ "timeout": "long" })), 400, "options.timeout must be"),
        (with("params", json!({ "a.b": 1 })), 400, "'params' has the key"),
        (with("name", json!("preview")), 400, "name must not be"),
        (with("name", json!(" x")), 400, "name: "),
        (with("name", json!("nightly")), 409, "another schedule has the name 'nightly'"),
        (with("colour", json!("red")), 400, "unknown param"),
    ] {
        let (is, error) = world.call(Method::POST, "/schedules", body.clone()).await?;
        let told = error["error"].as_str().unwrap_or_default();
        ensure!(is == status && told.starts_with(part), "{body}: {is} {error}");
    }
    for (path, body, part) in [
        ("/schedules/nightly", json!({}), "no params"),
        ("/schedules/nightly", json!({ "overlap": "never" }), "overlap must be"),
        ("/schedules/nightly", json!({ "zone": "UTC", ".rev": "x" }), ".rev must be"),
        ("/schedules/nightly/run", json!({ "now": true }), "unknown param"),
        ("/schedules/nightly/pause", json!({ "reason": "x" }), "unknown param"),
        ("/schedules/nightly/backfill", json!({}), "from must be given"),
        ("/schedules/nightly/backfill", json!({ "from": "soon" }), "from must be a time"),
        ("/schedules/nightly/backfill", json!({ "from": "2999-01-01" }), "to must not be before from"),
        ("/schedules/nightly/backfill", json!({ "from": 0, "limit": 1001 }), "limit must be from 1 to 1000"),
        ("/schedules/preview", json!({ "cron": 5 }), "cron: "),
        ("/schedules/preview", json!({ "cron": "@daily", ".limit": 0 }), ".limit must be"),
    ] {
        let (status, error) = world.call(Method::POST, path, body.clone()).await?;
        let told = error["error"].as_str().unwrap_or_default();
        ensure!(status == 400 && told.starts_with(part), "{path} {body}: {status} {error}");
    }
    for path in ["/schedules/nosuch", "/schedules/nosuch/preview", "/schedules/6b0003bb686c8275d8014444"] {
        assert_eq!(world.call(Method::GET, path, Value::Null).await?.0, 404, "{path}");
    }
    world.end().await
}

#[tokio::test]
async fn what_would_happen_is_shown_without_being_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let spec = json!({
        "cron": "30 2 * * *", "zone": "Europe/Berlin", ".after": "2027-03-27", ".limit": 2,
    });
    let (status, shown) = world.call(Method::POST, "/schedules/preview", spec).await?;
    assert_eq!((status, shown["times"].as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(
        (&shown["times"][1]["local"], &shown["times"][1]["moved"]),
        (&json!("2027-03-28T03:00:00"), &json!(true))
    );
    assert_eq!(
        shown["changes"],
        json!([{ "at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00" }])
    );
    let html = json!({ "cron": "@daily", ".html": true });
    let (_, html) = world.call(Method::POST, "/schedules/preview", html).await?;
    assert!(html["html"].as_str().is_some_and(|html| html.contains("<ol")), "{html}");
    let wrong = json!({ "cron": "nonsense", ".html": true });
    let (status, wrong) = world.call(Method::POST, "/schedules/preview", wrong).await?;
    let said = wrong["html"].as_str().unwrap_or_default();
    ensure!(status == 200 && said.contains("cron: ") && !said.contains("<ol"), "{wrong}");
    world.nightly().await?;
    let (_, next) = world.call(Method::GET, "/schedules/nightly/preview?.limit=3", Value::Null).await?;
    assert_eq!(next["times"].as_array().map(Vec::len), Some(3));
    let (_, schedule) = world.call(Method::GET, "/schedules/nightly", Value::Null).await?;
    assert_eq!(next["times"][0]["due"], schedule["next"]);
    world.end().await
}

#[tokio::test]
async fn it_is_paused_resumed_and_run_by_hand() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = id_of(&world.nightly().await?)?;
    let (status, paused) = world.call(Method::POST, "/schedules/nightly/pause", json!({})).await?;
    assert_eq!((status, &paused["paused"], &paused["next"]), (200, &json!(true), &Value::Null));
    let (_, run) = world.call(Method::POST, "/schedules/nightly/run", json!({})).await?;
    let task = bson::oid::ObjectId::parse_str(run["task"].as_str().context("no task")?)?;
    let of_it =
        doc! { "_id": task, "schedule": id, "scheduled_for": { "$type": "date" }, "params.to": "<all>" };
    assert_eq!(world.tasks(of_it).await?, 1, "although it is paused");
    let (_, resumed) = world.call(Method::POST, "/schedules/nightly/resume", json!({})).await?;
    assert_eq!(resumed["paused"], json!(false));
    assert!(resumed["next"].is_string(), "{resumed}");
    // The same as a setting, as switches of pages have it.
    let (_, again) = world.call(Method::POST, "/schedules/nightly", json!({ "paused": "true" })).await?;
    assert_eq!(again["paused"], json!(true));
    let queues = world.database.database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": world.mail }, doc! { "$set": { "accepting": false } }).await?;
    let (status, closed) = world.call(Method::POST, "/schedules/nightly/run", json!({})).await?;
    ensure!(
        status == 409 && closed["error"].as_str().is_some_and(|text| text.contains("accepts no tasks")),
        "{closed}"
    );
    world.end().await
}

#[tokio::test]
async fn the_past_is_made_up_for_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = id_of(&world.nightly().await?)?;
    let stretch = json!({ "from": "2025-03-28", "to": "2025-04-01" });
    let mut preview = stretch.clone();
    preview[".preview"] = json!(true);
    let path = "/schedules/nightly/backfill";
    let (status, shown) = world.call(Method::POST, path, preview.clone()).await?;
    assert_eq!((status, &shown["count"]), (200, &json!(4)));
    let first = json!({ "at": "2025-03-28T02:00:00", "local": "2025-03-28T03:00:00", "offset": "+01:00" });
    assert_eq!(shown["times"][0], first);
    assert_eq!(shown["times"][3]["offset"], json!("+02:00"), "the clock has been changed");
    assert_eq!(world.tasks(doc! {}).await?, 0, "nothing is made yet");
    let some = json!({ "from": "2025-03-28", "to": "2025-04-01", "limit": 1 });
    let (_, one) = world.call(Method::POST, path, some).await?;
    assert_eq!((&one["count"], one["tasks"].as_array().map(Vec::len)), (&json!(1), Some(1)));
    assert_eq!(world.call(Method::POST, path, preview.clone()).await?.1["count"], json!(3));
    let (_, made) = world.call(Method::POST, path, stretch.clone()).await?;
    assert_eq!(made["count"], json!(3));
    assert_eq!(world.tasks(doc! { "schedule": id }).await?, 4);
    assert_eq!(world.call(Method::POST, path, stretch).await?.1["count"], json!(0), "all are there");
    let far = json!({ "from": 0, "to": "2025-04-01" });
    let dense = json!({ "name": "dense", "queue": "<mail>", "cron": "* * * * *" });
    world.call(Method::POST, "/schedules", dense).await?;
    let (status, error) = world.call(Method::POST, "/schedules/dense/backfill", far).await?;
    ensure!(
        status == 400 && error["error"].as_str().is_some_and(|text| text.contains("too far apart")),
        "{error}"
    );
    world.end().await
}

#[tokio::test]
async fn of_changes_made_from_one_revision_one_is_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.nightly().await?;
    let change = |minute: u32| {
        let body = json!({ "cron": format!("{minute} 3 * * *"), ".rev": 1 });
        world.call(Method::POST, "/schedules/nightly", body)
    };
    let answers = futures::future::try_join_all((1..9).map(change)).await?;
    let mut statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    // Without one, each is made from what is there at that moment, and none is lost.
    let option = |name: &'static str| {
        world.call(Method::POST, "/schedules/nightly", json!({ "options": { name: 7 } }))
    };
    let names = ["timeout", "grace", "max_attempts"];
    let answers = futures::future::try_join_all(names.map(option)).await?;
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    let (_, schedule) = world.call(Method::GET, "/schedules/nightly", Value::Null).await?;
    assert_eq!(schedule["options"], json!({ "grace": 7, "max_attempts": 7, "timeout": 7 }));
    world.end().await
}
