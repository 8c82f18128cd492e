//! `disbatch run QUEUE PARAMS`

use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use serde_json::{Map, Value};

use crate::api::{ApiError, Client};
use crate::args::RunOptions;
use crate::command::create_tasks;
use crate::command::life::connection::Connection;
use crate::command::life::follow::{Follower, STDERR, STDOUT, Stream};
use crate::command::life::{act, advise};
use crate::output::{print, say};
use crate::signals::Signals;
use crate::status;

/// Creates a task, shows its output and ends as it ends.
pub async fn run(client: &Client, options: RunOptions) -> anyhow::Result<ExitCode> {
    ensure!(options.task.array.is_none(), "run follows one task: --array is for create-task");
    let params = params(&options.params)?;
    let signals = Signals::listen().context("cannot listen for signals")?;
    let body = create_tasks::request(&options.queue, params, &options.task.clone().with_file()?);
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
    let error = advise(error);
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
    match act::Act::Cancel.send(client, id, Some("interrupted")).await {
        Ok(_) => eprintln!("disbatch: cancelling the task; ^C again does not wait for its end"),
        Err(error) => say(&format!("disbatch: the task could not be cancelled: {}", error.reason())),
    }
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
}
