//! A task whose every part is as large as it may be goes through its whole life.

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::budget;
use disbatch_core::model::Status;
use disbatch_core::task::{CancelRequest, Cancelled, Retried, TaskOptions};
use disbatch_tests::{Script, World, eventually};

use super::never_backed_off;

/// Leaves as much as a plugin can, fails at first, and prints more than there is room for.
const FULL: Script<'_> = Script {
    name: "Full",
    text: r#"#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
say = os.fdopen(3, "w")
def line(**what): say.write(json.dumps(what) + "\n"); say.flush()
line(storage="s" * (1048576 - 40))
line(progress={"percent": 50, "message": "m" * 4000})
line(result={"r": "r" * (1048576 - 40)})
sys.stdout.write("o" * 2_000_000)
sys.stderr.write("e" * 300_000)
sys.exit(0 if os.environ["DISBATCH_ATTEMPT"] != "1" else 3)
"#,
};

/// The largest parameters that are accepted: 5 bytes for the document, 3 for the name, 5 for the text, and 8 for the field.
fn params() -> Document {
    doc! { "p": "p".repeat(budget::PARAMS - 21) }
}

async fn small(world: &World, id: disbatch_core::model::TaskId) -> anyhow::Result<Document> {
    let without = doc! { "params": 0, "storage": 0, "result": 0 };
    world.tasks().find_one(doc! { "_id": id }).projection(without).await?.context("it is there")
}

#[tokio::test]
async fn what_is_accepted_goes_through_its_whole_life() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(FULL, 1).await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let options = TaskOptions {
        max_attempts: Some(2),
        backoff: Some(doc! { "base": 0.1, "jitter": 0 }),
        unique: Some("u".repeat(1_000)),
        ..TaskOptions::default()
    };
    let id = store.submit_tasks(queue, vec![params()], &options).await?.ids[0];
    // As many entries as there may be, each as long as one may be.
    let entry = doc! { "at": bson::DateTime::from_millis(1_700_000_000_000), "status": -2, "attempt": 1_i64, "node": "n".repeat(250), "note": "n".repeat(budget::NOTE) };
    world.set(id, doc! { "history": vec![entry; 50] }).await?;
    let den = world.den_at_work("node1").await?;
    let ended = async |status: i64| {
        eventually("its end", async || {
            let task = small(&world, id).await?;
            let is_so = task.get("status").and_then(disbatch_core::model::whole_number) == Some(status);
            Ok(is_so.then_some(task))
        })
        .await
    };
    let task = ended(1).await?;
    assert_eq!(task.get_array("history")?.len(), 50);
    assert!(
        matches!(task.get("stdout"), Some(Bson::ObjectId(_))),
        "there is no room for it: {:?}",
        task.get("stdout")
    );
    assert!(task.get_bool("complete")?);
    let whole = world.task(id).await?;
    assert!(whole.get_document("result")?.get_str("r")?.len() > 1_000_000);
    assert!(whole.get_str("storage")?.len() > 1_000_000);
    let attempt = store.find_attempt(id, 1).await?.context("the first attempt is kept")?;
    assert!(attempt.get_document("result")?.get_str("r")?.len() > 1_000_000);
    // Again by hand, cancelled on the way, and once more.
    assert_eq!(store.retry_task(id, &"n".repeat(9_000)).await?, Retried::Queued);
    ended(1).await?;
    assert!(den.end_with(nix::sys::signal::Signal::SIGTERM).await?.success());
    assert_eq!(store.retry_task(id, "again").await?, Retried::Queued);
    let request = CancelRequest { by: "b".repeat(9_000), reason: Some("r".repeat(90_000)) };
    assert_eq!(store.cancel_task(id, &request).await?, Cancelled::Cancelled);
    assert_eq!(store.archive_tasks(&[id]).await?.moved, 1);
    let archived = store.find_task_anywhere(id).await?.context("it is in the archive")?;
    assert_eq!(archived.get("status"), Some(&Bson::from(Status::Cancelled)));
    assert_eq!(archived.get_document("params")?, &params());
    assert_eq!(archived.get_array("history")?.len(), 50, "nothing had to be left out");
    assert_eq!(store.find_aside(id).await?, None);
    assert_eq!(store.delete_tasks(&[id]).await?, 1);
    world.end().await
}

#[tokio::test]
async fn without_gridfs_too_much_output_is_replaced_and_nothing_else_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(serde_json::json!({ "gfs": false }))?;
    let queue = world.script_queue(FULL, 1).await?;
    let id = world.submit(queue, vec![params()]).await?[0];
    let den = world.den_at_work("node1").await?;
    let task = world.until_status(id, 2).await?;
    assert!(
        task.get_str("stdout")?.starts_with("Could not store 2000000 bytes of stdout"),
        "{:?}",
        task.get("stdout")
    );
    assert!(!task.get_bool("complete")?);
    assert!(task.get_document("result")?.get_str("r")?.len() > 1_000_000);
    never_backed_off(&[den])?;
    world.end().await
}
