//! Which tasks a bulk job is for.

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_tests::{Dci, World, eventually};
use serde_json::json;

#[tokio::test]
async fn a_schedule_a_group_and_a_tenant_say_which_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let queue = world.queue("Nobodys", doc! { "name": "mail" }).await?;
    let schedule = ObjectId::new();
    let schedules = world.database().collection::<Document>("schedules");
    schedules
        .insert_one(doc! { "_id": schedule, "name": "nightly", "queue": queue, "plugin": "Nobodys" })
        .await?;
    let ids = world.submit(queue, vec![doc! {}; 4]).await?;
    world.set(ids[0], doc! { "schedule": schedule }).await?;
    world.set(ids[1], doc! { "group": "a/b" }).await?;
    world.set(ids[2], doc! { "tenant": "acme" }).await?;
    let of = |filter: serde_json::Value| json!({ "action": "cancel", "filter": filter });
    let by_id = json!({ "queue": "mail", "schedule": schedule.to_hex() });
    for (filter, task) in [
        (by_id, ids[0]),
        (json!({ "queue": "*", "group": "a/b" }), ids[1]),
        (json!({ "queue": "mail", "tenant": "acme" }), ids[2]),
    ] {
        let mut preview = of(filter.clone());
        preview[".preview"] = 1.into();
        assert_eq!(dci.posted("/bulk", &preview).await?["count"], 1, "{filter}");
        let (status, answer) = dci.post("/bulk", &of(filter)).await?;
        assert_eq!(status, 202, "{answer}");
        world.until_status(task, -5).await?;
    }
    assert_eq!(world.status(ids[3]).await?, -2);
    for (filter, why) in [
        (json!({ "queue": "mail", "schedule": "nosuch" }), "no schedule 'nosuch'"),
        (json!({ "queue": "mail", "group": ["a"] }), "group must be"),
        (json!({ "tenant": "acme" }), "refusing to act on everything"),
    ] {
        let (status, answer) = dci.post("/bulk", &of(filter)).await?;
        assert!(status == 400 && answer.to_string().contains(why), "{status} {answer}");
    }
    // What a job is for outlives the DCI that took it.
    let jobs = world.database().collection::<Document>("bulk");
    eventually("the jobs to end", || async {
        Ok((jobs.count_documents(doc! { "state": "done" }).await? == 3).then_some(()))
    })
    .await?;
    assert_eq!(jobs.count_documents(doc! { "filter.group": "a/b" }).await?, 1);
    world.end().await
}
