//! Tasks of a queue run a second time with another version of their plugin, and are compared.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::{QueueId, SHADOW_OF, Shadow, TaskId, shadow_id, whole_number};
use disbatch_core::task::{Retried, TaskOptions};
use disbatch_tests::{Dci, Den, Script, World, binary, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Writes to a file what it has done, unless it is to have no effects. Both versions say what they were given; of odd numbers they do not say the same.
const OLD: &str = r#"#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
n = task["params"]["n"]
with open(task["params"]["log"] + (".shadow" if os.environ.get("DISBATCH_SHADOW") == "1" else ".real"), "a") as log:
    log.write(task["_id"]["$oid"] + "\n")
print("task", task["_id"]["$oid"], "is", n, os.environ["TENANT_ID"])
sys.exit(1 if n == 4 else 0)
"#;

fn new_version() -> String {
    OLD.replace("\"is\", n", "\"is\", n if n % 2 == 0 else -n").replace("n == 4", "False")
}

struct Scene {
    world: World,
    dci: Dci,
    queue: QueueId,
    next: QueueId,
    den: Den,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let queue = world.script_queue(Script { name: "Old", text: OLD }, 4).await?;
        let new = new_version();
        // Only its second version can be one.
        for (version, name) in [("1", "New"), ("2", "New-2")] {
            let manifest =
                json!({ "name": "New", "version": version, "command": ["./run"], "shadow": version == "2" });
            Script { name, text: &new }.install_as(&world.plugins(), &manifest)?;
        }
        let next = world.queue("New", doc! { "threads": 4, "name": "next", "version": "2" }).await?;
        let den = world.den_at_work("n1").await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        Ok(Self { world, dci, queue, next, den })
    }

    async fn set(&self, queue: &str, shadow: &Value) -> anyhow::Result<(u16, Value)> {
        self.dci.post(&format!("/queues/{queue}"), &json!({ "shadow": shadow })).await
    }

    async fn shadow(&self, share: f64) -> anyhow::Result<()> {
        let (status, answer) =
            self.set(&self.queue.to_string(), &json!({ "queue": "next", "share": share })).await?;
        ensure!(status == 200, "{answer}");
        Ok(())
    }

    async fn submit(&self, numbers: std::ops::Range<i64>) -> anyhow::Result<Vec<TaskId>> {
        let log = self.world.path().join("log").display().to_string();
        let params = numbers.map(|n| doc! { "n": n, "log": &log }).collect();
        let options = TaskOptions { tenant: Some("acme".to_owned()), ..TaskOptions::default() };
        Ok(self.world.store().submit_tasks(self.queue, params, &options).await?.ids)
    }

    /// Until the shadows of these have ended, and of no others.
    async fn until_shadowed(&self, tasks: &[TaskId]) -> anyhow::Result<Vec<Document>> {
        let expected: BTreeSet<String> = tasks.iter().map(|task| shadow_id(*task).to_string()).collect();
        eventually("all shadows", async || {
            let found = self.world.tasks_of(self.next).await?;
            let ended = found.iter().filter(|task| task.get("status").and_then(whole_number) >= Some(1));
            let ids: BTreeSet<String> =
                ended.filter_map(|task| Some(task.get_object_id("_id").ok()?.to_hex())).collect();
            ensure!(ids.is_subset(&expected), "{ids:?} are not among {expected:?}");
            Ok((ids == expected).then_some(found))
        })
        .await
    }

    /// The ids of the tasks that a plugin has worked on, with effects or without.
    fn log(&self, which: &str) -> Vec<String> {
        let text =
            std::fs::read_to_string(self.world.path().join(format!("log.{which}"))).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn disbatch(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(binary("disbatch")?);
        let connection = ["--url", self.dci.url()];
        let output =
            command.env("XDG_CONFIG_HOME", "/nonexistent").args(connection).args(arguments).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn end(self) -> anyhow::Result<()> {
        drop((self.den, self.dci));
        self.world.end().await
    }
}

#[tokio::test]
async fn each_task_runs_a_second_time_without_effects_and_is_compared() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.shadow(1.0).await?;
    let tasks = scene.submit(0..6).await?;
    let before = scene.world.until_all_ended(scene.queue).await?;
    let shadows = scene.until_shadowed(&tasks).await?;
    assert_eq!(scene.world.tasks_of(scene.queue).await?, before, "nothing of a task has changed");
    let ids = |tasks: &[TaskId]| tasks.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(
        (scene.log("real").into_iter().collect::<BTreeSet<_>>(), scene.log("real").len()),
        (ids(&tasks), 6)
    );
    assert_eq!(scene.log("shadow").len(), 6);
    let first = shadows
        .iter()
        .find(|task| task.get_object_id(SHADOW_OF).ok() == Some(tasks[0].0))
        .context("no shadow")?;
    assert!(!first.contains_key("tenant") && first.get_str("stdout")?.ends_with("is 0 acme\n"), "{first}");
    let found = scene.dci.get(&format!("/queues/{}/shadow", scene.queue)).await?;
    for (name, number) in [("pairs", 6), ("different", 4), ("task_failed", 1), ("shadow_failed", 0)] {
        assert_eq!(found[name], number, "{name}: {found:#}");
    }
    let pairs = found["compared"].as_array().context("no pairs")?;
    let of = |task: TaskId| {
        pairs.iter().find(|pair| pair["task"] == task.to_string()).cloned().unwrap_or_default()
    };
    assert_eq!(
        (&of(tasks[0])["different"], &of(tasks[4])["different"]),
        (&json!([]), &json!(["status", "exit"]))
    );
    assert_eq!(of(tasks[1])["different"], json!(["stdout"]));
    let difference = of(tasks[1])["differences"][0]["difference"].clone();
    assert!(
        difference.as_str().is_some_and(|text| text.contains("is 1 acme") && text.contains("is -1 acme")),
        "{difference}"
    );
    let text = scene.disbatch(&["shadow", &scene.queue.to_string(), "--differences"]).await?;
    assert!(text.contains("4 different") && text.contains("+task <masked> is -1 acme"), "{text}");
    scene.end().await
}

#[tokio::test]
async fn a_part_of_them_is_the_same_part_whoever_asks() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.shadow(0.3).await?;
    let tasks = scene.submit(10..60).await?;
    scene.world.until_all_ended(scene.queue).await?;
    let draw = Shadow { queue: "next".to_owned(), share: 0.3 };
    let drawn: Vec<TaskId> = tasks.iter().copied().filter(|task| draw.has(*task)).collect();
    scene.until_shadowed(&drawn).await?;
    // One that runs again has its shadow already.
    let again = *drawn.first().context("of fifty none was drawn")?;
    assert_eq!(scene.world.store().retry_task(again, "again").await?, Retried::Queued);
    scene.world.until_all_ended(scene.queue).await?;
    // With those that come after it, it was looked at once more.
    let others = scene.submit(60..80).await?;
    let others = others.into_iter().filter(|task| draw.has(*task));
    let all: Vec<TaskId> = drawn.iter().copied().chain(others).collect();
    let shadows = scene.until_shadowed(&all).await?;
    assert_eq!(shadows.len(), all.len());
    let attempt = scene.world.task(shadow_id(again)).await?.get("attempt").and_then(whole_number);
    assert_eq!(attempt, Some(1));
    scene.end().await
}

