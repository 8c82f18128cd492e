//! What happened: `disbatch history ID`, `disbatch attempts ID`, `disbatch audit` and `disbatch at TIME`; and `disbatch bundle ID`, all of an
//! attempt

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use disbatch_wire::history::{
    AuditEntry, AuditObject, AuditSearch, Moment, MomentEvent, MomentSearch, RanThen,
};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Client, address, read};
use crate::args::{BundleOptions, Format, seconds};
use crate::command::Session;
use crate::command::life::details;
use crate::output::{Column, Cut, Screen, Table, known, plain, print, say, visible};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |entry| plain(entry.get("at")), cut: Cut::Never },
        Column { title: "Status", cell: status::of, cut: Cut::Never },
        Column { title: "Attempt", cell: |entry| plain(entry.get("attempt")), cut: Cut::Never },
        Column { title: "Node", cell: |entry| plain(entry.get("node")), cut: Cut::Early },
        Column { title: "Note", cell: |entry| plain(entry.get("note")), cut: Cut::Early },
    ],
    noun: "changes",
};

pub async fn statuses(session: &Session, id: &str) -> anyhow::Result<()> {
    let task = details(&session.client, id).await?;
    TABLE.print(task.get("history").unwrap_or(&json!([])), &session.listing)
}

/// How many entries the DCI sends unless it is told.
const DEFAULT_LIMIT: usize = 100;

const AUDIT: Table<AuditEntry> = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |entry| entry.at.clone(), cut: Cut::Never },
        Column { title: "By", cell: |entry| entry.by.clone(), cut: Cut::Early },
        Column { title: "What", cell: |entry| entry.what.clone(), cut: Cut::Never },
        Column { title: "Object", cell: object, cut: Cut::Late },
        Column { title: "Changes", cell: changes, cut: Cut::Early },
        Column { title: "Reason", cell: |entry| known(&entry.reason), cut: Cut::Early },
    ],
    noun: "entries",
};

pub async fn audit(session: &Session, which: &AuditSearch) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    let path = address("/audit", which, options.limit)?;
    let entries = client.get(&path, None).await?;
    AUDIT.print(&entries, options)?;
    let most = options.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
    if let Some(key) = last(&entries, most) {
        let more = format!("There may be more: --after {key}");
        if options.format() == Format::Table { print(&format!("{more}\n"))? } else { say(&more) }
    }
    Ok(())
}

/// The key of the last entry of a full page.
fn last(entries: &Value, most: usize) -> Option<String> {
    let entries = entries.as_array().filter(|entries| entries.len() >= most)?;
    Some(read::<AuditEntry>(entries.last()?.clone()).ok()?.key).filter(|key| !key.is_empty())
}

fn object(entry: &AuditEntry) -> String {
    let AuditObject { kind, id, name } = entry.object.clone().unwrap_or_default();
    format!("{kind} {}", name.or(id).unwrap_or_default()).trim().to_owned()
}

