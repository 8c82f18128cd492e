//! Elements of arrays that run again, with what comes after them.

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::arrays::{ArrayState, FinalTask, FinalWhen, Items, NewArray, element_id};
use disbatch_core::model::{ArrayId, QueueId, TaskId, whole_number};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, Script, World, eventually};
use serde_json::{Value, json};

/// Fails for the item 2 unless the file is there that `needs` names.
const ELEMENT: Script<'_> = Script {
    name: "Element",
    text: r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
print(json.dumps(params, sort_keys=True))
sys.exit(3 if params.get("item") == 2 and not os.path.exists(params["needs"]) else 0)
"#,
};

struct Scene {
    world: World,
    dci: Dci,
    queue: QueueId,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let queue = world.script_queue(ELEMENT, 4).await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        Ok(Self { world, dci, queue })
    }

    fn params(&self) -> Document {
        doc! { "needs": self.world.path().join("needed").display().to_string() }
    }

    async fn array(&self, items: &str) -> anyhow::Result<ArrayId> {
        let (items, cap) = Items::parse(items)?;
        let last = Some(FinalTask { params: self.params(), when: FinalWhen::Succeeded });
        let array = NewArray { items, cap, key: "item".to_owned(), params: self.params(), last };
        let made = self.world.store().submit_array(self.queue, &array, &TaskOptions::default(), None).await?;
        Ok(made.array.id)
    }

    async fn last(&self, id: ArrayId) -> anyhow::Result<TaskId> {
        let array = self.world.store().find_array(id).await?.context("no array")?;
        Ok(array.last.context("no final task")?.0)
    }

    async fn after(&self, task: TaskId) -> anyhow::Result<TaskId> {
        let options = TaskOptions { after: vec![task], ..TaskOptions::default() };
        let made = self.world.store().submit_tasks(self.queue, vec![self.params()], &options).await?;
        made.ids.first().copied().context("no task")
    }

    async fn rerun(&self, id: ArrayId, body: &Value) -> anyhow::Result<(u16, Value)> {
        self.dci.post(&format!("/arrays/{id}/rerun"), body).await
    }

    /// Until the job is over and the array done again.
    async fn until_over(&self, id: ArrayId, job: &Value) -> anyhow::Result<Value> {
        let path = format!("/bulk/{}", job["id"].as_str().context("no job")?);
        let job = eventually("the job to be over", async || {
            let job = self.dci.get(&path).await?;
            Ok((job["state"] != "running").then_some(job))
        })
        .await?;
        eventually("the array to be done", async || {
            let array = self.world.store().find_array(id).await?.context("no array")?;
            Ok((array.state == ArrayState::Done).then_some(()))
        })
        .await?;
        self.world.until_all_ended(self.queue).await?;
        Ok(job)
    }

    async fn attempts(&self, tasks: &[TaskId]) -> anyhow::Result<Vec<(i64, i64)>> {
        let mut all = Vec::new();
        for task in tasks {
            let task = self.world.task(*task).await?;
            let number = |name: &str| task.get(name).and_then(whole_number).unwrap_or(0);
            all.push((number("status"), number("attempt")));
        }
        Ok(all)
    }

    async fn time(&self, task: TaskId, field: &str) -> anyhow::Result<DateTime> {
        Ok(*self.world.task(task).await?.get_datetime(field)?)
    }
}

#[tokio::test]
async fn elements_run_again_and_what_comes_after_them_waits_for_them() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let id = scene.array("0-3").await?;
    let (last, elements) = (scene.last(id).await?, [0, 1, 2, 3].map(|place| element_id(id, place)));
    let (of_good, of_bad) = (scene.after(elements[1]).await?, scene.after(elements[2]).await?);
    let tail = scene.after(last).await?;
    let _den = scene.world.den_at_work("n1").await?;
    scene.world.until_all_ended(scene.queue).await?;
    let behind = [last, tail, of_good, of_bad];
    assert_eq!(scene.attempts(&behind).await?, [(-5, 0), (-5, 0), (1, 1), (-5, 0)]);
    std::fs::write(scene.world.path().join("needed"), "")?;
    let (status, job) = scene.rerun(id, &json!({ "downstream": "failed" })).await?;
    assert_eq!((status, &job["left"]), (202, &json!(0)), "{job}");
    let job = scene.until_over(id, &job).await?;
    assert_eq!(
        (&job["done"], &job["downstream"], &job["errors"]),
        (&json!(1), &json!(3), &json!([])),
        "{job}"
    );
    assert_eq!(scene.attempts(&elements).await?, [(1, 1), (1, 1), (1, 2), (1, 1)]);
    assert_eq!(scene.attempts(&behind).await?, [(1, 2), (1, 2), (1, 1), (1, 2)]);
    // All of it once more, with other params.
    let params = json!({ "new": 5, "needs": scene.params().get_str("needs")? });
    let body = json!({ "elements": "all", "downstream": "all", "params": params, "reason": "again" });
    let (status, refused) = scene.rerun(id, &json!({ "params": { "item": 5 } })).await?;
    assert_eq!(status, 400, "{refused}");
    let (status, job) = scene.rerun(id, &body).await?;
    assert_eq!(status, 202, "{job}");
    let job = scene.until_over(id, &job).await?;
    assert_eq!((&job["done"], &job["downstream"]), (&json!(4), &json!(4)), "{job}");
    let twice = scene.attempts(&elements).await?;
    assert_eq!(twice.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), [2, 2, 3, 2]);
    let own = scene.world.task(elements[3]).await?.get_document("params")?.clone();
    assert_eq!(
        (own.get("new").and_then(whole_number), own.get("item").and_then(whole_number)),
        (Some(5), Some(3))
    );
    for (after, before) in [(last, elements[0]), (last, elements[3]), (of_good, elements[1]), (tail, last)] {
        assert!(
            scene.time(before, "mtime").await? <= scene.time(after, "started").await?,
            "{after} {before}"
        );
    }
    scene.world.end().await
}

