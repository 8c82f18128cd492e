//! However large files are, a runner needs little memory for them.

use std::fs;
use std::process::Stdio;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::{Script, World, eventually};
use tokio::process::Child;

use super::{latest, world};

/// So much more memory than before may a runner have needed while it transfers files, in KiB.
const ALLOWED: u64 = 100 * 1024;

/// A plugin that waits for the file `go`, and does what `work` says.
async fn waiting(world: &World, name: &str, work: &str) -> anyhow::Result<QueueId> {
    let folder = world.path().display();
    let text =
        format!("#!/bin/sh\n: > {folder}/waits\nuntil [ -e {folder}/go ]; do sleep 0.05; done\n{work}\n");
    world.script_queue(Script { name, text: &text }, 1).await
}

/// The most memory that a process has had at once, in KiB. None: it has ended.
fn most_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn start(world: &World, task: TaskId) -> anyhow::Result<Child> {
    let mut command = world.dtr_command(&task.to_string())?;
    command.args(["--node", "n1"]).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command.kill_on_drop(true).spawn()?)
}

/// Follows a runner to its end. Returns the most memory that was seen.
async fn follow(mut runner: Child) -> anyhow::Result<u64> {
    let pid = runner.id().context("it has ended")?;
    let mut most = 0;
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(10));
    loop {
        looks.tick().await;
        most = most.max(most_memory(pid).unwrap_or(0));
        if let Some(status) = runner.try_wait()? {
            anyhow::ensure!(status.success(), "the runner has ended with {status}");
            return Ok(most);
        }
    }
}

async fn claimed(world: &World, queue: QueueId, files: Document) -> anyhow::Result<TaskId> {
    let id = world.claimed(queue, doc! {}, "n1").await?;
    world.set(id, doc! { "files": files }).await?;
    Ok(id)
}

/// Stores and brings a file of so many MiB. Returns how much more memory each took, in KiB.
async fn transfer(world: &World, mib: u64) -> anyhow::Result<(u64, u64)> {
    // It cannot be stored by less than its bytes, and is quickly made.
    let make = format!("head -c {} /dev/zero > large\necho x >> large", mib << 20);
    let queue = waiting(world, "Makes", &make).await?;
    let task = claimed(world, queue, doc! { "output": { "name": "large" } }).await?;
    let runner = start(world, task)?;
    eventually("the plugin", || async { Ok(world.path().join("waits").exists().then_some(())) }).await?;
    let before = most_memory(runner.id().context("it has ended")?).context("no memory")?;
    fs::write(world.path().join("go"), "")?;
    let storing = follow(runner).await?;
    let set = latest(&world.store(), "large").await?.context("no set")?;
    assert_eq!((set.count, set.bytes), (1, (mib << 20) + 2));

    let queue = waiting(world, "Takes", "stat -c %s large\ntail -c 2 large").await?;
    let task = claimed(world, queue, doc! { "input": { "name": "large" } }).await?;
    let bringing = follow(start(world, task)?).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, format!("{}\nx\n", (mib << 20) + 2));
    Ok((storing.saturating_sub(before), bringing.saturating_sub(before)))
}

#[tokio::test]
async fn storing_and_bringing_a_large_file_takes_little_memory() -> anyhow::Result<()> {
    let world = world().await?;
    let (storing, bringing) = transfer(&world, 300).await?;
    assert!(storing < ALLOWED, "storing took {storing} KiB");
    assert!(bringing < ALLOWED, "bringing took {bringing} KiB");
    world.end().await
}

#[tokio::test]
#[ignore = "needs 30 GB of disk and some minutes"]
async fn ten_gigabytes_take_no_more_memory() -> anyhow::Result<()> {
    let world = world().await?;
    let (storing, bringing) = transfer(&world, 10 * 1024).await?;
    assert!(storing < ALLOWED && bringing < ALLOWED, "storing took {storing} KiB, bringing {bringing} KiB");
    world.end().await
}
