//! The plugin of the fault suite: works for a while, prints known lines, and keeps a record of its life in
//! the folder that its argument names.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use disbatch_tests::faults::work::{BEAT, END, START, Work, boot_time, wall_time};
use serde_json::Value;

/// How often it notes that it is alive.
const INTERVAL: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_listens = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> anyhow::Result<()> {
    let (started, wall) = (boot_time(), wall_time());
    let folder = std::env::args_os().nth(1).context("no folder for records was given")?;
    let task = std::env::var("DISBATCH_TASK_ID")?;
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let document: Value = serde_json::from_str(&text)?;
    let attempt = document.get("attempt").and_then(Value::as_i64).context("the task has no attempt")?;
    let work = document.get("params").and_then(Work::of).context("the task asks for nothing known")?;
    let pid = i32::try_from(std::process::id())?;
    let path = Path::new(&folder).join(format!("{task}.{attempt}.{pid}"));
    let mut record = File::options().create(true).append(true).open(path)?;
    note(&mut record, &format!("{START} {} {}", started.as_nanos(), wall.as_millis()))?;

    let output = work.output(&task, attempt, pid);
    let (first, second) = output.as_bytes().split_at(output.len() / 2);
    let mut stdout = io::stdout();
    stdout.write_all(first)?;
    stdout.flush()?;
    let end = started + Duration::from_millis(work.millis.into());
    while boot_time() < end {
        nap(INTERVAL.min(end.saturating_sub(boot_time())));
        note(&mut record, &format!("{BEAT} {}", boot_time().as_nanos()))?;
    }
    stdout.write_all(second)?;
    stdout.flush()?;
    if attempt <= i64::from(work.fails) {
        note(&mut record, &format!("{BEAT} {}", boot_time().as_nanos()))?;
        bail!("attempt {attempt} is to fail");
    }
    note(&mut record, &format!("{END} {}", boot_time().as_nanos()))?;
    Ok(())
}

/// One write for each line: a line is there or not.
fn note(record: &mut File, line: &str) -> io::Result<()> {
    record.write_all(format!("{line}\n").as_bytes())
}

/// To take time is what this plugin is for.
#[expect(clippy::disallowed_methods, reason = "nothing is waited for")]
fn nap(time: Duration) {
    std::thread::sleep(time);
}
