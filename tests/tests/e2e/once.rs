//! No task is made again that has ended and left, by whoever completes what somebody else has begun to submit, or comes late himself.

use std::time::Duration;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::arrays::{Items, NewArray, element_id};
use disbatch_core::model::{ArrayId, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{Once, Place, TaskOptions};
use disbatch_tests::World;
use mongodb::Collection;

use crate::detour::Held;

/// A word that is among the parameters of tasks, where it is to be seen who inserts them.
const WORD: &str = "stands still here";

async fn world() -> anyhow::Result<(World, QueueId)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    Ok((world, queue))
}

fn submissions(world: &World) -> Collection<Document> {
    world.database().collection("submissions")
}

/// The tasks of a submission, which everybody makes who says the same.
async fn submit(store: &Store, queue: QueueId, params: Vec<Document>) -> anyhow::Result<Vec<TaskId>> {
    let once = Once::new("k".to_owned(), "the request");
    Ok(store.submit_tasks_once(queue, params, &TaskOptions::default(), &once).await?.ids)
}

/// Those that match have run.
async fn end(world: &World, queue: QueueId, filter: Document) -> anyhow::Result<()> {
    let mut these = doc! { "queue": queue };
    these.extend(filter);
    let ended = doc! { "$set": { "status": 1, "complete": true, "stdout": "has run" } };
    world.tasks().update_many(these, ended).await?;
    Ok(())
}

/// What a DCI leaves that dies before all tasks are there, and before it has noted that they are.
#[tokio::test]
async fn tasks_of_a_half_done_submission_that_have_ended_stay_until_it_is_completed() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let params = || (0..3).map(|n| doc! { "n": n }).collect::<Vec<_>>();
    let whole = submit(&store, queue, params()).await?;
    let pending = doc! { "$set": { "state": "pending" } };
    submissions(&world).update_one(doc! { "queue": queue }, pending).await?;
    world.tasks().delete_one(doc! { "_id": whole[2] }).await?;
    end(&world, queue, doc! {}).await?;
    assert_eq!(store.archive_tasks(&whole).await?.moved, 0, "they may be inserted once more");
    assert_eq!(store.delete_tasks(&whole[..1]).await?, 0);
    let other = world.submit(queue, vec![doc! {}]).await?;
    end(&world, queue, doc! { "_id": other[0] }).await?;
    let old = store.ended_before(queue, Place::Tasks, Duration::ZERO, 1).await?;
    assert_eq!(old, other, "others do not wait behind them");

    assert_eq!(submit(&store, queue, params()).await?, whole);
    assert_eq!(world.count(queue, doc! { "status": 1 }).await?, 3);
    assert_eq!(world.status(whole[2]).await?, -2);
    assert_eq!(store.archive_tasks(&whole[..1]).await?.moved, 1);
    assert_eq!(store.delete_tasks(&whole[1..2]).await?, 1);
    assert_eq!(submit(&store, queue, params()).await?, whole, "it is done");
    assert_eq!(world.count(queue, doc! { "_id": { "$in": whole } }).await?, 1);
    world.end().await
}