#[tokio::test]
async fn whoever_is_killed_in_the_middle_leaves_no_doubles() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.shadow(1.0).await?;
    let tasks = scene.submit(100..180).await?;
    let some = || async { Ok((scene.world.count(scene.next, doc! {}).await? >= 5).then_some(())) };
    eventually("the first shadows", some).await?;
    let Scene { world, dci, queue, next, den } = scene;
    den.end_with(Signal::SIGKILL).await?;
    // Nobody waits until the lease of the dead has run out.
    let leases = world.database().collection::<Document>("leases");
    leases.update_many(doc! {}, doc! { "$set": { "until": bson::DateTime::from_millis(0) } }).await?;
    let den = world.den_at_work("n2").await?;
    let scene = Scene { world, dci, queue, next, den };
    // One whose runner was not there yet when its DEN died is an orphan: of that its plugin has come to nothing.
    let ended = scene.world.until_all_ended(scene.queue).await?;
    let orphans = ended.iter().filter(|task| task.get("status").and_then(whole_number) == Some(-6));
    let orphans: Vec<_> = orphans.filter_map(|task| task.get_object_id("_id").ok()).collect();
    let tasks: Vec<TaskId> = tasks.into_iter().filter(|task| !orphans.contains(&task.0)).collect();
    assert!(orphans.len() <= 4, "no more than ran at a time: {orphans:?}");
    let shadows = scene.until_shadowed(&tasks).await?;
    assert_eq!(shadows.len(), tasks.len());
    let of: BTreeSet<_> = shadows.iter().filter_map(|task| task.get_object_id(SHADOW_OF).ok()).collect();
    assert_eq!(of.len(), tasks.len());
    scene.end().await
}

