//! Tasks that run again with those that come after them.

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::admission::{Action, NewRule, Scope};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::rerun::{Downstream, Plan};
use disbatch_core::task::{CancelRequest, Cancelled, Retried, TaskOptions};
use disbatch_tests::{Script, World};

use crate::gates::{end, pass};

/// Notes its name in a file, and fails unless that exists which its parameters name.
const NOTING: Script<'_> = Script {
    name: "Noting",
    text: r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
with open(params["log"], "a") as log:
    log.write(params["name"] + "\n")
sys.exit(0 if os.path.exists(params.get("needs", params["log"])) else 3)
"#,
};

struct Scene {
    world: World,
    queue: QueueId,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        let queue = world.script_queue(NOTING, 4).await?;
        Ok(Self { world, queue })
    }

    fn params(&self, name: &str) -> Document {
        let path = |name: &str| self.world.path().join(name).display().to_string();
        let mut params = doc! { "name": name, "log": path("log") };
        if name == "a" {
            params.insert("needs", path("needed"));
        }
        params
    }

    async fn submit(&self, name: &str, after: &[TaskId]) -> anyhow::Result<TaskId> {
        let options = TaskOptions { after: after.to_vec(), ..TaskOptions::default() };
        let made = self.world.store().submit_tasks(self.queue, vec![self.params(name)], &options).await?;
        made.ids.first().copied().context("no task")
    }

    /// The names that were noted since this was called last.
    fn log(&self) -> anyhow::Result<Vec<String>> {
        let path = self.world.path().join("log");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn need(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.world.path().join("needed"), "")?)
    }

    async fn plan(&self, root: TaskId, downstream: Downstream) -> anyhow::Result<Plan> {
        Ok(self.world.store().plan_rerun(root, downstream).await?)
    }

    async fn rerun(&self, root: TaskId, downstream: Downstream) -> anyhow::Result<()> {
        let plan = self.plan(root, downstream).await?;
        let store = self.world.store();
        assert_eq!(store.retry_task(root, "again").await?, Retried::Queued);
        for waiter in &plan.waiters {
            store.reset_waiter(waiter, "again").await?;
        }
        Ok(())
    }

    async fn statuses(&self, tasks: &[TaskId]) -> anyhow::Result<Vec<i64>> {
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(self.world.status(*task).await?);
        }
        Ok(statuses)
    }

    /// Whether a task waits for these, and for no others.
    async fn waits_for(&self, task: TaskId, others: &[TaskId]) -> anyhow::Result<bool> {
        let waiting = self.world.task(task).await?.get_array("waiting_for").cloned().unwrap_or_default();
        Ok(waiting.len() == others.len() && others.iter().all(|id| waiting.contains(&Bson::from(id.0))))
    }
}

/// b and c come after a, and d after both; e has nothing to do with them.
async fn diamond(scene: &Scene) -> anyhow::Result<[TaskId; 4]> {
    let a = scene.submit("a", &[]).await?;
    let b = scene.submit("b", &[a]).await?;
    let c = scene.submit("c", &[a]).await?;
    let d = scene.submit("d", &[b, c]).await?;
    scene.submit("e", &[]).await?;
    Ok([a, b, c, d])
}

#[tokio::test]
async fn what_failed_runs_again_in_its_order_and_nothing_else() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let _den = scene.world.den_at_work("n1").await?;
    let all = diamond(&scene).await?;
    scene.world.until_all_ended(scene.queue).await?;
    assert_eq!(scene.statuses(&all).await?, [2, -5, -5, -5]);
    scene.log()?;
    scene.need()?;
    scene.rerun(all[0], Downstream::Failed).await?;
    scene.world.until_all_ended(scene.queue).await?;
    assert_eq!(scene.statuses(&all).await?, [1, 1, 1, 1]);
    let log = scene.log()?;
    assert!(log[0] == "a" && log[3] == "d" && log.len() == 4, "{log:?}");
    // All once more, though nothing has failed.
    assert_eq!(scene.plan(all[0], Downstream::Failed).await?, Plan::default());
    scene.rerun(all[0], Downstream::All).await?;
    scene.world.until_all_ended(scene.queue).await?;
    let log = scene.log()?;
    assert!(log[0] == "a" && log[3] == "d" && log.len() == 4, "{log:?}");
    // Its first attempt never ran.
    assert_eq!(scene.world.task(all[3]).await?.get_i64("attempt").ok(), Some(3));
    scene.world.end().await
}

#[tokio::test]
async fn who_dies_in_between_lets_nothing_start_too_early_and_the_same_again_goes_on() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let den = scene.world.den_at_work("n1").await?;
    let all = diamond(&scene).await?;
    scene.world.until_all_ended(scene.queue).await?;
    scene.need()?;
    scene.log()?;
    let plan = scene.plan(all[0], Downstream::Failed).await?;
    let store = scene.world.store();
    store.retry_task(all[0], "again").await?;
    store.reset_waiter(&plan.waiters[0], "again").await?;
    scene.world.until_status(plan.waiters[0].id, 1).await?;
    assert_eq!(scene.world.status(all[3]).await?, -5, "it has its old outcome");
    // The root has ended meanwhile, and is not run once more: it is done by those who come after it.
    for waiter in &scene.plan(all[0], Downstream::Failed).await?.waiters {
        store.reset_waiter(waiter, "again").await?;
    }
    scene.world.until_all_ended(scene.queue).await?;
    assert_eq!(scene.statuses(&all).await?, [1, 1, 1, 1]);
    let mut log = scene.log()?;
    log.sort();
    assert_eq!(log, ["a", "b", "c", "d"]);
    drop(den);
    scene.world.end().await
}

