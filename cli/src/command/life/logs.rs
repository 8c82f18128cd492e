//! `disbatch logs ID`

use anyhow::bail;
use futures::future::try_join_all;
use serde_json::Value;

use crate::api::{ApiError, Client};
use crate::args::LogsOptions;
use crate::command::arrays;
use crate::command::life::connection::Connection;
use crate::command::life::follow::{Follower, STDERR, STDOUT, Stream, copy, is_not_found};
use crate::command::life::{advise, details};
use crate::output::{plain, say, visible};
use crate::status;

/// Prints a task's output: what there is, or all until its end.
pub async fn run(client: &Client, options: &LogsOptions) -> anyhow::Result<()> {
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
    match try_join_all(copies).await {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast::<ApiError>() {
            Ok(error) => of_array_or(&connection, options, &streams, error).await,
            Err(error) => Err(error),
        },
    }
}

/// The output of all tasks of an array, one after the other, if the id is that of an array; else `error`.
async fn of_array_or(
    connection: &Connection<'_>,
    options: &LogsOptions,
    streams: &[Stream],
    error: ApiError,
) -> anyhow::Result<()> {
    let id = &options.id;
    let array = arrays::in_place_of_task(connection.client, id, &error).await.map_err(advise)?;
    let Some(array) = array else { bail!(advise(error)) };
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
        let page =
            connection.persist(async || connection.client.get(&path, None).await).await.map_err(advise)?;
        let elements = page.get("elements").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for element in elements {
            of_element(connection, streams, element).await?;
        }
        let last = elements.last().and_then(|element| element.get("index")?.as_u64());
        let Some(last) = last else { return Ok(()) };
        from = last + 1;
    }
}

/// The output of one task of an array, after a line on standard error that says which it is.
async fn of_element(connection: &Connection<'_>, streams: &[Stream], element: &Value) -> anyhow::Result<()> {
    let Some(id) = element.get("id").and_then(Value::as_str) else { return Ok(()) };
    let word = status::of(element);
    let (index, value) = (plain(element.get("index")), plain(element.get("value")));
    let (value, word) = (visible(&value), if word.is_empty() { "not there" } else { &word });
    say(&format!("disbatch: element {index} ({value}), task {id}, {word}"));
    for stream in streams {
        match copy(connection, id, *stream, None, false).await {
            Err(error) if is_not_found(&error) => {} // Not made yet, or gone.
            outcome => drop(outcome?),
        }
    }
    Ok(())
}
