//! Schedules: each time makes one task, whoever looks and whoever dies; and what a task leaves for the next one.

mod fire;
mod manage;
mod told;

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, Selector, TaskId};
use disbatch_core::schedules::{CronExpr, Overlap, Schedule, Settings, Spec};
use disbatch_core::store::Store;
use disbatch_core::task::TaskOptions;
use disbatch_tests::World;

const MINUTE: i64 = 60_000;

/// A test's schedule, and what it works with.
struct Scene {
    world: World,
    store: Store,
    queue: QueueId,
    schedule: Schedule,
}

fn settings(queue: QueueId, cron: &str) -> anyhow::Result<Settings> {
    Ok(Settings {
        name: "a test".to_owned(),
        description: String::new(),
        queue,
        params: doc! { "a": 1 },
        options: TaskOptions::default(),
        spec: Spec::new(vec![CronExpr::parse(cron)?]),
        overlap: Overlap::Allow,
        catch_up: Duration::from_secs(86_400),
        tenant: None,
        owner: Some("alice".to_owned()),
    })
}

fn minute(at: DateTime) -> DateTime {
    DateTime::from_millis(at.timestamp_millis().div_euclid(MINUTE) * MINUTE)
}

fn later(at: DateTime, minutes: i64) -> DateTime {
    DateTime::from_millis(at.timestamp_millis() + minutes * MINUTE)
}

impl Scene {
    /// With a schedule that fires once a minute. Nothing runs its tasks.
    async fn new(change: impl FnOnce(&mut Settings)) -> anyhow::Result<Self> {
        Self::with("* * * * *", change).await
    }

    /// With one that fires at other times.
    async fn with(cron: &str, change: impl FnOnce(&mut Settings)) -> anyhow::Result<Self> {
        let world = World::new().await?;
        let store = world.store();
        store.ensure_indexes().await?;
        let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 0 }).await?;
        let mut settings = settings(queue, cron)?;
        change(&mut settings);
        let schedule = store.create_schedule(&settings, false).await?;
        Ok(Self { world, store, queue, schedule })
    }

    async fn set(&self, fields: Document) -> anyhow::Result<()> {
        let schedules = self.world.database().collection::<Document>("schedules");
        schedules.update_one(doc! { "_id": self.schedule.id }, doc! { "$set": fields }).await?;
        Ok(())
    }

    /// It is as if nobody had looked for so many minutes. The newest time is this second, and is returned; the next one
    /// comes in a minute.
    async fn away(&self, minutes: i64) -> anyhow::Result<DateTime> {
        let second = self.store.server_time().await?.timestamp_millis() / 1_000;
        let newest = DateTime::from_millis(second * 1_000);
        let first = later(newest, -minutes);
        let cron = format!("{} * * * * *", second % 60);
        self.set(doc! { "cron": cron, "next": first, "next_for": first }).await?;
        Ok(newest)
    }

    async fn current(&self) -> anyhow::Result<Schedule> {
        let found = self.store.find_schedule(&Selector::Id(self.schedule.id.0)).await?;
        found.context("the schedule is gone")
    }

    /// The times that have tasks, in their order.
    async fn times(&self) -> anyhow::Result<Vec<DateTime>> {
        let tasks = self.world.tasks_of(self.queue).await?;
        let mut times = tasks
            .iter()
            .map(|task| Ok(*task.get_datetime("scheduled_for")?))
            .collect::<anyhow::Result<Vec<_>>>()?;
        times.sort();
        Ok(times)
    }

    async fn task_for(&self, time: DateTime) -> anyhow::Result<TaskId> {
        let task = self.world.tasks().find_one(doc! { "scheduled_for": time }).await?;
        Ok(TaskId(task.context("the time has no task")?.get_object_id("_id")?))
    }

    /// Ends a task behind everyone's back.
    async fn end(&self, task: TaskId, status: i32, further: Document) -> anyhow::Result<()> {
        let now = self.store.now();
        let mut fields = doc! { "status": status, "started": now, "mtime": now, "complete": true };
        fields.extend(further);
        let literal = |(name, value): (String, Bson)| (name, Bson::from(doc! { "$literal": value }));
        let set: Document = fields.into_iter().map(literal).collect();
        self.world.tasks().update_one(doc! { "_id": task }, vec![doc! { "$set": set }]).await?;
        Ok(())
    }
}
