//! Arrays: many tasks that are submitted as one, so many of them at once at most, and a task after the last of them.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::arrays::{ArrayState, FinalTask, FinalWhen, Items, NewArray, element_id};
use disbatch_core::gates::AfterFailed;
use disbatch_core::model::{ArrayId, QueueId, TaskId};
use disbatch_core::task::{Once, Retried, SubmitError, TaskOptions};
use disbatch_tests::{Dci, Script, World, eventually};
use mongodb::options::ReadConcern;
use serde_json::{Value, json};

use crate::gates::{end, pass};
use crate::wake::{fail, fallible};

/// Fails for the item 3 as long as the file `broken` is there.
const ELEMENT: &str = r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
print(params.get("item"))
sys.exit(1 if os.path.exists(params.get("broken", "")) and params.get("item") == 3 else 0)
"#;

/// Notes how many of its kind run at once.
const COUNTING: &str = r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
mine = os.path.join(params["folder"], str(params["item"]))
open(mine, "w").close()
print(len(os.listdir(params["folder"])))
time.sleep(0.05)
os.remove(mine)
"#;

fn array(text: &str, last: Option<FinalWhen>) -> anyhow::Result<NewArray> {
    let (items, cap) = Items::parse(text)?;
    let last = last.map(|when| FinalTask { params: doc! { "final": true }, when });
    Ok(NewArray { items, cap, key: "item".to_owned(), params: doc! {}, last })
}

async fn submit(world: &World, queue: QueueId, array: &NewArray) -> anyhow::Result<ArrayId> {
    let made = world.store().submit_array(queue, array, &TaskOptions::default(), None).await?;
    Ok(made.array.id)
}

async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    Ok(world)
}

async fn until_done(world: &World, id: ArrayId) -> anyhow::Result<disbatch_core::arrays::Array> {
    eventually("the array to be done", || async {
        let array = world.store().find_array(id).await?.context("no array")?;
        Ok((array.state == ArrayState::Done).then_some(array))
    })
    .await
}

async fn last_of(world: &World, id: ArrayId) -> anyhow::Result<TaskId> {
    let array = world.store().find_array(id).await?.context("no array")?;
    Ok(array.last.context("no final task")?.0)
}

/// What elements are, behind everyone's back.
async fn set_elements(world: &World, id: ArrayId, filter: Document, fields: Document) -> anyhow::Result<()> {
    let mut of_array = doc! { "array.id": id };
    of_array.extend(filter);
    world.tasks().update_many(of_array, doc! { "$set": fields }).await?;
    Ok(())
}

#[tokio::test]
async fn never_more_of_an_array_run_at_once_than_it_says_and_the_final_task_comes_last() -> anyhow::Result<()>
{
    let world = world().await?;
    let queue = world.script_queue(Script { name: "Counting", text: COUNTING }, 50).await?;
    let folder = world.path().join("running");
    std::fs::create_dir(&folder)?;
    let wanted = NewArray {
        params: doc! { "folder": folder.to_str().context("an odd path")? },
        last: Some(FinalTask {
            params: doc! { "folder": folder.to_str().context("an odd path")?, "item": "final" },
            when: FinalWhen::Succeeded,
        }),
        ..array("0-99%5", None)?
    };
    let _dens = [world.den_at_work("n1").await?, world.den_at_work("n2").await?];
    let id = submit(&world, queue, &wanted).await?;
    let running = doc! { "array.id": id, "status": { "$in": [-1, 0] } };
    let done = eventually("the array to be done", || async {
        // All at the same moment: an element that changes while others are counted would be counted twice.
        let tasks = world.tasks();
        let now = tasks.count_documents(running.clone()).read_concern(ReadConcern::snapshot()).await?;
        ensure!(now <= 5, "{now} elements are claimed or run");
        let array = world.store().find_array(id).await?.context("no array")?;
        Ok((array.state == ArrayState::Done).then_some(array))
    })
    .await?;
    assert_eq!(done.succeeded, Some(true));
    let last = world.until_status(done.last.context("no final task")?.0, 1).await?;
    let elements = world.tasks_of(queue).await?;
    assert_eq!(elements.len(), 101);
    let mut items = BTreeSet::new();
    for element in elements.iter().filter(|task| task.contains_key("array")) {
        items.insert(element.get_document("params")?.get_i64("item")?);
        let at_once: usize = element.get_str("stdout")?.trim().parse()?;
        assert!((1..=5).contains(&at_once), "{at_once} ran at once");
        assert!(
            element.get_datetime("mtime")? <= last.get_datetime("started")?,
            "the final task was too early"
        );
    }
    assert_eq!(items, (0..100).collect());
    world.end().await
}

