//! Tasks that take files and leave files.

use std::collections::BTreeMap;
use std::env::temp_dir;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Script, World};
use serde_json::{Value, json};

use super::{CHUNK, count, files_of, latest, named, noise, put, submit, versions, world};

/// Prints the modes and texts of the files that it has got, and writes what `params.write` says.
const EXCHANGES: Script<'_> = Script {
    name: "Exchanges",
    text: r#"#!/usr/bin/env python3
import json, os, stat, sys
params = json.load(sys.stdin)["params"]
found = {}
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.relpath(os.path.join(folder, name), ".")
        found[path] = [oct(stat.S_IMODE(os.stat(path).st_mode)), open(path).read()]
print(json.dumps(found))
for path, text in params.get("write", []):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write(text)
sys.exit(params.get("exit", 0))
"#,
};

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

fn printed(task: &Document) -> anyhow::Result<Value> {
    serde_json::from_str(text(task, "stdout")).with_context(|| task.to_string())
}

/// The newest version of a set, as text.
async fn texts(world: &World, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let set = latest(&world.store(), name).await?.with_context(|| format!("no set {name}"))?;
    let files = files_of(&world.store(), &set).await?;
    files.into_iter().map(|(path, bytes)| Ok((path, String::from_utf8(bytes)?))).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

#[tokio::test]
async fn a_task_gets_the_files_that_match_and_leaves_those_that_match() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 2).await?;
    let input: [super::TestFile<'_>; 4] = [
        ("a.py", b"one", 0o644),
        ("bin/run", b"two", 0o755),
        ("bin/old/run", b"three", 0o644),
        ("data/x.dat", b"four", 0o600),
    ];
    put(&world.store(), "foo", None, &input).await?;
    let _den = world.den("n1")?;
    // As another system writes it.
    let files = doc! { "Fileset": {
        "Input": { "Name": "foo", "Patterns": ["*.py", "bin/*"] },
        "Output": { "Name": "foo_result", "Patterns": ["**/*.dat"] },
    } };
    let write = vec![vec!["out/deep/1.dat", "result"], vec!["note.txt", "no"], vec!["a.py", "changed"]];
    let task = submit(&world, queue, doc! { "write": write }, files).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(printed(&ended)?, json!({ "a.py": ["0o644", "one"], "bin/run": ["0o755", "two"] }));
    assert_eq!(texts(&world, "foo_result").await?, pairs([("out/deep/1.dat", "result")]));
    let set = latest(&world.store(), "foo_result").await?.context("no set")?;
    assert_eq!((set.task, set.version, set.count, set.bytes), (Some(task), 1, 1, 6));
    let expected = doc! {
        "input": { "name": "foo", "patterns": ["*.py", "bin/*"], "taken": 1_i64 },
        "output": { "name": "foo_result", "patterns": ["**/*.dat"], "version": 1_i64 },
    };
    assert_eq!(ended.get_document("files")?, &expected);
    assert_eq!(ended.get("stderr"), Some(&bson::Bson::Null));
    world.end().await
}

#[tokio::test]
async fn without_patterns_a_task_leaves_what_it_has_made_or_changed() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 1).await?;
    put(&world.store(), "data", None, &[("same", b"same", 0o644), ("sub/old", b"old", 0o644)]).await?;
    let _den = world.den("n1")?;
    let write = doc! { "write": [["sub/old", "new"], ["same", "same"], ["more", ""]] };
    let files = doc! { "input": { "name": "data" }, "output": { "name": "data" } };
    let task = submit(&world, queue, write.clone(), files).await?;
    world.until_status(task, 1).await?;
    assert_eq!(texts(&world, "data").await?, pairs([("more", ""), ("sub/old", "new")]));
    // With patterns, all that match. The first version is still there.
    let files = doc! {
        "input": { "name": "data", "version": 1 }, "output": { "name": "all", "patterns": ["**"] },
    };
    let task = submit(&world, queue, write, files).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(printed(&ended)?["sub/old"], json!(["0o644", "old"]));
    assert_eq!(texts(&world, "all").await?, pairs([("more", ""), ("same", "same"), ("sub/old", "new")]));
    // What a queue says holds for tasks that say nothing.
    let fields = doc! { "threads": 1, "files": { "output": { "name": "logs" } } };
    let queue = world.queue("Exchanges", fields).await?;
    let task = world.submit(queue, vec![doc! { "write": [["log", "x"]] }]).await?[0];
    let ended = world.until_status(task, 1).await?;
    assert_eq!(texts(&world, "logs").await?, pairs([("log", "x")]));
    let expected = doc! { "output": { "name": "logs", "version": 1_i64 }, "of_queue": true };
    assert_eq!(ended.get_document("files")?, &expected);
    // Patterns that match nothing are told.
    let files = doc! { "output": { "name": "none", "patterns": ["*.dat", "out/*"] } };
    let task = submit(&world, queue, doc! { "write": [["note.txt", "x"]] }, files).await?;
    let ended = world.until_status(task, 1).await?;
    let told = "disbatch: no file matches *.dat, out/*: version 1 of the file set none is empty\n";
    assert_eq!(text(&ended, "stderr"), told);
    // A task that has failed leaves nothing.
    let failing = world.submit(queue, vec![doc! { "write": [["log", "y"]], "exit": 3 }]).await?[0];
    world.until_status(failing, 2).await?;
    assert_eq!(texts(&world, "logs").await?, pairs([("log", "x")]));
    world.end().await
}

