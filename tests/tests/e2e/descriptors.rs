//! What a DEN or a runner was started with is not open in plugins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use bson::doc;
use disbatch_tests::{Script, World, binary};
use serde_json::json;
use tokio::process::{Child, Command};

/// The descriptors of a plugin, each with what is behind it.
const LIST: &str = "#!/bin/sh\nls -l /proc/self/fd\n";

/// The same of a plugin that is kept between tasks.
const WARM: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    for number in os.listdir("/proc/self/fd"):
        try: print(number, "->", os.readlink("/proc/self/fd/" + number), flush=True)
        except FileNotFoundError: pass
    os.write(3, json.dumps({"done": {"id": message["task"]["_id"]["$oid"]}}).encode() + b"\n")
"#;

/// The same of a Perl module.
const PERL: &str = r#"package Listing;
use strict; use warnings;
sub new { my ($class, $task) = @_; return bless {}, $class }
sub run { return { status => 1, stdout => join("", map { "$_ -> " . (readlink($_) // "") . "\n" } glob("/proc/self/fd/*")), stderr => "" } }
1;
"#;

/// A command that runs `program` with this file open as descriptors 3, 7 and 9.
fn leaky(program: &Path, file: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "file=$1; shift; exec \"$@\" 3<\"$file\" 7<\"$file\" 9<\"$file\"", "sh"]);
    command.arg(file).arg(program).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A world with three kinds of plugins that list their descriptors, and a file that is nobody's business.
fn prepare(world: &World) -> anyhow::Result<PathBuf> {
    let lib = world.path().join("lib");
    fs::create_dir(&lib)?;
    fs::write(lib.join("Listing.pm"), PERL)?;
    world.configure(
        json!({ "plugins": { "Cold": 1, "Warm": 1, "Listing": 1 }, "engines": { "perl": { "lib": [lib] } } }),
    )?;
    Script { name: "Cold", text: LIST }.install(&world.plugins())?;
    let warm = json!({ "name": "Warm", "command": ["./run"], "warm": true });
    Script { name: "Warm", text: WARM }.install_as(&world.plugins(), &warm)?;
    let secret = world.path().join("nobodys-business");
    fs::write(&secret, "root's")?;
    Ok(secret)
}

#[tokio::test]
async fn plugins_do_not_get_what_their_den_has_inherited() -> anyhow::Result<()> {
    let world = World::new().await?;
    let secret = prepare(&world)?;
    let mut queues = Vec::new();
    for plugin in ["Cold", "Warm", "Listing"] {
        queues.push(world.queue(plugin, doc! { "threads": 1 }).await?);
    }
    let log = fs::File::create(world.path().join("n1.log"))?;
    let _den: Child = leaky(&binary("den")?, &secret)
        .arg("--config")
        .arg(world.config())
        .args(["--node", "n1"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    for queue in queues {
        let task = world.submit(queue, vec![doc! {}]).await?[0];
        check(&world.until_status(task, 1).await?);
    }
    world.end().await
}

#[tokio::test]
async fn plugins_do_not_get_what_a_runner_by_hand_has_inherited() -> anyhow::Result<()> {
    let world = World::new().await?;
    let secret = prepare(&world)?;
    for plugin in ["Cold", "Warm", "Listing"] {
        let queue = world.queue(plugin, doc! { "threads": 1 }).await?;
        let task = world.claimed(queue, doc! {}, "n1").await?;
        let mut runner = leaky(&binary("dtr")?, &secret);
        runner.arg("--config").arg(world.config()).args(["--task", &task.to_string(), "--node", "n1"]);
        let run = runner.output().await?;
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        check(&world.task(task).await?);
    }
    world.end().await
}

/// A plugin has its standard streams and its control channel, and says so.
fn check(task: &bson::Document) {
    let listed = task.get_str("stdout").unwrap_or_default();
    assert!(listed.contains("pipe:"), "{task}");
    assert!(!listed.contains("nobodys-business"), "{listed}");
}
