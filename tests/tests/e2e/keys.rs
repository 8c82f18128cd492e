//! What only one task may have, where no unique index of `tasks` keeps it: unique keys, times of schedules, slots.

mod left;
mod limits;

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::keys::KeySweep;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::schedules::{CronExpr, Overlap, Settings, Spec};
use disbatch_core::schema::Schemas;
use disbatch_core::store::Store;
use disbatch_core::task::{CancelRequest, Retried, SubmitError, TaskOptions};
use disbatch_tests::World;
use futures::TryStreamExt;
use futures::future::try_join_all;
use mongodb::IndexModel;
use std::collections::BTreeMap;
use std::time::Duration;

const DEMO: &str = "Disbatch::Plugin::Demo";

/// Drops every unique index of `tasks` but that over `_id`. Returns how many there were.
async fn drop_unique_indexes(world: &World) -> anyhow::Result<usize> {
    let indexes: Vec<IndexModel> = world.tasks().list_indexes().await?.try_collect().await?;
    let is_unique =
        |index: &&IndexModel| index.options.as_ref().is_some_and(|options| options.unique == Some(true));
    let mut dropped = 0;
    for index in indexes.iter().filter(is_unique) {
        let name = index.options.as_ref().and_then(|options| options.name.clone());
        world.tasks().drop_index(name.context("an index has no name")?).await?;
        dropped += 1;
    }
    Ok(dropped)
}

/// A database with its indexes, but without the unique ones of `tasks`, and a queue of which nothing is run.
async fn bare() -> anyhow::Result<(World, QueueId)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    assert_eq!(drop_unique_indexes(&world).await?, 1, "slots of groups alone have one");
    let queue = world.queue(DEMO, doc! { "threads": 0 }).await?;
    Ok((world, queue))
}

fn options() -> TaskOptions {
    TaskOptions { unique: Some("k".to_owned()), ..TaskOptions::default() }
}

/// Submits a task with the key `k`. `Err`: this task has it.
async fn submit(store: &Store, queue: QueueId) -> anyhow::Result<Result<TaskId, TaskId>> {
    match store.submit_tasks(queue, vec![doc! { "a": 1 }], &options()).await {
        Ok(submitted) => Ok(Ok(*submitted.ids.first().context("no task")?)),
        Err(SubmitError::NotUnique { task }) => Ok(Err(task)),
        Err(error) => Err(error.into()),
    }
}

/// Tasks of the queue that have not ended and are not pending.
async fn live(world: &World, queue: QueueId) -> anyhow::Result<Vec<ObjectId>> {
    let filter = doc! {
        "queue": queue, "status": { "$in": [-7, -4, -2, -1, 0] }, "$nor": [{ "status": -4, "gate": "key" }],
    };
    let tasks: Vec<Document> = world.tasks().find(filter).await?.try_collect().await?;
    Ok(tasks.iter().filter_map(|task| task.get_object_id("_id").ok()).collect())
}

async fn end(store: &Store, task: TaskId) -> anyhow::Result<()> {
    let request = CancelRequest { by: "the test".to_owned(), reason: None };
    store.cancel_task(task, &request).await?;
    Ok(())
}

