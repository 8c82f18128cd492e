//! What submitters leave that die on the way: whoever comes next is not held up, and nothing stays.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::keys::KeySweep;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::schedules::Firing;
use disbatch_core::task::{Once, Retried, SubmitError};
use disbatch_tests::{World, eventually};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

use super::{bare, end, every_second, options, submit};

/// An id of some time ago.
fn old_id() -> ObjectId {
    let mut bytes = ObjectId::new().bytes();
    let second = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) - 60;
    bytes[..4].copy_from_slice(&second.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn pending(queue: QueueId, fields: Document) -> Document {
    let at = DateTime::from_millis(1_795_163_067_344);
    let mut task = doc! {
        "_id": old_id(), "queue": queue, "unique": "k", "status": -4, "gate": "key", "born": { "status": -2 },
        "node": Bson::Null, "params": {}, "ctime": at, "mtime": at,
    };
    task.extend(fields);
    task
}

async fn insert(world: &World, task: Document) -> anyhow::Result<TaskId> {
    let id = task.get_object_id("_id")?;
    world.tasks().insert_one(task).await?;
    Ok(TaskId(id))
}

/// Has the key name a task.
async fn name(world: &World, queue: QueueId, task: TaskId, hold: ObjectId) -> anyhow::Result<()> {
    let key = doc! { "_id": { "queue": queue, "unique": "k" }, "task": task, "hold": hold };
    let keys = world.database().collection::<Document>("tasks.keys");
    keys.delete_many(doc! {}).await?;
    keys.insert_one(key).await?;
    Ok(())
}

async fn keys(world: &World) -> anyhow::Result<u64> {
    world.store().sweep_keys(&mut KeySweep::default()).await?;
    Ok(world.database().collection::<Document>("tasks.keys").count_documents(doc! {}).await?)
}

#[tokio::test]
async fn a_submitter_that_dies_anywhere_holds_up_nobody() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    // Before the key named its task.
    let left = insert(&world, pending(queue, doc! {})).await?;
    let first = submit(&store, queue).await?.expect("the key was free");
    assert_eq!(world.status(left).await?, -4);
    assert_eq!(store.settle_left().await?, (1, false));
    assert!(world.tasks().find_one(doc! { "_id": left }).await?.is_none(), "another task has its key");
    assert_eq!((world.status(first).await?, keys(&world).await?), (-2, 1));
    end(&store, first).await?;
    assert_eq!(keys(&world).await?, 0);

    // After that, and before its task went on.
    let blocked = doc! { "born": { "status": -4, "gate": "array" } };
    let left = insert(&world, pending(queue, blocked)).await?;
    name(&world, queue, left, left.0).await?;
    assert_eq!(keys(&world).await?, 1, "it is not swept");
    assert_eq!(submit(&store, queue).await?, Err(left));
    let task = world.task(left).await?;
    assert_eq!((task.get_i32("status")?, task.get_str("gate")?, task.get("born")), (-4, "array", None));
    end(&store, left).await?;

    // The same where nobody comes, and where a task counts that no key names.
    let left = insert(&world, pending(queue, doc! {})).await?;
    assert_eq!(store.settle_left().await?, (1, false));
    assert_eq!(world.status(left).await?, -2);
    let late = insert(&world, pending(queue, doc! {})).await?;
    name(&world, queue, late, late.0).await?;
    assert_eq!(submit(&store, queue).await?, Err(left), "it does not go on beside");
    assert_eq!(world.status(late).await?, -4);
    assert_eq!(store.settle_left().await?, (1, false));
    assert_eq!(world.count(queue, doc! { "_id": late }).await?, 0);
    end(&store, left).await?;

    // A task that was never inserted, or is gone.
    name(&world, queue, TaskId(ObjectId::new()), ObjectId::new()).await?;
    let next = submit(&store, queue).await?.expect("nobody has the key");
    end(&store, next).await?;
    store.delete_tasks(&[next]).await?;
    assert!(submit(&store, queue).await?.is_ok());
    world.end().await
}

#[tokio::test]
async fn a_retry_that_stands_still_loses_its_key_to_who_comes() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    let old = submit(&store, queue).await?.expect("the key was free");
    end(&store, old).await?;
    let mark = ObjectId::new();
    world.set(old, doc! { "wants_key": mark }).await?;
    name(&world, queue, old, mark).await?;
    assert_eq!(keys(&world).await?, 1, "it may come to count");
    let new = submit(&store, queue).await?.expect("its retry has not happened");
    let task = world.task(old).await?;
    assert_eq!((task.get_i32("status")?, task.get("wants_key")), (-5, None), "and cannot any more");
    assert_eq!(store.retry_task(old, "again").await?, Retried::NotUnique(Some(new)));
    assert_eq!(world.task(old).await?.get("wants_key"), None);
    end(&store, new).await?;
    assert_eq!(store.retry_task(old, "again").await?, Retried::Queued);
    let task = world.task(old).await?;
    assert_eq!((task.get_i32("status")?, task.get("wants_key")), (-2, None));
    assert_eq!(submit(&store, queue).await?, Err(old));
    assert_eq!(store.retry_task(new, "again").await?, Retried::NotUnique(Some(old)));
    world.end().await
}