#[tokio::test]
async fn what_may_have_effects_is_refused() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let queue = scene.queue.to_string();
    let other = scene.world.queue("Old", doc! { "threads": 4, "name": "old" }).await?;
    for (shadow, why) in [
        (json!({ "queue": "old", "share": 1 }), "no node reports a plugin Old whose manifest says"),
        (json!({ "queue": "none", "share": 1 }), "there is no queue 'none'"),
        (json!({ "queue": &queue, "share": 1 }), "not its own shadow"),
        (json!({ "queue": "next" }), "an object with queue and share"),
        (json!({ "queue": "next", "share": 2 }), "above 0 and at most 1"),
    ] {
        let (status, answer) = scene.set(&queue, &shadow).await?;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.contains(why), "{shadow}: {status} {answer}");
    }
    scene.shadow(1.0).await?;
    let (status, answer) = scene.set("old", &json!({ "queue": &queue, "share": 1 })).await?;
    assert!(
        status == 400 && answer["error"].as_str().is_some_and(|why| why.contains("has a shadow itself")),
        "{answer}"
    );
    let (status, answer) = scene.dci.post("/queues/next", &json!({ "plugin": "Old" })).await?;
    assert_eq!(status, 400, "{answer}");
    // Somebody pins a version that may have effects: it is not started.
    scene.world.update_queue(scene.next, doc! { "version": "1" }).await?;
    let tasks = scene.submit(0..1).await?;
    let shadow = scene.until_shadowed(&tasks).await?.remove(0);
    assert_eq!(shadow.get("status").and_then(whole_number), Some(2));
    assert!(shadow.get_str("stderr")?.contains("does not say in its manifest"), "{shadow}");
    assert_eq!((scene.log("real").len(), scene.log("shadow").len()), (1, 0));
    assert_eq!(scene.world.count(other, doc! {}).await?, 0);
    scene.end().await
}

#[tokio::test]
async fn what_others_wait_for_or_is_secret_has_no_shadow_and_shadows_cause_nothing() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.shadow(1.0).await?;
    let first = scene.submit(0..1).await?;
    let log = scene.world.path().join("log").display().to_string();
    let body = json!({
        "queue": scene.queue.to_string(), "params": { "log": log }, ".array": "6-8", ".array_key": "n", ".array_final": { "n": 9, "log": log },
    });
    let array = scene.dci.posted("/tasks", &body).await?;
    let steps = json!([{ "plugin": "Old", "params": { "n": 2, "log": log } }]);
    scene
        .dci
        .posted(
            "/tasks",
            &json!({ "queue": scene.queue.to_string(), "params": { "n": 1, "log": log }, ".steps": steps }),
        )
        .await?;
    let all = scene.world.until_all_ended(scene.queue).await?;
    let shadowed = all.iter().filter(|task| !task.contains_key("steps"));
    let shadowed: Vec<TaskId> =
        shadowed.filter_map(|task| Some(TaskId(task.get_object_id("_id").ok()?))).collect();
    assert_eq!((all.len(), shadowed.len()), (6, 5));
    let shadows = scene.until_shadowed(&shadowed).await?;
    for shadow in &shadows {
        for field in [
            "array",
            "final_of",
            "after",
            "tags",
            "locks",
            "schedule",
            "dependents",
            "unsettled",
            "unique",
            "tenant",
        ] {
            assert!(!shadow.contains_key(field), "{field}: {shadow}");
        }
    }
    let id = array["array"]["id"].as_str().context("no array")?;
    let array = scene.dci.get(&format!("/arrays/{id}")).await?;
    assert_eq!((&array["count"], &array["done"]), (&json!(3), &json!(3)), "{array}");
    let done = scene.dci.get(&format!("/tasks/{}?.details=1", first[0])).await?;
    assert!(done.get(SHADOW_OF).is_none(), "{done}");
    scene.end().await
}
