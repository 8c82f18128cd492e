//! Schedules where each process works as a user of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::{Task, TaskId};
use disbatch_core::queue::new_queue_id;
use disbatch_core::schedules::{Calendar, CronExpr, Overlap, Settings, Spec};
use disbatch_core::schema::Schemas;
use disbatch_core::store::Store;
use disbatch_core::task::{CancelRequest, TaskOptions};
use disbatch_tests::eventually;
use serde_json::json;

use super::Secured;

#[tokio::test]
async fn schedules_are_made_fired_and_read_by_those_who_have_to() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let connected = |database| Store::with_clock(database, Arc::new(SystemClock));
    let den = connected(secured.database_as("disbatchd", "d").await?);
    let web = connected(secured.database_as("disbatch_web", "w").await?);
    let runner = connected(secured.database_as("task_runner", "t").await?);
    den.ensure_indexes().await?;
    let queue = new_queue_id();
    web.insert_queue(doc! { "_id": queue, "name": "q", "plugin": "P" }).await?;
    web.set_calendar(&Calendar::read(&doc! { "name": "holidays" })?).await?;
    let settings = Settings {
        name: "s".to_owned(),
        description: String::new(),
        queue,
        params: doc! {},
        options: TaskOptions::default(),
        spec: Spec::new(vec![CronExpr::parse("* * * * *")?]),
        overlap: Overlap::Cancel,
        catch_up: Duration::ZERO,
        tenant: None,
        owner: None,
    };
    let schedule = web.create_schedule(&settings, false).await?;

    // The next time is not to come meanwhile.
    let now = eventually("a minute that lasts", || async {
        let now = web.server_time().await?.timestamp_millis();
        Ok((now.rem_euclid(60_000) < 50_000).then_some(now))
    })
    .await?;
    let minute = DateTime::from_millis(now.div_euclid(60_000) * 60_000);
    let due = doc! { "$set": { "next": minute, "next_for": minute } };
    let schedules = secured.world.database().collection::<Document>("schedules");
    schedules.update_one(doc! { "_id": schedule.id }, due).await?;
    assert_eq!(den.fire_schedules(&Schemas::default()).await?.fired, 1);
    let task = secured.world.tasks().find_one(doc! { "schedule": schedule.id }).await?;
    let task = task.context("it has not been made")?;
    let id = TaskId(task.get_object_id("_id")?);
    let task: Task = bson::deserialize_from_document(task)?;
    let told = runner.schedule_for_run(&task).await?.context("it has a schedule")?;
    assert_eq!((told.name.as_str(), told.storage), ("s", None));

    web.cancel_task(id, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    assert_eq!(den.settle_scheduled().await?, (1, false));
    let again = web.run_schedule(schedule.id, None).await?.context("it is there")?;
    web.cancel_task(again, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    // A schedule whose tasks are not to overlap has a lock, which has to be taken back before a task may leave.
    den.pass_gates().await?;
    assert_eq!(web.delete_tasks(&[id, again]).await?, 2);
    let hour = (DateTime::from_millis(0), DateTime::from_millis(3_600_000));
    let made = web.backfill_schedule(schedule.id, hour, 100).await?.context("it is there")?;
    assert_eq!(made.len(), 61);
    assert!(web.delete_schedule(schedule.id).await?.is_some());
    secured.server.stop().await
}
