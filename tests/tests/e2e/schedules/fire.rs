//! What fires, and that it fires once.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::model::{QueueId, Selector, TaskId};
use disbatch_core::plugin::Manifest;
use disbatch_core::schedules::{Firing, Overlap, Settings};
use disbatch_core::schema::Schemas;
use disbatch_core::store::Store;
use disbatch_tests::{PATIENCE, eventually};
use futures::TryStreamExt;
use futures::future::try_join_all;
use mongodb::change_stream::event::OperationType;
use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::{Scene, later, minute};

#[tokio::test]
async fn a_time_fires_once_however_many_look_at_the_same_moment() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(30).await?;
    let stores: Vec<Store> = (0..8).map(|_| scene.world.store()).collect();
    let none = Schemas::default();
    let fired = try_join_all(stores.iter().map(|store| store.fire_schedules(&none))).await?;
    let fired: u64 = fired.iter().map(|fired| fired.fired).sum();
    let times = scene.times().await?;
    let expected: Vec<DateTime> = (-30..=0).map(|minutes| later(newest, minutes)).collect();
    assert_eq!(times, expected);
    assert_eq!(fired, 31);
    let schedule = scene.current().await?;
    assert_eq!((schedule.counts.fired, schedule.counts.skipped), (31, 0));
    assert_eq!((schedule.next, schedule.firing.len()), (Some(later(newest, 1)), 0));
    let last = schedule.last.context("nothing is noted")?;
    assert_eq!((last.time, last.outcome.as_str()), (newest, "fired"));
    let task = scene.world.task(last.task.context("no task")?).await?;
    assert_eq!(task.get_document("params")?, &doc! { "a": 1 });
    assert_eq!((task.get_object_id("schedule")?, task.get_bool("unsettled")?), (schedule.id.0, true));
    assert_eq!((task.get_str("owner")?, task.get_i32("status")?), ("alice", -2));
    scene.world.end().await
}

/// A DEN is killed right when something fires, again and again, while another one goes on.
#[tokio::test]
async fn a_den_that_is_killed_while_it_fires_loses_no_time_and_repeats_none() -> anyhow::Result<()> {
    let scene = Scene::with("* * * * * *", |_| {}).await?;
    let _other = scene.world.den_at_work("n2").await?;
    for round in 1..=8_i64 {
        let den = scene.world.den_at_work("n1").await?;
        let seen = scene.current().await?.counts.fired;
        eventually("something to fire", || async {
            Ok((scene.current().await?.counts.fired > seen).then_some(()))
        })
        .await?;
        den.end_with(Signal::SIGKILL).await?;
        ensure!(scene.current().await?.counts.fired >= round);
    }
    scene.store.pause_schedule(scene.schedule.id).await?;
    // What was left is completed after twenty seconds.
    let schedule = eventually("what was left to be completed", || async {
        let schedule = scene.current().await?;
        Ok(schedule.firing.is_empty().then_some(schedule))
    })
    .await?;
    let times = scene.times().await?;
    let seconds: Vec<i64> = times.iter().map(|time| time.timestamp_millis() / 1_000).collect();
    let (first, last) = (*seconds.first().context("none")?, *seconds.last().context("none")?);
    assert_eq!(seconds, (first..=last).collect::<Vec<_>>(), "each second, and each once");
    assert_eq!((schedule.counts.fired, schedule.counts.skipped), (i64::try_from(seconds.len())?, 0));
    scene.world.end().await
}

