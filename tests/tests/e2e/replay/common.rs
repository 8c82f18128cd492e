//! What recordings have in common is stored once.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, Script, World, eventually};
use futures::TryStreamExt;
use mongodb::Collection;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{bundle, files, json_of, record, recordings};

const TRUE: Script<'_> = Script { name: "True", text: "#!/bin/sh\n" };

fn collection(world: &World) -> Collection<Document> {
    world.database().collection("tasks.recordings")
}

/// What recordings refer to, by id.
async fn parts(world: &World) -> anyhow::Result<Vec<Document>> {
    let all = collection(world);
    let found = all.find(doc! { "task": { "$exists": false } }).sort(doc! { "_id": 1 });
    Ok(found.await?.try_collect().await?)
}

async fn recorded(world: &World, task: TaskId) -> anyhow::Result<Value> {
    // It is stored beside the end of the attempt, and may come a moment later.
    let recording =
        eventually("a recording", || async { Ok(world.store().find_recording(task, 1).await?) }).await?;
    Ok(serde_json::to_value(recording)?)
}

#[tokio::test]
async fn two_dens_store_it_once_and_anew_when_the_queue_has_changed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(TRUE, 4).await?;
    record(&world, queue).await?;
    let dens = [world.den_at_work("n1").await?, world.den_at_work("n2").await?];
    let mut tasks = Vec::new();
    // Until both have had some.
    let of_each = || async {
        let [one, two] = ["n1", "n2"].map(|node| world.count(queue, doc! { "status": 1, "node": node }));
        anyhow::Ok(one.await? > 0 && two.await? > 0)
    };
    while !of_each().await? {
        tasks.extend(world.submit(queue, vec![doc! { "n": 1 }; 10]).await?);
        world.until_all_ended(queue).await?;
    }
    for task in &tasks {
        recorded(&world, *task).await?;
    }
    // At midnight there may be another, with the same sum.
    let stored = parts(&world).await?;
    let ids = stored.iter().map(|part| part.get_str("_id")).collect::<Result<Vec<_>, _>>()?;
    let sums: BTreeSet<_> = ids.iter().filter_map(|id| id.split('.').next()).collect();
    assert_eq!(sums.len(), 1, "{stored:?}");
    let all: Vec<Document> = collection(&world).find(doc! { "queue": queue }).await?.try_collect().await?;
    assert_eq!(all.len(), tasks.len());
    for own in &all {
        let named = own.get_str("common")?;
        let part = stored
            .iter()
            .find(|part| part.get_str("_id").is_ok_and(|id| id == named))
            .context("nothing is named so")?;
        assert!(own.get_datetime("expires")? < part.get_datetime("expires")?, "{own}");
    }
    for task in &tasks {
        let recording = recorded(&world, *task).await?;
        assert_eq!(
            (&recording["queue"]["plugin"], &recording["plugin"]["name"]),
            (&json!("True"), &json!("True"))
        );
        let variables = recording["environment"].as_array().context("no environment")?;
        let names: Vec<_> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
        assert!(names.is_sorted() && names.contains(&"PATH") && names.contains(&"RUN_ID"), "{names:?}");
        assert!(recording["plugin"]["manifest"]["command"].is_array(), "{recording}");
        assert!(recording["plugin"]["files"][0]["sha256"].is_string(), "{recording}");
    }
    world.update_queue(queue, doc! { "title": "another" }).await?;
    let later = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(later, 1).await?;
    assert_eq!(recorded(&world, later).await?["queue"]["title"], "another");
    assert_eq!(recorded(&world, tasks[0]).await?["queue"]["title"], Value::Null);
    assert_eq!(parts(&world).await?.len(), stored.len() + 1);
    drop(dens);
    world.end().await
}

#[tokio::test]
async fn those_of_earlier_releases_are_read_and_those_that_lack_it_are_none() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(TRUE, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let [old, new] = world.submit(queue, vec![doc! {}; 2]).await?[..] else { anyhow::bail!("two tasks") };
    for task in [old, new] {
        world.until_status(task, 1).await?;
    }
    let as_it_was = recorded(&world, old).await?;
    let whole = doc! { "recording": as_it_was.to_string() };
    let change = doc! { "$set": whole, "$unset": { "common": "" } };
    collection(&world).update_one(doc! { "task": old }, change).await?;
    collection(&world).delete_many(doc! { "task": { "$exists": false } }).await?;
    assert_eq!(recorded(&world, old).await?, as_it_was);
    for (task, is_recorded) in [(old, true), (new, false)] {
        let bundled = files(&bundle(&world, &dci, task, &[]).await?.1)?;
        assert_eq!(json_of(&bundled, "bundle.json")?["recorded"], is_recorded);
        assert_eq!(bundled.contains_key("recording.json"), is_recorded);
    }
    let log = fs::read_to_string(world.path().join("dci.log"))?;
    assert!(log.contains("what it has in common with others is gone"), "{log}");
    // Of each attempt of a task, and of no other task.
    let mut second = collection(&world).find_one(doc! { "task": old }).await?.context("no recording")?;
    second.insert("_id", format!("{old}.12"));
    collection(&world).insert_one(second).await?;
    assert_eq!(world.store().delete_tasks(&[old]).await?, 1);
    assert_eq!(recordings(&world).await?, 1);
    drop(den);
    world.end().await
}

#[tokio::test]
async fn where_it_cannot_be_stored_a_recording_is_whole() -> anyhow::Result<()> {
    let world = World::new().await?;
    let refuse = doc! { "create": "tasks.recordings", "validator": { "task": { "$exists": true } } };
    world.database().run_command(refuse).await?;
    let queue = world.script_queue(TRUE, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    assert_eq!(recorded(&world, task).await?["queue"]["plugin"], "True");
    let stored = collection(&world).find_one(doc! {}).await?.context("no recording")?;
    assert_eq!(stored.get("common"), None);
    let log = den.log()?;
    assert!(log.contains("cannot store what recordings have in common"), "{log}");
    assert!(!log.contains("cannot go on with the help of the DEN"), "{log}");
    drop(den);
    world.end().await
}

#[tokio::test]
async fn a_runner_without_a_den_stores_it_by_itself() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (begun, go) = (world.path().join("begun"), world.path().join("go"));
    let text =
        format!("#!/bin/sh\n>{}\nuntil [ -e {} ]; do sleep 0.05; done\n", begun.display(), go.display());
    let queue = world.script_queue(Script { name: "Patient", text: &text }, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    // It is started before its runner is told: then nobody would run it.
    eventually("its plugin", || async { Ok(begun.exists().then_some(())) }).await?;
    den.end_with(Signal::SIGKILL).await?;
    fs::write(go, "")?;
    world.until_status(task, 1).await?;
    let stored =
        eventually("a recording", || async { Ok(collection(&world).find_one(doc! { "task": task }).await?) });
    assert!(matches!(stored.await?.get("common"), Some(Bson::String(_))));
    assert_eq!(recorded(&world, task).await?["queue"]["plugin"], "Patient");
    world.end().await
}