#[tokio::test]
async fn what_cannot_be_brought_or_stored_makes_the_task_fail() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 2).await?;
    put(&world.store(), "theirs", Some("acme"), &[("x", b"x", 0o644)]).await?;
    let lost = put(&world.store(), "lost", None, &[("x", b"lost", 0o644)]).await?;
    let chunks = world.database().collection::<Document>("filesets.chunks");
    let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"LOST".to_vec() };
    let content = world.store().find_content(disbatch_core::files::ContentId::of(b"lost")).await?;
    assert_eq!(content.map(|content| content.length), Some(4));
    let of_four = doc! { "$expr": { "$eq": [{ "$binarySize": "$data" }, 4] } };
    chunks.update_one(of_four, doc! { "$set": { "data": data } }).await?;
    let _den = world.den("n1")?;
    let input = |name: &str| doc! { "input": { "name": name } };
    for (files, why) in [
        (input("nothing"), "cannot bring the input files: there is no file set nothing"),
        (input("theirs"), "the file set theirs does not belong to the tenant of the task"),
        (doc! { "input": { "name": "lost", "version": 7 } }, "there is no version 7 of the file set lost"),
        (input("lost"), "the content of x is damaged"),
        (doc! { "output": { "name": "theirs" } }, "the file set theirs belongs to another tenant"),
    ] {
        let task = submit(&world, queue, doc! {}, files).await?;
        let ended = world.until_status(task, 2).await?;
        assert!(text(&ended, "stderr").contains(why), "{why}: {ended}");
        let history = ended.get_array("history")?.last().and_then(bson::Bson::as_document);
        assert!(history.is_some_and(|last| text(last, "note").contains(why)), "{ended}");
    }
    // Tasks of the tenant get it, and what they leave is the tenant's.
    let files = doc! { "input": { "name": "theirs" }, "output": { "name": "made", "patterns": ["*"] } };
    let files = disbatch_core::model::TaskFiles::parse(&files.into()).map_err(anyhow::Error::msg)?;
    let options = TaskOptions { files, tenant: Some("acme".to_owned()), ..TaskOptions::default() };
    let task = world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    world.until_status(task, 1).await?;
    let made = latest(&world.store(), "made").await?.context("no set")?;
    assert_eq!((made.tenant.as_deref(), made.count), (Some("acme"), 1));
    assert_eq!(versions(&world, "open").await?, 0);
    assert_eq!(lost.version, 1);
    world.end().await
}

#[tokio::test]
async fn paths_that_somebody_has_put_into_the_database_lead_nowhere_else() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 1).await?;
    let _den = world.den("n1")?;
    let set = put(&world.store(), "bad", None, &[("good", b"fine", 0o644)]).await?;
    let entries = world.database().collection::<Document>("filesets.entries");
    let outside = format!("escape-{}", ObjectId::new());
    let absolute = temp_dir().join(&outside).display().to_string();
    let paths = [
        format!("../{outside}"),
        format!("a/../../{outside}"),
        format!("./../{outside}"),
        absolute.clone(),
        format!("a//{outside}"),
        String::new(),
        "..".to_owned(),
    ];
    for path in paths {
        entries.update_one(doc! { "set": set.id }, doc! { "$set": { "path": &path } }).await?;
        let task = submit(&world, queue, doc! {}, doc! { "input": { "name": "bad" } }).await?;
        let ended = world.until_status(task, 2).await?;
        assert!(text(&ended, "stderr").contains("is no path in a file set"), "{path}: {ended}");
        assert!(!temp_dir().join(&outside).exists(), "{path}");
    }
    // What is between the runner and the plugin cannot be replaced.
    entries.update_one(doc! { "set": set.id }, doc! { "$set": { "path": ".disbatch-control" } }).await?;
    let task = submit(&world, queue, doc! {}, doc! { "input": { "name": "bad" } }).await?;
    let ended = world.until_status(task, 2).await?;
    assert!(text(&ended, "stderr").contains("the runner uses names like this itself"), "{ended}");
    // A file in the place of a folder is not followed either.
    put(&world.store(), "both", None, &[("a", b"file", 0o644), ("a/b", b"below", 0o644)]).await?;
    let task = submit(&world, queue, doc! {}, doc! { "input": { "name": "both" } }).await?;
    let ended = world.until_status(task, 2).await?;
    assert!(text(&ended, "stderr").contains("cannot write a"), "{ended}");
    world.end().await
}