#[tokio::test]
async fn what_was_left_is_completed_once_and_never_by_who_comes_late() -> anyhow::Result<()> {
    let scene = Scene::with("@yearly", |_| {}).await?;
    let now = scene.store.server_time().await?;
    let time = later(minute(now), -5);
    let firing = Firing { time, task: TaskId(ObjectId::new()) };
    let left = |at: DateTime| doc! { "firing": [{ "for": time, "task": firing.task }], "firing_at": at };
    scene.set(left(now)).await?;
    assert_eq!(scene.store.fire_schedules(&Schemas::default()).await?.completed, 0, "somebody may be at it");
    assert!(scene.times().await?.is_empty());
    let late = scene.current().await?;
    assert_eq!(late.firing, [firing]);

    scene.set(left(later(now, -1))).await?;
    let stores: Vec<Store> = (0..4).map(|_| scene.world.store()).collect();
    let none = Schemas::default();
    try_join_all(stores.iter().map(|store| store.fire_schedules(&none))).await?;
    assert_eq!(scene.times().await?, [time]);
    assert_eq!(scene.task_for(time).await?, firing.task);
    assert!(scene.current().await?.firing.is_empty());

    // Whoever was stopped before the insert goes on now, and again when the task has come and gone.
    scene.store.complete_firing(&late, firing).await?;
    assert_eq!(scene.times().await?, [time]);
    scene.end(firing.task, 1, doc! {}).await?;
    assert_eq!(scene.store.archive_tasks(&[firing.task]).await?.moved, 1);
    scene.store.complete_firing(&late, firing).await?;
    assert!(scene.times().await?.is_empty());

    // Whoever died after the insert has left the entry. It goes before the task can.
    let other = Firing { time: later(time, 1), task: TaskId(ObjectId::new()) };
    scene.set(doc! { "firing": [{ "for": other.time, "task": other.task }], "firing_at": now }).await?;
    let late = scene.current().await?;
    scene.store.complete_firing(&late, other).await?;
    scene.set(doc! { "firing": [{ "for": other.time, "task": other.task }], "firing_at": now }).await?;
    scene.end(other.task, 1, doc! {}).await?;
    assert_eq!(scene.store.delete_tasks(&[other.task]).await?, 1);
    assert!(scene.current().await?.firing.is_empty());
    scene.store.complete_firing(&late, other).await?;
    assert!(scene.times().await?.is_empty());
    scene.world.end().await
}

#[tokio::test]
async fn a_time_is_passed_over_while_an_earlier_task_has_not_ended() -> anyhow::Result<()> {
    let scene = Scene::new(|settings| settings.overlap = Overlap::Skip).await?;
    let newest = scene.away(3).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    assert_eq!(scene.times().await?, [newest], "one of those that were missed together");
    assert_eq!(scene.current().await?.counts.skipped, 3);
    let first = scene.task_for(newest).await?;
    scene.set(doc! { "next_for": later(newest, -1), "next": later(newest, -1) }).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    assert_eq!(scene.times().await?, [newest]);
    let last = scene.current().await?.last.context("nothing is noted")?;
    assert_eq!((last.outcome.as_str(), last.task), ("skipped", None));
    scene.end(first, 2, doc! {}).await?;
    let before = later(newest, -10);
    scene.set(doc! { "next_for": before, "next": before, "end": before }).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    assert_eq!(scene.times().await?, [before, newest]);
    assert_eq!(scene.current().await?.next, None, "its end has come");
    scene.world.end().await
}

#[tokio::test]
async fn a_task_waits_for_those_before_it() -> anyhow::Result<()> {
    let scene = Scene::new(|settings| settings.overlap = Overlap::Queue).await?;
    let newest = scene.away(2).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    let times: Vec<DateTime> = (-2..=0).map(|minutes| later(newest, minutes)).collect();
    assert_eq!(scene.times().await?, times);
    for n in 0..times.len() {
        scene.store.pass_gates().await?;
        let mut statuses = Vec::new();
        for time in &times {
            statuses.push(scene.world.status(scene.task_for(*time).await?).await?);
        }
        let mut expected = vec![1; n];
        expected.push(-2);
        expected.resize(times.len(), -4);
        assert_eq!(statuses, expected);
        scene.end(scene.task_for(times[n]).await?, 1, doc! {}).await?;
    }
    scene.world.end().await
}

