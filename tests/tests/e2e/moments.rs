//! A moment of the past: what ran, what waited, what limits held and what happened, after all of it is over.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{DateTime, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::schedules::{CronExpr, Overlap, Settings, Spec};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, World, binary, eventually};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::direct;

const PASSWORD: &str = "correct horse battery";

fn settings(queue: QueueId) -> anyhow::Result<Settings> {
    Ok(Settings {
        name: "nightly".to_owned(),
        description: String::new(),
        queue,
        params: doc! {},
        options: TaskOptions::default(),
        spec: Spec::new(vec![CronExpr::parse("0 3 1 1 *")?]),
        overlap: Overlap::Allow,
        catch_up: Duration::from_secs(60),
        tenant: None,
        owner: None,
    })
}

fn now() -> DateTime {
    SystemClock.now()
}

/// Runs until there is a file, and fails then.
async fn held(world: &World, queue: QueueId, file: &str) -> anyhow::Result<TaskId> {
    let file = world.path().join(file);
    let command = format!("until [ -e {} ]; do sleep 0.1; done; exit 3", file.display());
    Ok(world.submit(queue, vec![doc! { "command": command }]).await?[0])
}

/// A night: a task ran and another waited at the moment; then its threads were raised, a schedule fired, the first failed and the node of the second was lost.
async fn night(world: &World, dci: &Dci) -> anyhow::Result<(QueueId, [TaskId; 3], DateTime)> {
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "mail", "threads": 0 }).await?;
    let other = world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 0 }).await?;
    dci.posted("/queues/mail", &json!({ "threads": 1 })).await?;
    let den = world.den_at_work("n1").await?;
    let first = held(world, queue, "first").await?;
    world.until_status(first, 0).await?;
    let second = held(world, queue, "second").await?;
    let at = now();
    // The next change is at another millisecond.
    eventually("the moment to be over", || async { Ok((now() > at).then_some(())) }).await?;
    dci.posted("/queues/mail", &json!({ "threads": 2 })).await?;
    world.until_status(second, 0).await?;
    let schedule = world.store().create_schedule(&settings(other)?, true).await?;
    let fired = world.store().run_schedule(schedule.id, None).await?.context("no schedule")?;
    fs::write(world.path().join("first"), "")?;
    world.until_status(first, 2).await?;
    den.end_with(Signal::SIGKILL).await?;
    eventually("its lease to be over", || async {
        Ok((dci.get("/nodes/n1?.details=1").await?["state"] == "dead").then_some(()))
    })
    .await?;
    Ok((queue, [first, second, fired], at))
}

