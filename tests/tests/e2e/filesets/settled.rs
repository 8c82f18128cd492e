//! What a run leaves is seen with the end of its task and not before, whoever dies in between and whoever looks first.

use bson::{DateTime, Document, doc};
use disbatch_core::files::{FileSet, NewSet, SetQuery, SetState, SweptFiles};
use disbatch_core::model::TaskId;
use disbatch_core::task::Retried;
use disbatch_tests::World;

use super::{done, entry, latest, named, put, send, versions, world};

/// A task in its first attempt.
async fn running(world: &World) -> anyhow::Result<TaskId> {
    let queue = world.queue("Demo", doc! {}).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.set(task, doc! { "status": 0, "node": "n1", "attempt": 1_i64 }).await?;
    Ok(task)
}

/// What its run leaves before it ends the task.
async fn leave(world: &World, task: TaskId, name: &str) -> anyhow::Result<FileSet> {
    let store = world.store();
    let new = NewSet { task: Some((task, 1)), ..NewSet::default() };
    let set = store.fileset_open(&named(name)?, &new).await?;
    send(&store, b"result").await?;
    store.fileset_add(set.id, &[entry(("r", b"result", 0o644))?]).await?;
    let left = done(&store, &set).await?;
    assert_eq!((left.state, left.count), (SetState::Sealed, 1));
    assert_eq!(done(&store, &set).await?, left, "it may be repeated");
    Ok(left)
}

/// The versions of a set that somebody sees who looks in this way.
async fn seen(world: &World, name: &str, way: usize) -> anyhow::Result<Vec<i64>> {
    let (store, set) = (world.store(), named(name)?);
    Ok(match way {
        0 => store.fileset_latest(&set).await?.iter().map(|set| set.version).collect(),
        1 => {
            let one = store.fileset_version(&set, 1).await?;
            let two = store.fileset_version(&set, 2).await?;
            two.iter().chain(&one).map(|set| set.version).take(1).collect()
        }
        2 => store.fileset_versions(&set, None, 1).await?.iter().map(|set| set.version).collect(),
        _ => {
            let sets = store.filesets(&SetQuery::default()).await?;
            sets.iter().filter(|set| set.latest.name == name).map(|set| set.latest.version).collect()
        }
    })
}

#[tokio::test]
async fn a_version_is_seen_with_the_end_of_its_task_and_not_before() -> anyhow::Result<()> {
    let world = world().await?;
    for way in 0..4 {
        let name = format!("set{way}");
        put(&world.store(), &name, None, &[("x", b"one", 0o644)]).await?;
        let task = running(&world).await?;
        let mut left = leave(&world, task, &name).await?;
        assert_eq!(seen(&world, &name, way).await?, [1], "way {way}");
        assert_eq!(world.store().sweep_files().await?, SweptFiles::default());
        assert_eq!(world.store().settle_filesets(task).await?.done, 0);
        // The runner dies right after this.
        world.set(task, doc! { "status": 1 }).await?;
        assert_eq!(seen(&world, &name, way).await?, [2], "way {way}");
        let found = world.store().find_fileset(left.id).await?;
        left.state = SetState::Done;
        assert_eq!(found, Some(left));
    }
    world.end().await
}

#[tokio::test]
async fn what_a_dead_run_has_left_is_never_seen() -> anyhow::Result<()> {
    let world = world().await?;
    // Whoever buries it dies right after that, or its end came otherwise.
    let ends = [
        doc! { "status": -6 },
        doc! { "status": -7, "node": null },
        doc! { "status": -2, "node": null },
        doc! { "status": 2 },
        doc! { "status": -3 },
        doc! { "status": 0, "attempt": 2_i64 },
        doc! { "status": 1, "attempt": 2_i64 },
    ];
    for (number, end) in ends.iter().enumerate() {
        for way in 0..4 {
            let name = format!("set{number}.{way}");
            let task = running(&world).await?;
            leave(&world, task, &name).await?;
            world.set(task, end.clone()).await?;
            assert_eq!(seen(&world, &name, way).await?, Vec::<i64>::new(), "{end}, way {way}");
        }
        let task = running(&world).await?;
        leave(&world, task, &format!("set{number}")).await?;
        world.set(task, end.clone()).await?;
        assert_eq!(world.store().sweep_files().await?.versions, 1, "{end}: nobody has looked");
    }
    let task = running(&world).await?;
    leave(&world, task, "alone").await?;
    world.tasks().delete_one(doc! { "_id": task }).await?;
    assert_eq!(latest(&world.store(), "alone").await?, None, "its task is gone");
    assert_eq!((versions(&world, "sealed").await?, versions(&world, "done").await?), (0, 0));
    world.end().await
}