#[tokio::test]
async fn earlier_tasks_are_cancelled_and_later_ones_are_not() -> anyhow::Result<()> {
    let scene = Scene::new(|settings| settings.overlap = Overlap::Cancel).await?;
    let newest = scene.away(0).await?;
    scene.store.fire_schedules(&Schemas::default()).await?;
    scene.store.pass_gates().await?;
    let first = scene.task_for(newest).await?;
    let now = scene.store.run_schedule(scene.schedule.id, None).await?.context("no schedule")?;
    // It comes late: the task for now is none of its business.
    let time = later(newest, -1);
    let late = Firing { time, task: TaskId(ObjectId::new()) };
    scene.set(doc! { "firing": [{ "for": time, "task": late.task }], "firing_at": newest }).await?;
    let schedule = scene.current().await?;
    scene.store.complete_firing(&schedule, late).await?;
    assert_eq!((scene.world.status(first).await?, scene.world.status(now).await?), (-2, -2));
    let next = Firing { time: later(newest, 1), task: TaskId(ObjectId::new()) };
    scene.set(doc! { "firing": [{ "for": next.time, "task": next.task }], "firing_at": newest }).await?;
    scene.store.complete_firing(&scene.current().await?, next).await?;
    let statuses = (scene.world.status(first).await?, scene.world.status(now).await?);
    assert_eq!(statuses, (-5, -2), "what somebody has asked for goes on");
    let by = scene.world.task(first).await?.get_document("cancel")?.get_str("by")?.to_owned();
    assert_eq!(by, "the schedule a test");
    scene.store.pass_gates().await?;
    assert_eq!(scene.world.status(next.task).await?, -2);
    scene.world.end().await
}

#[tokio::test]
async fn what_was_missed_is_caught_up_as_far_as_is_wanted() -> anyhow::Result<()> {
    for (catch_up, fired) in [(86_400, 11), (305, 6), (0, 1)] {
        let scene = Scene::new(|settings| settings.catch_up = Duration::from_secs(catch_up)).await?;
        let newest = scene.away(10).await?;
        scene.store.fire_schedules(&Schemas::default()).await?;
        let expected: Vec<DateTime> = (1 - fired..=0).map(|minutes| later(newest, minutes)).collect();
        assert_eq!(scene.times().await?, expected, "{catch_up}");
        let counts = scene.current().await?.counts;
        assert_eq!((counts.fired, counts.skipped), (fired, 11 - fired), "{catch_up}");
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_schedule_that_cannot_fire_keeps_no_other_from_it() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(0).await?;
    let odd =
        doc! { "_id": ObjectId::new(), "name": "odd", "cron": "never", "next": newest, "next_for": newest };
    let schedules = scene.world.database().collection::<Document>("schedules");
    schedules.insert_one(&odd).await?;
    let without_queue = Settings {
        name: "without a queue".to_owned(),
        queue: QueueId(ObjectId::new()),
        ..scene.schedule.settings.clone()
    };
    let lost = scene.store.create_schedule(&without_queue, false).await?;
    let before = later(minute(newest), -1);
    let due = doc! { "$set": { "next": before, "next_for": before } };
    schedules.update_one(doc! { "_id": lost.id }, due).await?;
    assert!(!scene.store.fire_schedules(&Schemas::default()).await?.more);
    assert_eq!(scene.times().await?, [newest]);
    let lost = scene.store.find_schedule(&Selector::Id(lost.id.0)).await?.context("it is there")?;
    assert_eq!(lost.last.map(|last| last.outcome), Some("no queue".to_owned()));
    let odd = schedules.find_one(doc! { "name": "odd" }).await?.context("it is there")?;
    assert!(*odd.get_datetime("next")? > newest, "it is looked at again later");
    scene.world.end().await
}

#[tokio::test]
async fn a_schedule_whose_parameters_fit_no_more_does_not_fire_and_says_why() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(0).await?;
    let manifest = |schema: serde_json::Value| {
        let manifest =
            serde_json::json!({ "name": "Disbatch::Plugin::Demo", "command": ["demo"], "params": schema });
        Manifest::from_value(manifest)
    };
    let stricter = manifest(serde_json::json!({ "properties": { "a": { "minimum": 5 } } }))?;
    let fired = scene.store.fire_schedules(&Schemas::of([&stricter])).await?;
    assert_eq!((fired.fired, fired.skipped), (0, 1));
    let schedule = scene.current().await?;
    let last = schedule.last.context("nothing came")?;
    assert_eq!((last.outcome.as_str(), last.time), ("wrong params", newest));
    let expected = "params do not fit the schema of the plugin Disbatch::Plugin::Demo: /a must be at least 5";
    assert_eq!(last.why.as_deref(), Some(expected));
    assert!(schedule.next.is_some_and(|next| next > newest), "it goes on");
    assert!(scene.times().await?.is_empty());

    scene.away(0).await?;
    let right = manifest(serde_json::json!({ "properties": { "a": { "minimum": 1 } } }))?;
    assert_eq!(scene.store.fire_schedules(&Schemas::of([&right])).await?.fired, 1);
    let last = scene.current().await?.last.context("nothing came")?;
    assert_eq!((last.outcome.as_str(), last.why), ("fired", None));
    scene.world.end().await
}

