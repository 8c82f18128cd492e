//! Tasks for a tenant in a queue that is nobody's: whoever has a role on the tenant has it on them, and on no others.

use std::collections::BTreeSet;

use anyhow::ensure;
use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, NewToken, PasswordHash, Role, Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{MARKER, PASSWORD, World};

/// Tasks of the second queue: for acme, for another tenant, and for nobody.
struct Tasks {
    ours: ObjectId,
    others: [ObjectId; 2],
}

async fn prepare(world: &World) -> anyhow::Result<Tasks> {
    let hash = PasswordHash::of(PASSWORD)?;
    for (name, tenant, role) in
        [("ann", "acme", Role::Submitter), ("olga", "acme", Role::Operator), ("tom", "else", Role::Viewer)]
    {
        let grant = Grant { scope: Scope::Tenant(tenant.to_owned()), role };
        world.store.add_user(&World::name(name)?, None, &[grant], Some(&hash)).await?;
    }
    let tasks = world.database.database.collection::<bson::Document>("tasks");
    let ours = world.task(world.other).await?;
    let others = [world.task(world.other).await?, world.task(world.other).await?];
    for (id, tenant) in [(ours, "acme"), (others[0], "other")] {
        tasks.update_one(doc! { "_id": id }, doc! { "$set": { "tenant": tenant } }).await?;
    }
    Ok(Tasks { ours, others })
}

async fn status(world: &World, user: &str, method: Method, path: &str) -> anyhow::Result<u16> {
    let request = world.request(method.clone(), path, Some(user));
    let request = if method == Method::GET { request } else { request.json(&json!({})) };
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn a_tenants_tasks_are_seen_in_whatever_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    let tasks = prepare(&world).await?;
    for way in ["", "/stdout", "/attempts", "/explain", "/graph", "/wait?.timeout=1"] {
        for (user, expected) in [("ann", 200), ("olga", 200), ("tom", 404), ("guest", 404)] {
            let told = status(&world, user, Method::GET, &format!("/tasks/{}{way}", tasks.ours)).await?;
            ensure!(told == expected, "{user} {way}: {told}");
        }
        for (user, other) in
            ["ann", "olga", "tom"].into_iter().flat_map(|user| tasks.others.map(|id| (user, id)))
        {
            let told = status(&world, user, Method::GET, &format!("/tasks/{other}{way}")).await?;
            ensure!(told == 404, "{user} {other}{way}: {told}");
        }
    }
    let cancel = |id: ObjectId| format!("/tasks/{id}/cancel");
    ensure!(status(&world, "ann", Method::POST, &cancel(tasks.ours)).await? == 403);
    // It has ended already.
    ensure!(!matches!(status(&world, "olga", Method::POST, &cancel(tasks.ours)).await?, 403 | 404));
    for other in tasks.others {
        ensure!(status(&world, "olga", Method::POST, &cancel(other)).await? == 404);
    }
    ensure!(status(&world, "ann", Method::GET, &format!("/queues/{}", world.other)).await? == 404);
    world.database.drop_database().await
}

#[tokio::test]
async fn lists_have_a_tenants_tasks_and_no_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let tasks = prepare(&world).await?;
    let (ours, queue) = (tasks.ours.to_hex(), world.other);
    let get = async |user: &str, path: &str, kind: &str| -> anyhow::Result<String> {
        let request = world.request(Method::GET, path, Some(user)).header("accept", kind);
        Ok(request.send().await?.text().await?)
    };
    let listed = format!("/tasks?queue={queue}&status=2");
    for path in [listed.clone(), format!("/tasks?queue={queue}")] {
        for kind in ["application/json", "text/html"] {
            let text = get("ann", &path, kind).await?;
            ensure!(text.contains(&ours), "{path} {kind}: {text}");
            ensure!(tasks.others.iter().all(|id| !text.contains(&id.to_hex())), "{path} {kind}: {text}");
            let text = get("tom", &path, kind).await?;
            ensure!(!text.contains(&ours) && !text.contains(MARKER), "{path} {kind}: {text}");
        }
    }
    let count: Value =
        serde_json::from_str(&get("ann", &format!("{listed}&.count=1"), "application/json").await?)?;
    ensure!(count == json!({ "count": 1 }), "{count}");
    // A token that is limited to queues is not for what is in others.
    let token = NewToken {
        name: "narrow".into(),
        user: World::name("olga")?,
        role: Role::Admin,
        queues: Some(BTreeSet::from([world.mine])),
        lasts: None,
    };
    let token = world.store.create_token(&token).await?;
    let narrow =
        world.server.request(Method::GET, &format!("/tasks/{ours}")).bearer_auth(&token).send().await?;
    ensure!(narrow.status() == 404);
    let text = world.server.request(Method::GET, &listed).bearer_auth(&token).send().await?.text().await?;
    ensure!(!text.contains(&ours), "{text}");
    world.database.drop_database().await
}
