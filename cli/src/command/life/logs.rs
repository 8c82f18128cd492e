//! `disbatch logs ID`

use anyhow::bail;
use futures::future::try_join_all;
use serde_json::Value;

use crate::api::{ApiError, Client};
use crate::args::LogsOptions;
use crate::command::life::connection::Connection;
use crate::command::life::follow::{Follower, STDERR, STDOUT, Stream, copy};
use crate::command::life::{advise, details};

/// Prints a task's output: what there is, or all until its end.
///
/// # Errors
/// There is no such task or attempt, or the DCI cannot be reached.
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
        let task = connection.persist(async || details(client, &options.id).await).await.map_err(advise)?;
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
            Ok(error) => bail!(advise(error)),
            Err(error) => Err(error),
        },
    }
}
