//! The collections that the programs use are those that are declared.

use bson::{Document, doc};
use disbatch_core::store::collections::ALL;
use disbatch_tests::{Dci, World};
use serde_json::json;

#[tokio::test]
async fn what_the_programs_leave_in_the_database_is_declared() -> anyhow::Result<()> {
    let world = World::new().await?;
    let _den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 2 }).await?;
    let task = json!({ "queue": queue.to_string(), "params": [{ "commands": "7" }], ".idempotency_key": "k",
        ".locks": ["one"], ".max_attempts": 2 });
    dci.posted("/tasks", &task).await?;
    world.until_all_ended(queue).await?;
    let there = world.database().list_collection_names().await?;
    assert!(there.len() > ALL.len() / 2, "{there:?}");
    assert_eq!(world.undeclared().await?, Vec::<String>::new());
    // What every test asks at its end, see `World::end`.
    world.database().collection::<Document>("notes").insert_one(doc! {}).await?;
    assert_eq!(world.undeclared().await?, ["notes"]);
    world.database().collection::<Document>("notes").drop().await?;
    world.end().await
}
