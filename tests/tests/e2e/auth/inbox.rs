//! The inbox where each process works as a user of its own.

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Script, eventually};
use serde_json::json;

use super::Secured;

#[tokio::test]
async fn an_application_may_insert_into_the_inbox_and_nothing_else() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let world = &secured.world;
    for arguments in [&["--create_root"][..], &["--drop_roles"]] {
        let (code, text) = secured.create_users(arguments).await?;
        assert_eq!(code, Some(0), "{text}");
        let done = if arguments == ["--create_root"] { "Created" } else { "Updated" };
        assert!(text.contains(&format!("{done} role 'disbatchProducer'")), "{text}");
    }
    let role = doc! { "role": "disbatchProducer", "db": world.database().name() };
    world.database().run_command(doc! { "createUser": "shop", "pwd": "s", "roles": [role] }).await?;
    let queue = world.script_queue(Script { name: "Quick", text: "#!/bin/sh\n" }, 1).await?;
    let den = world.den_at_work("n1").await?;
    let shop = secured.database_as("shop", "s").await?;
    let (inbox, tasks) = (shop.collection::<Document>("inbox"), shop.collection::<Document>("tasks"));
    let id = ObjectId::new();
    inbox.insert_one(doc! { "_id": id, "v": 1, "queue": queue, "params": { "a": 1 }, "key": "k" }).await?;
    let ended = eventually("the task", || async {
        Ok(world.tasks().find_one(doc! { "_id": id, "status": 1 }).await?)
    });
    ended.await.with_context(|| den.log().unwrap_or_default())?;
    assert_eq!(world.status(TaskId(id)).await?, 1);
    assert!(inbox.find_one(doc! {}).await.is_err());
    assert!(inbox.delete_many(doc! {}).await.is_err());
    assert!(inbox.update_many(doc! {}, doc! { "$set": { "v": 2 } }).await.is_err());
    assert!(tasks.find_one(doc! {}).await.is_err());
    assert!(tasks.insert_one(doc! { "queue": queue, "status": -2 }).await.is_err());
    Ok(())
}
