//! What plugins save.

use anyhow::Context;
use bson::{Bson, Document, RawDocumentBuf, doc};
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Interim, RunWrite, Written};
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::text;
use crate::claims::{claimant, queue, start};

/// Says what `params.say` has on the control channel, and prints `params.print`.
const SAYS: Script<'_> = Script {
    name: "Says",
    text: r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
for line in params.get("say", []):
    os.write(3, json.dumps({"storage": line}).encode() + b"\n")
print(params.get("print", ""), end="")
sys.exit(params.get("exit", 0))
"#,
};

/// A task that has ended, as it is stored: what looks like extended JSON is left as it is.
async fn until_stored(world: &World, task: TaskId) -> anyhow::Result<Document> {
    let tasks = world.database().collection::<RawDocumentBuf>("tasks");
    let ended = doc! { "_id": task, "status": { "$gte": 1 } };
    let found = eventually("the task to end", || async { Ok(tasks.find_one(ended.clone()).await?) }).await?;
    Ok(Document::try_from(found)?)
}

async fn write(store: &Store, write: RunWrite) -> anyhow::Result<Written> {
    Ok(store.write_runs(&[write]).await?.pop().context("no answer")??)
}

#[tokio::test]
async fn what_comes_late_does_not_replace_what_was_saved_since() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (id, store) = (world.queue("Demo", doc! { "threads": 5 }).await?, world.store());
    let task = world.submit(id, vec![doc! {}]).await?[0];
    let queue = queue(&world, id).await?;
    let claims = store.claim_tasks(&queue, &claimant("n1"), &[0], &mut Ahead::default()).await?.claims;
    let run = claims[0].run();
    let saved = async || anyhow::Ok(text(&world.task(task).await?, "storage").to_owned());
    let begin = RunWrite::Start(start(&claims[0], &store, 1));
    assert_eq!(write(&store, begin.clone()).await?, Written::Started);
    store.keep_interim(&run, &Interim::Storage { storage: "second".into(), number: 2 }).await?;
    let first = Interim::Storage { storage: "first".into(), number: 1 };
    let late = RunWrite::Interim { run: run.clone(), interim: first };
    assert_eq!(write(&store, late.clone()).await?, Written::Done);
    assert_eq!(saved().await?, "second");
    store.keep_interim(&run, &Interim::Storage { storage: "third".into(), number: 3 }).await?;
    assert_eq!(saved().await?, "third");
    // The next run counts from 1 again, whoever has queued the task.
    world.set(task, doc! { "status": -1 }).await?;
    assert_eq!(write(&store, begin).await?, Written::Started);
    assert_eq!(write(&store, late).await?, Written::Done);
    assert_eq!(saved().await?, "first");
    world.end().await
}

#[tokio::test]
async fn what_a_plugin_says_is_saved_in_both_ways_and_the_last_word_counts() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SAYS, 2).await?;
    let tasks = vec![
        doc! { "print": "out\n[saveJobStorage] {\"a\": {\"b\": [1, null]}}\nmore\n" },
        doc! { "print": "[saveJobStorage] 1\n[saveJobStorage] \"last\"", "exit": 3 },
        doc! { "say": [{ "a": 1 }, Bson::Null] },
        doc! { "print": "nothing\n" },
    ];
    world.submit(queue, tasks).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(ended[0].get_document("storage")?, &doc! { "a": { "b": [1, null] } });
    assert_eq!(text(&ended[0], "stdout"), "out\n[saveJobStorage] {\"a\": {\"b\": [1, null]}}\nmore\n");
    assert_eq!((ended[1].get_i32("status")?, text(&ended[1], "storage")), (2, "last"));
    assert_eq!(ended[2].get("storage"), Some(&Bson::Null));
    assert_eq!(ended[3].get("storage"), None);
    assert!(ended.iter().all(|task| task.get("stderr") == Some(&Bson::Null)), "{ended:?}");
    // What looks like an id, and is none.
    let odd = doc! { "$oid": "x", "n": [1, 2.5, true] };
    let id = world.submit(queue, vec![doc! { "say": [1, odd.clone()] }]).await?[0];
    assert_eq!(until_stored(&world, id).await?.get_document("storage")?, &odd);
    world.end().await
}

