//! `disbatch doctor`: nothing is wrong, and then much is.

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_tests::{Dci, Script, World, binary, finish};
use serde_json::Value;
use tokio::process::Command;

const TRUE: Script<'_> = Script { name: "True", text: "#!/bin/sh\nexit 0\n" };

/// What it ends with, and what it finds.
pub async fn doctor(dci: &Dci) -> anyhow::Result<(i32, Vec<Value>)> {
    let mut command = Command::new(binary("disbatch")?);
    let finished = finish(command.args(["--url", dci.url(), "doctor", "--format", "json"])).await?;
    let answer: Value = serde_json::from_str(&finished.stdout).with_context(|| finished.stderr.clone())?;
    Ok((finished.code()?, answer["findings"].as_array().cloned().unwrap_or_default()))
}

fn of<'a>(findings: &'a [Value], check: &str, level: &str) -> Vec<&'a str> {
    let these = findings.iter().filter(|finding| finding["check"] == check && finding["level"] == level);
    these.map(|finding| finding["subject"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn it_names_what_is_wrong() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.script_queue(TRUE, 1).await?;
    let _den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (code, findings) = doctor(&dci).await?;
    let checks: Vec<&str> = findings.iter().filter_map(|finding| finding["check"].as_str()).collect();
    assert_eq!(checks.len(), 12, "each check says something once: {findings:?}");
    let not_ok: Vec<&Value> = findings.iter().filter(|finding| finding["level"] != "ok").collect();
    let not_ok: Vec<&str> = not_ok.iter().filter_map(|finding| finding["check"].as_str()).collect();
    // What the machine is like is not ours: its disk, and how fast it answers.
    assert!(not_ok.iter().all(|check| ["users", "disk", "database"].contains(check)), "{findings:?}");
    assert!(code == 1 && not_ok.contains(&"users"), "nobody has to log in: {code} {findings:?}");

    world.tasks().drop_index("queue_1_group_1_group_slot_1").await?;
    world.tasks().drop_index("lease_until_1").await?;
    world.queue("No::Such", doc! { "name": "stuck", "threads": 1 }).await?;
    let now = world.store().server_time().await?;
    let node = doc! {
        "node": "late", "instance": "i", "state": "alive", "version": "3.9.9", "lease_ms": 600_000_i64, "seen": now,
        "timestamp": DateTime::from_millis(now.timestamp_millis() - 90_000), "plugins": Vec::<String>::new(),
    };
    let silent = doc! { "node": "silent", "instance": "i", "state": "alive", "lease_ms": 1_i64, "seen": DateTime::from_millis(0) };
    world.database().collection::<Document>("nodes").insert_many([node, silent]).await?;
    let (code, findings) = doctor(&dci).await?;
    assert_eq!(code, 2, "{findings:?}");
    assert_eq!(of(&findings, "indexes", "error"), ["tasks.queue_1_group_1_group_slot_1"], "{findings:?}");
    assert_eq!(of(&findings, "indexes", "warning"), ["tasks.lease_until_1"]);
    assert_eq!(of(&findings, "queues", "error"), ["stuck"]);
    assert_eq!(of(&findings, "clocks", "error"), ["late"]);
    assert_eq!(of(&findings, "nodes", "warning"), ["silent"]);
    assert_eq!(of(&findings, "versions", "warning").len(), 1);
    let has_advice = |finding: &Value| finding["level"] == "ok" || finding["advice"].is_string();
    assert!(findings.iter().all(has_advice), "{findings:?}");
    world.end().await
}

#[tokio::test]
async fn schedules_that_nobody_fires_are_late() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let now = store.server_time().await?.timestamp_millis();
    let at = |seconds: i64| DateTime::from_millis(now + seconds * 1_000);
    let schedules = world.database().collection::<Document>("schedules");
    schedules
        .insert_many([
            doc! { "name": "late", "next": at(-300) },
            doc! { "name": "soon", "next": at(300) },
            doc! { "name": "just now", "next": at(-10) },
            doc! { "name": "paused" },
            // Each round puts them off.
            doc! { "name": "cannot", "next": at(50), "next_for": at(-200), "jitter": 30 },
            doc! { "name": "odd", "next": at(50), "next_for": at(-250), "jitter": -5e300 },
            doc! { "name": "jitter", "next": at(50), "next_for": at(-200), "jitter": 200_i64 },
        ])
        .await?;
    let late = store.late_schedules(std::time::Duration::from_secs(60)).await?;
    let mut late = late.iter().map(|(name, due)| (&name[..], *due)).collect::<Vec<_>>();
    late.sort_unstable();
    assert_eq!(late, [("cannot", at(-200)), ("late", at(-300)), ("odd", at(-250))]);
    world.end().await
}
