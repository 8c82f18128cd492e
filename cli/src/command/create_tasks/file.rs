//! `disbatch create-tasks QUEUE --file FILE`

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;

use crate::api::{ApiError, Client};
use crate::args::{FileOptions, TaskOptions};
use crate::command::create_tasks::batches::Batch;
use crate::command::create_tasks::{batches, ids};
use crate::output::{is_broken_pipe, print, say};
use crate::status::INTERRUPTED;

/// Creates a task for each line of a file, batch by batch.
///
/// ^C lets the request in flight end; a second one does not. What was accepted is told on standard error.
pub async fn run(
    client: &Client,
    queue: &str,
    path: &Path,
    options: &FileOptions,
    task: &TaskOptions,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let (input, size) = open(path)?;
    let batches = batches::read(input, options.skip_lines, options.batch);
    let account = Account { lines: options.skip_lines, ..Account::default() };
    let progress = Progress::start(size)?;
    let mut upload = Upload { client, queue, task, print_ids: options.ids, account, progress, signals };
    let outcome = upload.send_all(batches).await;
    let account = upload.account;
    let time = upload.progress.finish();
    let status = match outcome {
        Ok(End::Complete) => {
            let speed = per_second(account.tasks, time);
            let seconds = time.as_secs_f64();
            let tasks = account.tasks;
            print(&format!(
                "Created {tasks} tasks in queue {queue} in {seconds:.1} s ({speed:.0} tasks/s)\n"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        Ok(End::Interrupted) => {
            eprintln!("Interrupted.");
            INTERRUPTED
        }
        Err(error) => {
            if !is_broken_pipe(&error) {
                say(&format!("{error:#}"));
            }
            crate::status::FAILED
        }
    };
    eprintln!("{}", account.advice());
    Ok(ExitCode::from(status))
}

fn open(path: &Path) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    // A pipe with a name has no size.
    let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((Box::new(file), size))
}

/// The request for a batch. One key cannot be that of several requests, so that each gets its own of it: the same
/// file in the same batches has the same keys again.
fn body(queue: &str, batch: &Batch, task: &TaskOptions) -> String {
    let mut options = task.fields();
    if let Some(key) = &task.idempotency_key {
        options.insert(".idempotency_key".to_owned(), format!("{key}/{}", batch.first_line).into());
    }
    let options: String =
        options.iter().map(|(name, value)| format!(",{}:{value}", Value::from(name.as_str()))).collect();
    format!(r#"{{"queue":{},"params":{}{options}}}"#, Value::from(queue), batch.params)
}

/// How sending ended, if nothing was wrong.
enum End {
    Complete,
    Interrupted,
}

/// What has come of the lines so far.
#[derive(Debug, Default)]
struct Account {
    /// Lines whose tasks have been created, together with those that were left out at the start.
    lines: u64,
    /// The last line of a request of which nobody knows what came.
    unsure_until: Option<u64>,
    tasks: u64,
}

impl Account {
    /// How to go on after not all lines were sent.
    fn advice(&self) -> String {
        let Self { lines, unsure_until, tasks } = self;
        let sure = format!("Accepted for sure: {tasks} tasks, up to line {lines}.");
        match unsure_until {
            None => format!("{sure} Go on with --skip-lines {lines}."),
            Some(last) => format!(
                "{sure} Lines {} to {last} may have been accepted: look into the queue, then go on with \
                 --skip-lines {lines}, or {last} if their tasks are there.",
                lines + 1
            ),
        }
    }
}

/// The way of a file into a queue.
struct Upload<'a> {
    client: &'a Client,
    queue: &'a str,
    task: &'a TaskOptions,
    print_ids: bool,
    account: Account,
    progress: Progress,
    signals: Signals,
}

impl Upload<'_> {
    async fn send_all(&mut self, mut batches: Receiver<anyhow::Result<Batch>>) -> anyhow::Result<End> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.signals.next() => return Ok(End::Interrupted),
                next = batches.recv() => next,
            };
            let Some(batch) = next.transpose()? else { return Ok(End::Complete) };
            if batch.tasks > 0
                && let End::Interrupted = self.send(&batch).await?
            {
                return Ok(End::Interrupted);
            }
            self.account.lines = batch.last_line;
        }
    }

    /// Sends one batch. Interrupted without an answer, the account keeps that its fate is not known.
    async fn send(&mut self, batch: &Batch) -> anyhow::Result<End> {
        let body = body(self.queue, batch, self.task);
        self.account.unsure_until = Some(batch.last_line);
        let mut answer = std::pin::pin!(self.client.post_json("/tasks", body));
        let mut end = End::Complete;
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = self.signals.next() => {
                self.progress.note("waiting for the answer to the last request; ^C again does not");
                end = End::Interrupted;
                tokio::select! {
                    answer = &mut answer => answer,
                    () = self.signals.next() => return Ok(End::Interrupted),
                }
            }
        };
        if answer.as_ref().is_err_and(created_nothing) {
            self.account.unsure_until = None;
        }
        let answer = answer.with_context(|| format!("lines {} to {}", batch.first_line, batch.last_line))?;
        self.accept(batch, &ids(&answer))?;
        Ok(end)
    }

    fn accept(&mut self, batch: &Batch, ids: &[String]) -> anyhow::Result<()> {
        let (first, last) = (batch.first_line, batch.last_line);
        ensure!(
            ids.len() == batch.tasks,
            "lines {first} to {last}: the DCI created {} tasks of {}",
            ids.len(),
            batch.tasks
        );
        self.account.unsure_until = None;
        self.account.lines = last;
        self.account.tasks += u64::try_from(ids.len())?;
        self.progress.advance(self.account.tasks, batch.bytes_read);
        if self.print_ids {
            let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
            self.progress.suspend(|| print(&lines))?;
        }
        Ok(())
    }
}