#[tokio::test]
async fn a_flood_of_it_is_borne_and_what_makes_no_sense_is_noted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let script = "#!/bin/sh\nseq 1 50000 | sed 's/^/[saveJobStorage] /'\n";
    let flood = world.script_queue(Script { name: "Flood", text: script }, 1).await?;
    let says = world.script_queue(SAYS, 1).await?;
    let flooded = world.submit(flood, vec![doc! {}]).await?[0];
    let large = "x".repeat(1_100_000);
    let wrong = vec![
        doc! { "say": [7, large.as_str()], "print": "[saveJobStorage]\n[saveJobStorage] {\"a\":\n" },
        doc! { "print": format!("[saveJobStorage] \"{large}\"\n") },
        doc! { "print": "[saveJobStorage] nope\n".repeat(50) },
    ];
    let _ids = world.submit(says, wrong).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(flooded, 1).await?;
    assert_eq!(task.get_i32("storage")?, 50_000);
    assert_eq!(text(&task, "stdout").lines().count(), 50_000);
    let ended = world.until_all_ended(says).await?;
    let notes: Vec<&str> = ended.iter().map(|task| text(task, "stderr")).collect();
    assert_eq!(ended[0].get_i32("storage")?, 7);
    assert!(
        notes[0].contains("disbatch: storage is ignored: it has more than 1048576 bytes\n"),
        "{}",
        notes[0]
    );
    assert_eq!(notes[0].matches("what [saveJobStorage] says is not saved: it is no JSON").count(), 2);
    assert!(notes[1].contains("is not saved: it has more than 1048576 bytes\n"), "{}", notes[1]);
    assert!(
        notes[2].ends_with("disbatch: and 40 more complaints about what is to be saved\n"),
        "{}",
        notes[2]
    );
    assert!(ended.iter().all(|task| task.get_i32("status").ok() == Some(1)));
    assert!(!ended[1].contains_key("storage") && !ended[2].contains_key("storage"));
    world.end().await
}

#[tokio::test]
async fn what_was_saved_is_kept_when_the_plugin_or_its_runner_is_killed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let script = "#!/bin/sh\necho \"[saveJobStorage] {\\\"pid\\\": $$}\"\nexec sleep 1000\n";
    let queue = world.script_queue(Script { name: "Sleeps", text: script }, 1).await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    let _den = world.den("n1")?;
    let saved =
        |task: &Document| task.get_document("storage").ok().and_then(|saved| saved.get_i32("pid").ok());
    let until_told =
        async |id| eventually("what it has saved", || async { Ok(saved(&world.task(id).await?)) }).await;
    let plugin = until_told(ids[0]).await?;
    kill(Pid::from_raw(plugin), Signal::SIGKILL)?;
    let task = world.until_status(ids[0], 2).await?;
    assert_eq!(saved(&task), Some(plugin));
    let plugin = until_told(ids[1]).await?;
    let runner = world.task(ids[1]).await?.get_i64("pid")?;
    kill(Pid::from_raw(runner.try_into()?), Signal::SIGKILL)?;
    let task = world.until_status(ids[1], -6).await?;
    assert_eq!(saved(&task), Some(plugin));
    world.end().await
}

#[tokio::test]
async fn large_storage_leaves_room_for_large_output() -> anyhow::Result<()> {
    let world = World::new().await?;
    // Each alone fits into the document, and both together do not.
    let queue = world.script_queue(SAYS, 1).await?;
    let (storage, output) = (1_048_400, 15_728_600);
    let script = format!(
        "#!/usr/bin/env python3\nimport json, os\nos.write(3, json.dumps({{'storage': 'y' * {storage}}}).encode() + b'\\n')\n\
         print('x' * {output}, end='')\n"
    );
    Script { name: "Says", text: &script }.install(&world.plugins())?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!(text(&task, "storage").len(), storage);
    assert!(task.get_bool("complete")? && task.get_object_id("stdout").is_ok(), "all of it is in a file");
    world.end().await
}

#[tokio::test]
async fn warm_plugins_save_too_and_each_task_its_own() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    params = message["task"]["params"]
    if "print" in params: print(params["print"], flush=True)
    if "say" in params: os.write(3, json.dumps({"storage": params["say"]}).encode() + b"\n")
    if "tell" in params: print(json.dumps(message["env"]["JOB_STORAGE"]), flush=True)
    os.write(3, json.dumps({"done": {"id": message["env"]["DISBATCH_TASK_ID"]}}).encode() + b"\n")
"#;
    let script = Script { name: "Warm", text };
    script.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    let tasks = vec![
        doc! { "print": "[saveJobStorage] [1]" },
        doc! { "tell": 1 },
        doc! { "say": { "b": 2 } },
        doc! { "tell": 1 },
    ];
    world.submit(queue, tasks).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let saved: Vec<Option<&Bson>> = ended.iter().map(|task| task.get("storage")).collect();
    let expected = [Some(Bson::from(vec![1])), None, Some(doc! { "b": 2 }.into()), None];
    assert_eq!(saved, expected.each_ref().map(Option::as_ref));
    assert_eq!((self::text(&ended[1], "stdout"), self::text(&ended[3], "stdout")), ("\"\"\n", "\"\"\n"));
    world.end().await
}
