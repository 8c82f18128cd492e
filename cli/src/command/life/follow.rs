//! A task's output, to the byte, and `disbatch logs ID`

use std::time::Duration;

use anyhow::{Context, bail};
use disbatch_wire::arrays::{Array, ArrayElement};
use disbatch_wire::explanations::Explained;
use futures::future::try_join_all;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use crate::api::{ApiError, Client, query, read};
use crate::args::LogsOptions;
use crate::command::arrays;
use crate::command::life::show::asks;
use crate::command::life::{Connection, FIRST_PAUSE, details};
use crate::output::{TaskOutput, plain, say, visible};
use crate::status;

/// How long a task waits before it is told why.
const WITHOUT_A_WORD: Duration = Duration::from_secs(5);

const LONG_POLL: Duration = Duration::from_secs(50);

/// What the history of a task says of an attempt whose runner was told to stop.
const INTERRUPTED: &str = "interrupted, to go on elsewhere";

/// The header with the byte that a followed answer begins with.
const BEGIN: &str = "disbatch-from";

#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub name: &'static str,
    pub to_stderr: bool,
    /// Whether a terminal gets every byte of it.
    pub raw: bool,
}

pub const STDOUT: Stream = Stream { name: "stdout", to_stderr: false, raw: false };

pub const STDERR: Stream = Stream { name: "stderr", to_stderr: true, raw: false };

/// Copies a stream: of this attempt, or of the latest one. Goes on where it was if the connection is lost.
/// With `follow` it ends with the attempt. Returns how many bytes there were.
pub async fn copy(
    connection: &Connection<'_>,
    id: &str,
    stream: Stream,
    attempt: Option<i64>,
    follow: bool,
) -> anyhow::Result<u64> {
    let attempt = attempt.map(|attempt| attempt.to_string());
    let mut offset: u64 = 0;
    let mut output = TaskOutput::new(stream.to_stderr, stream.raw);
    let mut pause = FIRST_PAUSE;
    loop {
        let follows = |value: String| follow.then_some(value);
        let options = query([
            (".follow", follows("1".to_owned())),
            (".attempt", attempt.clone()),
            (".from", follows(offset.to_string())),
        ]);
        let path = format!("/tasks/{id}/{}{options}", stream.name);
        let lost = match connection.client.stream(&path, offset).await {
            Ok(response) => {
                connection.answered();
                let before = offset;
                let lost = copy_answer(response, &mut offset, &mut output).await?;
                if offset > before {
                    pause = FIRST_PAUSE;
                }
                lost
            }
            // There is nothing beyond what we have.
            Err(error) if error.status() == Some(StatusCode::RANGE_NOT_SATISFIABLE) => None,
            Err(error) => Some(error),
        };
        let Some(error) = lost else { return Ok(offset) };
        connection.pause(error, &mut pause).await?;
    }
}

/// Copies one answer from byte `offset` of the stream on. Returns why it ended early, if it did.
async fn copy_answer(
    mut response: Response,
    offset: &mut u64,
    output: &mut TaskOutput,
) -> anyhow::Result<Option<ApiError>> {
    let url = response.url().to_string();
    let mut position = match response.status() {
        StatusCode::PARTIAL_CONTENT => range_start(&response).unwrap_or(*offset),
        // Everything from the beginning, whatever was asked for, if it does not say otherwise.
        _ => response.headers().get(BEGIN).and_then(|from| from.to_str().ok()?.parse().ok()).unwrap_or(0),
    };
    if position > *offset {
        eprintln!("disbatch: {} bytes of the output are missing here", position - *offset);
        *offset = position;
    }
    loop {
        let bytes = match response.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(ApiError::broken_off("getting", url, &error))),
        };
        let end = position + bytes.len() as u64;
        let known = usize::try_from(*offset - position.min(*offset)).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) {
            output.write(new)?;
            *offset = end;
        }
        position = end;
    }
}

/// The first byte of an answer with a part: `bytes 100-199/200`.
fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

#[derive(Debug)]
pub struct Follower<'a> {
    connection: &'a Connection<'a>,
    id: &'a str,
    streams: &'a [Stream],
    /// The last attempt whose output has been shown.
    shown: i64,
    /// Whether that was done here.
    has_begun: bool,
    /// Whether output has been shown that belongs to no numbered attempt.
    uncounted_shown: bool,
    said: String,
}

