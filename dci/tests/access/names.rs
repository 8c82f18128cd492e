//! Names that are taken by what somebody may not see.

use anyhow::Context;
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{MARKER, PASSWORD, World};

async fn post(world: &World, user: &str, path: &str, body: Value) -> anyhow::Result<(u16, String)> {
    let answer = world.request(Method::POST, path, Some(user)).json(&body).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[tokio::test]
async fn who_is_limited_is_not_told_which_names_there_are() -> anyhow::Result<()> {
    let world = World::new().await?;
    let hash = PasswordHash::of(PASSWORD)?;
    let on = |scope, role| vec![Grant { scope, role }];
    for (name, grants) in [
        ("foreman", on(Scope::Queue(world.mine), Role::Operator)),
        ("acme", on(Scope::Tenant("acme".to_owned()), Role::Submitter)),
    ] {
        world.store.add_user(&World::name(name)?, None, &grants, Some(&hash)).await?;
    }
    let refused = (403, json!({ "error": "this name is not allowed: choose another" }).to_string());

    let to_marker = json!({ "name": MARKER });
    assert_eq!(post(&world, "foreman", "/queues/mine", to_marker.clone()).await?, refused);
    let (status, told) = post(&world, "operator", "/queues/mine", to_marker).await?;
    assert!(status == 400 && told.contains(MARKER), "who sees all is told: {status} {told}");
    assert_eq!(post(&world, "foreman", "/queues/mine", json!({ "name": "ours" })).await?.0, 200);

    let schedule =
        |name: &str, queue: &str| json!({ "name": name, "queue": queue, "cron": "@daily", "paused": true });
    assert_eq!(post(&world, "operator", "/schedules", schedule("nightly", MARKER)).await?.0, 201);
    assert_eq!(post(&world, "foreman", "/schedules", schedule("nightly", "ours")).await?, refused);
    assert_eq!(post(&world, "foreman", "/schedules", schedule("weekly", "ours")).await?.0, 201);
    let renamed = json!({ "name": "nightly" });
    assert_eq!(post(&world, "foreman", "/schedules/weekly", renamed.clone()).await?, refused);
    assert_eq!(post(&world, "operator", "/schedules/weekly", renamed).await?.0, 409);

    let of_schedule =
        |name: &str| json!({ "action": "cancel", "filter": { "queue": "ours", "schedule": name } });
    let followed = async |user, name: &str| {
        let path = format!("/events?schedule={name}");
        anyhow::Ok(world.request(Method::GET, &path, Some(user)).send().await?.status().as_u16())
    };
    for name in ["nightly", "nowhere"] {
        let (status, told) = post(&world, "foreman", "/bulk", of_schedule(name)).await?;
        assert!(status == 400 && told.contains(&format!("no schedule '{name}'")), "{status} {told}");
        assert_eq!(followed("foreman", name).await?, 400, "{name}");
    }
    assert_eq!(post(&world, "foreman", "/bulk", of_schedule("weekly")).await?.0, 202);
    assert_eq!(post(&world, "operator", "/bulk", of_schedule("nightly")).await?.0, 202);
    assert_eq!((followed("foreman", "weekly").await?, followed("operator", "nightly").await?), (200, 200));

    let of = |tenant: Value| json!({ ".tenant": tenant });
    assert_eq!(post(&world, "submitter", "/files/letters", of(json!("other"))).await?.0, 201);
    assert_eq!(post(&world, "acme", "/files/letters", of(Value::Null)).await?, refused);
    assert_eq!(post(&world, "submitter", "/files/letters", of(json!("acme"))).await?.0, 409);
    assert_eq!(post(&world, "acme", "/files/notes", of(Value::Null)).await?.0, 201);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_search_finds_what_one_may_see() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [own, hidden] = [world.task(world.mine).await?, world.task(world.other).await?].map(|id| id.to_hex());
    let [array, schedule] =
        [world.array(world.other).await?, world.schedule(world.other).await?].map(|id| id.to_hex());
    let queue = world.other.to_string();
    let found = async |who: &str, q: &str| {
        let request = world.request(Method::GET, &format!("/search?q={q}"), Some(who));
        let answer: Value = request.send().await?.error_for_status()?.json().await?;
        let kinds = answer["found"].as_array().context("no array")?.iter().map(|one| one["kind"].to_string());
        anyhow::Ok(kinds.collect::<Vec<_>>().join(" "))
    };
    for (q, all, guest) in [
        ("MINE", "\"queue\"", "\"queue\""),
        ("zyxw", "\"queue\" \"schedule\"", ""),
        (own.as_str(), "\"task\"", "\"task\""),
        (hidden.as_str(), "\"task\"", ""),
        (array.as_str(), "\"array\"", ""),
        (schedule.as_str(), "\"schedule\"", ""),
        (queue.as_str(), "\"queue\"", ""),
        ("6b0003bb686c8275d8019999", "", ""),
    ] {
        assert_eq!(found("viewer", q).await?, all, "{q}");
        assert_eq!(found("guest", q).await?, guest, "{q}");
    }
    for (who, queue, status) in [("viewer", MARKER, 200), ("guest", MARKER, 400), ("guest", "mine", 200)] {
        let request = world.request(Method::GET, &format!("/tasks?queue={queue}"), Some(who));
        assert_eq!(request.send().await?.status(), status, "{who}, {queue}");
    }
    world.database.drop_database().await
}