fn kinds(moment: &Value) -> Vec<(&str, &str)> {
    let events = moment["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut told = Vec::new();
    for event in events {
        told.push((event["kind"].as_str().unwrap_or_default(), event["words"].as_str().unwrap_or_default()));
    }
    told
}

#[tokio::test]
async fn what_was_at_a_moment_is_told_when_all_is_over() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 1 }))?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (queue, [first, _, fired], at) = night(&world, &dci).await?;
    let at = at.try_to_rfc3339_string()?;

    let moment = dci.get(&format!("/moments?at={at}&queue=mail")).await?;
    let running = moment["running"].as_array().context("no list")?;
    assert_eq!(running.len(), 1, "{moment}");
    let ran = &running[0];
    assert_eq!((&ran["task"], &ran["then"]), (&json!(first.to_string()), &json!(2)), "{ran}");
    assert_eq!((&ran["node"], &ran["attempt"]), (&json!("n1"), &json!(1)), "{ran}");
    assert_eq!(moment["waiting"], 1, "{moment}");
    let limits = json!([{ "kind": "queue", "name": "mail", "settings": { "threads": 1 }, "known": true }]);
    assert_eq!(moment["limits"], limits);
    assert_eq!(moment["ran"].as_array().map(Vec::len), Some(2), "{moment}");
    let told = kinds(&moment);
    let raised = ("change", "queue update mail: threads 1 → 2");
    ensure!(told.contains(&raised), "{told:?}");
    ensure!(
        told.iter().any(|(kind, words)| *kind == "task" && words.starts_with("a task ended as failed")),
        "{told:?}"
    );
    ensure!(!told.iter().any(|(kind, _)| ["schedule", "node"].contains(kind)), "of other queues: {told:?}");

    let all = dci.get(&format!("/moments?at={at}")).await?;
    let told = kinds(&all);
    ensure!(told.contains(&("node", "lost: last heard of then")), "{told:?}");
    let events = all["events"].as_array().context("no list")?;
    let firing = events.iter().find(|event| event["kind"] == "schedule").context("it has fired")?;
    assert_eq!((&firing["task"], &firing["queue_name"]), (&json!(fired.to_string()), &json!("reports")));
    let times = events.iter().filter_map(|event| event["at"].as_str()).map(DateTime::parse_rfc3339_str);
    let times = times.collect::<Result<Vec<_>, _>>()?;
    ensure!(times.is_sorted(), "{times:?}");

    let elsewhere = dci.get(&format!("/moments?at={at}&node=n7")).await?;
    assert_eq!((&elsewhere["ran"], &elsewhere["waiting"]), (&json!([]), &Value::Null), "{elsewhere}");
    page(&dci, &format!("/moments?at={at}&queue={queue}"), first).await?;
    let mut command = tokio::process::Command::new(binary("disbatch")?);
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("DISBATCH_URL", dci.url());
    command.args(["at", &at, "--queue", "mail"]);
    let printed = String::from_utf8(command.output().await?.stdout)?;
    for part in [": 1 running, 1 waiting\nqueue mail: {\"threads\":1}\n", raised.1, &first.to_string()] {
        ensure!(printed.contains(part), "{part} is not in {printed}");
    }
    fs::write(world.path().join("second"), "")?;
    world.end().await
}

async fn page(dci: &Dci, path: &str, task: TaskId) -> anyhow::Result<()> {
    let page = dci.request(Method::GET, path).header("accept", "text/html").send().await?.text().await?;
    let title = "<title>A moment";
    for part in
        [title, "1 running, 1 waiting.", "<svg class=\"life\"", "threads 1", &format!("/tasks/{task}")]
    {
        ensure!(page.contains(part), "{part} is not in {page}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_is_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    for (query, expected) in
        [("at=soon", 400), ("around=13h", 400), ("queue=none", 404), ("colour=red", 400), ("at=03:12", 200)]
    {
        let status = dci.request(Method::GET, &format!("/moments?{query}")).send().await?.status().as_u16();
        assert_eq!(status, expected, "{query}");
    }
    world.end().await
}

#[tokio::test]
async fn what_people_changed_is_for_admins() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.queue("Disbatch::Plugin::Shell", doc! { "name": "mail", "threads": 0 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    dci.posted("/queues/mail", &json!({ "threads": 1 })).await?;
    direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    direct(&world, &["user", "add", "robin", "--role", "viewer"], PASSWORD).await?;
    direct(&world, &["user", "add", "sam", "--queue", "mail=viewer"], PASSWORD).await?;
    eventually("a DCI that asks who they are", || async {
        let status = dci.request(Method::GET, "/moments").send().await?.status().as_u16();
        Ok((status == 401).then_some(()))
    })
    .await?;
    for (name, expected, sees) in [("ashley", 200, true), ("robin", 200, false), ("sam", 200, false)] {
        let asked = || dci.request(Method::GET, "/moments").basic_auth(name, Some(PASSWORD));
        let answer = eventually("a DCI that knows them", || async {
            let answer = asked().send().await?;
            Ok((answer.status().as_u16() == expected).then_some(answer))
        })
        .await?;
        let text = answer.text().await?;
        assert_eq!(text.contains("queue update mail"), sees, "{name}: {text}");
    }
    world.end().await
}
