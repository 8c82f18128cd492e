//! `disbatch bulk ACTION --queue QUEUE` and `disbatch bulk-jobs`

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use disbatch_wire::bulk::{BulkAction, BulkFilter, BulkJob, NewBulk, NewBulkAnswer};
use serde::Serialize;

use crate::Signals;
use crate::api::{Client, read};
use crate::args::{BulkWhich, USAGE, seconds};
use crate::command::life::Connection;
use crate::command::{Session, oid};
use crate::output::{Column, Cut, Table, known, print, progress_bar, say};
use crate::status;

const ASK_EVERY: Duration = Duration::from_millis(500);

/// A job tells of so many tasks at most why they could not be acted on.
const MOST_ERRORS: usize = 10;

pub async fn run(client: &Client, action: BulkAction, which: &BulkWhich) -> anyhow::Result<ExitCode> {
    if which.queue.is_none() && which.id.is_empty() {
        eprintln!("disbatch: which tasks? Give --queue QUEUE, --queue '*' for all queues, or --id ID");
        return Ok(ExitCode::from(USAGE));
    }
    let request = request(action, which);
    if which.preview || !which.yes {
        let preview = NewBulk { preview: Some(1), reason: None, ..request.clone() };
        let answer: NewBulkAnswer = serde_json::from_value(client.post("/bulk", &preview).await?)?;
        // Counting may take too long for an answer.
        let count = answer.count.map_or_else(|| "very many".to_owned(), |count| count.to_string());
        if which.preview {
            print(&format!("{count} tasks\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if answer.count == Some(0) {
            print("0 tasks: nothing to do\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let of = match which.queue.as_deref() {
            None => String::new(),
            Some("*") => " of all queues".to_owned(),
            Some(queue) => format!(" of queue {queue}"),
        };
        let question = format!("{} {count} tasks{of}", action.as_str());
        if !agreed(&question)? {
            eprintln!("Nothing was done.");
            return Ok(ExitCode::from(crate::status::FAILED));
        }
    }
    carry_out(client, ("/bulk", &request), action, which.detach).await
}

/// Has a request begin a bulk job, and shows how far that is until it ends. With `detach`, only its id.
pub(in crate::command) async fn carry_out(
    client: &Client,
    (path, body): (&str, &impl Serialize),
    action: BulkAction,
    detach: bool,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let answer = client.post(path, body).await?;
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

fn request(action: BulkAction, which: &BulkWhich) -> NewBulk {
    let some = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec());
    let filter = BulkFilter {
        queue: which.queue.clone(),
        status: (!which.status.is_empty()).then(|| which.status.clone()),
        older_than: which.older_than.map(seconds::value),
        ids: some(&which.id),
        node: which.node.clone(),
        schedule: which.schedule.clone(),
        group: which.group.clone(),
        tenant: which.tenant.clone(),
        tags: some(&which.tags.tag),
        any_tags: some(&which.tags.any_tag),
        created_since: which.created.created_since.as_ref().map(|when| when.text().into()),
        created_until: which.created.created_until.as_ref().map(|when| when.text().into()),
        archive: which.keep_archived.then_some(false),
    };
    NewBulk { action, filter: Some(filter), reason: which.reason.clone(), preview: None }
}

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

async fn follow(client: &Client, id: &str) -> anyhow::Result<BulkJob> {
    let bar = progress_bar(Some(0), "{wide_bar} {pos}/{len} tasks, {eta} left")?;
    let connection = Connection::new(client);
    connection.answered();
    let path = format!("/bulk/{id}");
    let mut turns = tokio::time::interval(ASK_EVERY);
    loop {
        turns.tick().await;
        let job: BulkJob = read(connection.get(&path).await?)?;
        bar.set_length(number(job.total.unwrap_or(0)));
        bar.set_position(number(job.done + job.skipped));
        if job.state != "running" {
            bar.finish_and_clear();
            return Ok(job);
        }
    }
}

fn number(tasks: i64) -> u64 {
    u64::try_from(tasks).unwrap_or(0)
}

fn done(action: BulkAction, job: &BulkJob) -> String {
    let skipped = match job.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} left out, as they had changed or could not be acted on"),
    };
    format!("{}: {} tasks{skipped}\n", action.as_str(), job.done)
}

fn report(action: BulkAction, id: &str, job: &BulkJob) -> anyhow::Result<ExitCode> {
    print(&done(action, job))?;
    for error in &job.errors {
        say(&format!("{}: {}", error.id, error.error));
    }
    if job.errors.len() == MOST_ERRORS {
        say(&format!("disbatch: these are the first {MOST_ERRORS}; there may be more"));
    }
    if job.state == "done" {
        return Ok(ExitCode::SUCCESS);
    }
    let why = job.failure.as_ref().map(|failure| format!(": {failure}")).unwrap_or_default();
    say(&format!("disbatch: bulk job {id} {}{why}", job.state));
    Ok(ExitCode::from(crate::status::FAILED))
}

const TABLE: Table<BulkJob> = Table {
    columns: &[
        Column { title: "ID", cell: |job| job.id.clone(), cut: Cut::Late },
        Column { title: "Action", cell: |job| job.action.clone(), cut: Cut::Never },
        Column { title: "State", cell: |job| job.state.clone(), cut: Cut::Never },
        Column { title: "Total", cell: |job| known(&job.total), cut: Cut::Never },
        Column { title: "Done", cell: |job| job.done.to_string(), cut: Cut::Never },
        Column { title: "Skipped", cell: |job| job.skipped.to_string(), cut: Cut::Never },
        Column { title: "Reason", cell: |job| known(&job.reason), cut: Cut::Early },
    ],
    noun: "bulk jobs",
};

pub async fn jobs(session: &Session, cancel: Option<String>) -> anyhow::Result<()> {
    if let Some(id) = cancel {
        session.client.post(&format!("/bulk/{id}/cancel"), &serde_json::json!({})).await?;
        return print(&format!("Cancelled bulk job {id}; what it has done is not undone\n"));
    }
    session.print_list("/bulk", &TABLE).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{CreatedFilter, TagFilter, When};

    fn body(action: BulkAction, which: &BulkWhich) -> Value {
        serde_json::to_value(request(action, which)).unwrap()
    }

    #[test]
    fn the_filter_has_what_was_given() {
        let mut which = BulkWhich { queue: Some("mail".into()), yes: true, ..BulkWhich::default() };
        let expected = json!({"action": "cancel", "filter": {"queue": "mail"}});
        assert_eq!(body(BulkAction::Cancel, &which), expected);
        which.status = vec![1, -5];
        which.older_than = Some(Duration::from_secs(604_800));
        let expected = json!({"action": "delete",
            "filter": {"queue": "mail", "status": [1, -5], "older_than": 604_800}});
        assert_eq!(body(BulkAction::Delete, &which), expected);
        which = BulkWhich {
            node: Some("n1".into()),
            schedule: Some("nightly".into()),
            group: Some("a/b".into()),
            tenant: Some("acme".into()),
            tags: TagFilter { tag: vec!["a".into()], any_tag: vec!["b".into(), "c".into()] },
            created: CreatedFilter {
                created_since: Some(When::Ago(Duration::from_secs(3_600))),
                created_until: Some(When::At("2026-11-20T00:00:00Z".into())),
            },
            id: vec!["6b0003bb686c8275d8013333".into()],
            keep_archived: true,
            ..BulkWhich::default()
        };
        let expected = json!({"action": "delete", "filter": {
            "node": "n1", "schedule": "nightly", "group": "a/b", "tenant": "acme", "tags": ["a"], "any_tags": ["b", "c"],
            "created_since": "3600s", "created_until": "2026-11-20T00:00:00Z", "ids": ["6b0003bb686c8275d8013333"], "archive": false,
        }});
        assert_eq!(body(BulkAction::Delete, &which), expected);
    }
}