#[tokio::test]
async fn links_that_a_plugin_leaves_are_not_followed() -> anyhow::Result<()> {
    let world = world().await?;
    let outside = world.path().join("outside");
    std::fs::create_dir(&outside)?;
    std::fs::write(outside.join("secret"), "secret")?;
    let script = format!(
        "#!/bin/sh\necho real > real\nln -s {outside}/secret link\nln -s {outside} folder\n\
         ln -s ../.. up\nmkdir sub\nln -s ../real sub/inner\nmkfifo pipe\nln -s loop loop\n",
        outside = outside.display()
    );
    let queue = world.script_queue(Script { name: "Links", text: &script }, 1).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, doc! {}, doc! { "output": { "name": "links" } }).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(texts(&world, "links").await?, pairs([("real", "real\n")]));
    let told = text(&ended, "stderr");
    for left_out in ["link", "folder", "up", "sub/inner", "pipe", "loop"] {
        assert!(told.contains(&format!("disbatch: {left_out} is not stored: it is ")), "{left_out}: {told}");
    }
    assert_eq!(count(&world, "filesets.entries", doc! {}).await?, 1);
    world.end().await
}

#[tokio::test]
async fn tasks_that_leave_the_same_set_at_once_make_versions_of_their_own() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 4).await?;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let write = doc! { "write": [["number", number.to_string()], ["common", "x".repeat(100_000)]] };
        tasks.push(submit(&world, queue, write, doc! { "output": { "name": "same" } }).await?);
    }
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let mut seen = Vec::new();
    for (number, task) in ended.iter().enumerate() {
        let version = task.get_document("files")?.get_document("output")?.get_i64("version")?;
        let set = world.store().fileset_version(&named("same")?, version).await?.context("no version")?;
        assert_eq!(set.task.map(|id| id.0), task.get_object_id("_id").ok());
        assert_eq!(files_of(&world.store(), &set).await?["number"], number.to_string().into_bytes());
        seen.push(version);
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=8).collect::<Vec<i64>>());
    let common = disbatch_core::files::ContentId::of("x".repeat(100_000).as_bytes());
    assert_eq!(count(&world, "filesets.files", doc! { "filename": common, "state": "done" }).await?, 1);
    world.end().await
}

#[tokio::test]
async fn equal_files_are_stored_once() -> anyhow::Result<()> {
    let world = world().await?;
    let bytes = noise(3 * CHUNK + 1, 11);
    std::fs::write(world.path().join("large"), &bytes)?;
    let script = format!(
        "#!/bin/sh\ncp {0}/large one\nmkdir two\ncp {0}/large two/copy\necho \"$DISBATCH_TASK_ID\" > own\n",
        world.path().display()
    );
    let queue = world.script_queue(Script { name: "Copies", text: &script }, 2).await?;
    let _den = world.den("n1")?;
    for _ in 0..3 {
        submit(&world, queue, doc! {}, doc! { "output": { "name": "copies" } }).await?;
    }
    let ended = world.until_all_ended(queue).await?;
    assert!(ended.iter().all(|task| task.get_i32("status").ok() == Some(1)), "{ended:?}");
    // Four of the large file, and one for each small one.
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 4 + 3);
    assert_eq!(count(&world, "filesets.files", doc! {}).await?, 1 + 3);
    assert_eq!(count(&world, "filesets.entries", doc! {}).await?, 9);
    let set = latest(&world.store(), "copies").await?.context("no set")?;
    let files = files_of(&world.store(), &set).await?;
    assert!(files["one"] == bytes && files["two/copy"] == bytes);
    world.end().await
}

#[tokio::test]
async fn the_steps_of_a_task_share_its_files() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(EXCHANGES, 1).await?;
    put(&world.store(), "data", None, &[("in", b"in", 0o644)]).await?;
    let _den = world.den("n1")?;
    let step = |name: &str, text: &str| disbatch_core::model::Step {
        name: name.to_owned(),
        plugin: None,
        params: doc! { "write": [[name, text]] },
    };
    let files = doc! { "input": { "name": "data" }, "output": { "name": "made" } };
    let options = TaskOptions {
        files: disbatch_core::model::TaskFiles::parse(&files.into()).map_err(anyhow::Error::msg)?,
        steps: vec![step("first", "1"), step("second", "2")],
        ..TaskOptions::default()
    };
    let task = world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    let ended = world.until_status(task, 1).await?;
    let last = text(&ended, "stdout").lines().last().unwrap_or_default();
    let expected = json!({ "in": ["0o644", "in"], "first": ["0o644", "1"] });
    assert_eq!(serde_json::from_str::<Value>(last)?, expected);
    assert_eq!(texts(&world, "made").await?, pairs([("first", "1"), ("second", "2")]));
    world.end().await
}
