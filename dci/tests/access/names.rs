//! Names that are taken by what somebody may not see.

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

    let of = |tenant: Value| json!({ ".tenant": tenant });
    assert_eq!(post(&world, "submitter", "/files/letters", of(json!("other"))).await?.0, 201);
    assert_eq!(post(&world, "acme", "/files/letters", of(Value::Null)).await?, refused);
    assert_eq!(post(&world, "submitter", "/files/letters", of(json!("acme"))).await?.0, 409);
    assert_eq!(post(&world, "acme", "/files/notes", of(Value::Null)).await?.0, 201);
    world.database.drop_database().await
}
