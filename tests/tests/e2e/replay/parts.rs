//! Tasks with steps, and tasks with file sets.

use std::fs;

use anyhow::Context;
use bson::doc;
use disbatch_core::model::{Step, TaskId};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, Script, World};
use reqwest::Method;
use serde_json::{Value, json};

use super::{bundle, check_schema, files, json_of, record, replay};
use crate::accounts::direct;
use crate::filesets::{put, submit};

/// Leaves what it says in its folder.
const FIRST: Script<'static> = Script {
    name: "First",
    text: "#!/bin/sh\necho \"$DISBATCH_STEP_NAME $JOB_PARAMS\" > made; echo first\n",
};

const SECOND: Script<'static> = Script { name: "Second", text: "#!/bin/sh\ncat made; echo second\n" };

#[tokio::test]
async fn steps_are_replayed_in_their_order_and_compared() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(FIRST, 1).await?;
    SECOND.install(&world.plugins())?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let steps = vec![
        Step { name: "get".to_owned(), plugin: None, params: doc! { "b": 3 } },
        Step { name: "use".to_owned(), plugin: Some("Second".parse()?), params: doc! {} },
    ];
    let options = TaskOptions { steps, ..TaskOptions::default() };
    let task = world.store().submit_tasks(queue, vec![doc! { "a": 1 }], &options).await?.ids[0];
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "first\nget {\"a\":1,\"b\":3}\nsecond\n");
    let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
    let of_bundle = files(&bytes)?;
    let (about, recording) = (json_of(&of_bundle, "bundle.json")?, json_of(&of_bundle, "recording.json")?);
    check_schema("Bundle", &about)?;
    check_schema("Recording", &recording)?;
    let told = |step: &Value| (step["name"].clone(), step["status"].clone(), step["ended"].is_string());
    let all = about["outcome"]["steps"].as_array().context("no steps")?;
    assert_eq!(
        all.iter().map(told).collect::<Vec<_>>(),
        [(json!("get"), json!(1), true), (json!("use"), json!(1), true)]
    );
    let plugins = recording["steps"].as_array().context("no steps")?;
    let names: Vec<&Value> = plugins.iter().map(|step| &step["plugin"]["name"]).collect();
    assert_eq!((about["plugin"].as_str(), names), (Some("First"), vec![&json!("First"), &json!("Second")]));
    assert!(plugins.iter().all(|step| step["plugin"]["files"][0]["sha256"].is_string()), "{recording}");
    assert_eq!(
        json_of(&of_bundle, "stdin.json")?["params"],
        json!({ "a": 1 }),
        "as it was before the first step"
    );

    let same = replay(&world, &path, &[], 0).await?;
    assert_eq!((&same["steps"]["same"], &same["changed_files"]), (&json!(true), &json!([])), "{same}");
    assert!(same["steps"]["is"][1]["seconds"].is_number(), "{same}");
    let other = world.path().join("other");
    fs::create_dir(&other)?;
    Script { name: "Second", text: "#!/bin/sh\ncat made; exit 2\n" }.install(&other)?;
    let with = other.join("Second").to_string_lossy().into_owned();
    let found = replay(&world, &path, &["--with", &with], 1).await?;
    assert_eq!(found["different"], json!(["status", "exit", "stdout", "steps"]), "{found}");
    assert_eq!(found["changed_files"], json!(["run"]), "{found}");
    assert_eq!(
        found["steps"]["is"][1],
        json!({ "name": "use", "status": 2, "seconds": found["steps"]["is"][1]["seconds"] })
    );
    let program = other.join("Second/run").to_string_lossy().into_owned();
    let unclear =
        super::disbatch(world.path(), &["replay", &path.to_string_lossy(), "--with", &program]).await?;
    assert!(String::from_utf8(unclear.stderr)?.contains("the steps have several plugins"), "which one is it");
    drop(den);
    world.end().await
}

/// Says what is in a file that it has got, and leaves another.
const UPPER: Script<'static> = Script {
    name: "Upper",
    text: "#!/bin/sh\ncat data/a.txt; mkdir out; tr a-z A-Z < data/a.txt > out/a.txt\n",
};

