//! Keys where users of MongoDB are those of an earlier release, which had no collection of keys.

use std::sync::Arc;

use anyhow::Context;
use bson::{DateTime, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::Store;
use disbatch_core::task::{CancelRequest, Retried, SubmitError, TaskOptions};
use serde_json::json;

use super::Secured;
use crate::keys::every_second;

#[tokio::test]
async fn without_a_right_to_keys_the_index_of_an_earlier_release_does() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let database = secured.world.database();
    for role in ["disbatchd", "disbatch_web"] {
        let resource = doc! { "db": database.name(), "collection": "tasks.keys" };
        let privileges = vec![doc! { "resource": resource, "actions": ["insert", "remove", "update"] }];
        database.run_command(doc! { "revokePrivilegesFromRole": role, "privileges": privileges }).await?;
    }
    let connected = |database| Store::with_clock(database, Arc::new(SystemClock));
    let den = connected(secured.database_as("disbatchd", "d").await?);
    let web = connected(secured.database_as("disbatch_web", "w").await?);
    let queue = new_queue_id();
    web.insert_queue(doc! { "_id": queue, "name": "q", "plugin": "P" }).await?;
    let options = TaskOptions { unique: Some("k".to_owned()), ..TaskOptions::default() };
    let submit = async || web.submit_tasks(queue, vec![doc! { "a": 1 }], &options).await;
    let refused = submit().await;
    assert!(matches!(&refused, Err(SubmitError::Store(error)) if error.is_forbidden()), "{refused:?}");
    assert_eq!(secured.world.count(queue, doc! {}).await?, 0, "nothing is left of it");

    let live = doc! { "unique": { "$exists": true }, "status": { "$in": [-7, -4, -2, -1, 0] } };
    let index = |key, name: &str, partial| {
        doc! { "key": key, "name": name, "unique": true, "partialFilterExpression": partial }
    };
    let of_times = doc! { "scheduled_for": { "$exists": true } };
    database
        .run_command(doc! { "createIndexes": "tasks", "indexes": [
            index(doc! { "queue": 1, "unique": 1 }, "queue_1_unique_1", live),
            index(doc! { "schedule": 1, "scheduled_for": 1 }, "schedule_1_scheduled_for_1", of_times),
        ] })
        .await?;
    den.ensure_indexes().await?;
    let first = *submit().await?.ids.first().context("no task")?;
    assert!(matches!(submit().await, Err(SubmitError::NotUnique { task }) if task == first));
    web.cancel_task(first, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    let second = *submit().await?.ids.first().context("no task")?;
    assert_eq!(web.retry_task(first, "again").await?, Retried::NotUnique(Some(second)));

    let schedule = web.create_schedule(&every_second(queue)?, false).await?;
    let now = web.server_time().await?.timestamp_millis() / 1_000 * 1_000;
    let at = |seconds: i64| DateTime::from_millis(now + seconds * 1_000);
    let made = web.backfill_schedule(schedule.id, (at(-9), at(-5)), 9).await?;
    assert_eq!(made.map(|made| made.len()), Some(5));
    assert_eq!(web.backfill_schedule(schedule.id, (at(-9), at(-5)), 9).await?, Some(Vec::new()));
    assert!(web.run_schedule(schedule.id, None).await?.is_some());
    let schedules = database.collection::<bson::Document>("schedules");
    let due = doc! { "$set": { "next": at(-3), "next_for": at(-3) } };
    schedules.update_one(doc! { "_id": schedule.id }, due).await?;
    assert!(den.fire_schedules(&disbatch_core::schema::Schemas::default()).await?.fired >= 3);
    let keys = database.collection::<bson::Document>("tasks.keys");
    assert_eq!(keys.count_documents(doc! {}).await?, 0);

    // With the rights, tasks that no key names count as well, and the indexes are not needed.
    let (code, text) = secured.create_users(&[]).await?;
    assert_eq!(code, Some(0), "{text}");
    secured.world.tasks().drop_indexes().await?;
    assert!(matches!(submit().await, Err(SubmitError::NotUnique { task }) if task == second));
    web.cancel_task(second, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    assert_eq!(web.retry_task(first, "again").await?, Retried::Queued);
    assert_eq!(keys.count_documents(doc! {}).await?, 1);
    secured.server.stop().await
}