#[tokio::test]
async fn what_has_not_ended_is_left_alone_and_what_is_in_the_way_is_named() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.world.update_queue(scene.queue, doc! { "threads": 0 }).await?;
    let id = scene.array("0-3").await?;
    let elements = [0, 1, 2, 3].map(|place| element_id(id, place));
    let behind = scene.after(elements[1]).await?;
    let (status, refused) = scene.rerun(id, &json!({ "elements": "all" })).await?;
    assert_eq!((status, &refused["error"]), (409, &json!("the array has no element to retry")));
    for (task, status) in [(elements[0], 1), (elements[1], 2), (elements[2], 0), (behind, 0)] {
        scene.world.set(task, doc! { "status": status, "node": "n1", "attempt": 1_i64 }).await?;
    }
    let (status, refused) = scene.rerun(id, &json!({ "downstream": "all" })).await?;
    assert_eq!((status, &refused["tasks"]), (409, &json!([behind.to_string()])), "{refused}");
    let (status, refused) = scene.rerun(id, &json!({ "elements": "some" })).await?;
    assert_eq!(status, 400, "{refused}");
    let (status, job) = scene.rerun(id, &json!({ "downstream": "failed" })).await?;
    assert_eq!((status, &job["left"]), (202, &json!(2)), "{job}");
    eventually("the element", async || Ok((scene.world.status(elements[1]).await? == -2).then_some(())))
        .await?;
    let statuses = scene.attempts(&[elements[0], elements[2], elements[3], behind]).await?;
    assert_eq!(statuses.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [1, 0, -2, 0]);
    scene.world.end().await
}

#[tokio::test]
async fn who_takes_over_from_a_server_that_was_killed_runs_nothing_twice() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    scene.world.update_queue(scene.queue, doc! { "threads": 0 }).await?;
    let id = scene.array("0-1999").await?;
    let (first, last) = (element_id(id, 0), scene.last(id).await?);
    // Nobody comes to the last one before the server is killed.
    let behind = scene.after(element_id(id, 1_999)).await?;
    let all = doc! { "queue": scene.queue };
    let ended = doc! { "$set": { "status": 1, "complete": true, "attempt": 1_i64 }, "$unset": { "gate": "", "waiting_for": "" } };
    scene.world.tasks().update_many(all, ended).await?;
    let body = json!({ "elements": "all", "downstream": "all" });
    let (status, job) = scene.rerun(id, &body).await?;
    assert_eq!(status, 202, "{job}");
    let again = doc! { "array.id": id, "status": -2 };
    eventually("the first elements", async || {
        Ok((scene.world.count(scene.queue, again.clone()).await? > 0).then_some(()))
    })
    .await?;
    let Scene { world, dci, queue } = scene;
    dci.kill().await?;
    let done = world.count(queue, again.clone()).await?;
    assert!(done < 2_000, "it was too fast to be killed in the middle");
    // Those that were queued have ended again meanwhile.
    let ended = doc! { "$set": { "status": 1, "complete": true, "attempt": 2_i64 } };
    world.tasks().update_many(again, ended).await?;
    let bulk = world.database().collection::<Document>("bulk");
    let dci = Dci::start(&world.config(), &world.path().join("dci2.log")).await?;
    scene = Scene { world, dci, queue };
    let (status, same) = scene.rerun(id, &body).await?;
    assert_eq!((status, &same["id"]), (202, &job["id"]), "{same}");
    let (status, other) = scene.rerun(id, &json!({})).await?;
    assert_eq!(status, 409, "{other}");
    bulk.update_one(doc! {}, doc! { "$set": { "lease_until": DateTime::from_millis(0) } }).await?;
    let path = format!("/bulk/{}", job["id"].as_str().context("no job")?);
    eventually("the job to be over", async || {
        Ok((scene.dci.get(&path).await?["state"] == "done").then_some(()))
    })
    .await?;
    let once = doc! { "array.id": id, "history": { "$size": 1 } };
    let notes = scene.world.tasks().find_one(doc! { "_id": first }).await?.context("none")?;
    assert_eq!(notes.get_array("history")?.len(), 1, "{notes}");
    assert_eq!(scene.world.count(scene.queue, once).await?, 2_000);
    assert_eq!((scene.world.status(last).await?, scene.world.status(behind).await?), (-4, -4));
    scene.world.end().await
}