/// Whether the DCI refused the request before it had created a task.
fn created_nothing(error: &ApiError) -> bool {
    match error {
        // An answer with a result of the database's is about a part of the tasks.
        ApiError::Refused { status, body, .. } => status.is_client_error() && !body.contains("MongoDB::"),
        ApiError::Unreachable { .. } | ApiError::NotJson { .. } => false,
    }
}

/// ^C and SIGTERM.
struct Signals(Signal, Signal);

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    /// Resolves at the next signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// How often a line is printed where a bar cannot be shown.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// A bar on a terminal, else lines.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Begins; `bytes` is the size of the input if that is known.
    pub fn start(bytes: Option<u64>) -> anyhow::Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| bar(bytes)).transpose()?;
        Ok(Self { bar, started: Instant::now(), last_line: Instant::now() })
    }

    /// So many tasks have been created, from so many bytes.
    pub fn advance(&mut self, tasks: u64, bytes: u64) {
        let speed = per_second(tasks, self.started.elapsed());
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message(format!("{tasks} tasks, {speed:.0} tasks/s"));
        } else if self.last_line.elapsed() >= NOW_AND_THEN {
            self.last_line = Instant::now();
            eprintln!("created {tasks} tasks, {speed:.0} tasks/s");
        }
    }

    /// Removes the bar. Returns how long it all took.
    pub fn finish(self) -> Duration {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }

    /// Prints a line beside the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Runs something that prints on standard output, which may be the same terminal.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

pub fn per_second(tasks: u64, time: Duration) -> f64 {
    // No task count is so large that the conversion loses a digit that matters.
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    f64::from(tasks) / time.as_secs_f64().max(0.001)
}

fn bar(bytes: Option<u64>) -> anyhow::Result<ProgressBar> {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{wide_bar} {percent:>3}% {msg}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.set_message("0 tasks");
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_tells_where_to_go_on() {
        let account = Account { lines: 2000, unsure_until: None, tasks: 1990 };
        assert_eq!(
            account.advice(),
            "Accepted for sure: 1990 tasks, up to line 2000. Go on with --skip-lines 2000."
        );
        let account = Account { unsure_until: Some(3000), ..account };
        assert!(account.advice().contains("Lines 2001 to 3000 may have been accepted"));
    }

    #[test]
    fn no_time_is_no_division_by_zero() {
        assert!(per_second(1, Duration::ZERO).is_finite());
        assert!((per_second(10, Duration::from_secs(4)) - 2.5).abs() < 1e-9);
    }
}