/// The fields that have changed: `threads: 2 -> 4`.
fn changes(entry: &AuditEntry) -> String {
    let fields = |fields: &Option<Map<String, Value>>| fields.clone().unwrap_or_default();
    let (before, after) = (fields(&entry.before), fields(&entry.after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |fields: &Map<String, Value>, name: &String| fields.get(name).map(|value| plain(Some(value)));
    let told = names.into_iter().map(|name| match (value(&before, name), value(&after, name)) {
        (Some(before), Some(after)) => format!("{name}: {before} -> {after}"),
        (None, Some(after)) => format!("{name}: {after}"),
        (Some(before), None) => format!("{name}: {before} -> none"),
        (None, None) => name.clone(),
    });
    told.collect::<Vec<_>>().join(", ")
}

const EVENTS: Table<MomentEvent> = Table {
    columns: &[
        Column { title: "When", cell: |event| event.at.clone(), cut: Cut::Never },
        Column { title: "Of", cell: |event| event.kind.clone(), cut: Cut::Never },
        Column { title: "What", cell: |event| event.words.clone(), cut: Cut::Late },
        Column { title: "Queue", cell: |event| known(&event.queue_name), cut: Cut::Late },
        Column { title: "Task", cell: |event| known(&event.task), cut: Cut::Never },
        Column { title: "Who", cell: |event| known(&event.by), cut: Cut::Late },
    ],
    noun: "events",
};

const RUNNING: Table<RanThen> = Table {
    columns: &[
        Column { title: "Task", cell: |ran| ran.task.clone(), cut: Cut::Never },
        Column { title: "Attempt", cell: |ran| known(&ran.attempt), cut: Cut::Never },
        Column { title: "Queue", cell: |ran| known(&ran.queue_name), cut: Cut::Late },
        Column { title: "Node", cell: |ran| known(&ran.node), cut: Cut::Late },
        Column { title: "Since", cell: |ran| ran.since.clone(), cut: Cut::Never },
        Column { title: "Until", cell: |ran| known(&ran.until), cut: Cut::Never },
    ],
    noun: "running",
};

pub async fn at(session: &Session, which: &MomentSearch) -> anyhow::Result<()> {
    let path = address("/moments", which, None)?;
    session.print_document(&path, |found| told(found, Screen::of_stdout())).await
}

fn told(moment: &Moment, screen: Screen) -> String {
    let waiting = moment.waiting.map_or_else(String::new, |waiting| format!(", {waiting} waiting"));
    let mut told = format!("{}: {} running{waiting}\n", moment.at, moment.running.len());
    for limit in &moment.limits {
        let known = if limit.known { "" } else { " (the audit does not reach so far)" };
        let (name, settings) = (visible(&limit.name), visible(&limit.settings.to_string()));
        told.push_str(&format!("{} {name}: {settings}{known}\n", limit.kind));
    }
    if !moment.running.is_empty() {
        told.push_str(&format!("\n{}", RUNNING.render(&moment.running, screen)));
    }
    told.push_str(&format!("\n{}", EVENTS.render(&moment.events, screen)));
    for gap in &moment.gaps {
        told.push_str(&format!("{}\n", visible(gap)));
    }
    told
}

const ATTEMPTS: Table = Table {
    columns: &[
        Column { title: "Attempt", cell: |attempt| plain(attempt.get("attempt")), cut: Cut::Never },
        Column { title: "Status", cell: status::of, cut: Cut::Never },
        Column { title: "Node", cell: node, cut: Cut::Early },
        Column { title: "Started (UTC)", cell: |attempt| plain(attempt.get("started")), cut: Cut::Never },
        Column { title: "Ended (UTC)", cell: |attempt| plain(attempt.get("ended")), cut: Cut::Never },
        Column { title: "Exit", cell: |attempt| exit(attempt.get("exit")), cut: Cut::Early },
        Column { title: "Note", cell: |attempt| plain(attempt.get("note")), cut: Cut::Early },
    ],
    noun: "attempts",
};

/// Prints the attempts of a task: those that are over, and the one that the task is in or ended with.
pub async fn attempts(session: &Session, id: &str) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    let mut attempts = client.get(&format!("/tasks/{id}/attempts"), None).await?;
    let task = details(client, id).await?;
    if let Some(attempts) = attempts.as_array_mut() {
        attempts.extend(latest(&task, attempts.last()));
    }
    ATTEMPTS.print(&attempts, listing)
}

/// The attempt that the task itself holds, if it is not among the earlier ones.
fn latest(task: &Value, last: Option<&Value>) -> Option<Value> {
    let status = status::code(task)?;
    let number = task.get("attempt").and_then(Value::as_i64);
    // A task that waits is in no attempt; one that Perl Disbatch ran was in its first.
    let number = number
        .or_else(|| (status >= 0).then_some(1))
        .filter(|_| status >= -1 || status::has_ended(status))?;
    if number == 0 || last.and_then(|last| last.get("attempt")?.as_i64()) == Some(number) {
        return None;
    }
    let mut attempt = json!({ "attempt": number, "status": status });
    for name in ["node", "started", "exit", "plugin_version"] {
        if let Some(value) = task.get(name) {
            attempt[name] = value.clone();
        }
    }
    if let Some(ended) = task.get("mtime").filter(|_| status::has_ended(status)) {
        attempt["ended"] = ended.clone();
    }
    Some(attempt)
}

/// Where it ran, and in which version of its plugin if that was chosen: `worker1 (1.3.0)`.
fn node(attempt: &Value) -> String {
    let node = plain(attempt.get("node"));
    match attempt.get("plugin_version") {
        Some(version) => format!("{node} ({})", plain(Some(version))).trim_start().to_owned(),
        None => node,
    }
}

/// How a plugin's process ended: `code 1, 3.2 s, 1.1 s CPU, 12.0 MiB`.
pub fn exit(exit: Option<&Value>) -> String {
    let Some(exit) = exit else { return String::new() };
    let field = |name: &str| exit.get(name).filter(|value| !value.is_null());
    let number = |name: &str| field(name).and_then(Value::as_f64);
    let facts = [
        field("reason").map(|reason| plain(Some(reason))),
        field("code").map(|code| format!("code {code}")),
        field("signal").map(|signal| format!("signal {}", plain(Some(signal)))),
        (exit.get("oom").and_then(Value::as_bool) == Some(true)).then(|| "out of memory".to_owned()),
        field("limit").map(|limit| format!("limit {}", plain(Some(limit)))),
        number("duration").map(seconds::words),
        number("cpu").map(|time| format!("{} CPU", seconds::words(time))),
        number("peak_memory").map(|bytes| format!("{:.1} MiB", bytes / f64::from(1 << 20))),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub async fn bundle(client: &Client, options: &BundleOptions) -> anyhow::Result<()> {
    let mut target = std::io::stdout();
    if target.is_terminal() {
        bail!(
            "a bundle is a tar archive and nothing for a terminal: disbatch bundle {0} > {0}.tar",
            options.id
        );
    }
    let attempt = options.attempt.map(|attempt| format!("?.attempt={attempt}")).unwrap_or_default();
    let path = format!("/tasks/{}/bundle{attempt}", options.id);
    let mut answer = client.stream(&path, 0).await?;
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| ApiError::broken_off("getting", client.address(&path), &error))?
    {
        target.write_all(&bytes).context("cannot write the bundle")?;
    }
    target.flush().context("cannot write the bundle")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines() {
        let entry = json!({
            "key": "17-6b", "at": "2026-11-20T08:24:27", "by": "alice from 10.0.0.1", "what": "queue update",
            "object": { "kind": "queue", "id": "6b", "name": "mail" },
            "before": { "threads": 2, "grace": 5 }, "after": { "threads": 4, "reason": "more" }, "reason": "rush",
        });
        let text = AUDIT.render(&[read(entry.clone()).unwrap()], Screen::default());
        let line = "| queue update | queue mail | grace: 5 -> none, reason: more, threads: 2 -> 4 | rush   |";
        assert!(text.contains(line), "{text}");
        let entries = json!([entry]);
        assert_eq!((last(&entries, 1).as_deref(), last(&entries, 2)), (Some("17-6b"), None));
    }

    #[test]
    fn only_what_is_given_is_asked() {
        let address = |which: &AuditSearch, limit| address("/audit", which, limit).unwrap();
        assert_eq!(address(&AuditSearch::default(), None), "/audit");
        let which = AuditSearch {
            queue: Some("mail".into()),
            what: Some("queue update".into()),
            ..AuditSearch::default()
        };
        assert_eq!(address(&which, Some(5)), "/audit?.limit=5&queue=mail&what=queue%20update");
    }

    #[test]
    fn a_moment_is_told_from_its_numbers_to_what_is_not_known() {
        let found = json!({
            "at": "2026-11-20T03:12:00Z", "waiting": 2, "gaps": ["Not all was read."],
            "running": [{ "task": "a", "attempt": 3, "queue_name": "mail", "node": "n1", "since": "2026-11-20T03:11:00Z", "until": null, "note": "" }],
            "limits": [{ "kind": "queue", "name": "mail", "settings": { "threads": 4 }, "known": false }],
            "events": [{ "at": "2026-11-20T03:12:05Z", "kind": "task", "words": "a task ended as failed", "task": "a", "queue_name": "mail", "by": null }],
        });
        let told = told(&read(found).unwrap(), Screen::default());
        assert!(told.contains(": 1 running, 2 waiting\nqueue mail: {\"threads\":4} (the audit"), "{told}");
        assert!(told.contains("a task ended as failed") && told.ends_with("Not all was read.\n"), "{told}");
    }

    #[test]
    fn the_latest_attempt_is_in_the_task() {
        let task = json!({"status": 2, "attempt": 2, "node": "vm", "mtime": "t", "stdout": "x"});
        let expected = json!({"attempt": 2, "status": 2, "node": "vm", "ended": "t"});
        assert_eq!(latest(&task, Some(&json!({"attempt": 1}))), Some(expected));
        assert_eq!(latest(&task, Some(&json!({"attempt": 2}))), None, "it was kept already");
        assert_eq!(latest(&json!({"status": -7, "attempt": 1}), None), None);
        assert_eq!(latest(&json!({"status": -2}), None), None);
        assert_eq!(latest(&json!({"status": 1}), None), Some(json!({"attempt": 1, "status": 1})));
    }

    #[test]
    fn the_exit_is_told_in_words() {
        let facts = json!({"signal": 9, "oom": true, "reason": "timeout", "duration": 90.5, "cpu": 0.25,
            "peak_memory": 12_582_912});
        assert_eq!(exit(Some(&facts)), "timeout, signal 9, out of memory, 1 min 30 s, 250 ms CPU, 12.0 MiB");
        assert_eq!(exit(Some(&json!({"code": 1, "oom": false}))), "code 1");
        let limited = json!({"signal": 24, "limit": "cpu_seconds"});
        assert_eq!(exit(Some(&limited)), "signal 24, limit cpu_seconds");
        assert_eq!(exit(None), "");
    }
}
