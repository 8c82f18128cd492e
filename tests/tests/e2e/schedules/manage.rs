//! What people do with schedules and calendars.

use std::collections::BTreeSet;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::model::{ScheduleId, Selector, TaskId};
use disbatch_core::schedules::{
    BackfillError, Calendar, CronExpr, Schedule, ScheduleError, ScheduleQuery, Settings, Spec, Updated,
};
use disbatch_core::task::SubmitError;
use futures::future::try_join_all;

use super::{Scene, later};

#[tokio::test]
async fn a_backfill_makes_what_is_missing_and_nothing_twice() -> anyhow::Result<()> {
    let scene = Scene::with("@hourly", |_| {}).await?;
    let (store, id) = (&scene.store, scene.schedule.id);
    let at = |text: &str| DateTime::parse_rfc3339_str(text);
    let day = (at("2020-01-01T00:00:00Z")?, at("2020-01-01T23:59:59Z")?);
    let few = store.backfill_schedule(id, day, 5).await?.context("no schedule")?;
    assert_eq!(few.len(), 5);
    scene.end(few[0], 1, doc! {}).await?;
    assert_eq!(store.archive_tasks(&few[..1]).await?.moved, 1, "what is in the archive was done");
    let all = try_join_all((0..4).map(|_| store.backfill_schedule(id, day, 1_000))).await?;
    let made: Vec<TaskId> = all.into_iter().flatten().flatten().collect();
    assert_eq!(made.len(), 19, "each by one of those who ask at once");
    let times = scene.times().await?;
    let different: BTreeSet<DateTime> = times.iter().copied().collect();
    assert_eq!((times.len(), different.len()), (23, 23));
    assert_eq!(store.backfill_schedule(id, day, 1_000).await?, Some(Vec::new()));

    let future = (at("2100-01-01T00:00:00Z")?, at("2100-01-02T00:00:00Z")?);
    assert_eq!(store.backfill_schedule(id, future, 10).await?, Some(Vec::new()), "they are still to come");
    let reversed = store.backfill_schedule(id, (day.1, day.0), 10).await;
    assert!(matches!(reversed, Err(BackfillError::Order)));
    assert!(matches!(store.backfill_schedule(id, day, 1_001).await, Err(BackfillError::Limit(1_001))));
    assert_eq!(store.backfill_schedule(ScheduleId(ObjectId::new()), day, 10).await?, None);
    scene.world.end().await
}

#[tokio::test]
async fn settings_are_changed_by_one_at_a_time() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let (store, id) = (&scene.store, scene.schedule.id);
    let other = Settings { name: "other".to_owned(), ..scene.schedule.settings.clone() };
    let second = store.create_schedule(&other, true).await?;
    assert_eq!((second.next, second.paused), (None, true));
    let taken = store.create_schedule(&other, false).await.unwrap_err();
    assert!(matches!(taken, ScheduleError::NameTaken(name) if name == "other"));

    let newest = scene.away(0).await?;
    let described = Settings { description: "nightly".to_owned(), ..scene.current().await?.settings };
    let changes = try_join_all((0..4).map(|_| store.update_schedule(id, 1, &described))).await?;
    let done = changes.iter().filter(|change| matches!(change, Updated::Updated(_))).count();
    assert_eq!(
        (done, changes.iter().filter(|change| **change == Updated::Changed { rev: 2 }).count()),
        (1, 3)
    );
    assert_eq!(scene.current().await?.next, Some(newest), "what is due stays due");
    let daily = Settings { spec: Spec::new(vec![CronExpr::parse("@yearly")?]), ..described.clone() };
    assert!(matches!(store.update_schedule(id, 2, &daily).await?, Updated::Updated(_)));
    assert!(scene.current().await?.next > Some(later(newest, 60)), "and is none with other times");
    let clash = Settings { name: "other".to_owned(), ..described };
    let clash = store.update_schedule(id, 3, &clash).await.unwrap_err();
    assert!(matches!(clash, ScheduleError::NameTaken(_)), "{clash}");
    let gone = store.update_schedule(ScheduleId(ObjectId::new()), 1, &daily).await?;
    assert_eq!(gone, Updated::NoSuchSchedule);

    let paused = store.pause_schedule(id).await?.context("it is there")?;
    assert!(paused.is_different());
    assert_eq!(scene.current().await?.next, None);
    assert!(!store.pause_schedule(id).await?.context("it is there")?.is_different());
    let all =
        |paused| ScheduleQuery { paused: Some(paused), queue: Some(scene.queue), ..ScheduleQuery::default() };
    let names = |found: Vec<Schedule>| found.into_iter().map(|found| found.settings.name).collect::<Vec<_>>();
    assert_eq!(names(store.list_schedules(&all(true)).await?), ["a test", "other"]);
    assert!(store.resume_schedule(id).await?.context("it is there")?.is_different());
    assert!(scene.current().await?.next.is_some());
    assert_eq!(names(store.list_schedules(&all(false)).await?), ["a test"]);
    assert_eq!(store.queue_of_schedule(&Selector::Name("other".to_owned())).await?, Some(Some(scene.queue)));
    scene.world.end().await
}

