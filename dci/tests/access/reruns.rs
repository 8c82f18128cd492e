//! Other params make another task: who may not submit it has it not run again with them. A retry of an archived task makes a new one, too.

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::model::TaskId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{PASSWORD, World};

async fn rerun(world: &World, user: &str, id: ObjectId, body: Value) -> anyhow::Result<(u16, Value)> {
    post(world, user, &format!("/tasks/{id}/rerun"), body).await
}

async fn post(world: &World, user: &str, path: &str, body: Value) -> anyhow::Result<(u16, Value)> {
    let answer = world.request(Method::POST, path, Some(user)).json(&body).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

async fn set(world: &World, id: ObjectId, fields: Document) -> anyhow::Result<()> {
    let tasks = world.database.database.collection::<Document>("tasks");
    tasks.update_one(doc! { "_id": id }, doc! { "$set": fields }).await?;
    Ok(())
}

/// `olga` operates what is for acme, and `otto` the first queue.
async fn world() -> anyhow::Result<World> {
    let world = World::with(json!({ "plugins": ["My::Plugin", "Other::Plugin"] })).await?;
    let hash = PasswordHash::of(PASSWORD)?;
    for (name, scope) in [("olga", Scope::Tenant("acme".to_owned())), ("otto", Scope::Queue(world.mine))] {
        let grant = Grant { scope, role: Role::Operator };
        world.store.add_user(&World::name(name)?, None, &[grant], Some(&hash)).await?;
    }
    Ok(world)
}

#[tokio::test]
async fn who_may_not_submit_a_task_does_not_have_it_run_with_other_params() -> anyhow::Result<()> {
    let world = world().await?;
    let ours = world.task(world.other).await?;
    set(&world, ours, doc! { "tenant": "acme" }).await?;
    let (code, refused) = rerun(&world, "olga", ours, json!({ "params": { "command": "evil" } })).await?;
    ensure!(code == 403, "{code}: {refused}");
    ensure!(rerun(&world, "olga", ours, json!({})).await?.0 == 200, "as it is she may");

    let stepped = world.task(world.mine).await?;
    let steps = [doc! { "name": "one", "plugin": "Other::Plugin", "params": {}, "status": 1 }];
    set(&world, stepped, doc! { "steps": steps.to_vec() }).await?;
    let (code, refused) = rerun(&world, "otto", stepped, json!({ "params": { "a": 1 } })).await?;
    ensure!(code == 403 && refused.to_string().contains("Other::Plugin"), "{code}: {refused}");
    let (code, answer) = rerun(&world, "operator", stepped, json!({ "params": { "a": 1 } })).await?;
    ensure!(code == 200, "{code}: {answer}");

    let plain = world.task(world.mine).await?;
    ensure!(rerun(&world, "otto", plain, json!({ "params": { "a": 1 } })).await?.0 == 200);
    let of_acme = world.task(world.mine).await?;
    set(&world, of_acme, doc! { "tenant": "acme" }).await?;
    let (code, refused) = rerun(&world, "otto", of_acme, json!({ "params": { "a": 1 } })).await?;
    ensure!(code == 403 && refused.to_string().contains("acme"), "{code}: {refused}");
    let closed = world.task(world.mine).await?;
    let queues = world.database.database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": world.mine }, doc! { "$set": { "accepting": false } }).await?;
    let (code, refused) = rerun(&world, "otto", closed, json!({ "params": { "a": 1 } })).await?;
    ensure!(code == 409, "{code}: {refused}");
    world.database.drop_database().await
}

#[tokio::test]
async fn who_may_not_submit_a_task_has_none_made_of_an_archived_one() -> anyhow::Result<()> {
    let world = world().await?;
    let ours = world.task(world.other).await?;
    set(&world, ours, doc! { "tenant": "acme" }).await?;
    let of_acme = world.task(world.mine).await?;
    set(&world, of_acme, doc! { "tenant": "acme" }).await?;
    let plain = world.task(world.mine).await?;
    let moved = world.store.archive_tasks(&[ours, of_acme, plain].map(TaskId)).await?.moved;
    ensure!(moved == 3, "{moved}");
    for (user, task, status, said) in [
        ("olga", ours, 403, "submitter on its queue"),
        ("otto", of_acme, 403, "acme"),
        ("otto", plain, 200, "retry_of"),
        ("operator", ours, 200, "retry_of"),
        ("operator", of_acme, 200, "retry_of"),
    ] {
        let (code, answer) = post(&world, user, &format!("/tasks/{task}/retry"), json!({})).await?;
        ensure!(code == status && answer.to_string().contains(said), "{user} {task}: {code}: {answer}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn secure_parameters_are_not_told_to_what_somebody_else_names() -> anyhow::Result<()> {
    let world = world().await?;
    let task = world.task(world.mine).await?;
    let data = Binary { subtype: BinarySubtype::Generic, bytes: vec![1; 40] };
    let sealed = doc! { "key": "0123456789abcdef", "data": data };
    set(&world, task, doc! { "secure_params": sealed }).await?;
    let (code, refused) = rerun(&world, "otto", task, json!({ "params": { "url": "http://evil" } })).await?;
    ensure!(code == 403 && refused.to_string().contains("secure"), "{code}: {refused}");
    world.database.drop_database().await
}

#[tokio::test]
async fn tasks_that_come_after_in_other_queues_are_not_named() -> anyhow::Result<()> {
    let world = world().await?;
    let first = world.task(world.mine).await?;
    let busy = world.task(world.other).await?;
    set(&world, busy, doc! { "status": 0, "after": [first] }).await?;
    let (code, refused) = rerun(&world, "otto", first, json!({ "downstream": "all" })).await?;
    ensure!(matches!(code, 403 | 404), "{code}: {refused}");
    ensure!(!refused.to_string().contains(&busy.to_hex()), "{refused}");
    let (code, refused) = rerun(&world, "operator", first, json!({ "downstream": "all" })).await?;
    ensure!(code == 409 && refused.to_string().contains(&busy.to_hex()), "{code}: {refused}");
    world.database.drop_database().await
}
