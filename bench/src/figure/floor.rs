//! `floor`: how many processes a second this machine starts, feeds, reads and waits for, and nothing else. No
//! batch system that has a process for each task can be faster.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, doc};
use disbatch_core::clock::{Clock, SystemClock};

use crate::figure::{Load, params};
use crate::results::{Sample, Series};
use crate::statistics::rate;
use crate::world::World;

/// The name of the figure.
pub const NAME: &str = "floor";

/// How it is measured.
pub const METHOD: &str = "the same plugin program is started that often, as many at once as the queue has threads: \
    a task is written to its standard input, both outputs are read, its end is waited for. No database, no \
    DEN, no runner";

/// Over the whole round.
pub static RATE: Series = Series { figure: NAME, key: "processes_per_second", label: "processes/s" };

/// One round.
///
/// # Errors
/// A process cannot be started or fails.
pub async fn measure(world: &World, load: Load) -> anyhow::Result<Vec<Sample>> {
    let plugin = world.programs.plugin.clone();
    let seconds = tokio::task::spawn_blocking(move || all(&plugin, load)).await??;
    Ok(rate(load.tasks, seconds).map(|value| Sample { series: &RATE, value }).into_iter().collect())
}

fn all(plugin: &Path, load: Load) -> anyhow::Result<f64> {
    let task = task(SystemClock.now());
    let started = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let worker = || -> anyhow::Result<()> {
            while started.fetch_add(1, Ordering::Relaxed) < load.tasks {
                one(plugin, &task)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..load.threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn one(plugin: &Path, task: &str) -> anyhow::Result<()> {
    let mut child = Command::new(plugin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", plugin.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(task.as_bytes()).context("the plugin does not read its task")?;
    }
    let output = child.wait_with_output().context("cannot read the plugin's output")?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "the plugin failed: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// A task as a runner hands it to a plugin.
fn task(now: DateTime) -> String {
    let document = doc! {
        "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "node": "bench",
        "params": params(), "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now,
    };
    format!("{}\n", Bson::Document(document).into_relaxed_extjson())
}