#[tokio::test]
async fn what_a_task_has_left_stays_when_it_is_tried_again_or_goes() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    for name in ["retried", "deleted", "archived", "both"] {
        let task = running(&world).await?;
        leave(&world, task, name).await?;
        // Nobody has looked since.
        world.set(task, doc! { "status": 1 }).await?;
        match name {
            "retried" => assert_eq!(store.retry_task(task, "again").await?, Retried::Queued),
            "deleted" => assert_eq!(store.delete_tasks(&[task]).await?, 1),
            "archived" => assert_eq!(store.archive_tasks(&[task]).await?.moved, 1),
            _ => {
                assert_eq!(store.archive_tasks(&[task]).await?.moved, 1);
                assert_eq!(store.delete_tasks(&[task]).await?, 1);
            }
        }
        assert_eq!(latest(&store, name).await?.map(|set| set.version), Some(1), "{name}");
    }
    world.end().await
}

#[tokio::test]
async fn a_run_that_gives_up_takes_back_what_it_has_left_and_nothing_else() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let task = running(&world).await?;
    leave(&world, task, "sealed").await?;
    let new = NewSet { task: Some((task, 1)), ..NewSet::default() };
    store.fileset_open(&named("open")?, &new).await?;
    assert_eq!(store.withdraw_filesets(task, 1).await?, 2);
    assert_eq!(versions(&world, "gone").await?, 2);
    // It thinks that it has lost its task, which it has ended.
    let task = running(&world).await?;
    leave(&world, task, "ended").await?;
    store.fileset_open(&named("open")?, &NewSet { task: Some((task, 1)), ..NewSet::default() }).await?;
    world.set(task, doc! { "status": 1 }).await?;
    store.withdraw_filesets(task, 1).await?;
    assert_eq!(latest(&store, "ended").await?.map(|set| set.version), Some(1));
    assert_eq!(versions(&world, "open").await?, 0, "what was opened twice goes at once");
    world.end().await
}

/// Versions of three sets, of which four hundred are there and as many are gone.
async fn many(world: &World) -> anyhow::Result<()> {
    let at = DateTime::from_millis(1_700_000_000_000);
    let version = |name: &str, version: i64| {
        let mut set = doc! {
            "name": name, "version": version, "state": "done", "count": 1_i64, "bytes": 5_i64, "tenant": "acme",
            "created": at,
        };
        if version > 400 {
            set.extend(
                doc! { "state": "gone", "touched": at, "emptied": DateTime::from_millis(i64::MAX / 2) },
            );
        }
        set
    };
    let sets = world.database().collection::<Document>("filesets");
    for name in ["a", "b", "c"] {
        sets.insert_many((1..=800).map(|number| version(name, number))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_set_with_many_versions_is_as_quick_as_one_with_few() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    many(&world).await?;
    let acme = NewSet { tenant: Some("acme".to_owned()), ..NewSet::default() };
    world.database().run_command(doc! { "profile": 2 }).await?;
    assert_eq!(store.fileset_open(&named("a")?, &acme).await?.version, 801);
    assert!(store.fileset_open(&named("a")?, &NewSet::default()).await.is_err(), "it is of a tenant");
    assert_eq!(latest(&store, "a").await?.map(|set| set.version), Some(400));
    assert_eq!(store.sweep_files().await?, SweptFiles::default());
    for tenants in [None, Some(vec!["acme".to_owned()])] {
        let page = store.filesets(&SetQuery { tenants, limit: 1, ..SetQuery::default() }).await?;
        assert_eq!(
            (page.len(), page[0].latest.version, page[0].versions, page[0].bytes),
            (1, 400, 400, 2_000)
        );
    }
    world.database().run_command(doc! { "profile": 0 }).await?;
    let profile = world.database().collection::<Document>("system.profile");
    let of_sets = doc! { "ns": format!("{}.filesets", world.database().name()) };
    assert!(profile.count_documents(of_sets.clone()).await? >= 10);
    // Of the versions that a page sums up, an index tells.
    let mut read_much = of_sets;
    read_much
        .insert("$or", vec![doc! { "docsExamined": { "$gt": 3 } }, doc! { "keysExamined": { "$gt": 410 } }]);
    assert_eq!(profile.find_one(read_much).await?, None);
    world.end().await
}