/// Submits and retries until it has had the key so often. From then on until it ends the task, that must be the only one.
async fn contend(world: &World, queue: QueueId, wins: usize) -> anyhow::Result<()> {
    let store = world.store();
    let (mut won, mut ended) = (0, None);
    for tries in 0.. {
        ensure!(tries < 10_000, "the key was had {won} times in {tries} tries");
        let got = match ended.filter(|_| tries % 2 == 0) {
            None => submit(&store, queue).await?.ok(),
            Some(old) => match store.retry_task(old, "once more").await? {
                Retried::Queued => Some(old),
                Retried::NotUnique(_) | Retried::NotEnded(_) => None,
                other => bail!("{other:?}"),
            },
        };
        let Some(task) = got else { continue };
        for _ in 0..3 {
            assert_eq!(live(world, queue).await?, [task.0], "after {tries} tries");
        }
        end(&store, task).await?;
        ended = Some(task);
        won += 1;
        if won == wins {
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn without_an_index_a_key_is_one_tasks_at_every_moment() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    try_join_all((0..8).map(|_| contend(&world, queue, 12))).await?;
    let pending = world.count(queue, doc! { "gate": "key" }).await?;
    let marked = world.count(queue, doc! { "wants_key": { "$exists": true } }).await?;
    assert_eq!((pending, marked), (0, 0), "nothing is left");
    assert!(submit(&world.store(), queue).await?.is_ok());
    world.end().await
}

#[tokio::test]
async fn beside_the_index_of_an_earlier_release_keys_are_the_same() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue(DEMO, doc! { "threads": 0 }).await?;
    let live = doc! { "unique": { "$exists": true }, "status": { "$in": [-7, -4, -2, -1, 0] } };
    let indexes = doc! { "createIndexes": "tasks", "indexes": [
        { "key": { "queue": 1, "unique": 1 }, "name": "queue_1_unique_1", "unique": true, "partialFilterExpression": live },
        { "key": { "schedule": 1, "scheduled_for": 1 }, "name": "schedule_1_scheduled_for_1", "unique": true,
          "partialFilterExpression": { "scheduled_for": { "$exists": true } } },
    ] };
    world.database().run_command(indexes).await?;
    world.store().ensure_indexes().await?;
    assert_eq!(drop_unique_indexes(&world).await?, 3, "those of an earlier release stay");
    world.tasks().drop_indexes().await?;
    world.database().run_command(doc! { "createIndexes": "tasks", "indexes": [{
        "key": { "queue": 1, "unique": 1 }, "name": "queue_1_unique_1", "unique": true,
        "partialFilterExpression": { "unique": { "$exists": true }, "status": { "$in": [-7, -4, -2, -1, 0] } },
    }] }).await?;
    try_join_all((0..6).map(|_| contend(&world, queue, 6))).await?;
    // One of an earlier release, which no key names.
    let old = ObjectId::new();
    let task =
        doc! { "_id": old, "queue": queue, "unique": "k", "status": -2, "node": Bson::Null, "params": {} };
    world.tasks().insert_one(task).await?;
    assert_eq!(submit(&world.store(), queue).await?, Err(TaskId(old)));
    world.tasks().drop_indexes().await?;
    assert_eq!(submit(&world.store(), queue).await?, Err(TaskId(old)), "nor without the index");
    end(&world.store(), TaskId(old)).await?;
    let new = submit(&world.store(), queue).await?;
    assert!(new.is_ok());
    assert_eq!(world.store().retry_task(TaskId(old), "again").await?, Retried::NotUnique(new.ok()));
    world.end().await
}

pub fn every_second(queue: QueueId) -> anyhow::Result<Settings> {
    Ok(Settings {
        name: "a test".to_owned(),
        description: String::new(),
        queue,
        params: doc! { "a": 1 },
        options: TaskOptions::default(),
        spec: Spec::new(vec![CronExpr::parse("* * * * * *")?]),
        overlap: Overlap::Allow,
        catch_up: Duration::from_secs(86_400),
        tenant: None,
        owner: None,
    })
}

#[tokio::test]
async fn without_an_index_a_time_has_one_task_whoever_makes_it() -> anyhow::Result<()> {
    let (world, queue) = bare().await?;
    let store = world.store();
    let schedule = store.create_schedule(&every_second(queue)?, false).await?;
    let now = store.server_time().await?.timestamp_millis() / 1_000 * 1_000;
    let at = |seconds: i64| DateTime::from_millis(now + seconds * 1_000);
    let schedules = world.database().collection::<Document>("schedules");
    let away = doc! { "$set": { "next": at(-90), "next_for": at(-90) } };
    schedules.update_one(doc! { "_id": schedule.id }, away).await?;
    let stores: Vec<Store> = (0..4).map(|_| world.store()).collect();
    let none = Schemas::default();
    let fired = async {
        try_join_all(stores.iter().map(|store| store.fire_schedules(&none)))
            .await
            .map_err(anyhow::Error::from)
    };
    let filled = async {
        let all = stores.iter().map(|store| store.backfill_schedule(schedule.id, (at(-120), at(-1)), 1_000));
        try_join_all(all).await.map_err(anyhow::Error::from)
    };
    let swept = async {
        for _ in 0..200 {
            store.sweep_keys(&mut KeySweep::default()).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let wanted = async {
        try_join_all((0..4).map(|_| store.run_schedule(schedule.id, None))).await.map_err(anyhow::Error::from)
    };
    let (_, filled, _, wanted) = tokio::try_join!(fired, filled, swept, wanted)?;
    let mut times: BTreeMap<DateTime, usize> = BTreeMap::new();
    for task in world.tasks_of(queue).await? {
        *times.entry(*task.get_datetime("scheduled_for")?).or_default() += 1;
        assert_eq!((task.get_i32("status")?, task.get("born")), (-2, None), "{task}");
    }
    assert!(times.values().all(|tasks| *tasks == 1), "{times:?}");
    assert!((-120..=-1).all(|second| times.contains_key(&at(second))), "{times:?}");
    let made = filled.into_iter().flatten().flatten().collect::<Vec<_>>();
    assert!(made.len() >= 29, "those before the first that fires");
    for task in made.iter().chain(wanted.iter().flatten()) {
        assert_eq!(world.status(*task).await?, -2);
    }
    // Those who come later find what is there, without any key.
    store.sweep_keys(&mut KeySweep::default()).await?;
    let keys = world.database().collection::<Document>("tasks.keys");
    assert_eq!(keys.count_documents(doc! {}).await?, 0, "tasks of times count by being there");
    assert_eq!(store.backfill_schedule(schedule.id, (at(-120), at(-1)), 1_000).await?, Some(Vec::new()));
    world.end().await
}
