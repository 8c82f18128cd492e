//! What other programs and people write by hand: claims and runs that nobody has, and tasks that nobody can claim.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::explain::{Reader, explain};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::{Dci, Script, World, always, eventually};
use serde_json::json;

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\nexit 0\n" };

/// Inserts a task as a person would, without anything that only our programs write.
async fn insert(world: &World, queue: QueueId, fields: Document) -> anyhow::Result<Bson> {
    let mut task =
        doc! { "_id": ObjectId::new(), "queue": queue, "params": {}, "mtime": world.store().now() };
    task.extend(fields);
    Ok(world.tasks().insert_one(task).await?.inserted_id)
}

async fn until_status(world: &World, id: &Bson, status: i32) -> anyhow::Result<()> {
    let what = format!("{id} to be {status}");
    eventually(&what, || async {
        Ok(world.tasks().find_one(doc! { "_id": id, "status": status }).await?.map(|_| ()))
    })
    .await
}

#[tokio::test]
async fn what_no_process_can_have_gives_its_slot_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 1 }))?;
    let queue = world.script_queue(QUICK, 50).await?;
    // Of Perl Disbatch: there is an entry of its node, and it has no leases.
    let nodes = world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "perl", "timestamp": world.store().now() }).await?;
    let perls_claim = insert(&world, queue, doc! { "status": -1, "node": "perl" }).await?;
    let perls_run = insert(&world, queue, doc! { "status": 0, "node": "perl" }).await?;
    let (mut claims, mut runs) = (Vec::new(), Vec::new());
    let lists = Bson::from(vec![Bson::from("perl"), Bson::Null]);
    let any = Bson::RegularExpression(bson::Regex { pattern: cstr!(".").into(), options: cstr!("").into() });
    let owners = [None, Some(Bson::Null), Some(5.into()), Some(doc! { "a": 1 }.into()), Some("gone".into())];
    // As a DEN has it in place of a lease, which then answers for the run.
    let covered = DateTime::from_millis(221_845_392_000_000 + 1_000);
    for node in owners.into_iter().chain([Some("".into()), Some(lists), Some(any)]) {
        for (status, all) in [(-1, &mut claims), (0, &mut runs)] {
            for until in [None, Some(covered)] {
                let mut fields = doc! { "status": status };
                fields.extend(node.clone().map(|node| ("node".to_owned(), node)));
                fields.extend(until.map(|until| ("lease_until".to_owned(), Bson::from(until))));
                all.push(insert(&world, queue, fields).await?);
            }
        }
    }
    // One that no program of ours can read.
    runs.push(insert(&world, queue, doc! { "_id": "by hand", "status": 0 }).await?);
    let _den = world.den("n1")?;
    for id in claims {
        until_status(&world, &id, 1).await?;
    }
    for id in runs {
        until_status(&world, &id, -6).await?;
    }
    always("Perl's are left alone", Duration::from_secs(2), || async {
        let theirs = doc! { "_id": { "$in": [&perls_claim, &perls_run] }, "lease_until": Bson::Null };
        Ok(world.count(queue, theirs).await? == 2)
    })
    .await?;
    // When somebody has removed the entry of that node, nobody is left who could end them.
    nodes.delete_one(doc! { "node": "perl" }).await?;
    until_status(&world, &perls_claim, 1).await?;
    until_status(&world, &perls_run, -6).await?;
    assert_eq!(world.count(queue, doc! { "status": { "$in": [-1, 0] } }).await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_queued_task_in_the_name_of_a_node_says_why_nobody_claims_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 1).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let free = insert(&world, queue, doc! { "status": -2, "node": -1.0 }).await?;
    until_status(&world, &free, 1).await?;
    for (node, shown) in
        [(Bson::from(1.5), "1.5"), (doc! { "$ref": "nodes" }.into(), "$ref"), ("n1".into(), "n1")]
    {
        let id = insert(&world, queue, doc! { "status": -2, "node": node }).await?;
        let id = TaskId(id.as_object_id().context("an id")?);
        let facts = world.store().facts_of_task(id).await?.context("it is there")?;
        let told = explain(&facts, Reader::OfAll);
        assert!(told.summary.contains("its field node is") && told.summary.contains(shown), "{told:?}");
        // What it says helps.
        dci.posted(&format!("/tasks/{id}/cancel"), &json!({})).await?;
        dci.posted(&format!("/tasks/{id}/retry"), &json!({})).await?;
        world.until_status(id, 1).await?;
    }
    drop(den);
    world.end().await
}

#[tokio::test]
async fn tasks_whose_id_is_none_are_warned_of() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "janitor": { "every": 0.2 } }))?;
    let queue = world.script_queue(QUICK, 1).await?;
    let store = world.store();
    assert_eq!(store.tasks_with_odd_ids().await?, (0, None));
    for id in [Bson::from(ObjectId::from_bytes([0; 12])), ObjectId::from_bytes([u8::MAX; 12]).into()] {
        insert(&world, queue, doc! { "_id": id, "status": 1 }).await?;
    }
    assert_eq!(store.tasks_with_odd_ids().await?, (0, None), "these are some");
    for id in [Bson::from(7), "seven".into(), true.into(), doc! { "a": 1 }.into()] {
        insert(&world, queue, doc! { "_id": id, "status": -2 }).await?;
    }
    let (tasks, one) = store.tasks_with_odd_ids().await?;
    assert!(tasks == 4 && one.is_some(), "{tasks} {one:?}");
    let den = world.den("n1")?;
    eventually("the warning", || async {
        Ok(den.log()?.contains("tasks whose _id is no ObjectId are never run").then_some(()))
    })
    .await?;
    world.end().await
}