#[tokio::test]
async fn files_are_where_they_were_and_those_that_are_left_are_compared() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(UPPER, 1).await?;
    world.update_queue(queue, doc! { "name": "upper" }).await?;
    record(&world, queue).await?;
    let input = [
        ("data/a.txt", &b"one\n"[..], 0o640),
        ("data/same.txt", &b"one\n"[..], 0o600),
        ("b.txt", &b"two"[..], 0o644),
    ];
    put(&world.store(), "given", None, &input).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let sets = doc! { "input": { "name": "given", "patterns": ["data/*"] }, "output": { "name": "left" } };
    let task = submit(&world, queue, doc! {}, sets).await?;
    world.until_status(task, 1).await?;
    let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
    let of_bundle = files(&bytes)?;
    let about = json_of(&of_bundle, "bundle.json")?;
    check_schema("Bundle", &about)?;
    let paths = |part: &str| -> Vec<&str> {
        let files = about["files"][part]["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        files.iter().filter_map(|file| file["path"].as_str()).collect()
    };
    assert_eq!(
        (paths("input"), paths("output")),
        (vec!["data/a.txt", "data/same.txt"], vec!["out/a.txt"]),
        "{about}"
    );
    let sum = about["files"]["input"]["files"][0]["sha256"].as_str().context("no sum")?;
    assert_eq!(of_bundle.get(&format!("files/{sum}")).map(String::as_str), Some("one\n"));
    assert_eq!(
        of_bundle.keys().filter(|name| name.starts_with("files/")).count(),
        1,
        "each content once, of input alone"
    );

    let same = replay(&world, &path, &[], 0).await?;
    assert_eq!(
        (&same["files"]["same"], &same["files"]["is"][0]["path"]),
        (&json!(true), &json!("out/a.txt")),
        "{same}"
    );
    let other = world.path().join("other");
    fs::create_dir(&other)?;
    Script {
        name: "Upper",
        text: "#!/bin/sh\ncat data/a.txt; mkdir out; cat data/a.txt > out/a.txt; touch more\n",
    }
    .install(&other)?;
    let with = other.join("Upper").to_string_lossy().into_owned();
    let found = replay(&world, &path, &["--with", &with, "--keep"], 1).await?;
    assert_eq!(found["different"], json!(["files"]), "{found}");
    let folder = found["folder"].as_str().context("no folder")?;
    assert_eq!(fs::read_to_string(format!("{folder}/data/same.txt"))?, "one\n");
    fs::remove_dir_all(folder)?;
    let text = super::disbatch(world.path(), &["replay", &path.to_string_lossy(), "--with", &with]).await?;
    let text = String::from_utf8(text.stdout)?;
    assert!(text.contains("more: new\n") && text.contains("out/a.txt: changed\n"), "{text}");
    drop(dci);

    contents_need_a_role_on_the_set(&world, task).await?;
    drop(den);
    world.end().await
}

/// A role on the queue is enough for the task, and not for file sets.
async fn contents_need_a_role_on_the_set(world: &World, task: TaskId) -> anyhow::Result<()> {
    const PASSWORD: &str = "correct horse battery";
    direct(world, &["user", "add", "root", "--admin"], PASSWORD).await?;
    direct(world, &["user", "add", "viewer", "--queue", "upper=viewer"], PASSWORD).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    for (user, count) in [("root", 1), ("viewer", 0)] {
        let request =
            dci.request(Method::GET, &format!("/tasks/{task}/bundle")).basic_auth(user, Some(PASSWORD));
        let answer = request.send().await?;
        assert_eq!(answer.status().as_u16(), 200, "{user}");
        let of_bundle = files(&answer.bytes().await?)?;
        assert_eq!(of_bundle.keys().filter(|name| name.starts_with("files/")).count(), count, "{user}");
        let about = json_of(&of_bundle, "bundle.json")?;
        assert_eq!(about["files"]["output"]["files"].is_array(), count == 1, "{about}");
        assert_eq!(
            about["not_recorded"].to_string().contains("needs a role on file sets"),
            count == 0,
            "{about}"
        );
    }
    Ok(())
}