/// Its answer is about its own task, whoever has the key by now, and what it has left never runs after it was refused.
#[tokio::test]
async fn a_submission_that_is_repeated_goes_on_where_it_was() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    let once = Once::new("again".to_owned(), "the request");
    let repeat = async || store.submit_tasks_once(queue, vec![doc! { "a": 1 }], &options(), &once).await;
    let own = repeat().await?.ids;
    let submissions = world.database().collection::<Document>("submissions");
    let is_pending = doc! { "$set": { "state": "pending" } };
    submissions.update_one(doc! { "queue": queue }, is_pending.clone()).await?;
    end(&store, own[0]).await?;
    let other = submit(&store, queue).await?.expect("the key was free");
    assert_eq!(repeat().await?.ids, own, "it was done, and has ended since");

    submissions.update_one(doc! { "queue": queue }, is_pending).await?;
    world.set(own[0], doc! { "status": -4, "gate": "key", "born": { "status": -2 } }).await?;
    let refused = repeat().await;
    assert!(matches!(refused, Err(SubmitError::NotUnique { task }) if task == other), "{refused:?}");
    assert_eq!(world.count(queue, doc! { "_id": own[0] }).await?, 0);
    assert_eq!(world.status(other).await?, -2);
    world.end().await
}

/// Databases of earlier releases have an index that counts pending tasks.
#[tokio::test]
async fn a_time_gets_its_task_although_another_one_was_left_pending() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    let fields = doc! { "scheduled_for": { "$exists": true } };
    let options = IndexOptions::builder().unique(true).partial_filter_expression(fields).build();
    let index = IndexModel::builder().keys(doc! { "schedule": 1, "scheduled_for": 1 }).options(options);
    world.tasks().drop_index("schedule_1_scheduled_for_1").await?;
    world.tasks().create_index(index.build()).await?;
    let schedule = store.create_schedule(&every_second(queue)?, true).await?;
    let now = store.server_time().await?.timestamp_millis() / 1_000 * 1_000;
    let firing = Firing { time: DateTime::from_millis(now - 60_000), task: TaskId(ObjectId::new()) };
    let of_time = doc! { "schedule": schedule.id, "scheduled_for": firing.time };
    let mut left = pending(queue, of_time.clone());
    left.remove("unique");
    insert(&world, left).await?;
    let noted = doc! { "firing": [{ "for": firing.time, "task": firing.task }], "firing_at": store.now() };
    let schedules = world.database().collection::<Document>("schedules");
    schedules.update_one(doc! { "_id": schedule.id }, doc! { "$set": noted }).await?;
    let schedule =
        store.find_schedule(&disbatch_core::model::Selector::Id(schedule.id.0)).await?.expect("there");
    assert!(store.complete_firing(&schedule, firing).await.is_err(), "it is not taken for done");
    assert_eq!(store.settle_left().await?, (1, false));
    store.complete_firing(&schedule, firing).await?;
    assert_eq!(world.status(firing.task).await?, -2);
    assert_eq!(world.count(queue, of_time).await?, 1);
    world.end().await
}

/// A DEN that nobody asks does it, too.
#[tokio::test]
async fn a_den_settles_what_was_left() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let left = insert(&world, pending(queue, doc! {})).await?;
    let _den = world.den_at_work("n1").await?;
    eventually("the task to go on", || async { Ok((world.status(left).await? == -2).then_some(())) }).await?;
    world.end().await
}

#[tokio::test]
async fn the_key_of_a_time_stays_while_its_task_may_come() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    let schedule = store.create_schedule(&every_second(queue)?, true).await?;
    let now = store.server_time().await?.timestamp_millis() / 1_000 * 1_000;
    let time = DateTime::from_millis(now - 60_000);
    let firing = Firing { time, task: TaskId(ObjectId::new()) };
    let schedules = world.database().collection::<Document>("schedules");
    let noted =
        doc! { "$set": { "firing": [{ "for": time, "task": firing.task }], "firing_at": store.now() } };
    schedules.update_one(doc! { "_id": schedule.id }, noted).await?;
    let key =
        doc! { "_id": { "schedule": schedule.id, "at": time }, "task": firing.task, "hold": firing.task };
    world.database().collection::<Document>("tasks.keys").insert_one(key).await?;
    assert_eq!(keys(&world).await?, 1, "it is to fire");
    let before = store.backfill_schedule(schedule.id, (time, time), 1).await?;
    assert_eq!(before, Some(Vec::new()));
    let schedule =
        store.find_schedule(&disbatch_core::model::Selector::Id(schedule.id.0)).await?.expect("there");
    store.complete_firing(&schedule, firing).await?;
    assert_eq!((world.status(firing.task).await?, keys(&world).await?), (-2, 0));
    world.end().await
}
