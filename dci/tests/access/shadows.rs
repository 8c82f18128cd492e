//! Who may have tasks run a second time, and see what came of that; and who may run again what is in several queues.

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::arrays::element_id;
use disbatch_core::model::{ArrayId, QueueId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{MARKER, PASSWORD, World};

/// With `foreman`, who operates the first queue alone, and `keeper`, who sees the other one, too.
async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    let hash = PasswordHash::of(PASSWORD)?;
    let on = |queue: QueueId, role| Grant { scope: Scope::Queue(queue), role };
    let own = on(world.mine, Role::Operator);
    world.store.add_user(&World::name("foreman")?, None, std::slice::from_ref(&own), Some(&hash)).await?;
    let both = [own, on(world.other, Role::Viewer)];
    world.store.add_user(&World::name("keeper")?, None, &both, Some(&hash)).await?;
    Ok(world)
}

async fn post(world: &World, user: &str, path: &str, body: &Value) -> anyhow::Result<(u16, String)> {
    let answer = world.request(Method::POST, path, Some(user)).json(body).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[tokio::test]
async fn shadows_are_for_those_who_operate_both_queues() -> anyhow::Result<()> {
    let world = world().await?;
    let shadow = json!({ "shadow": { "queue": MARKER, "share": 1 } });
    for (user, status, why) in [
        ("guest", 403, "operator"),
        ("foreman", 400, "there is no queue"),
        ("keeper", 403, "operator"),
        // They may, but it might have effects.
        ("operator", 400, "no node reports a plugin My::Plugin"),
    ] {
        let (got, text) = post(&world, user, "/queues/mine", &shadow).await?;
        assert!(got == status && text.contains(why), "{user}: {got} {text}");
    }
    let queues = world.database.database.collection::<Document>("queues");
    let set = doc! { "$set": { "shadow": { "queue": MARKER, "share": 1.0 } } };
    queues.update_one(doc! { "_id": world.mine }, set).await?;
    for (user, status) in [("guest", 404), ("foreman", 404), ("keeper", 200), ("viewer", 200)] {
        let answer = world.request(Method::GET, "/queues/mine/shadow", Some(user)).send().await?;
        let (got, text) = (answer.status().as_u16(), answer.text().await?);
        assert!(got == status && (got == 200 || !text.contains(MARKER)), "{user}: {got} {text}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn what_comes_after_an_array_runs_again_for_those_who_operate_it() -> anyhow::Result<()> {
    let world = world().await?;
    let array = world.array(world.mine).await?;
    let element = element_id(ArrayId(array), 0);
    let tasks = world.database.database.collection::<Document>("tasks");
    let all = [
        doc! { "_id": element, "queue": world.mine, "status": 2, "params": {}, "array": { "id": array, "index": 0_i64 } },
        doc! { "_id": ObjectId::new(), "queue": world.other, "status": -5, "params": {}, "after": [element], "waiting_for": [element] },
    ];
    tasks.insert_many(all).await?;
    let (path, body) = (format!("/arrays/{array}/rerun"), json!({ "downstream": "failed" }));
    for (user, status) in [("guest", 403), ("foreman", 404), ("keeper", 403), ("operator", 202)] {
        let (got, text) = post(&world, user, &path, &body).await?;
        assert!(
            got == status && (got == 202 || !text.contains(MARKER) || user == "keeper"),
            "{user}: {got} {text}"
        );
    }
    world.database.drop_database().await
}
