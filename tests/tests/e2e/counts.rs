//! Counts up to a bound, and what people are told of tasks: counts of queues, and histories.

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Bson, doc};
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Phase, TaskId};
use disbatch_core::store::Store;
use disbatch_tests::{Dci, World, binary};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::plan::plans;

#[tokio::test]
async fn many_counts_in_few_commands_are_those_of_one_each() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut counts = Vec::new();
    for number in 0..70_usize {
        let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
        if number % 3 > 0 {
            world.submit(queue, vec![doc! { "a": 1 }; number]).await?;
        }
        counts.push((doc! { "queue": queue, "status": { "$in": [-2, -7] } }, 40));
        counts.push((doc! { "queue": queue, "status": { "$in": [2] } }, 40));
    }
    let store = world.store();
    let amounts = store.count_each_up_to(&counts).await?;
    assert_eq!(amounts.len(), counts.len());
    for ((filter, bound), amount) in counts.into_iter().zip(&amounts) {
        assert_eq!(store.count_up_to(filter.clone(), bound).await?, *amount, "{filter}");
    }
    assert!(amounts.contains(&Amount::MoreThan(40)) && amounts.contains(&Amount::Exactly(40)), "{amounts:?}");
    assert_eq!(store.count_each_up_to(&[]).await?, []);
    world.end().await
}

#[tokio::test]
async fn what_has_stopped_waits_for_nothing_and_is_not_counted_as_queued() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let task =
        |status: i32| doc! { "_id": ObjectId::new(), "queue": queue, "status": status, "node": Bson::Null };
    let stopped = [-3, -5, -6].into_iter().flat_map(|status| (0..500).map(move |_| status));
    world.tasks().insert_many([-2, -4, -7, -99, -1, 0, 1, 17].into_iter().chain(stopped).map(task)).await?;

    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    for address in ["/queues", "/queues/mail"] {
        let answer = dci.get(address).await?;
        let queue = answer.get(0).unwrap_or(&answer);
        let counts = ["queued", "running", "completed"].map(|phase| queue[phase].clone());
        assert_eq!(counts, [4, 2, 2], "{address}");
    }
    let count = async |store: Store| anyhow::Ok(store.count_phase(queue, Phase::Queued, 1_000).await?);
    let plan = plans(&world, count).await?.1.pop().context("nothing was counted")?;
    let stats = plan.get_document("executionStats")?;
    let (keys, docs) = (stats.get_i32("totalKeysExamined")?, stats.get_i32("totalDocsExamined")?);
    assert!(keys < 20 && docs == 0, "what has stopped is not read: {plan}");
    world.end().await
}

#[tokio::test]
async fn a_history_begins_with_the_submission() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("NoSuchPlugin", doc! {}).await?;
    let waiting = world.submit(queue, vec![doc! {}]).await?[0];
    let claimed = world.claimed(queue, doc! {}, "n1").await?;
    ensure!(world.task(waiting).await?.get("history").is_none(), "a submission stores no history");

    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let history = async |task: TaskId| {
        anyhow::Ok(dci.get(&format!("/tasks/{task}?.details=1")).await?["history"].clone())
    };
    let first = history(waiting).await?;
    let [only] = first.as_array().context("no history")?.as_slice() else { bail!("{first}") };
    assert_eq!((&only["status"], &only["note"]), (&json!(-2), &json!("submitted")));
    assert_eq!(only["at"], dci.get(&format!("/tasks/{waiting}")).await?["ctime"]);
    let statuses = |history: &Value| {
        let entries = history.as_array().into_iter().flatten();
        entries.map(|entry| entry["status"].as_i64()).collect::<Vec<_>>()
    };
    let before = history(claimed).await?;
    assert_eq!(statuses(&before).first(), Some(&Some(-2)), "{before}");

    // The archive keeps what was stored, and tells the same.
    world.set(claimed, doc! { "status": 1 }).await?;
    dci.posted(&format!("/tasks/{claimed}/archive"), &json!({})).await?;
    assert_eq!(history(claimed).await?, before);
    let output = Command::new(binary("disbatch")?)
        .args(["--url", dci.url(), "history", &waiting.to_string()])
        .output()
        .await?;
    let text = String::from_utf8(output.stdout)?;
    assert!(text.contains("| queued |") && text.contains("submitted"), "{text}");
    world.end().await
}
