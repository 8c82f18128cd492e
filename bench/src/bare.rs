//! The floor: how many processes a second this machine starts, feeds, reads and waits for, and nothing else. No
//! batch system that has a process for each task can be faster.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};

/// Runs `command`, a program and its arguments, `count` times, `width` at once: a task is written to its standard input,
/// both outputs are read, its end is waited for. Returns the seconds that it took.
pub async fn run(command: &[impl AsRef<str>], count: u32, width: u32) -> anyhow::Result<f64> {
    let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
    tokio::task::spawn_blocking(move || all(&command, count, width)).await?
}

fn all(command: &[String], count: u32, width: u32) -> anyhow::Result<f64> {
    let task = task(SystemClock.now());
    let started = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let worker = || -> anyhow::Result<()> {
            while started.fetch_add(1, Ordering::Relaxed) < count {
                one(command, &task)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn one(command: &[String], task: &str) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("there is no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(task.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {} // A program need not read its task.
        }
    }
    let output = child.wait_with_output().context("cannot read the program's output")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the program failed: {}: {complaint}", output.status);
    Ok(())
}

/// A task as a runner hands it to a plugin.
fn task(now: DateTime) -> String {
    let document = doc! {
        "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "node": "bench",
        "params": Document::new(), "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now,
    };
    format!("{}\n", Bson::Document(document).into_relaxed_extjson())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_fails_is_an_error() {
        assert!(run(&["/bin/true"], 20, 3).await.unwrap() > 0.0);
        assert!(run(&["/bin/false"], 1, 1).await.is_err());
    }

    #[tokio::test]
    async fn a_program_gets_its_arguments() {
        assert!(run(&["/bin/sh", "-c", "exit 0"], 1, 1).await.is_ok());
        let error = run(&["/bin/sh", "-c", "echo why >&2; exit 3"], 1, 1).await.unwrap_err().to_string();
        assert!(error.contains("why"), "{error}");
    }
}
