//! What has no room for its life is refused, whatever way it comes, by an answer that says what is too large.

use bson::{Document, doc};
use disbatch_core::budget;
use disbatch_tests::{Dci, World};
use serde_json::{Value, json};

/// Too long by a byte.
fn too_long() -> String {
    "x".repeat(budget::PARAMS - 20)
}

fn refused(field: &str, (status, answer): &(u16, Value)) -> anyhow::Result<()> {
    let error = answer["error"].as_str().unwrap_or_default();
    anyhow::ensure!(*status == 413, "{status}: {error}");
    anyhow::ensure!(error.contains(&format!("{field} takes")), "{error}");
    anyhow::ensure!(error.contains(&budget::PARAMS.to_string()), "{error}");
    anyhow::ensure!(error.contains("large input belongs into a file set"), "{error}");
    Ok(())
}

/// What is written in several places may have less than its budget: the memory of a request is not enough for so many copies.
fn takes_too_much((status, answer): &(u16, Value)) -> anyhow::Result<()> {
    let error = answer["error"].as_str().unwrap_or_default();
    anyhow::ensure!(*status == 413 && error.contains("64 MiB of memory"), "{status}: {error}");
    Ok(())
}

#[tokio::test]
async fn what_has_no_room_for_its_life_is_refused_on_every_way() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "web_extensions": ["Disbatch::Web::Tasks"] }))?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let id = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let queue = id.to_string();
    let params = json!({ "a": too_long() });
    let by_post = dci.post("/tasks", &json!({ "queue": queue, "params": [params] })).await?;
    refused("'params'", &by_post)?;
    assert_eq!(
        (&by_post.1["limit"], &by_post.1["bytes"]),
        (&json!(budget::PARAMS), &json!(budget::PARAMS + 1))
    );
    // As Perl's clients do.
    refused("'params'", &dci.post(&format!("/tasks/{queue}"), &json!([params])).await?)?;
    let once = json!({ "queue": queue, "params": [params], ".idempotency_key": "k" });
    refused("'params'", &dci.post("/tasks", &once).await?)?;
    let array = json!({ "queue": queue, "params": params, ".array": "0-3" });
    takes_too_much(&dci.post("/tasks", &array).await?)?;
    let chain = json!({ "queue": queue, "params": [{ "a": 1 }, params], ".chain": true });
    let by_chain = dci.post("/tasks", &chain).await?;
    refused("'params'", &by_chain)?;
    assert!(by_chain.1["error"].as_str().unwrap_or_default().starts_with("task 1 of the request: "));
    let half = "x".repeat(budget::PARAMS / 2);
    let steps = json!({ "queue": queue, "params": [{ "a": half }], ".steps": [{ "params": { "b": half } }] });
    let (status, answer) = dci.post("/tasks", &steps).await?;
    assert_eq!(status, 413, "{answer}");
    let batch =
        json!({ "tasks": [{ "queue": queue, "params": params }, { "queue": queue, "params": { "a": 1 } }] });
    let (status, answer) = dci.post("/tasks/batch", &batch).await?;
    assert_eq!((status, &answer["results"][0]["status"]), (200, &json!(413)), "{answer}");
    assert_eq!(answer["submitted"], json!(1), "the other one is there");
    let schedule = json!({ "name": "s", "queue": queue, "cron": "@yearly", "params": params });
    takes_too_much(&dci.post("/schedules", &schedule).await?)?;
    // The document that tasks are made of may be larger than they may be.
    let source = world.database().collection::<Document>("people");
    source.insert_one(doc! { "long": "x".repeat(budget::PARAMS + 9) }).await?;
    let collection = json!({
        "queue": queue, "collection": "people", "filter": {}, "params": { "a": "document.long" },
    });
    refused("'params'", &dci.post("/tasks", &collection).await?)?;
    assert_eq!(world.count(id, doc! {}).await?, 1, "nothing else was made");
    let whole = json!({ "queue": queue, "params": [{ "a": "x".repeat(budget::PARAMS - 21) }] });
    dci.posted("/tasks", &whole).await?;
    world.end().await
}