#[tokio::test]
async fn the_final_task_is_cancelled_or_runs_when_an_element_has_failed() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    for (when, status) in [(FinalWhen::Succeeded, -5), (FinalWhen::Finished, -2)] {
        let id = submit(&world, queue, &array("0-9", Some(when))?).await?;
        let last = last_of(&world, id).await?;
        let ended = doc! { "status": 1, "complete": true };
        set_elements(&world, id, doc! { "array.index": { "$ne": 4 } }, ended).await?;
        assert_eq!(store.pass_arrays().await?.closed, 0, "an element has not ended");
        assert_eq!(world.status(last).await?, -4);
        set_elements(&world, id, doc! { "array.index": 4 }, doc! { "status": 2, "complete": true }).await?;
        assert_eq!(store.pass_arrays().await?.closed, 1);
        assert_eq!(world.status(last).await?, status, "{when:?}");
        assert_eq!(store.find_array(id).await?.context("no array")?.succeeded, Some(false));
        assert_eq!(store.pass_arrays().await?.closed, 0, "it is done once");
    }
    world.end().await
}

#[tokio::test]
async fn whoever_dies_at_the_end_of_an_array_leaves_a_mark() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    let id = submit(&world, queue, &array("0-2", Some(FinalWhen::Succeeded))?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 1, "complete": true }).await?;
    // As far as one came that died then.
    let arrays = world.database().collection::<Document>("arrays");
    let done = doc! { "$set": { "state": "done", "succeeded": true, "last_due": true } };
    arrays.update_one(doc! { "_id": id }, done).await?;
    let last = last_of(&world, id).await?;
    assert_eq!(world.status(last).await?, -4);
    store.pass_arrays().await?;
    assert_eq!(world.status(last).await?, -2);
    let array = arrays.find_one(doc! { "_id": id }).await?.context("no array")?;
    assert!(!array.contains_key("last_due") && !array.contains_key("work"), "{array}");
    world.end().await
}

#[tokio::test]
async fn eight_who_look_at_once_let_the_final_task_go_once() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let id = submit(&world, queue, &array("0-49", Some(FinalWhen::Finished))?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 2, "complete": true }).await?;
    let looks = (0..8).map(|_| {
        let store = world.store();
        async move { store.pass_arrays().await }
    });
    let closed = futures::future::try_join_all(looks).await?;
    assert_eq!(closed.iter().map(|passed| passed.closed).sum::<u64>(), 1);
    let last = world.until_status(last_of(&world, id).await?, -2).await?;
    let history: Vec<&Document> = last.get_array("history")?.iter().filter_map(Bson::as_document).collect();
    let released =
        history.iter().filter(|entry| matches!(entry.get("status"), Some(Bson::Int64(-2) | Bson::Int32(-2))));
    assert_eq!(released.count(), 1, "{history:?}");
    world.end().await
}

#[tokio::test]
async fn a_den_completes_what_a_server_that_died_has_begun() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let body = json!({ "queue": queue.to_string(), ".array": "0-49999", ".array_final": { "a": 1 } });
    let request = dci.request(reqwest::Method::POST, "/tasks").json(&body).send();
    let request = tokio::spawn(request);
    let arrays = world.database().collection::<Document>("arrays");
    let begun = doc! { "filling": true, "next_index": { "$gte": 1_000 } };
    let array = eventually("the submission to be in the middle", || async {
        Ok(arrays.find_one(begun.clone()).await?)
    })
    .await?;
    dci.kill().await?;
    let _lost = request.await?;
    let id = ArrayId(array.get_object_id("_id")?);
    let before = world.store().find_array(id).await?.context("no array")?;
    ensure!(before.inserted < 50_000, "the server was too quick");
    assert_eq!(world.store().pass_arrays().await?.filled, 0, "it may still be alive");
    // Its lease runs out.
    let past = doc! { "$set": { "lease_until": bson::DateTime::from_millis(0) } };
    arrays.update_one(doc! { "_id": id }, past).await?;
    let _den = world.den_at_work("n1").await?;
    eventually("the rest of the elements", || async {
        let array = world.store().find_array(id).await?.context("no array")?;
        Ok((array.inserted == 50_000).then_some(()))
    })
    .await?;
    let of_array = doc! { "array.id": id };
    assert_eq!(world.count(queue, of_array).await?, 50_000);
    let first = world.task(element_id(id, 0)).await?;
    assert_eq!(first.get_document("params")?.get_i64("item")?, 0);
    let last = world.task(element_id(id, 49_999)).await?;
    assert_eq!(last.get_document("array")?.get_i64("index")?, 49_999);
    assert_eq!(world.status(last_of(&world, id).await?).await?, -4);
    let stored = arrays.find_one(doc! { "_id": id }).await?.context("no array")?;
    assert!(!stored.contains_key("template") && !stored.contains_key("items"), "{stored}");
    world.end().await
}

