//! Many runs are replayed at once: the last ones of a queue, or a folder of bundles.

use std::fs;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::{Dci, Script, World};
use serde_json::{Value, json};

use super::{disbatch, get, record};

/// Says what it was given.
const COUNT: Script<'static> = Script {
    name: "Count",
    text: "#!/usr/bin/env python3\nimport json, sys\nprint('n is', json.load(sys.stdin)['params']['n'])\n",
};

/// Another version: it says something else of 3, and takes its time for 4.
const OTHER: Script<'static> = Script {
    name: "Count",
    text: r#"#!/usr/bin/env python3
import json, sys, time
n = json.load(sys.stdin)["params"]["n"]
if n == 4:
    time.sleep(2.5)
print("n is", "three" if n == 3 else n)
"#,
};

async fn many(folder: &Path, arguments: &[&str], code: i32) -> anyhow::Result<Output> {
    let output = disbatch(folder, &[&["replay"], arguments].concat()).await?;
    let text = String::from_utf8([output.stdout.clone(), output.stderr.clone()].concat())?;
    ensure!(output.status.code() == Some(code), "{arguments:?}: {:?}: {text}", output.status);
    Ok(output)
}

fn runs<'a>(found: &'a Value, verdict: &str) -> Vec<&'a Value> {
    let all = found["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|run| run["verdict"] == verdict).collect()
}

#[tokio::test]
async fn a_changed_plugin_is_found_by_the_last_runs() -> anyhow::Result<()> {
    let world = World::new().await?;
    COUNT.install(&world.plugins())?;
    let queue = world.queue("Count", doc! { "name": "count", "threads": 2 }).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let empty =
        disbatch(world.path(), &["--url", dci.url(), "replay", "--last", "5", "--queue", "count"]).await?;
    let said = String::from_utf8(empty.stderr)?;
    assert!(
        empty.status.code() == Some(255) && said.contains("no run of the queue count is recorded"),
        "{said}"
    );
    let tasks = world.submit(queue, (1..=5).map(|n| doc! { "n": n }).collect()).await?;
    for task in tasks {
        world.until_status(task, 1).await?;
    }
    let (code, answer) = get(&dci, "/queues/count/recordings?.limit=2").await?;
    let listed: Value = serde_json::from_str(&answer)?;
    assert!(code == 200 && listed.as_array().is_some_and(|all| all.len() == 2), "{answer}");
    assert!(listed[0]["at"].as_str() >= listed[1]["at"].as_str(), "the latest first: {answer}");

    let other = world.path().join("other");
    fs::create_dir(&other)?;
    OTHER.install(&other)?;
    let with = other.join("Count").to_string_lossy().into_owned();
    let last = ["--url", dci.url(), "--last", "9", "--queue", "count"];
    let same =
        many(world.path(), &[&last[..], &["--json", "--save", "bundles", "--noise", "60"]].concat(), 0)
            .await?;
    let same: Value = serde_json::from_slice(&same.stdout)?;
    assert_eq!((&same["same"], runs(&same, "same").len()), (&json!(5), 5), "{same}");

    let changed = [&last[..], &["--json", "--with", &with, "--html", "page.html", "--noise", "2"]].concat();
    let changed = many(world.path(), &changed, 1).await?;
    let found: Value = serde_json::from_slice(&changed.stdout)?;
    let different = runs(&found, "different");
    assert!(different.len() == 1 && runs(&found, "slower").len() == 1, "{found}");
    let text = different[0]["texts"][1]["difference"].as_str().context("no difference")?;
    assert!(text.contains("-n is 3\n+n is three\n"), "{found}");
    let lines = String::from_utf8(changed.stderr)?;
    assert!(lines.contains("fetching 5 bundles") && lines.matches(" of 5: task ").count() == 5, "{lines}");
    let page = fs::read_to_string(world.path().join("page.html"))?;
    assert!(
        page.contains("<h1>Replay of 5 runs of count</h1>") && page.contains("<mark>three</mark>"),
        "{page}"
    );
    drop(den);
    from_a_folder(&world, &with).await?;
    world.end().await
}

/// The same of bundles that were saved, without a DCI; one of them is none.
async fn from_a_folder(world: &World, with: &str) -> anyhow::Result<()> {
    let folder = world.path().join("bundles");
    assert_eq!(fs::read_dir(&folder)?.count(), 5);
    fs::write(folder.join("odd.tar"), "x".repeat(2_000))?;
    let noise = ["bundles", "--noise", "2", "--jobs", "3"];
    let text = many(world.path(), &noise, 0).await?;
    let text = String::from_utf8(text.stdout)?;
    assert!(
        text.contains(
            "not replayable: bundles/odd.tar is no bundle that can be replayed: it is no tar archive"
        ),
        "{text}"
    );
    assert!(text.contains("\n6 runs: 5 same, 1 not replayable\n"), "{text}");
    many(world.path(), &[&noise[..], &["--fail-on", "not-replayable"]].concat(), 1).await?;
    many(world.path(), &["bundles/odd.tar", "bundles/odd.tar"], 255).await?;
    let slow = [&noise[..], &["--with", with]].concat();
    let text = String::from_utf8(many(world.path(), &slow, 1).await?.stdout)?;
    assert!(text.contains("\n6 runs: 3 same, 1 slower, 1 different, 1 not replayable\n"), "{text}");
    assert!(
        text.contains("\nstdout\n--- recorded\n+++ replayed\n") && text.contains("\n-n is 3\n+n is three\n"),
        "{text}"
    );
    let masked = [&slow[..], &["--mask", "3|three", "--fail-on", "different"]].concat();
    many(world.path(), &masked, 0).await?;
    many(world.path(), &[&slow[..], &["--mask", "3|three", "--fail-on", "slower"]].concat(), 1).await?;
    Ok(())
}
