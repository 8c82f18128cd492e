//! `disbatch create-tasks QUEUE --file FILE`

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, channel};

use crate::Signals;
use crate::api::{ApiError, Client};
use crate::args::{FileOptions, TaskOptions};
use crate::command::create_tasks::ids;
use crate::input::is_stdin;
use crate::output::{Progress, is_broken_pipe, print, say};
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
    let batches = read(input, options.skip_lines, options.batch);
    let account = Account { lines: options.skip_lines, ..Account::default() };
    let template = match size {
        Some(_) => "{wide_bar} {percent:>3}% {msg}, {eta} left",
        None => "{spinner} {msg}",
    };
    let progress = Progress::start(size, template)?;
    progress.bar.set_message("0 tasks");
    let mut upload = Upload { client, queue, task, print_ids: options.ids, account, progress, signals };
    let outcome = upload.send_all(batches).await;
    let account = upload.account;
    upload.progress.bar.finish_and_clear();
    let time = upload.progress.bar.elapsed();
    let status = match outcome {
        Ok(true) => {
            let speed = per_second(account.tasks, time);
            let seconds = time.as_secs_f64();
            let tasks = account.tasks;
            print(&format!(
                "Created {tasks} tasks in queue {queue} in {seconds:.1} s ({speed:.0} tasks/s)\n"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        Ok(false) => {
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
    if is_stdin(path) {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    // A pipe with a name has no size.
    let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((Box::new(file), size))
}

/// The request for a batch. One key cannot be that of several requests, so that each gets its own of it: the same
/// file in the same batches has the same keys again.
fn body(queue: &str, batch: &Batch, task: &TaskOptions) -> serde_json::Result<String> {
    let mut options = task.fields()?;
    if let Some(key) = &task.idempotency_key {
        options.insert(".idempotency_key".to_owned(), format!("{key}/{}", batch.first_line).into());
    }
    let options: String =
        options.iter().map(|(name, value)| format!(",{}:{value}", Value::from(name.as_str()))).collect();
    Ok(format!(r#"{{"queue":{},"params":{}{options}}}"#, Value::from(queue), batch.params))
}

#[derive(Debug, Default)]
struct Account {
    /// Lines whose tasks have been created, together with those that were left out at the start.
    lines: u64,
    /// The last line of a request of which nobody knows what came.
    unsure_until: Option<u64>,
    tasks: u64,
}

impl Account {
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
    /// Returns whether it was not interrupted.
    async fn send_all(&mut self, mut batches: Receiver<anyhow::Result<Batch>>) -> anyhow::Result<bool> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.signals.first() => return Ok(false),
                next = batches.recv() => next,
            };
            let Some(batch) = next.transpose()? else { return Ok(true) };
            if batch.tasks > 0 && !self.send(&batch).await? {
                return Ok(false);
            }
            self.account.lines = batch.last_line;
        }
    }

    /// Sends one batch, and returns the same. Interrupted without an answer, the account keeps that its fate is not known.
    async fn send(&mut self, batch: &Batch) -> anyhow::Result<bool> {
        let body = body(self.queue, batch, self.task)?;
        self.account.unsure_until = Some(batch.last_line);
        let mut answer = std::pin::pin!(self.client.post_json("/tasks", body));
        let mut goes_on = true;
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = self.signals.first() => {
                let note = "waiting for the answer to the last request; ^C again does not";
                self.progress.bar.suspend(|| eprintln!("{note}"));
                goes_on = false;
                tokio::select! {
                    answer = &mut answer => answer,
                    () = self.signals.second() => return Ok(false),
                }
            }
        };
        if answer.as_ref().is_err_and(created_nothing) {
            self.account.unsure_until = None;
        }
        let answer = answer.with_context(|| format!("lines {} to {}", batch.first_line, batch.last_line))?;
        self.accept(batch, &ids(&answer))?;
        Ok(goes_on)
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
        let (tasks, bar) = (self.account.tasks, &self.progress.bar);
        let said = format!("{tasks} tasks, {:.0} tasks/s", per_second(tasks, bar.elapsed()));
        self.progress.tell(|| format!("created {said}"));
        bar.set_position(batch.bytes_read);
        bar.set_message(said);
        if self.print_ids {
            let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
            bar.suspend(|| print(&lines))?;
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

fn per_second(tasks: u64, time: Duration) -> f64 {
    // No task count is so large that the conversion loses a digit that matters.
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    f64::from(tasks) / time.as_secs_f64().max(0.001)
}

/// A request has at most so many bytes of parameters: a DCI takes bodies up to 16 MiB.
const MOST_BYTES: usize = 8 << 20;

const AHEAD: usize = 2;

#[derive(Debug, PartialEq, Eq)]
struct Batch {
    /// A JSON array of the lines' objects, each as it was written.
    params: String,
    tasks: usize,
    /// The number of the first line that is not of an earlier batch; the first of all is 1.
    first_line: u64,
    last_line: u64,
    bytes_read: u64,
}

/// Collects lines of JSON objects into requests: reads them in a thread of its own, which does not keep the program from ending.
///
/// After an error nothing follows. Lines before the last good batch are sent; nothing of the batch with the error.
fn read(
    input: impl Read + Send + 'static,
    skip_lines: u64,
    most_lines: u32,
) -> Receiver<anyhow::Result<Batch>> {
    let (sender, receiver) = channel(AHEAD);
    std::thread::spawn(move || {
        let mut lines = Lines { input: BufReader::new(input), line: 0, bytes: 0, held: None };
        let skipped = (0..skip_lines).try_for_each(|_| match lines.next() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                Err(anyhow::anyhow!("--skip-lines {skip_lines}: there are only {} lines", lines.line))
            }
            Err(error) => Err(error),
        });
        if let Err(error) = skipped {
            let _nobody_listens = sender.blocking_send(Err(error));
            return;
        }
        while let Some(batch) = lines.batch(most_lines).transpose() {
            let last = batch.is_err();
            if sender.blocking_send(batch).is_err() || last {
                return;
            }
        }
    });
    receiver
}

struct Lines<R> {
    input: BufReader<R>,
    line: u64,
    bytes: u64,
    /// A line that did not fit any more.
    held: Option<Vec<u8>>,
}

impl<R: Read> Lines<R> {
    fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if let Some(held) = self.held.take() {
            line = held;
        } else {
            let context = || format!("cannot read after line {}", self.line);
            if self.input.read_until(b'\n', &mut line).with_context(context)? == 0 {
                return Ok(None);
            }
        }
        self.line += 1;
        self.bytes += u64::try_from(line.len())?;
        Ok(Some(line))
    }

    /// The next lines. Empty lines count as lines and are no tasks.
    fn batch(&mut self, most_lines: u32) -> anyhow::Result<Option<Batch>> {
        let first_line = self.line + 1;
        let mut params = String::from("[");
        let mut tasks = 0;
        while self.line - (first_line - 1) < u64::from(most_lines) {
            let Some(line) = self.next()? else { break };
            if tasks > 0 && params.len() + line.len() > MOST_BYTES {
                self.line -= 1;
                self.bytes -= u64::try_from(line.len())?;
                self.held = Some(line);
                break;
            }
            let text = check(&line).with_context(|| format!("line {}", self.line))?;
            if !text.is_empty() {
                params.push_str(if tasks > 0 { "," } else { "" });
                params.push_str(text);
                tasks += 1;
            }
        }
        params.push(']');
        let batch = Batch { params, tasks, first_line, last_line: self.line, bytes_read: self.bytes };
        Ok((self.line >= first_line).then_some(batch))
    }
}

/// The line as a JSON object with keys, or as nothing.
fn check(line: &[u8]) -> anyhow::Result<&str> {
    let text = std::str::from_utf8(line).context("not UTF-8")?.trim();
    if text.is_empty() {
        return Ok(text);
    }
    ensure!(text.starts_with('{'), "not a JSON object");
    let object: HashMap<String, IgnoredAny> = serde_json::from_str(text).context("not a JSON object")?;
    ensure!(!object.is_empty(), "a task needs at least one parameter");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

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

    async fn all(text: &'static str, skip_lines: u64, most_lines: u32) -> Vec<Result<Batch, String>> {
        let mut receiver = read(Cursor::new(text), skip_lines, most_lines);
        let mut batches = Vec::new();
        while let Some(batch) = receiver.recv().await {
            batches.push(batch.map_err(|error| format!("{error:#}")));
        }
        batches
    }

    fn batch(params: &str, tasks: usize, lines: (u64, u64), bytes_read: u64) -> Result<Batch, String> {
        Ok(Batch { params: params.into(), tasks, first_line: lines.0, last_line: lines.1, bytes_read })
    }

    #[tokio::test]
    async fn lines_are_batched_as_they_are() {
        let text = "{\"a\":12345678901234567890123}\n\n{\"b\": 1}\r\n{\"c\":1}";
        assert_eq!(
            all(text, 0, 2).await,
            [
                batch("[{\"a\":12345678901234567890123}]", 1, (1, 2), 31),
                batch("[{\"b\": 1},{\"c\":1}]", 2, (3, 4), 48)
            ]
        );
        assert_eq!(all(text, 3, 1).await, [batch("[{\"c\":1}]", 1, (4, 4), 48)]);
        assert_eq!(all("", 0, 1).await, []);
    }

    #[tokio::test]
    async fn a_bad_line_takes_its_batch_along() {
        let batches = all("{\"a\":1}\n{\"b\":1}\n{\"c\":1}\n[1]\n{\"d\":1}\n", 0, 2).await;
        assert_eq!(batches[0], batch("[{\"a\":1},{\"b\":1}]", 2, (1, 2), 16));
        assert_eq!(batches[1..], [Err("line 4: not a JSON object".to_owned())]);
        for (text, message) in [
            ("{}", "line 1: a task needs"),
            ("{\"a\"", "line 1: not a JSON object: EOF"),
            ("\n{\"a\":1} x", "line 2: not a JSON object: trailing"),
        ] {
            let error = all(text, 0, 10).await.remove(0).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[tokio::test]
    async fn there_must_be_as_many_lines_as_are_left_out() {
        let error = all("{\"a\":1}\n", 2, 10).await.remove(0).unwrap_err();
        assert_eq!(error, "--skip-lines 2: there are only 1 lines");
        assert_eq!(all("{\"a\":1}\n", 1, 10).await, []);
    }

    #[tokio::test]
    async fn large_lines_do_not_share_a_request() {
        let long = format!("{{\"a\":\"{}\"}}\n", "x".repeat(5 << 20));
        let mut receiver = read(Cursor::new(long.repeat(3)), 0, 1000);
        let mut ends = Vec::new();
        while let Some(batch) = receiver.recv().await {
            let batch = batch.unwrap();
            ends.push((batch.first_line, batch.last_line, batch.tasks));
        }
        assert_eq!(ends, [(1, 1, 1), (2, 2, 1), (3, 3, 1)]);
    }
}
