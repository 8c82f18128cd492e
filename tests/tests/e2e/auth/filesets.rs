//! File sets where each process works as a user of its own.

use std::sync::Arc;

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::files::{Committed, NewSet, Sender};
use disbatch_core::model::{NodeName, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::Run;
use serde_json::json;

use super::Secured;
use crate::filesets::{entry, files_of, put, send_as};

#[tokio::test]
async fn file_sets_are_made_read_and_swept_by_those_who_have_to() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let connected = |database| Store::with_clock(database, Arc::new(SystemClock));
    let den = connected(secured.database_as("disbatchd", "d").await?);
    let web = connected(secured.database_as("disbatch_web", "w").await?);
    let runner = connected(secured.database_as("task_runner", "t").await?);
    den.ensure_indexes().await?;
    let set = put(&web, "data", None, &[("a", b"one", 0o644), ("b/c", b"two", 0o600)]).await?;
    assert_eq!(files_of(&runner, &set).await?.len(), 2);

    let task = bson::oid::ObjectId::new();
    let run = Run {
        task: TaskId(task),
        queue: QueueId(bson::oid::ObjectId::new()),
        node: NodeName::new("n1"),
        attempt: 2,
        instance: None,
    };
    let running = doc! { "_id": task, "queue": run.queue, "status": 0, "node": "n1", "attempt": 2_i64 };
    secured.world.tasks().insert_one(running).await?;
    let new = NewSet { task: Some((run.task, run.attempt)), ..NewSet::default() };
    let made = runner.fileset_open(&"made".parse()?, &new).await?;
    send_as(&runner, &Sender::runner(), b"result").await?;
    let small = [(disbatch_core::files::ContentId::of(b"small"), b"small".to_vec())].into_iter().collect();
    assert_eq!(runner.store_small_contents(&small, &Sender::runner()).await?.len(), 1);
    runner.fileset_add(made.id, &[entry(("r", b"result", 0o644))?, entry(("s", b"small", 0o644))?]).await?;
    assert!(runner.record_files(&run, doc! { "output": { "name": "made", "version": 1 } }).await?);
    assert!(matches!(runner.fileset_commit(made.id).await?, Committed::Done(_)));
    for store in [&runner, &web, &den] {
        assert_eq!(store.fileset_latest(&"made".parse()?).await?, None, "the task has not ended");
    }
    // Whoever looks first has the right to settle it.
    let sets = secured.world.database().collection::<Document>("filesets");
    for store in [&runner, &web, &den] {
        for (status, settled) in [(1, (1, 0)), (-6, (0, 1))] {
            secured
                .world
                .tasks()
                .update_one(doc! { "_id": task }, doc! { "$set": { "status": status } })
                .await?;
            let found = store.settle_filesets(run.task).await?;
            assert_eq!((found.done, found.gone), settled);
            sets.update_one(doc! { "_id": made.id }, doc! { "$set": { "state": "sealed" } }).await?;
        }
    }
    // The run was buried before it could end the task.
    assert_eq!(den.sweep_files().await?.versions, 1);
    assert_eq!(web.fileset_delete(&"data".parse()?, None).await?, 1);
    den.sweep_files().await?;
    let contents = secured.world.database().collection::<Document>("filesets.files");
    let old = DateTime::from_millis(1_000_000_000_000);
    contents.update_many(doc! {}, doc! { "$set": { "loose": old } }).await?;
    assert_eq!(den.sweep_files().await?.contents, 4);
    let left = secured.world.tasks().find_one(doc! { "_id": task }).await?.context("no task")?;
    assert_eq!(left.get_document("files")?.get_document("output")?.get_i32("version")?, 1);
    Ok(())
}
