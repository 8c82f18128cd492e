//! Perl modules where each process works as a user of its own.

use std::fs;

use anyhow::Context;
use bson::{Document, doc};
use serde_json::json;

use super::Secured;
use crate::perl_plugins::library;

#[tokio::test]
async fn a_perl_module_has_the_database_as_the_user_of_plugins() -> anyhow::Result<()> {
    let engines = json!({ "perl": { "lib": [library()] } });
    let secured =
        Secured::new(json!({ "plugins": { "Classic": 1, "Habits": 1 }, "engines": engines })).await?;
    let world = &secured.world;
    let allowed = world.path().join("plugin.json");
    fs::write(&allowed, r#"{ "reports": ["insert"], "queues": ["find"] }"#)?;
    let permissions = format!("--plugin_perms={}", allowed.display());
    let (code, text) = secured.create_users(&["--create_root", permissions.as_str()]).await?;
    assert_eq!(code, Some(0), "{text}");
    let surroundings = world.queue("Habits", doc! { "threads": 1 }).await?;
    let moves = world.queue("Classic", doc! { "threads": 1 }).await?;
    let looks = world.submit(surroundings, vec![doc! { "do": "surroundings" }]).await?[0];
    let moved = world.submit(moves, vec![doc! { "user1": "ashley@example.com" }]).await?[0];
    let den = world.den("n1")?;
    let task = world.until_status(looks, 1).await.with_context(|| den.log().unwrap_or_default())?;
    let seen = task.get_str("stdout")?;
    assert!(seen.contains("\npasswords plugin\n"), "of the others' it learns nothing: {seen}");
    // It may read queues and not tasks.
    let task = world.until_status(moved, 2).await.with_context(|| den.log().unwrap_or_default())?;
    assert_eq!(task.get_str("stdout")?, "Unable to complete");
    let why = task.get_str("stderr")?;
    assert!(why.contains("not authorized") && why.contains("tasks"), "{why}");

    fs::write(&allowed, r#"{ "reports": ["insert"], "queues": ["find"], "tasks": ["find"] }"#)?;
    let (code, text) = secured.create_users(&[permissions.as_str()]).await?;
    assert_eq!(code, Some(0), "{text}");
    let moved = world.submit(moves, vec![doc! { "user1": "ashley@example.com" }]).await?[0];
    world.until_status(moved, 1).await.with_context(|| den.log().unwrap_or_default())?;
    let reports = world.database().collection::<Document>("reports");
    assert_eq!(reports.count_documents(doc! { "status": "SUCCESS" }).await?, 1);
    secured.server.stop().await
}
