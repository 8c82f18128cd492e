//! `disbatch bulk ACTION --queue QUEUE`

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::api::Client;
use crate::args::{BulkAction, BulkWhich, USAGE, seconds};
use crate::command::life::connection::Connection;
use crate::command::life::{advise, with_reason};
use crate::command::oid;
use crate::output::{plain, print, say};
use crate::signals::Signals;
use crate::status;

/// How often to ask how far a job is.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Does something with many tasks: counts them, asks, starts a job and shows how far it is.
pub async fn run(client: &Client, action: BulkAction, which: &BulkWhich) -> anyhow::Result<ExitCode> {
    if which.queue.is_none() && which.id.is_empty() {
        eprintln!("disbatch: which tasks? Give --queue QUEUE, --queue '*' for all queues, or --id ID");
        return Ok(ExitCode::from(USAGE));
    }
    let mut body = request(action, which);
    if which.preview || !which.yes {
        let mut preview = body.clone();
        preview.insert(".preview".to_owned(), 1.into());
        let answer = client.post("/bulk", &Value::Object(preview)).await.map_err(advise)?;
        // Counting may take too long for an answer.
        let count = answer.get("count").filter(|count| !count.is_null());
        let count = count.map_or_else(|| "very many".to_owned(), |count| plain(Some(count)));
        if which.preview {
            print(&format!("{count} tasks\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if answer.get("count").and_then(Value::as_u64) == Some(0) {
            print("0 tasks: nothing to do\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let of = match which.queue.as_deref() {
            None => String::new(),
            Some("*") => " of all queues".to_owned(),
            Some(queue) => format!(" of queue {queue}"),
        };
        let question = format!("{} {count} tasks{of}", action.name());
        if !agreed(&question)? {
            eprintln!("Nothing was done.");
            return Ok(ExitCode::from(crate::status::FAILED));
        }
    }
    body.extend(with_reason(which.reason.as_deref()));
    carry_out(client, ("/bulk", body), action, which.detach).await
}

/// Has a request begin a bulk job, and shows how far that is until it ends. With `detach`, only its id.
pub(in crate::command) async fn carry_out(
    client: &Client,
    (path, body): (&str, Map<String, Value>),
    action: BulkAction,
    detach: bool,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let answer = client.post(path, &Value::Object(body)).await.map_err(advise)?;
    let id = oid(answer.get("id"));
    if detach {
        print(&format!("{id}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        job = follow(client, &id) => report(action, &id, &job?),
        () = signals.first() => {
            eprintln!("disbatch: bulk job {id} goes on; end it with 'disbatch bulk-jobs --cancel {id}'");
            Ok(ExitCode::from(status::INTERRUPTED))
        }
    }
}

fn request(action: BulkAction, which: &BulkWhich) -> Map<String, Value> {
    let texts = [
        ("queue", &which.queue),
        ("node", &which.node),
        ("schedule", &which.schedule),
        ("group", &which.group),
        ("tenant", &which.tenant),
    ];
    let given = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.as_deref()?.into())));
    let mut filter: Map<String, Value> = given.collect();
    if !which.id.is_empty() {
        filter.insert("ids".to_owned(), json!(which.id));
    }
    if which.keep_archived {
        filter.insert("archive".to_owned(), false.into());
    }
    if !which.status.is_empty() {
        filter.insert("status".to_owned(), json!(which.status));
    }
    if let Some(age) = which.older_than {
        filter.insert("older_than".to_owned(), seconds::value(age));
    }
    Map::from_iter([
        ("action".to_owned(), action.name().into()),
        ("filter".to_owned(), Value::Object(filter)),
    ])
}

/// Asks somebody at a terminal.
pub(in crate::command) fn agreed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        bail!("nobody can be asked whether to {question}: add --yes to do it, or --preview to only count");
    }
    eprint!("Really {question}? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Waits until a job is no longer running. Returns what there is to say of it.
async fn follow(client: &Client, id: &str) -> anyhow::Result<Value> {
    let bar = std::io::stderr().is_terminal().then(bar).transpose()?;
    let connection = Connection::new(client);
    connection.answered();
    let path = format!("/bulk/{id}");
    let mut turns = tokio::time::interval(ASK_EVERY);
    let job = loop {
        turns.tick().await;
        let job = connection.persist(async || client.get(&path, None).await).await.map_err(advise)?;
        if let Some(bar) = &bar {
            let number = |name: &str| job.get(name).and_then(Value::as_u64).unwrap_or(0);
            bar.set_length(number("total"));
            bar.set_position(number("done") + number("skipped"));
        }
        if job.get("state").and_then(Value::as_str) != Some("running") {
            break job;
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(job)
}

fn bar() -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} tasks, {eta} left")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

fn report(action: BulkAction, id: &str, job: &Value) -> anyhow::Result<ExitCode> {
    let number = |name: &str| job.get(name).and_then(Value::as_u64).unwrap_or(0);
    let skipped = match number("skipped") {
        0 => String::new(),
        skipped => format!(", {skipped} left out as they had changed"),
    };
    print(&format!("{}: {} tasks{skipped}\n", action.name(), number("done")))?;
    let errors = job.get("errors").and_then(Value::as_array);
    for error in errors.into_iter().flatten() {
        say(&format!("{}: {}", plain(error.get("id")), plain(error.get("error"))));
    }
    let state = plain(job.get("state"));
    if state == "done" {
        return Ok(ExitCode::SUCCESS);
    }
    let error = plain(job.get("error"));
    let why = if error.is_empty() { String::new() } else { format!(": {error}") };
    say(&format!("disbatch: bulk job {id} {state}{why}"));
    Ok(ExitCode::from(crate::status::FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_what_was_given() {
        let mut which = BulkWhich { queue: Some("mail".into()), yes: true, ..BulkWhich::default() };
        let expected = json!({"action": "cancel", "filter": {"queue": "mail"}});
        assert_eq!(Value::Object(request(BulkAction::Cancel, &which)), expected);
        which.status = vec![1, -5];
        which.older_than = Some(Duration::from_secs(604_800));
        let expected = json!({"action": "delete",
            "filter": {"queue": "mail", "status": [1, -5], "older_than": 604_800}});
        assert_eq!(Value::Object(request(BulkAction::Delete, &which)), expected);
        which = BulkWhich {
            node: Some("n1".into()),
            schedule: Some("nightly".into()),
            group: Some("a/b".into()),
            tenant: Some("acme".into()),
            id: vec!["6b0003bb686c8275d8013333".into()],
            keep_archived: true,
            ..BulkWhich::default()
        };
        let expected = json!({"action": "delete", "filter": {
            "node": "n1", "schedule": "nightly", "group": "a/b", "tenant": "acme",
            "ids": ["6b0003bb686c8275d8013333"], "archive": false,
        }});
        assert_eq!(Value::Object(request(BulkAction::Delete, &which)), expected);
    }
}