#[tokio::test]
async fn the_same_key_makes_one_array() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let (store, wanted) = (world.store(), array("0-1499", None)?);
    let once = Once::new("k".to_owned(), "request");
    let options = TaskOptions::default();
    let submissions = (0..4).map(|_| store.submit_array(queue, &wanted, &options, Some(&once)));
    let made = futures::future::try_join_all(submissions).await?;
    let ids: BTreeSet<ArrayId> = made.iter().map(|made| made.array.id).collect();
    assert_eq!(ids.len(), 1);
    let again = store.submit_array(queue, &wanted, &options, Some(&once)).await?;
    assert!(again.is_repetition && ids.contains(&again.array.id));
    assert_eq!(world.count(queue, doc! {}).await?, 1_500);
    let other = Once::new("k".to_owned(), "another request");
    let refused = store.submit_array(queue, &wanted, &options, Some(&other)).await;
    assert!(matches!(refused, Err(SubmitError::AnotherRequest)), "{refused:?}");
    world.end().await
}

#[tokio::test]
async fn an_array_goes_away_after_its_tasks() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let (store, arrays) = (world.store(), world.database().collection::<Document>("arrays"));
    let id = submit(&world, queue, &array("0-2", None)?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 1, "complete": true }).await?;
    assert_eq!(store.pass_arrays().await?.closed, 1);
    assert_eq!(store.note_empty_arrays().await?, 0, "its tasks are there");
    world.tasks().delete_many(doc! { "array.id": id }).await?;
    assert_eq!(store.note_empty_arrays().await?, 0, "it was looked at just now");
    arrays.update_one(doc! { "_id": id }, doc! { "$unset": { "looked": "" } }).await?;
    assert_eq!(store.note_empty_arrays().await?, 1);
    let stored = arrays.find_one(doc! { "_id": id }).await?.context("no array")?;
    assert!(stored.get_datetime("gone").is_ok(), "the server removes it by that: {stored}");
    world.end().await
}

async fn ended(dci: &Dci, job: &Value) -> anyhow::Result<Value> {
    let path = format!("/bulk/{}", job["id"].as_str().with_context(|| job.to_string())?);
    eventually("the end of the bulk job", || async {
        let job = dci.get(&path).await?;
        Ok((job["state"] != "running").then_some(job))
    })
    .await
}