#[tokio::test]
async fn what_people_ask_for_is_limited_as_what_they_submit() -> anyhow::Result<()> {
    let scene = Scene::with("@hourly", |settings| settings.tenant = Some("nobody".to_owned())).await?;
    let (store, id, database) = (&scene.store, scene.schedule.id, scene.world.database());
    // The queue is another tenant's since then.
    let queues = database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": scene.queue }, doc! { "$set": { "tenant": "acme" } }).await?;
    let tenants = database.collection::<Document>("tenants");
    tenants.insert_one(doc! { "_id": "acme", "max_per_day": 1 }).await?;
    let task = store.run_schedule(id, None).await?.context("no schedule")?;
    assert_eq!(scene.world.task(task).await?.get_str("tenant")?, "acme");
    let refused = store.run_schedule(id, None).await;
    assert!(matches!(refused, Err(SubmitError::OverQuota(_))), "{refused:?}");
    let now = store.server_time().await?;
    let refused = store.backfill_schedule(id, (later(now, -180), now), 9).await;
    assert!(matches!(refused, Err(BackfillError::Submit(SubmitError::OverQuota(_)))), "{refused:?}");
    scene.world.end().await
}

#[tokio::test]
async fn a_time_whose_delay_has_not_passed_fires_after_a_change_too() -> anyhow::Result<()> {
    let scene = Scene::with("0 0 * * *", |_| {}).await?;
    let (store, now) = (&scene.store, scene.store.server_time().await?);
    let passed = DateTime::from_millis((now.timestamp_millis() / 1_000 - 1) * 1_000);
    let cron = format!("{} * * * * *", passed.timestamp_millis() / 1_000 % 60);
    scene.set(doc! { "next": later(now, 30), "next_for": passed }).await?;
    let same_time = doc! { "cron": cron, "calendars": [{ "name": "holidays", "use": "exclude" }] };
    let holidays = Calendar::read(&doc! { "name": "holidays" })?;
    store.set_calendar(&holidays).await?;
    let changed = Settings { spec: Spec::read(&same_time)?, ..scene.schedule.settings.clone() };
    store.update_schedule(scene.schedule.id, 1, &changed).await?;
    assert_eq!(scene.current().await?.next_for, Some(passed));
    scene.set(doc! { "next": later(now, 30) }).await?;
    store.set_calendar(&holidays).await?;
    assert_eq!(scene.current().await?.next_for, Some(passed));
    // One that is none of its times any more does not.
    let changed = Settings { spec: Spec::read(&doc! { "cron": "0 0 1 1 *" })?, ..changed };
    store.update_schedule(scene.schedule.id, 2, &changed).await?;
    assert!(scene.current().await?.next_for.is_some_and(|next| next > now));
    scene.world.end().await
}

#[tokio::test]
async fn a_calendar_changes_when_its_schedules_fire() -> anyhow::Result<()> {
    let scene = Scene::new(|_| {}).await?;
    let store = &scene.store;
    let fields = doc! { "cron": "@daily", "calendars": [{ "name": "holidays", "use": "exclude" }] };
    let changed = Settings { spec: Spec::read(&fields)?, ..scene.schedule.settings.clone() };
    let missing = store.update_schedule(scene.schedule.id, 1, &changed).await.unwrap_err();
    assert!(matches!(missing, ScheduleError::NoSuchCalendar(name) if name == "holidays"));
    store.set_calendar(&Calendar::read(&doc! { "name": "holidays" })?).await?;
    store.update_schedule(scene.schedule.id, 1, &changed).await?;
    let before = scene.current().await?.next_for.context("no next time")?;
    let day = before.try_to_rfc3339_string()?[..10].to_owned();
    let closed = doc! { "name": "holidays", "dates": [day.as_str()] };
    let old = store.set_calendar(&Calendar::read(&closed)?).await?.before.context("it was there")?;
    assert_eq!(old, doc! { "_id": "holidays", "dates": [], "recurring": [] });
    assert_eq!(scene.current().await?.next_for, Some(later(before, 24 * 60)));
    let in_use = store.delete_calendar("holidays").await.unwrap_err();
    assert!(
        matches!(&in_use, ScheduleError::CalendarInUse { schedules, .. } if *schedules == ["a test"]),
        "{in_use}"
    );
    store.delete_schedule(scene.schedule.id).await?;
    assert!(store.delete_calendar("holidays").await?.is_some());
    assert_eq!(store.delete_calendar("holidays").await?, None);
    scene.world.end().await
}
