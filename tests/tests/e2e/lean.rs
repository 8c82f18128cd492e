//! A database without the indexes that only Perl programs need.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use disbatch_core::model::whole_number;
use disbatch_core::store::collections;
use disbatch_tests::{Dci, Script, World, eventually};
use futures::TryStreamExt;
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

/// What the other indexes of tasks can do as well.
const LEFT_OUT: [&str; 2] = ["node_1_status_1_queue_1", "node_1_status_1_queue_1__id_-1"];

/// The names of all indexes of each collection.
async fn indexes(world: &World) -> anyhow::Result<BTreeMap<&'static str, BTreeSet<String>>> {
    let mut indexes = BTreeMap::new();
    for collection in collections::ALL {
        let documents = world.database().collection::<Document>(collection.name);
        // Collections that nobody has written to yet are not there. Those that are have this one.
        let names = documents.list_index_names().await.unwrap_or_default();
        indexes.insert(collection.name, names.into_iter().filter(|name| name != "_id_").collect());
    }
    Ok(indexes)
}

fn of_tasks(indexes: &BTreeMap<&'static str, BTreeSet<String>>) -> BTreeSet<String> {
    indexes["tasks"].clone()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_lean_database_lacks_two_indexes_and_no_other() -> anyhow::Result<()> {
    let (exact, lean) = (World::new().await?, World::new().await?);
    lean.configure(json!({ "indexes": "lean" }))?;
    let dens = [exact.den_at_work("n1").await?, lean.den_at_work("n1").await?];
    let (all, mut some) = (indexes(&exact).await?, indexes(&lean).await?);
    let missing: BTreeSet<String> = of_tasks(&all).difference(&of_tasks(&some)).cloned().collect();
    assert_eq!(missing, names(&LEFT_OUT));
    some.insert("tasks", of_tasks(&all));
    assert_eq!(some, all, "of all else nothing is left out");
    for den in dens {
        den.end_with(Signal::SIGTERM).await?;
    }
    exact.end().await?;
    lean.end().await
}

#[tokio::test]
async fn life_goes_on_without_these_indexes() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "indexes": "lean", "janitor": { "every": 0.2 } }))?;
    let order = world.path().join("order");
    let recorder = format!("#!/bin/sh\nprintf '%s\\n' \"$JOB_PARAMS\" >> {}\n", order.display());
    let oldest = world.script_queue(Script { name: "Oldest", text: &recorder }, 0).await?;
    let newest = world.script_queue(Script { name: "Newest", text: &recorder }, 0).await?;
    world.update_queue(newest, doc! { "sort": "lifo" }).await?;
    let fails = world.script_queue(Script { name: "Fails", text: "#!/bin/sh\nexit 1\n" }, 2).await?;
    world
        .update_queue(
            fails,
            doc! { "max_attempts": 2, "backoff": { "base": 0.05, "factor": 1, "jitter": 0 } },
        )
        .await?;
    let den = world.den_at_work("n1").await?;
    world.database().run_command(doc! { "profile": 2 }).await?;
    for queue in [oldest, newest] {
        world.submit(queue, (0..10).map(|n| doc! { "n": n }).collect()).await?;
        world.update_queue(queue, doc! { "threads": 1 }).await?;
        let tasks = world.until_all_ended(queue).await?;
        assert!(tasks.iter().all(|task| task.get_i32("status").ok() == Some(1)), "{tasks:?}");
    }
    let text = std::fs::read_to_string(&order)?;
    let ran: Vec<i64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?.get("n")?.as_i64())
        .collect();
    let expected: Vec<i64> = (0..10).chain((0..10).rev()).collect();
    assert_eq!(ran, expected);

    let failing = world.submit(fails, vec![doc! {}]).await?[0];
    let failed = world.until_status(failing, 2).await?;
    assert_eq!(failed.get("attempt").and_then(whole_number), Some(2), "{failed}");

    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let get =
        async |path: &str| anyhow::Ok(dci.request(Method::GET, path).send().await?.json::<Value>().await?);
    let queues = get("/queues").await?;
    let completed: i64 =
        queues.as_array().into_iter().flatten().filter_map(|queue| queue.get("completed")?.as_i64()).sum();
    assert_eq!(completed, 21, "{queues}");
    let by_node = get(&format!("/tasks?queue={newest}&node=n1&status=1")).await?;
    assert_eq!(by_node.as_array().map(Vec::len), Some(10), "{by_node}");

    world.update_queue(oldest, doc! { "retention": { "delete_after": 0.1 } }).await?;
    eventually("old tasks to go", || async { Ok((world.count(oldest, doc! {}).await? == 0).then_some(())) })
        .await?;
    den.end_with(Signal::SIGTERM).await?;
    asked_by_indexes_that_are_there(&world).await?;
    world.end().await
}

/// What a DEN has asked with a hint was not refused, and queued tasks were read from the index, in order, in both directions.
async fn asked_by_indexes_that_are_there(world: &World) -> anyhow::Result<()> {
    let profile = world.database().collection::<Document>("system.profile");
    let of_dens = doc! { "ns": world.tasks().namespace().to_string(), "appName": "disbatchd" };
    let with = |more: Document| of_dens.clone().into_iter().chain(more).collect::<Document>();
    let refused = with(doc! { "errCode": 2 });
    let refused: Vec<Document> = profile.find(refused).await?.try_collect().await?;
    assert!(refused.is_empty(), "{refused:?}");
    for direction in [1, -1] {
        let reads = with(
            doc! { "command.find": "tasks", "command.sort": { "_id": direction }, "command.filter.status": -2 },
        );
        let reads: Vec<Document> = profile.find(reads).await?.try_collect().await?;
        assert!(!reads.is_empty(), "{direction}");
        for read in reads {
            assert!(!read.get_bool("hasSortStage").unwrap_or(false), "{read}");
            let plan = read.get_str("planSummary")?;
            assert!(plan.starts_with("IXSCAN { node: 1, status: 1, queue: 1, _id: 1 }"), "{plan}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn indexes_that_are_there_stay_and_come_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "indexes": "lean" }))?;
    let lean = world.den_at_work("n1").await?;
    assert!(!lean.log()?.contains("somebody drops it"), "{}", lean.log()?);
    lean.end_with(Signal::SIGTERM).await?;
    let without = of_tasks(&indexes(&world).await?);

    world.configure(json!({}))?;
    world.den_at_work("n2").await?.end_with(Signal::SIGTERM).await?;
    let with = of_tasks(&indexes(&world).await?);
    assert_eq!(with.difference(&without).cloned().collect::<BTreeSet<_>>(), names(&LEFT_OUT));

    world.configure(json!({ "indexes": "lean" }))?;
    let lean = world.den_at_work("n3").await?;
    assert_eq!(of_tasks(&indexes(&world).await?), with, "nothing is dropped");
    let log = lean.log()?;
    for index in LEFT_OUT {
        let says = |line: &&str| {
            line.contains("stays until somebody drops it") && line.contains(&format!("index={index}"))
        };
        assert_eq!(
            log.lines().filter(|line| says(line) && line.trim_end().ends_with(index)).count(),
            1,
            "{index}: {log}"
        );
    }
    lean.end_with(Signal::SIGTERM).await?;
    world.end().await
}
