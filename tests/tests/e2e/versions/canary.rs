//! A queue tries a version with a part of its tasks: it stays if it is as good, and is taken back if it is worse.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::model::{Canary, QueueId, TaskId};
use disbatch_tests::{Dci, World, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use super::{WARM, dci, install};

/// Fails if there is a file beside it.
const MAY_FAIL: &str = "#!/bin/sh\necho VERSION\ntest ! -e \"${0%/*}/fail\"\n";

/// Says how many tasks came together, and its process.
const BATCH: &str = r#"#!/usr/bin/env python3
import json, os, sys
control = int(os.environ["DISBATCH_CONTROL_FD"])
for line in sys.stdin:
    tasks = json.loads(line)["tasks"]
    for one in tasks:
        said = {"stdout": "VERSION %d" % len(tasks), "stderr": str(os.getpid()), "done": {}}
        os.write(control, json.dumps({"id": one["env"]["DISBATCH_TASK_ID"], **said}).encode() + b"\n")
"#;

/// A queue that pins version 1 and tries version 2, which fails if `fails`.
struct Scene {
    world: World,
    queue: QueueId,
    dci: Dci,
    _den: disbatch_tests::Den,
}

impl Scene {
    async fn new(fails: bool, fields: Document) -> anyhow::Result<Self> {
        Self::of((MAY_FAIL, json!({})), fails, fields).await
    }

    async fn of(plugin: (&str, Value), fails: bool, fields: Document) -> anyhow::Result<Self> {
        let world = World::new().await?;
        for version in ["1", "2"] {
            install(&world.plugins(), version, plugin.clone())?;
        }
        if fails {
            std::fs::write(world.plugins().join("mail-2/fail"), "")?;
        }
        let mut queue = doc! { "name": "mail", "threads": 4, "version": "1" };
        queue.extend(fields);
        let queue = world.queue("Mail", queue).await?;
        let den = world.den_at_work("n1").await?;
        let dci = dci(&world).await?;
        Ok(Self { world, queue, dci, _den: den })
    }

    fn path(&self) -> String {
        format!("/queues/{}", self.queue)
    }

    async fn details(&self) -> anyhow::Result<Value> {
        self.dci.get(&format!("{}?.details=1", self.path())).await
    }

    /// Has it try version 2, before there is anything to run.
    async fn try_with(&self, share: f64) -> anyhow::Result<()> {
        self.world.update_queue(self.queue, doc! { "threads": 0 }).await?;
        self.dci.posted(&self.path(), &json!({ "canary": { "version": "2", "share": share } })).await?;
        Ok(())
    }

    async fn go(&self) -> anyhow::Result<()> {
        self.world.update_queue(self.queue, doc! { "threads": 4 }).await
    }

    async fn canary(&self) -> anyhow::Result<Option<Canary>> {
        let queues = self.world.store().list_queues().await?;
        Ok(Canary::of(queues.iter().find(|queue| queue.id == self.queue).context("no queue")?))
    }
}

fn version_of(task: &Document) -> &str {
    task.get_str("plugin_version").unwrap_or("none")
}

#[tokio::test]
async fn a_part_of_the_tasks_is_run_by_the_canary_and_a_good_one_stays() -> anyhow::Result<()> {
    let scene = Scene::new(false, doc! {}).await?;
    scene.try_with(0.3).await?;
    let canary = scene.canary().await?.context("no canary")?;
    scene.world.submit(scene.queue, vec![doc! {}; 200]).await?;
    scene.go().await?;
    let tasks = scene.world.until_all_ended(scene.queue).await?;
    for task in &tasks {
        let expected = if canary.has(TaskId(task.get_object_id("_id")?)) { "2" } else { "1" };
        assert_eq!((version_of(task), task.get_str("stdout")?.trim()), (expected, expected), "{task}");
    }
    let tried = tasks.iter().filter(|task| version_of(task) == "2").count() as u64;
    ensure!((25..=95).contains(&tried), "{tried} of 200");
    let now = eventually("both sides to be counted", || async {
        let now = scene.details().await?["canary_now"].clone();
        Ok((now["ended"] == tried && now["others_ended"] == 200 - tried).then_some(now))
    })
    .await?;
    assert_eq!((&now["failed"], &now["others_failed"]), (&json!(0), &json!(0)));
    ensure!(now["p"].as_f64().is_some_and(|p| p > 0.99), "{now}");
    assert_eq!(scene.canary().await?, Some(canary), "it stays");
    // What everybody has seen is made the version of all, by one of them: the form of the page, without scripts.
    let was = json!({ "version": "1", "canary": { "version": "2", "share": 0.3 } });
    let (seen, path) = (was.to_string(), scene.path());
    let form = [("version", "2"), ("canary", ""), (".was", seen.as_str()), (".then", path.as_str())];
    scene.dci.request(Method::POST, &path).form(&form).send().await?.error_for_status()?;
    let (refused, changed) = scene.dci.post(&scene.path(), &json!({ "version": "3", ".was": was })).await?;
    assert_eq!(refused, 409, "{changed}");
    let details = scene.details().await?;
    assert_eq!((&details["version"], &details["canary"]), (&json!("2"), &Value::Null));
    scene.world.end().await
}

#[tokio::test]
async fn a_worse_canary_returns_by_itself_and_its_tasks_are_tried_again_without_it() -> anyhow::Result<()> {
    let rules = doc! { "max_attempts": 60, "backoff": { "base": 1.0, "factor": 1.0, "jitter": 0.0 } };
    let scene = Scene::new(true, rules).await?;
    scene.try_with(0.3).await?;
    let began = scene.details().await?["canary"]["began"].clone();
    scene.world.submit(scene.queue, vec![doc! {}; 200]).await?;
    scene.go().await?;
    let returned = eventually("the canary to return", || async {
        let details = scene.details().await?;
        Ok(details["canary"].is_null().then(|| details["canary_returned"].clone()))
    })
    .await?;
    assert_eq!((&returned["version"], &returned["began"]), (&json!("2"), &began), "{returned}");
    assert_eq!((&returned["failed"], &returned["others_failed"]), (&returned["of"], &json!(0)), "{returned}");
    ensure!(returned["of"].as_u64() >= Some(20) && returned["p"].as_f64() < Some(0.001), "{returned}");
    let mut versions = BTreeSet::new();
    for task in scene.world.until_all_ended(scene.queue).await? {
        let id = task.get_object_id("_id")?;
        let attempts = scene.dci.get(&format!("/tasks/{id}/attempts")).await?;
        let earlier = attempts.as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(earlier.iter().all(|attempt| attempt["plugin_version"] == "2"), "{attempts}");
        assert_eq!((task.get_i32("status")?, version_of(&task)), (1, "1"), "{task}");
        versions.insert(!earlier.is_empty());
    }
    ensure!(versions.len() == 2, "some were tried again, and some not: {versions:?}");
    let audit = scene.world.database().collection::<Document>("audit");
    let entry = audit.find_one(doc! { "by": { "$regex": "^Disbatch itself" } }).await?.context("no entry")?;
    assert_eq!(
        (entry.get_str("what")?, entry.get("queue")),
        ("queue update", Some(&Bson::from(scene.queue.0)))
    );
    ensure!(entry.get_document("after")?.contains_key("canary_returned"), "{entry}");
    scene.dci.posted(&scene.path(), &json!({ "version": "1" })).await?;
    ensure!(scene.details().await?["canary_returned"].is_null(), "it is of no interest any more");
    scene.world.end().await
}

#[tokio::test]
async fn a_task_keeps_its_version_over_its_attempts() -> anyhow::Result<()> {
    let rules = doc! { "max_attempts": 3, "backoff": { "base": 0.1, "factor": 1.0, "jitter": 0.0 } };
    let scene = Scene::new(true, rules).await?;
    // Both fail, so nobody is worse.
    std::fs::write(scene.world.plugins().join("mail-1/fail"), "")?;
    scene.try_with(0.5).await?;
    let canary = scene.canary().await?.context("no canary")?;
    scene.world.submit(scene.queue, vec![doc! {}; 24]).await?;
    scene.go().await?;
    for task in scene.world.until_all_ended(scene.queue).await? {
        let id = task.get_object_id("_id")?;
        let expected = if canary.has(TaskId(id)) { "2" } else { "1" };
        let attempts = scene.dci.get(&format!("/tasks/{id}/attempts")).await?;
        let earlier = attempts.as_array().context("no list")?;
        assert_eq!((earlier.len(), version_of(&task)), (2, expected));
        assert!(earlier.iter().all(|attempt| attempt["plugin_version"] == expected), "{attempts}");
    }
    let now = eventually("all attempts to be counted", || async {
        let now = scene.details().await?["canary_now"].clone();
        let all = |side: &str| now[side].as_u64().unwrap_or(0);
        Ok((all("ended") + all("others_ended") == 72).then_some(now))
    })
    .await?;
    assert_eq!((&now["failed"], &now["others_failed"]), (&now["ended"], &now["others_ended"]));
    assert_eq!(scene.canary().await?, Some(canary), "it is not worse");
    scene.world.end().await
}

/// Runs tasks of a warm plugin with a canary that has half of them. Returns what they said, and the processes, by version.
async fn run_warm(
    plugin: (&str, Value),
    tasks: usize,
) -> anyhow::Result<BTreeMap<String, [BTreeSet<String>; 2]>> {
    let scene = Scene::of(plugin, false, doc! { "threads": 0 }).await?;
    scene.try_with(0.5).await?;
    scene.world.submit(scene.queue, vec![doc! {}; tasks]).await?;
    scene.world.update_queue(scene.queue, doc! { "threads": 8 }).await?;
    let mut by_version: BTreeMap<String, [BTreeSet<String>; 2]> = BTreeMap::new();
    for task in scene.world.until_all_ended(scene.queue).await? {
        let [said, process] =
            [task.get_str("stdout")?, task.get_str("stderr")?].map(|text| text.trim().to_owned());
        ensure!(said.split(' ').next() == Some(version_of(&task)), "{task}");
        let [all, processes] = by_version.entry(version_of(&task).to_owned()).or_default();
        all.insert(said);
        processes.insert(process);
    }
    scene.world.end().await?;
    Ok(by_version)
}

#[tokio::test]
async fn each_version_has_batches_of_its_own() -> anyhow::Result<()> {
    let batch = json!({ "warm": { "batch": { "max": 8, "wait_ms": 5 } } });
    let by_version = run_warm((BATCH, batch), 400).await?;
    assert_eq!(by_version.keys().collect::<Vec<_>>(), ["1", "2"]);
    for (version, [said, processes]) in by_version {
        ensure!(
            said.iter().any(|said| !said.ends_with(" 1")),
            "{version} had no two tasks at a time: {said:?}"
        );
        // A runner that has no more tasks of one version may get some of the other.
        ensure!(processes.len() <= 40, "{version} was started again and again: {processes:?}");
    }
    Ok(())
}

#[tokio::test]
async fn warm_processes_of_both_versions_are_kept() -> anyhow::Result<()> {
    for warm in [json!(true), json!({ "folder": false })] {
        for (version, [_, processes]) in run_warm((WARM, json!({ "warm": warm })), 200).await? {
            // Some hundred tasks in eight slots. A busy machine may start some for nothing.
            ensure!(processes.len() <= 30, "{version} was started again and again: {processes:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_node_needs_both_versions_and_nonsense_is_refused() -> anyhow::Result<()> {
    let scene = Scene::new(false, doc! {}).await?;
    for (canary, why) in [
        (json!({ "version": "2" }), "version and share"),
        (json!({ "version": "2", "share": 0 }), "canary.share must be above 0 and at most 1"),
        (json!({ "version": "2", "share": 1.5 }), "canary.share must be above 0 and at most 1"),
        (json!({ "version": 2, "share": 0.5 }), "canary.version must be text"),
        (json!({ "version": "1", "share": 0.5 }), "the version that the queue pins"),
    ] {
        let (status, error) = scene.dci.post(&scene.path(), &json!({ "canary": canary })).await?;
        assert!(status == 400 && error.to_string().contains(why), "{canary}: {error}");
    }
    scene.dci.posted(&scene.path(), &json!({ "canary": { "version": "3", "share": 0.01 } })).await?;
    let task = eventually("the node to hear of it", || async {
        let id = scene.world.submit(scene.queue, vec![doc! {}]).await?[0];
        disbatch_tests::always("nobody claims it", std::time::Duration::from_secs(2), || async {
            Ok(scene.world.status(id).await? == -2)
        })
        .await
        .map_or(Ok(None), |()| Ok(Some(id)))
    })
    .await?;
    let why = scene.dci.get(&format!("/tasks/{task}/explain")).await?.to_string();
    assert!(why.contains("n1 cannot claim it: it does not have version 3 of the plugin Mail"), "{why}");
    assert!(why.contains("run by version 1 of the plugin Mail, and 1 % of them by version 3."), "{why}");
    scene.dci.posted(&scene.path(), &json!({ "canary": null })).await?;
    scene.world.until_status(task, 1).await?;
    scene.world.end().await
}