#[tokio::test]
async fn of_two_at_once_each_task_runs_again_once() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let _den = scene.world.den_at_work("n1").await?;
    let all = diamond(&scene).await?;
    scene.world.until_all_ended(scene.queue).await?;
    scene.need()?;
    scene.log()?;
    let plan = scene.plan(all[0], Downstream::All).await?;
    let one = async || {
        let store = scene.world.store();
        store.retry_task(all[0], "again").await?;
        for waiter in &plan.waiters {
            store.reset_waiter(waiter, "again").await?;
        }
        anyhow::Ok(())
    };
    futures::try_join!(one(), one(), one())?;
    scene.world.until_all_ended(scene.queue).await?;
    let log = scene.log()?;
    let place = |name: &str| log.iter().position(|other| other == name).context(name.to_owned());
    assert!(place("a")? < place("b")? && place("b")? < place("d")? && place("c")? < place("d")?, "{log:?}");
    for task in all {
        let attempts = scene.world.task(task).await?.get_i64("attempt").unwrap_or_default();
        assert!(attempts <= 3, "{attempts}");
    }
    assert_eq!(scene.statuses(&all).await?, [1, 1, 1, 1]);
    scene.world.end().await
}

#[tokio::test]
async fn what_runs_is_in_the_way_and_what_is_blocked_waits_again() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let [a, b, c, d] = diamond(&scene).await?;
    for (task, status) in [(a, 1), (b, 0), (c, 1)] {
        scene.world.set(task, doc! { "status": status, "node": "n1", "waiting_for": [] }).await?;
    }
    // It has been told of the ends of both.
    scene.world.set(d, doc! { "waiting_for": [b.0], "gate": "after" }).await?;
    let plan = scene.plan(a, Downstream::All).await?;
    assert_eq!(plan.busy, [(b, scene.queue)]);
    let plan = scene.plan(c, Downstream::Failed).await?;
    assert_eq!((plan.busy.len(), plan.waiters.len()), (0, 1));
    assert_eq!(scene.world.store().retry_task(c, "again").await?, Retried::Queued);
    scene.world.store().reset_waiter(&plan.waiters[0], "again").await?;
    assert!(scene.waits_for(d, &[b, c]).await?);
    scene.world.end().await
}

#[tokio::test]
async fn what_was_cancelled_waits_for_the_others_too_that_it_comes_after() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let store = scene.world.store();
    store.ensure_indexes().await?;
    let [b, c] = [scene.submit("b", &[]).await?, scene.submit("c", &[]).await?];
    let d = scene.submit("d", &[b, c]).await?;
    scene.world.set(b, doc! { "status": 0, "node": "n1" }).await?;
    end(&scene.world, c, 2).await?;
    pass(&store).await?;
    assert_eq!(scene.statuses(&[b, c, d]).await?, [0, 2, -5]);
    scene.rerun(c, Downstream::Failed).await?;
    assert!(scene.waits_for(d, &[b, c]).await?);
    end(&scene.world, c, 1).await?;
    pass(&store).await?;
    assert_eq!(scene.statuses(&[b, c, d]).await?, [0, 1, -4], "b still runs");
    end(&scene.world, b, 2).await?;
    pass(&store).await?;
    assert_eq!(scene.statuses(&[b, c, d]).await?, [2, 1, -5], "b has failed");
    scene.world.end().await
}

#[tokio::test]
async fn what_was_cancelled_does_not_wait_for_what_has_succeeded_and_was_deleted() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let store = scene.world.store();
    store.ensure_indexes().await?;
    let [b, c] = [scene.submit("b", &[]).await?, scene.submit("c", &[]).await?];
    let d = scene.submit("d", &[b, c]).await?;
    end(&scene.world, b, 1).await?;
    end(&scene.world, c, 2).await?;
    pass(&store).await?;
    assert_eq!(scene.statuses(&[b, c, d]).await?, [1, 2, -5]);
    scene.world.tasks().delete_one(doc! { "_id": b.0 }).await?;
    scene.rerun(c, Downstream::Failed).await?;
    assert!(scene.waits_for(d, &[c]).await?);
    end(&scene.world, c, 1).await?;
    pass(&store).await?;
    assert_eq!(scene.statuses(&[c, d]).await?, [1, -2]);
    scene.world.end().await
}

/// It has not been linked to those that it comes after.
#[tokio::test]
async fn what_was_cancelled_while_it_was_held_waits_for_all_that_it_comes_after() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let store = scene.world.store();
    store.ensure_indexes().await?;
    let scope = Scope::Queue(scene.queue);
    let hold = NewRule { scope, action: Action::Pause, reason: None, by: "a test".to_owned() };
    let cancel = CancelRequest { by: "a test".to_owned(), reason: None };
    for (is_lifted, gate) in [(true, "after"), (false, "admission")] {
        let [b, c] = [scene.submit("b", &[]).await?, scene.submit("c", &[]).await?];
        store.set_rule(&hold).await?;
        let d = scene.submit("d", &[b, c]).await?;
        assert_eq!(store.cancel_task(d, &cancel).await?, Cancelled::Cancelled);
        if is_lifted {
            store.lift_rule(&hold.scope).await?;
        }
        end(&scene.world, c, 2).await?;
        scene.rerun(c, Downstream::Failed).await?;
        assert!(scene.waits_for(d, &[b, c]).await?);
        assert_eq!(scene.world.task(d).await?.get_str("gate")?, gate);
    }
    scene.world.end().await
}
