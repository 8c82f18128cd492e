//! `disbatch run QUEUE PARAMS` and `disbatch wait ID ..`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use disbatch_values::text::percent;
use disbatch_wire::arrays::Array;
use futures::stream::{FuturesUnordered, StreamExt};
use indicatif::ProgressBar;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::Signals;
use crate::api::{ApiError, Client, read};
use crate::args::{BulkAction, RunOptions, WaitOptions};
use crate::command::life::follow::{Follower, STDERR, STDOUT, Stream};
use crate::command::life::{Connection, act};
use crate::command::{arrays, create_tasks};
use crate::output::{plain, print, progress_bar, say, visible};
use crate::status;

pub async fn run(client: &Client, options: RunOptions) -> anyhow::Result<ExitCode> {
    ensure!(options.task.array.is_none(), "run follows one task: --array is for create-task");
    let params = params(&options.params)?;
    let signals = Signals::listen().context("cannot listen for signals")?;
    let body = create_tasks::request(&options.queue, params, &options.task.clone().with_file()?)?;
    let connection = Connection::new(client);
    let answer = client.post("/tasks", &body).await.map_err(|error| not_created(error, &options))?;
    connection.answered();
    let ids = create_tasks::ids(&answer);
    let id = ids.first().context("the DCI did not say which task it has created")?;
    if options.detach {
        print(&format!("{id}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("disbatch: task {id}");
    let streams = [STDOUT, STDERR].map(|stream| Stream { raw: options.raw, ..stream });
    let mut follower = Follower::new(&connection, id, &streams, 0);
    let mut end = Box::pin(follower.until_the_end());
    let status = tokio::select! {
        status = &mut end => status?,
        () = signals.first() => {
            if !options.cancel_on_interrupt {
                return Ok(detach(id));
            }
            cancel(client, id).await;
            tokio::select! {
                status = &mut end => status?,
                () = signals.second() => return Ok(detach(id)),
            }
        }
    };
    if status != 1 {
        eprintln!("disbatch: task {id}: {}", status::word(status));
    }
    Ok(ExitCode::from(status::exit_code(status)))
}

/// One JSON object, or words with `=`, whose values are text.
fn params(words: &[String]) -> anyhow::Result<Map<String, Value>> {
    if let [json] = words
        && json.trim_start().starts_with('{')
    {
        return serde_json::from_str(json)
            .with_context(|| format!("the parameters are no JSON object: '{json}'"));
    }
    let mut params = Map::new();
    for word in words {
        let (name, text) = word
            .split_once('=')
            .with_context(|| format!("'{word}' is no parameter: write name=text, or one JSON object"))?;
        ensure!(!name.is_empty(), "'{word}' has no name before the '='");
        params.insert(name.to_owned(), text.into());
    }
    Ok(params)
}

fn not_created(error: ApiError, options: &RunOptions) -> anyhow::Error {
    // The words of Perl's DCI are about a list.
    let is_about_params = error.status().is_some() && error.reason().starts_with("'params' must be ");
    if is_about_params && params(&options.params).is_ok_and(|params| params.is_empty()) {
        return anyhow!("no parameters are given: write name=text, or one JSON object");
    }
    let lost = matches!(error, ApiError::Unreachable { .. });
    let error = anyhow::Error::from(error);
    if lost && options.task.idempotency_key.is_some() {
        return error.context("no answer; the same command can be repeated and creates no second task");
    }
    error
}

fn detach(id: &str) -> ExitCode {
    eprintln!("disbatch: the task goes on without you");
    eprintln!("disbatch: see its output with 'disbatch logs -f {id}', end it with 'disbatch cancel {id}'");
    ExitCode::from(status::INTERRUPTED)
}

async fn cancel(client: &Client, id: &str) {
    match act::send(client, BulkAction::Cancel, id, Some("interrupted")).await {
        Ok(_) => eprintln!("disbatch: cancelling the task; ^C again does not wait for its end"),
        Err(error) => say(&format!("disbatch: the task could not be cancelled: {}", error.reason())),
    }
}

const AT_ONCE: usize = 64;

const LONG_POLL: Duration = Duration::from_secs(50);

/// How long one request waits if somebody looks at the progress, or others wait for their turn.
const SHORT_POLL: Duration = Duration::from_secs(2);

pub async fn wait(client: &Client, options: &WaitOptions) -> anyhow::Result<ExitCode> {
    let mut ids = options.ids.clone();
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    let bar = progress_bar(Some(ids.len() as u64), "{wide_bar} {pos}/{len} ended, {elapsed} {msg}")?;
    let waiting = Waiting {
        connection: Connection::patient(client),
        turns: Semaphore::new(AT_ONCE),
        poll: if !bar.is_hidden() || ids.len() > AT_ONCE { SHORT_POLL } else { LONG_POLL },
        bar,
    };
    let waited = waiting.for_all(&ids, options.any);
    let outcome = match options.timeout {
        None => waited.await,
        Some(time) => tokio::time::timeout(time, waited).await.unwrap_or(Ok(None)),
    };
    waiting.bar.finish_and_clear();
    let code = outcome?;
    if code.is_none() {
        eprintln!("disbatch: not ended within the time of --timeout");
    }
    Ok(ExitCode::from(code.unwrap_or(status::TIMED_OUT)))
}

struct Waiting<'a> {
    connection: Connection<'a>,
    turns: Semaphore,
    poll: Duration,
    bar: ProgressBar,
}

impl Waiting<'_> {
    /// The exit status: with `any` that of the first task to end, else the first in the order of `ids` that is not 0.
    async fn for_all(&self, ids: &[String], any: bool) -> anyhow::Result<Option<u8>> {
        let ends =
            ids.iter().enumerate().map(|(place, id)| async move { (place, id, self.end_of(id).await) });
        let mut ends: FuturesUnordered<_> = ends.collect();
        let mut codes = vec![0; ids.len()];
        while let Some((place, id, end)) = ends.next().await {
            let (status, told) = end?;
            self.bar.suspend(|| print(&format!("{id} {told}\n")))?;
            if any {
                return Ok(Some(status::exit_code(status)));
            }
            self.bar.inc(1);
            codes[place] = status::exit_code(status);
        }
        Ok(Some(codes.into_iter().find(|code| *code != 0).unwrap_or(0)))
    }

    /// How a task or an array ends: the status that the exit status is made of, and words for people.
    async fn end_of(&self, id: &str) -> Result<(i64, String), ApiError> {
        loop {
            // It is never closed, so that there always is a turn.
            let turn = self.turns.acquire().await;
            let state = match self.connection.state(id, None, self.poll).await {
                Ok(state) => state,
                Err(error) => {
                    let client = self.connection.client;
                    let array = arrays::in_place_of_task(client, id, &error).await?.ok_or(error)?;
                    drop(turn);
                    return self.end_of_array(id, &array).await;
                }
            };
            drop(turn);
            if let Some(status) = status::code(&state).filter(|status| status::has_ended(*status)) {
                return Ok((status, status::word(status)));
            }
            if let Some(progress) = state.get("progress") {
                self.bar.set_message(progress_text(progress));
            }
        }
    }

    async fn end_of_array(&self, id: &str, array: &Array) -> Result<(i64, String), ApiError> {
        say(&format!("disbatch: {id} is {}", arrays::what(array)));
        let mut turns = tokio::time::interval(SHORT_POLL);
        loop {
            turns.tick().await;
            let path = format!("/arrays/{id}?.limit=1");
            let array: Array = read(self.connection.get(&path).await?).unwrap_or_default();
            if array.state == "done" {
                return Ok((arrays::worst(&array), arrays::summary(&array)));
            }
            self.bar.set_message(visible(&arrays::summary(&array)));
        }
    }
}

/// How far a plugin says it is: `33.3 % one file of three`.
pub fn progress_text(progress: &Value) -> String {
    let percent =
        progress.get("percent").and_then(Value::as_f64).map(|so_far| percent(so_far, 1)).unwrap_or_default();
    let message = plain(progress.get("message"));
    let text = format!("{percent} {message}");
    visible(text.trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(words: &[&str]) -> anyhow::Result<Value> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        params(&words).map(Value::Object)
    }

    #[test]
    fn parameters_are_json_or_words() {
        assert_eq!(words(&[r#"{"n":1}"#]).unwrap(), json!({"n": 1}));
        assert_eq!(words(&["command=echo a=b", "n=1"]).unwrap(), json!({"command": "echo a=b", "n": "1"}));
        assert_eq!(words(&[]).unwrap(), json!({}));
        for wrong in [&["{nope"][..], &["command"], &["=x"], &["a=1", "{}"]] {
            assert!(words(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn progress_is_a_line() {
        assert_eq!(
            progress_text(&json!({"percent": 40, "message": "half\u{1b}[2J"})),
            "40 % half\u{fffd}[2J"
        );
        assert_eq!(progress_text(&json!({"percent": 33.333_333_333})), "33.3 %");
        assert_eq!(progress_text(&json!({"message": "x"})), "x");
        assert_eq!(progress_text(&Value::Null), "");
    }
}