impl<'a> Follower<'a> {
    /// Begins after the attempt `shown`; 0 shows all.
    pub fn new(connection: &'a Connection<'a>, id: &'a str, streams: &'a [Stream], shown: i64) -> Self {
        Self { connection, id, streams, shown, has_begun: false, uncounted_shown: false, said: String::new() }
    }

    pub async fn until_the_end(&mut self) -> anyhow::Result<i64> {
        loop {
            let client = self.connection.client;
            let task = self.connection.persist(async || details(client, self.id).await).await?;
            let status = status::code(&task).context("the task has no status")?;
            let shown = self.show(&task, status).await?;
            if status::has_ended(status) {
                return Ok(status);
            }
            // After output, the task is another one than it was when it was looked at.
            if !shown {
                self.wait(&task, status).await?;
            }
        }
    }

    /// Shows the attempts that have not been shown, the current one while it runs.
    async fn show(&mut self, task: &Value, status: i64) -> anyhow::Result<bool> {
        // A claimed or queued task may be given back; its latest attempt is none then.
        let has_run = status::has_ended(status) || matches!(status, 0 | -7);
        let attempt = task.get("attempt").and_then(Value::as_i64).unwrap_or(0);
        if !has_run || (attempt == 0 && (self.uncounted_shown || status == -7)) {
            return Ok(false);
        }
        if attempt == 0 {
            // A runner of Perl Disbatch does not count.
            self.uncounted_shown = true;
            self.copy_all(None).await?;
            return Ok(true);
        }
        let first = self.shown + 1;
        for attempt in first..=attempt {
            if self.has_begun {
                eprintln!("disbatch: attempt {attempt}");
            }
            self.copy_all(Some(attempt)).await?;
            self.shown = attempt;
            self.has_begun = true;
        }
        Ok(first <= attempt)
    }

    async fn copy_all(&self, attempt: Option<i64>) -> anyhow::Result<()> {
        let copies = self.streams.iter().map(|stream| async move {
            match copy(self.connection, self.id, *stream, attempt, true).await {
                // An attempt that was given back before it ran, or a task that is gone: which is seen next.
                Err(error) if is_not_found(&error) => Ok(0),
                outcome => outcome,
            }
        });
        try_join_all(copies).await?;
        Ok(())
    }

    async fn wait(&mut self, task: &Value, status: i64) -> anyhow::Result<()> {
        if status == -7 {
            let said = deferred(task, Some(self.shown).filter(|_| self.has_begun));
            self.say(&said);
        }
        let mut time = WITHOUT_A_WORD;
        loop {
            let state = self.connection.state(self.id, Some(status), time).await?;
            if status::code(&state) != Some(status) {
                return Ok(());
            }
            time = LONG_POLL;
            if matches!(status, -2 | -4) {
                self.explain().await;
            } else if status == 0 {
                // Another attempt may run by now.
                return Ok(());
            }
        }
    }

    async fn explain(&mut self) {
        let path = format!("/tasks/{}/explain", self.id);
        if let Ok(answer) = self.connection.client.get(&path, None).await
            && let Ok(explained) = read::<Explained>(answer)
        {
            self.say(&explained.summary);
        }
    }

    fn say(&mut self, text: &str) {
        if self.said != text {
            text.clone_into(&mut self.said);
            say(&format!("disbatch: {text}"));
        }
    }
}

/// What a task waits for that is deferred: for an answer, or for its time, after the attempt that was shown.
fn deferred(task: &Value, shown: Option<i64>) -> String {
    let asks = asks(task);
    if !asks.is_empty() {
        return format!("the task waits for an answer: {asks}");
    }
    let at = plain(task.get("run_at"));
    let until = if at.is_empty() { String::new() } else { format!(" until {at} UTC") };
    let last = task.get("history").and_then(Value::as_array).and_then(|history| history.last());
    let note = last.and_then(|last| last.get("note")).and_then(Value::as_str).unwrap_or_default();
    match shown {
        None => format!("the task waits{until}"),
        Some(n) if note == INTERRUPTED => {
            format!("attempt {n} was interrupted; the task waits{until} for the next one")
        }
        Some(n) => format!("attempt {n} did not succeed; the task waits{until} for the next one"),
    }
}

