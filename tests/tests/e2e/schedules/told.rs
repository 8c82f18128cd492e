//! What schedules are told of their tasks, and tasks of their schedules.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::{NodeName, Selector, Task};
use disbatch_core::schedules::{ForRun, Overlap};
use disbatch_core::schema::Schemas;
use disbatch_core::task::{Question, Retried};
use disbatch_tests::{Script, Server, World, eventually};

use super::{Scene, later, settings};

/// Ends at once, and well.
const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\nread -r line\nexit 0\n" };

#[tokio::test]
async fn a_schedule_is_told_how_its_tasks_ended_and_the_newest_counts() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(2).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    let mut tasks = Vec::new();
    for minutes in -2..=0 {
        tasks.push(scene.task_for(later(newest, minutes)).await?);
    }
    let odd = doc! { "$oid": "no id", "n": [{ "$date": 1 }] };
    scene.end(tasks[1], 1, doc! { "storage": &odd }).await?;
    let run: Task = bson::deserialize_from_document(scene.world.task(tasks[2]).await?)?;
    let told = scene.store.schedule_for_run(&run).await?.context("it has a schedule")?;
    assert_eq!(told.storage, Some(Bson::from(odd.clone())), "also before anybody has told the schedule");
    assert_eq!(scene.current().await?.storage, None);
    assert_eq!(scene.store.settle_scheduled().await?, (1, false));
    let again = scene.store.schedule_for_run(&run).await?;
    assert_eq!(again, Some(told.clone()));
    assert_eq!((told.name.as_str(), told.id), ("a test", scene.schedule.id.0));
    assert!(told.last_success_finish.is_some() && told.last_success_start.is_some());

    // One of an earlier time ends later, and has failed.
    scene.end(tasks[0], 2, doc! { "storage": "old" }).await?;
    scene.store.settle_scheduled().await?;
    let schedule = scene.current().await?;
    assert_eq!(schedule.storage, Some(Bson::from(odd)));
    assert_eq!(schedule.last_success.map(|success| success.finish), told.last_success_finish);
    assert_eq!(schedule.last.map(|last| last.outcome), Some("fired".to_owned()), "the newest has not ended");

    scene.end(tasks[2], 2, doc! { "storage": Bson::Null }).await?;
    assert_eq!(scene.store.settle_scheduled().await?, (1, false));
    let schedule = scene.current().await?;
    assert_eq!((schedule.storage, schedule.stored_for), (Some(Bson::Null), Some(newest)));
    assert_eq!(schedule.last.map(|last| last.outcome), Some("failed".to_owned()));
    assert_eq!(scene.store.settle_scheduled().await?, (0, false));
    assert_eq!(scene.world.count(scene.queue, doc! { "unsettled": { "$exists": true } }).await?, 0);
    scene.world.end().await
}

#[tokio::test]
async fn nothing_that_a_schedule_has_to_be_told_is_lost_with_its_task() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(1).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    let (first, second) = (scene.task_for(later(newest, -1)).await?, scene.task_for(newest).await?);
    scene.end(first, 1, doc! { "storage": 1 }).await?;
    assert_eq!(scene.store.archive_tasks(&[first]).await?.moved, 1);
    assert_eq!(scene.current().await?.storage, Some(Bson::from(1)));
    let archived = scene.world.database().collection::<Document>("tasks.archive");
    let archived = archived.find_one(doc! { "_id": first }).await?.context("it is not there")?;
    assert!(!archived.contains_key("unsettled"));

    // A task that is retried has another end.
    scene.end(second, 2, doc! {}).await?;
    scene.store.settle_scheduled().await?;
    assert_eq!(scene.store.retry_task(second, "again").await?, Retried::Queued);
    assert!(scene.world.task(second).await?.get_bool("unsettled")?);
    scene.end(second, 1, doc! { "storage": 2 }).await?;
    assert_eq!(scene.store.delete_tasks(&[second]).await?, 1);
    let schedule = scene.current().await?;
    assert_eq!(schedule.storage, Some(Bson::from(2)));
    assert_eq!(schedule.last.map(|last| last.outcome), Some("succeeded".to_owned()));

    // Nobody has to be told any more.
    let third = scene.store.run_schedule(scene.schedule.id, None).await?.context("no schedule")?;
    scene.store.delete_schedule(scene.schedule.id).await?.context("it was there")?;
    scene.end(third, 1, doc! {}).await?;
    let task: Task = bson::deserialize_from_document(scene.world.task(third).await?)?;
    assert_eq!(scene.store.schedule_for_run(&task).await?, None::<ForRun>);
    assert_eq!(scene.store.settle_scheduled().await?, (1, false));
    scene.world.end().await
}

#[tokio::test]
async fn a_look_tells_when_a_schedule_is_due_and_whether_one_has_to_be_told() -> anyhow::Result<()> {
    let scene = Scene::with("@yearly", |_| {}).await?;
    let node = NodeName::new("n1");
    let question = Question::new(&node, Duration::from_secs(30));
    let look = || scene.store.look_around(&question);
    assert!(!look().await?.schedules);
    let now = scene.store.server_time().await?;
    scene.set(doc! { "next": later(now, 5), "next_for": later(now, 5) }).await?;
    let (outlook, minute) = (look().await?, Duration::from_secs(60));
    assert!(!outlook.schedules && outlook.next.is_some_and(|next| next > minute * 4 && next <= minute * 6));
    scene.set(doc! { "next": now, "next_for": now }).await?;
    assert!(look().await?.schedules);
    scene.store.pause_schedule(scene.schedule.id).await?;
    assert!(!look().await?.schedules);
    let task = scene.store.run_schedule(scene.schedule.id, Some("bob")).await?.context("no schedule")?;
    assert_eq!(scene.world.task(task).await?.get_str("owner")?, "bob");
    assert!(!look().await?.unsettled);
    scene.end(task, 1, doc! {}).await?;
    assert!(look().await?.unsettled);
    scene.store.settle_scheduled().await?;
    assert!(!look().await?.unsettled);
    let left = doc! { "firing": [{ "for": now, "task": ObjectId::new() }], "firing_at": later(now, -1) };
    scene.set(left).await?;
    assert!(look().await?.schedules);
    scene.world.end().await
}

#[tokio::test]
async fn a_den_fires_runs_and_tells_with_and_without_change_streams() -> anyhow::Result<()> {
    for server in [Server::Standalone, Server::ReplicaSet] {
        let world = World::on(server).await?;
        let store = world.store();
        store.ensure_indexes().await?;
        let queue = world.script_queue(QUICK, 5).await?;
        let mut settings = settings(queue, "* * * * * *")?;
        settings.overlap = Overlap::Skip;
        settings.catch_up = Duration::ZERO;
        let id = store.create_schedule(&settings, false).await?.id;
        let _den = world.den("n1")?;
        let schedule = eventually("three runs", || async {
            let schedule = store.find_schedule(&Selector::Id(id.0)).await?.context("it is gone")?;
            let ended = world.count(queue, doc! { "status": 1, "unsettled": Bson::Null }).await?;
            Ok((ended >= 3).then_some(schedule))
        })
        .await?;
        assert!(schedule.last_success.is_some() && schedule.counts.fired >= 3, "{schedule:?}");
        store.pause_schedule(id).await?;
        world.until_all_ended(queue).await?;
        world.end().await?;
    }
    Ok(())
}