#[tokio::test]
async fn an_array_of_values_is_submitted_shown_and_cancelled() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let values = json!(["a", { "$oid": "x" }, 3, null]);
    let body = json!({
        "queue": queue.to_string(), "params": { "all": 1 }, ".array": values, ".array_key": "file", ".array_cap": 2,
        ".array_final": { "sum": true },
    });
    let made = dci.posted("/tasks", &body).await?;
    let id = made["array"]["id"].as_str().with_context(|| made.to_string())?.to_owned();
    assert_eq!((&made["array"]["count"], &made["array"]["cap"]), (&json!(4), &json!(2)));
    let array = dci.get(&format!("/arrays/{id}?.limit=3")).await?;
    assert_eq!(
        (&array["state"], &array["done"], &array["final"]["status"]),
        (&json!("open"), &json!(0), &json!(-4))
    );
    let told: Vec<&Value> =
        array["elements"].as_array().context("no elements")?.iter().map(|e| &e["value"]).collect();
    assert_eq!(told.len(), 3);
    assert_eq!(told[0], "a");
    let second = element_id(id.parse()?, 2);
    let task = world.task(second).await?;
    assert_eq!(task.get_document("params")?, &doc! { "all": 1, "file": 3 });
    assert_eq!(task.get_array("locks")?, &vec![Bson::from(format!("array:{id}/2"))]);
    let listed = dci.get("/arrays?state=open").await?;
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["id"]), (Some(1), &json!(id)));

    let (status, job) = dci.post(&format!("/arrays/{id}/cancel"), &json!({ "reason": "wrong" })).await?;
    assert_eq!(status, 202, "{job}");
    let job = ended(&dci, &job).await?;
    assert_eq!((&job["done"], &job["total"]), (&json!(4), &json!(4)), "{job}");
    assert_eq!(world.count(queue, doc! { "status": -5 }).await?, 4);
    let den = world.den_at_work("n1").await?;
    let done = until_done(&world, id.parse()?).await?;
    assert_eq!(done.succeeded, Some(false));
    world.until_status(last_of(&world, id.parse()?).await?, -5).await?;
    drop(den);
    let (status, refused) = dci.post(&format!("/arrays/{id}/cancel"), &json!({})).await?;
    assert_eq!(status, 409, "{refused}");
    let (status, _) = dci.post("/arrays/000000000000000000000000/cancel", &json!({})).await?;
    assert_eq!(status, 404);
    let (status, error) = dci.post("/tasks", &json!({ "queue": queue.to_string(), ".array": "9-1" })).await?;
    assert_eq!(
        (status, error["error"].as_str()),
        (400, Some(".array: the range '9-1' ends before it begins"))
    );
    world.end().await
}

#[tokio::test]
async fn elements_that_failed_are_tried_again_and_then_the_final_task_runs() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(Script { name: "Element", text: ELEMENT }, 8).await?;
    let broken = world.path().join("broken");
    std::fs::write(&broken, "")?;
    let wanted = NewArray {
        params: doc! { "broken": broken.to_str().context("an odd path")? },
        ..array("0-5", Some(FinalWhen::Succeeded))?
    };
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let _den = world.den_at_work("n1").await?;
    let id = submit(&world, queue, &wanted).await?;
    until_done(&world, id).await?;
    let last = last_of(&world, id).await?;
    world.until_status(last, -5).await?;
    std::fs::remove_file(&broken)?;
    let (status, job) = dci.post(&format!("/arrays/{id}/retry"), &json!({})).await?;
    assert_eq!(status, 202, "{job}");
    assert_eq!(ended(&dci, &job).await?["done"], 1);
    let done = eventually("the array to be done again", || async {
        let array = world.store().find_array(id).await?.context("no array")?;
        Ok((array.succeeded == Some(true)).then_some(array))
    })
    .await?;
    assert_eq!(done.state, ArrayState::Done);
    let last = world.until_status(last, 1).await?;
    assert_eq!(last.get_document("params")?, &doc! { "final": true });
    assert!(!last.contains_key("stood_down"), "{last}");
    let (status, refused) = dci.post(&format!("/arrays/{id}/retry"), &json!({})).await?;
    assert_eq!(status, 409, "{refused}");
    world.end().await
}

#[tokio::test]
async fn what_comes_after_a_final_task_is_told_when_it_was_cancelled_and_runs_after_all() -> anyhow::Result<()>
{
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    let id = submit(&world, queue, &array("0-2", Some(FinalWhen::Succeeded))?).await?;
    let last = last_of(&world, id).await?;
    let behind = TaskOptions { after: vec![last], after_failed: AfterFailed::Wait, ..TaskOptions::default() };
    let tail = store.submit_tasks(queue, vec![doc! {}], &behind).await?.ids[0];
    set_elements(&world, id, doc! {}, doc! { "status": 2, "complete": true }).await?;
    store.pass_arrays().await?;
    pass(&store).await?;
    let cancelled = world.task(last).await?;
    assert!(!cancelled.get_bool("dependents")?, "it was told: {cancelled}");
    assert_eq!((world.status(last).await?, world.status(tail).await?), (-5, -4));
    // The elements are tried again, and succeed.
    store.reopen_array(id).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 1, "complete": true }).await?;
    let arrays = world.database().collection::<Document>("arrays");
    arrays.update_one(doc! { "_id": id }, doc! { "$unset": { "hold_until": "" } }).await?;
    assert_eq!(store.pass_arrays().await?.closed, 1);
    assert_eq!(world.status(last).await?, -2);
    end(&world, last, 1).await?;
    pass(&store).await?;
    assert_eq!(world.status(tail).await?, -2);
    world.end().await
}