pub fn is_not_found(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<ApiError>().and_then(ApiError::status);
    status == Some(StatusCode::NOT_FOUND)
}

pub async fn logs(client: &Client, options: &LogsOptions) -> anyhow::Result<()> {
    let streams = match (options.both, options.stderr) {
        (true, _) => vec![STDOUT, STDERR],
        // The only stream can be piped and paged as any other output.
        (false, true) => vec![Stream { to_stderr: false, ..STDERR }],
        (false, false) => vec![STDOUT],
    };
    let streams: Vec<Stream> =
        streams.into_iter().map(|stream| Stream { raw: options.raw, ..stream }).collect();
    let connection = Connection::new(client);
    if options.follow {
        let task = match connection.persist(async || details(client, &options.id).await).await {
            Ok(task) => task,
            Err(error) => return of_array_or(&connection, options, &streams, error).await,
        };
        let number = |name: &str| task.get(name).and_then(Value::as_i64);
        let shown = match (number("attempt").unwrap_or(0), number("status")) {
            // It is to run once more: that is what is waited for.
            (attempt, Some(-2 | -4)) => attempt,
            (attempt, _) => (attempt - 1).max(0),
        };
        Follower::new(&connection, &options.id, &streams, shown).until_the_end().await?;
        return Ok(());
    }
    let attempt = options.attempt.map(i64::from);
    let copies = streams.iter().map(|stream| copy(&connection, &options.id, *stream, attempt, false));
    let Err(error) = try_join_all(copies).await else { return Ok(()) };
    of_array_or(&connection, options, &streams, error.downcast::<ApiError>()?).await
}

/// The output of all tasks of an array, one after the other, if the id is that of an array; else `error`.
async fn of_array_or(
    connection: &Connection<'_>,
    options: &LogsOptions,
    streams: &[Stream],
    error: ApiError,
) -> anyhow::Result<()> {
    let id = &options.id;
    let array = arrays::in_place_of_task(connection.client, id, &error).await?;
    let Some(array) = array else { return Err(error.into()) };
    let what = arrays::what(&array);
    if options.follow || options.attempt.is_some() {
        bail!(
            "{id} is {what}: --follow and --attempt are for one task; 'disbatch array show {id} --elements' lists them"
        );
    }
    say(&format!("disbatch: {id} is {what}"));
    let mut from = 0;
    loop {
        let path = format!("/arrays/{id}?.from={from}&.limit=100");
        let page = connection.get(&path).await?;
        let elements = read::<Array>(page)?.elements.unwrap_or_default();
        for element in &elements {
            of_element(connection, streams, element).await?;
        }
        let Some(last) = elements.last() else { return Ok(()) };
        from = last.index + 1;
    }
}

/// The output of one task of an array, after a line on standard error that says which it is.
async fn of_element(
    connection: &Connection<'_>,
    streams: &[Stream],
    ArrayElement { id, index, value, status }: &ArrayElement,
) -> anyhow::Result<()> {
    let (value, word) = (visible(&plain(value.as_ref())), arrays::standing(*status));
    say(&format!("disbatch: element {index} ({value}), task {id}, {word}"));
    for stream in streams {
        match copy(connection, id, *stream, None, false).await {
            Err(error) if is_not_found(&error) => {} // Not made yet, or gone.
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_deferred_task_waits_for_is_no_failure_unless_it_was_one() {
        let asks = json!({ "awaiting": { "title": "Go on?", "who": ["ann"] }, "run_at": "T" });
        assert_eq!(deferred(&asks, Some(1)), "the task waits for an answer: Go on? (of ann)");
        let interrupted = json!({ "history": [{ "note": INTERRUPTED }] });
        let expected = "attempt 1 was interrupted; the task waits for the next one";
        assert_eq!(deferred(&interrupted, Some(1)), expected);
        let failed = json!({ "run_at": "T", "history": [{ "note": INTERRUPTED }, { "status": -7 }] });
        let expected = "attempt 2 did not succeed; the task waits until T UTC for the next one";
        assert_eq!(deferred(&failed, Some(2)), expected);
        assert_eq!(deferred(&failed, None), "the task waits until T UTC");
    }
}
