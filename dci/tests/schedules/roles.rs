//! Who may do what with schedules.

use anyhow::ensure;
use bson::doc;
use reqwest::Method;
use serde_json::{Value, json};

use crate::World;

/// A schedule of `ann`, who may submit to its queue.
async fn of_ann(world: &World) -> anyhow::Result<String> {
    let body = json!({ "name": "nightly", "queue": "<mail>", "cron": "0 3 * * *" });
    let (status, made) = world.call_as(Some("ann"), Method::POST, "/schedules", body).await?;
    ensure!(status == 201 && made["owner"] == "ann", "{status} {made}");
    Ok(format!("/schedules/{}", made["id"].as_str().unwrap_or_default()))
}

#[tokio::test]
async fn who_may_not_submit_to_the_queue_makes_no_schedule() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let body = json!({ "name": "x", "queue": world.mail.to_string(), "cron": "@daily" });
    // For `rob` there is no such queue.
    for (user, expected) in [("vic", 403), ("rob", 400), ("ann", 201)] {
        let (status, answer) = world.call_as(Some(user), Method::POST, "/schedules", body.clone()).await?;
        let tells = answer.to_string().contains("<mail>");
        ensure!(status == expected && tells == (expected == 201), "{user}: {status} {answer}");
    }
    assert_eq!(world.call(Method::POST, "/schedules", body).await?.0, 401);
    world.end().await
}

#[tokio::test]
async fn schedules_of_other_queues_are_not_there() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let path = of_ann(&world).await?;
    let acts = ["/pause", "/resume", "/run", "/backfill"];
    for way in [path.as_str(), "/schedules/nightly"] {
        for (method, address) in [(Method::GET, ""), (Method::GET, "/preview"), (Method::GET, "/edit")]
            .into_iter()
            .chain([(Method::POST, ""), (Method::DELETE, "")])
            .chain(acts.map(|act| (Method::POST, act)))
        {
            let body = json!({ "paused": true });
            let address = format!("{way}{address}");
            let (status, answer) = world.call_as(Some("rob"), method.clone(), &address, body).await?;
            assert_eq!(
                (status, answer["error"].as_str().is_some_and(|text| text.starts_with("no schedule"))),
                (404, true),
                "{method} {address}"
            );
        }
    }
    let list = world.call_as(Some("rob"), Method::GET, "/schedules", Value::Null).await?;
    assert_eq!(list, (200, json!([])));
    let of_queue = format!("/schedules?queue={}", world.mail);
    assert_eq!(world.call_as(Some("rob"), Method::GET, &of_queue, Value::Null).await?.0, 400);
    assert_eq!(world.tasks(doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn others_of_the_queue_run_a_schedule_and_its_owner_changes_it() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let path = of_ann(&world).await?;
    let run = format!("{path}/run");
    let pause = format!("{path}/pause");
    for (user, looks, runs, changes) in
        [("vic", 200, 403, 403), ("ben", 200, 200, 403), ("ann", 200, 200, 200), ("boss", 200, 200, 200)]
    {
        let call = |method: Method, path: String, body: Value| {
            let world = &world;
            async move { anyhow::Ok(world.call_as(Some(user), method, &path, body).await?.0) }
        };
        assert_eq!(call(Method::GET, path.clone(), Value::Null).await?, looks, "{user}");
        assert_eq!(call(Method::POST, run.clone(), json!({})).await?, runs, "{user}");
        assert_eq!(call(Method::POST, pause.clone(), json!({})).await?, changes, "{user}");
        let description = json!({ "description": format!("by {user}") });
        assert_eq!(call(Method::POST, path.clone(), description).await?, changes, "{user}");
    }
    let (_, schedule) = world.call_as(Some("vic"), Method::GET, &path, Value::Null).await?;
    assert_eq!((&schedule["description"], &schedule["owner"]), (&json!("by boss"), &json!("ann")));
    assert_eq!(world.call_as(Some("ben"), Method::DELETE, &path, json!({})).await?.0, 403);
    assert_eq!(world.call_as(Some("ann"), Method::DELETE, &path, json!({})).await?.0, 200);
    world.end().await
}

#[tokio::test]
async fn nobody_moves_a_schedule_to_a_queue_that_is_not_theirs() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let path = of_ann(&world).await?;
    let to_reports = json!({ "queue": "reports" });
    let (status, error) = world.call_as(Some("ann"), Method::POST, &path, to_reports.clone()).await?;
    assert_eq!((status, &error["error"]), (400, &json!("queue not found")));
    let (status, moved) = world.call_as(Some("boss"), Method::POST, &path, to_reports).await?;
    assert_eq!((status, &moved["queue"]), (200, &json!(world.reports.to_string())));
    // It is another queue's now.
    assert_eq!(world.call_as(Some("ann"), Method::GET, &path, Value::Null).await?.0, 404);
    assert_eq!(world.call_as(Some("rob"), Method::GET, &path, Value::Null).await?.0, 200);
    world.end().await
}

#[tokio::test]
async fn pages_offer_what_their_reader_may_do() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let path = of_ann(&world).await?;
    for (user, backfills, changes) in
        [("vic", false, false), ("ben", true, false), ("ann", true, true), ("boss", true, true)]
    {
        let request = world.request(Method::GET, &path, Some(user)).header("accept", "text/html");
        let html = request.send().await?.error_for_status()?.text().await?;
        assert_eq!(html.contains("/backfill\""), backfills, "{user}");
        assert_eq!(html.contains("/edit\""), changes, "{user}");
    }
    let list = world.request(Method::GET, "/schedules", Some("vic")).header("accept", "text/html");
    let list = list.send().await?.error_for_status()?.text().await?;
    assert!(
        list.contains("nightly") && !list.contains("data-live") && !list.contains("/schedules/new\""),
        "{list}"
    );
    let stream = world.request(Method::GET, "/ui/schedules", Some("vic")).send().await?;
    assert_eq!(stream.status(), 403, "it tells of all queues");
    world.end().await
}
