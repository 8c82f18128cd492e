//! Calendars, and the schedules that go by them.

use anyhow::ensure;
use reqwest::Method;
use serde_json::{Value, json};

use crate::World;

#[tokio::test]
async fn calendars_are_made_changed_and_deleted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let days = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25"] });
    let made = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25"], "zone": null });
    assert_eq!(world.call(Method::POST, "/calendars", days.clone()).await?, (201, made.clone()));
    let (status, again) = world.call(Method::POST, "/calendars", days).await?;
    assert_eq!((status, &again["error"]), (409, &json!("there is a calendar 'holidays' already")));
    assert_eq!(world.call(Method::GET, "/calendars", Value::Null).await?, (200, json!([made.clone()])));
    assert_eq!(world.call(Method::GET, "/calendars/holidays", Value::Null).await?, (200, made));
    let (status, set) =
        world.call(Method::POST, "/calendars/holidays", json!({ "recurring": "01-01\n12-25" })).await?;
    assert_eq!((status, &set["dates"], &set["recurring"]), (200, &json!([]), &json!(["01-01", "12-25"])));
    for (path, body, part) in [
        ("/calendars", json!({ "dates": [] }), "name must be given"),
        ("/calendars/x", json!({ "dates": ["2026-02-30"] }), "dates: "),
        ("/calendars/x", json!({ "zone": "Mars" }), "zone: "),
        ("/calendars/x", json!({ "name": "y" }), "unknown param"),
    ] {
        let (status, error) = world.call(Method::POST, path, body.clone()).await?;
        ensure!(
            status == 400 && error["error"].as_str().is_some_and(|text| text.starts_with(part)),
            "{body}: {error}"
        );
    }
    let (status, gone) = world.call(Method::DELETE, "/calendars/holidays", json!({})).await?;
    assert_eq!((status, gone), (200, json!({ "name": "holidays", "deleted": true })));
    assert_eq!(world.call(Method::DELETE, "/calendars/holidays", json!({})).await?.0, 404);
    assert_eq!(world.call(Method::GET, "/calendars/holidays", Value::Null).await?.0, 404);
    world.end().await
}

#[tokio::test]
async fn of_those_who_make_a_calendar_at_once_one_does() -> anyhow::Result<()> {
    let world = World::new().await?;
    for round in 0..5 {
        let name = format!("holidays {round}");
        let days = |n: i32| json!({ "name": name, "dates": [format!("2026-12-{}", 10 + n)] });
        let calls = (0..8).map(|n| world.call(Method::POST, "/calendars", days(n)));
        let answers = futures::future::try_join_all(calls).await?;
        let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 201);
        ensure!(made.len() == 1 && refused.iter().all(|(status, _)| *status == 409), "{answers:?}");
        let place = format!("/calendars/holidays%20{round}");
        assert_eq!(world.call(Method::GET, &place, Value::Null).await?, (200, made[0].1.clone()));
    }
    let audit = world.database.database.collection::<bson::Document>("audit");
    assert_eq!(audit.count_documents(bson::doc! { "what": "calendar set" }).await?, 5);
    world.end().await
}

#[tokio::test]
async fn a_calendar_that_is_gone_by_stays() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.call(Method::POST, "/calendars/fairs", json!({ "dates": ["2030-05-07", "2030-05-08"] })).await?;
    let body = json!({
        "name": "at fairs", "queue": "reports", "cron": "0 9 * * *", "calendars": [{ "name": "fairs", "use": "only" }],
    });
    let (status, made) = world.call(Method::POST, "/schedules", body).await?;
    assert_eq!((status, &made["next"]), (201, &json!("2030-05-07T09:00:00")));
    let (status, refused) = world.call(Method::DELETE, "/calendars/fairs", json!({})).await?;
    assert_eq!((status, &refused["schedules"]), (409, &json!(["at fairs"])));
    // Other days are another next time.
    world.call(Method::POST, "/calendars/fairs", json!({ "dates": ["2031-05-06"] })).await?;
    let (_, schedule) = world.call(Method::GET, "/schedules/at%20fairs", Value::Null).await?;
    assert_eq!(schedule["next"], json!("2031-05-06T09:00:00"));
    world.call(Method::POST, "/schedules/at%20fairs", json!({ "calendars": null })).await?;
    assert_eq!(world.call(Method::DELETE, "/calendars/fairs", json!({})).await?.0, 200);
    world.end().await
}

#[tokio::test]
async fn calendars_are_for_operators_of_everything() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let days = json!({ "dates": ["2026-12-24"] });
    for (user, expected) in [("ann", 403), ("vic", 403), ("boss", 200)] {
        let (status, _) =
            world.call_as(Some(user), Method::POST, "/calendars/holidays", days.clone()).await?;
        assert_eq!(status, expected, "{user}");
    }
    assert_eq!(world.call_as(Some("vic"), Method::GET, "/calendars", Value::Null).await?.0, 200);
    assert_eq!(world.call_as(Some("ann"), Method::DELETE, "/calendars/holidays", json!({})).await?.0, 403);
    world.end().await
}

#[tokio::test]
async fn forms_without_script_make_and_delete_calendars() -> anyhow::Result<()> {
    let world = World::new().await?;
    let then = (".then", "/calendars");
    let made = world
        .form(
            "/calendars",
            &[then, ("name", "a/b"), ("dates", "2026-12-24\r\n"), ("recurring", ""), ("zone", "")],
        )
        .await?;
    assert_eq!((made.status().as_u16(), crate::next(&made)?.as_str()), (303, "/calendars"));
    let (status, html) = world.page("/calendars").await?;
    ensure!(
        status == 200 && html.contains("2026-12-24</textarea>") && html.contains("/calendars/a%2Fb"),
        "{html}"
    );
    let wrong = world.form("/calendars/a%2Fb", &[then, ("dates", "soon")]).await?;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().await?.contains("dates: "));
    let gone = world.form("/ui/calendars/a%2Fb/delete", &[]).await?;
    assert_eq!((gone.status().as_u16(), crate::next(&gone)?.as_str()), (303, "/calendars"));
    assert!(world.page("/calendars").await?.1.contains("There are no calendars yet."));
    world.end().await
}