#[tokio::test]
async fn an_array_whose_elements_are_being_retried_is_not_done() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    let id = submit(&world, queue, &array("0-2", Some(FinalWhen::Finished))?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 2, "complete": true }).await?;
    store.reopen_array(id).await?;
    assert_eq!(store.pass_arrays().await?.closed, 0, "whoever opened it is to say why");
    let bulk = world.database().collection::<Document>("bulk");
    let job = bson::oid::ObjectId::new();
    let now = store.now();
    let stored = doc! {
        "_id": job, "action": "retry", "filter": { "queue": queue, "array": id }, "reason": null, "by": "x",
        "state": "running", "total": 3_i64, "done": 0_i64, "skipped": 0_i64, "errors": [], "position": null,
        "pending": [], "newest": job, "created": now, "updated": now, "instance": "x",
    };
    bulk.insert_one(stored).await?;
    store.hold_array(id, job).await?;
    assert_eq!(store.pass_arrays().await?.closed, 0);
    bulk.update_one(doc! { "_id": job }, doc! { "$set": { "state": "done" } }).await?;
    assert_eq!(store.pass_arrays().await?.closed, 1);
    assert_eq!(world.status(last_of(&world, id).await?).await?, -2);
    world.end().await
}

#[tokio::test]
async fn a_final_task_that_is_tried_again_waits_for_elements_that_are_too() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    let id = submit(&world, queue, &array("0-2", Some(FinalWhen::Finished))?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 2, "complete": true }).await?;
    store.pass_arrays().await?;
    let last = last_of(&world, id).await?;
    assert_eq!(world.status(last).await?, -2);
    world.set(last, doc! { "status": 2, "complete": true }).await?;
    assert_eq!(store.retry_task(last, "again").await?, Retried::Blocked);
    assert_eq!(store.retry_task(element_id(id, 1), "again").await?, Retried::Queued);
    assert_eq!(store.find_array(id).await?.context("no array")?.state, ArrayState::Open);
    assert_eq!(store.pass_arrays().await?.closed, 0, "there may be more to try again");
    let arrays = world.database().collection::<Document>("arrays");
    arrays.update_one(doc! { "_id": id }, doc! { "$unset": { "hold_until": "" } }).await?;
    assert_eq!(store.pass_arrays().await?.closed, 0, "an element has not ended");
    assert_eq!(world.status(last).await?, -4);
    set_elements(&world, id, doc! { "array.index": 1 }, doc! { "status": 1, "complete": true }).await?;
    assert_eq!(store.pass_arrays().await?.closed, 1);
    assert_eq!(world.status(last).await?, -2);
    world.end().await
}

#[tokio::test]
async fn a_final_task_does_not_wait_for_an_array_that_was_done_while_it_was_tried_again() -> anyhow::Result<()>
{
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Demo", doc! { "threads": 0 }).await?;
    let store = world.store();
    let id = submit(&world, queue, &array("0-2", Some(FinalWhen::Finished))?).await?;
    set_elements(&world, id, doc! {}, doc! { "status": 2, "complete": true }).await?;
    store.pass_arrays().await?;
    let last = last_of(&world, id).await?;
    world.set(last, doc! { "status": 2, "complete": true }).await?;
    let pass_later = async || {
        let arrays = world.database().collection::<Document>("arrays");
        arrays.update_one(doc! { "_id": id }, doc! { "$unset": { "hold_until": "" } }).await?;
        anyhow::Ok(store.pass_arrays().await?.closed)
    };
    // The array is open, and the task does not wait for it yet.
    let slow = doc! {
        "failCommands": ["update"], "namespace": format!("{}.tasks", world.database().name()),
        "blockConnection": true, "blockTimeMS": 1500,
    };
    fail(&world, doc! { "times": 1 }, slow).await?;
    let meanwhile = async {
        let entered = doc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 20_000 };
        world.database().client().database("admin").run_command(entered).await?;
        pass_later().await
    };
    let (retried, closed) = futures::join!(store.retry_task(last, "again"), meanwhile);
    assert_eq!((retried?, closed?), (Retried::Blocked, 1));
    pass_later().await?;
    assert_eq!(world.status(last).await?, -2, "all elements have ended");
    world.end().await?;
    server.stop().await
}