/// A task that has ended, of which its schedule has to be told.
async fn insert_ended(scene: &Scene, time: DateTime) -> anyhow::Result<()> {
    let now = scene.store.now();
    let ended = doc! {
        "queue": scene.queue.0, "schedule": scene.schedule.id, "scheduled_for": time, "status": 1, "params": {},
        "unsettled": true, "mtime": now, "ctime": now,
    };
    scene.world.tasks().insert_one(ended).await?;
    Ok(())
}

#[tokio::test]
async fn a_time_does_not_wait_for_ends_to_be_told() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(0).await?;
    insert_ended(&scene, later(newest, -5)).await?;
    let tasks = scene.world.tasks();
    let fired_or_told = doc! { "$match": { "$or": [
        { "operationType": "insert" }, { "updateDescription.removedFields": "unsettled" },
    ] } };
    let mut changes = tasks.watch().pipeline([fired_or_told]).await?;
    let _den = scene.world.den("n1")?;
    for expected in [OperationType::Insert, OperationType::Update] {
        let change = timeout(PATIENCE, changes.try_next()).await.context("nothing happens")??;
        assert_eq!(change.context("there are no more changes")?.operation_type, expected);
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_node_that_is_told_so_fires_nothing_and_others_do() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let newest = scene.away(0).await?;
    let _silent = scene.world.den_in("silent", &[], &[("DISBATCH_DISABLE_CRON", "true")])?;
    let nodes = scene.world.database().collection::<Document>("nodes");
    eventually("its heartbeat", || async {
        Ok(nodes.find_one(doc! { "node": "silent", "schedules": false }).await?)
    })
    .await?;
    // It tells schedules of the ends of tasks as others do.
    insert_ended(&scene, later(newest, -5)).await?;
    let settled = doc! { "scheduled_for": later(newest, -5), "unsettled": { "$exists": false } };
    eventually("the end to be told", || async { Ok(scene.world.tasks().find_one(settled.clone()).await?) })
        .await?;
    assert_eq!(scene.times().await?, [later(newest, -5)], "its own time has not come");

    let _other = scene.world.den("other")?;
    eventually("the time to come", || async { Ok(scene.times().await?.contains(&newest).then_some(())) })
        .await?;
    let other = nodes.find_one(doc! { "node": "other" }).await?.context("it has no heartbeat")?;
    assert!(!other.contains_key("schedules"), "{other}");
    scene.world.end().await
}
