//! A schedule that makes a task every second while things break, in the first half of the time.

use std::time::Duration;

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::schedules::{CronExpr, Overlap, ScheduleId, Settings, Spec};
use disbatch_core::task::TaskOptions;
use tokio::time::{Instant, sleep, timeout};

use super::work::{Work, wall_time};
use super::world::World;

/// Between two of its times, in milliseconds.
const SECOND: i64 = 1_000;

/// So long it is waited for its next time.
const NEXT: Duration = Duration::from_millis(1_500);

/// Between two looks whether it has come.
const LOOK: Duration = Duration::from_millis(1);

/// The schedule.
#[derive(Debug, Clone, Copy)]
pub struct Ticking {
    pub id: ScheduleId,
    first: DateTime,
    /// No time is later.
    end: DateTime,
}

impl Ticking {
    /// Makes it. It has the last of its times when so long has passed.
    pub async fn begin(world: &World, time: Duration) -> anyhow::Result<Self> {
        let queue = world.queues.iter().find(|queue| queue.requeues).context("no queue requeues")?;
        let end = world.store.server_time().await?.saturating_add_duration(time);
        let settings = Settings {
            name: "ticking".to_owned(),
            description: String::new(),
            queue: queue.id,
            params: Work { millis: 5, lines: 1, fails: 0 }.params(),
            options: TaskOptions::default(),
            spec: Spec { end: Some(end), ..Spec::new(vec![CronExpr::parse("* * * * * *")?]) },
            overlap: Overlap::Allow,
            // However long nobody is there, each time makes its task.
            catch_up: Duration::from_secs(86_400),
            tenant: None,
            owner: None,
        };
        let schedule = world.store.create_schedule(&settings, false).await?;
        let first = schedule.next_for.context("it has no time")?;
        Ok(Self { id: schedule.id, first, end })
    }

    /// All of its times, in milliseconds since 1970.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        let (first, end) = (self.first.timestamp_millis(), self.end.timestamp_millis());
        std::iter::successors(Some(first), |time| Some(time + SECOND)).take_while(move |time| *time <= end)
    }

    /// Waits until somebody has decided to make a task, and may not have made it yet. Returns whether that has come.
    pub async fn until_it_fires(&self, world: &World) -> bool {
        // What was left by somebody who was killed stays noted for a while.
        let now = i64::try_from(wall_time().as_millis()).unwrap_or_default();
        let new = doc! { "for": { "$gte": DateTime::from_millis(now - SECOND) } };
        let noted = doc! { "_id": self.id, "firing": { "$elemMatch": new } };
        let schedules = world.database.collection::<Document>("schedules");
        let deadline = Instant::now() + NEXT;
        while Instant::now() < deadline && now <= self.end.timestamp_millis() {
            match timeout(NEXT, schedules.find_one(noted.clone())).await {
                Ok(Ok(Some(_))) => return true,
                Ok(Ok(None)) => sleep(LOOK).await,
                Ok(Err(_)) | Err(_) => return false, // The database is away.
            }
        }
        false
    }

    /// Whether it has no more times, and nothing is left to be made.
    pub async fn is_over(&self, world: &World) -> anyhow::Result<bool> {
        let schedules = world.database.collection::<Document>("schedules");
        let over = doc! { "_id": self.id, "next": { "$exists": false }, "firing.0": { "$exists": false } };
        Ok(schedules.count_documents(over).await? == 1)
    }
}