#[tokio::test]
async fn whoever_inserts_when_others_have_done_it_makes_no_task() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let (store, params) = (world.store(), || vec![doc! { "text": WORD }; 2]);
    let way = Held::at(&world, WORD).await?;
    let meanwhile = async {
        way.reached().await?;
        let ids = submit(&store, queue, params()).await?;
        end(&world, queue, doc! {}).await?;
        assert_eq!(store.archive_tasks(&ids).await?.moved, 2);
        way.release();
        anyhow::Ok(ids)
    };
    let (late, ids) = tokio::try_join!(submit(&way.store, queue, params()), meanwhile)?;
    assert_eq!(late, ids);
    assert_eq!(world.count(queue, doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn of_many_tasks_those_stay_that_are_being_inserted() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    // A batch, and some more.
    let params = || {
        let number = |n: i32| {
            if n < 1_000 {
                doc! { "n": n }
            } else {
                doc! { "n": n, "text": WORD }
            }
        };
        (0..1_200).map(number).collect::<Vec<_>>()
    };
    let way = Held::at(&world, WORD).await?;
    let meanwhile = async {
        way.reached().await?;
        let note = submissions(&world).find_one(doc! { "queue": queue }).await?.context("no note")?;
        assert_eq!(note.get_i64("next")?, 1_000);
        end(&world, queue, doc! {}).await?;
        let first: Vec<TaskId> =
            note.get_array("ids")?.iter().filter_map(|id| id.as_object_id()).map(TaskId).take(10).collect();
        assert_eq!(store.delete_tasks(&first).await?, 10, "they are known to be there");
        // A repetition goes on where the first one was, also when nobody remembers what is gone.
        world.database().collection::<Document>("tasks.deleting").delete_many(doc! {}).await?;
        let ids = submit(&store, queue, params()).await?;
        assert_eq!(world.count(queue, doc! {}).await?, 1_190);
        world.tasks().delete_many(doc! { "queue": queue, "params.n": { "$gte": 1_000 } }).await?;
        way.release();
        anyhow::Ok(ids)
    };
    let (late, ids) = tokio::try_join!(submit(&way.store, queue, params()), meanwhile)?;
    assert_eq!(late, ids);
    assert_eq!(world.count(queue, doc! {}).await?, 990);
    assert_eq!(world.count(queue, doc! { "status": 1 }).await?, 990);
    let note = submissions(&world).find_one(doc! { "queue": queue }).await?.context("no note")?;
    assert_eq!((note.get_str("state")?, note.get("next")), ("done", None));
    world.end().await
}

/// One who fills an array stands still when its elements are there, and another one before he inserts them.
#[tokio::test]
async fn elements_of_an_array_that_have_ended_are_not_made_again() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let (items, cap) = Items::parse("0-2")?;
    let wanted = NewArray { items, cap, key: "item".to_owned(), params: doc! { "text": WORD }, last: None };
    let arrays = world.database().collection::<Document>("arrays");
    // Only what notes that all are there removes anything.
    let (first, late) = (Held::at(&world, "$unset").await?, Held::at(&world, WORD).await?);
    let options = TaskOptions::default();
    let making = async { anyhow::Ok(first.store.submit_array(queue, &wanted, &options, None).await?.array) };
    let filling = async {
        first.reached().await?;
        let array = arrays.find_one(doc! {}).await?.context("no array")?;
        anyhow::Ok(late.store.fill_array(ArrayId(array.get_object_id("_id")?)).await?)
    };
    let meanwhile = async {
        late.reached().await?;
        let array = arrays.find_one(doc! {}).await?.context("no array")?;
        let id = ArrayId(array.get_object_id("_id")?);
        let elements = [0, 1, 2].map(|place| element_id(id, place));
        end(&world, queue, doc! { "array.index": { "$lt": 2 } }).await?;
        assert_eq!(store.archive_tasks(&elements).await?.moved, 0, "they may be inserted once more");
        assert_eq!(store.delete_tasks(&elements).await?, 0);
        let past = doc! { "$set": { "lease_until": bson::DateTime::from_millis(0) } };
        arrays.update_one(doc! { "_id": id }, past).await?;
        assert_eq!(store.pass_arrays().await?.filled, 1);
        assert_eq!(world.count(queue, doc! { "status": 1 }).await?, 2);
        assert_eq!(store.archive_tasks(&elements).await?.moved, 2);
        first.release();
        late.release();
        anyhow::Ok(())
    };
    let (made, (), ()) = tokio::try_join!(making, filling, meanwhile)?;
    assert_eq!(made.inserted, 3);
    assert_eq!(world.count(queue, doc! {}).await?, 1);
    assert_eq!(world.status(element_id(made.id, 2)).await?, -2);
    world.end().await
}
