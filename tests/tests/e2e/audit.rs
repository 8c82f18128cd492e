//! How long entries of the audit are kept.

use bson::{Bson, Document, doc};
use disbatch_core::model::whole_number;
use disbatch_tests::World;
use serde_json::{Value, json};

/// After how many seconds the server removes entries, if it does.
async fn kept(world: &World) -> anyhow::Result<Option<i64>> {
    let indexes = world.database().run_command(doc! { "listIndexes": "audit" }).await?;
    let indexes = indexes.get_document("cursor")?.get_array("firstBatch")?;
    let of_time = |index: &&Document| index.get_document("key").is_ok_and(|key| *key == doc! { "at": 1 });
    let index = indexes.iter().filter_map(Bson::as_document).find(of_time);
    Ok(index.and_then(|index| index.get("expireAfterSeconds")).and_then(whole_number))
}

#[tokio::test]
async fn entries_are_kept_as_long_as_the_den_that_started_last_says() -> anyhow::Result<()> {
    let world = World::new().await?;
    let days = |days: i64| json!({ "audit": { "keep_days": days } });
    let cases: [(Value, i64); 4] =
        [(json!({}), 400 * 86_400), (days(30), 30 * 86_400), (days(0), 2_147_483_647), (days(1), 86_400)];
    for (number, (config, expected)) in cases.into_iter().enumerate() {
        world.configure(config)?;
        let _den = world.den_at_work(&format!("n{number}")).await?;
        assert_eq!(kept(&world).await?, Some(expected), "{number}");
    }
    world.end().await
}
