//! `disbatch admission`, and `disbatch drain` and `undrain` for new tasks

use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::api::{Client, segment};
use crate::args::{DrainOptions, Drained, ListingOptions};
use crate::command::life::{advise, connection, steer};
use crate::output::{Column, Cut, Screen, Table, list, plain, print, say, shown_name};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Of", cell: of, cut: Cut::Early },
        Column { title: "New tasks", cell: |rule| becomes(rule).to_owned(), cut: Cut::Never },
        Column { title: "Reason", cell: |rule| plain(rule.get("reason")), cut: Cut::Early },
        Column { title: "Since (UTC)", cell: |rule| plain(rule.get("at")), cut: Cut::Never },
        Column { title: "Left", cell: |rule| plain(rule.get("text")), cut: Cut::Never },
    ],
    noun: "rules",
};

/// How often it is asked whether anything is left.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Prints the rules that there are.
pub async fn run(client: &Client, options: &ListingOptions) -> anyhow::Result<()> {
    let rules = rules(client).await?;
    print(&list(&rules, options, |rules| TABLE.render(rules, Screen::of_stdout()))?)
}

async fn rules(client: &Client) -> anyhow::Result<Value> {
    let answer = client.get("/admission", None).await.map_err(advise)?;
    Ok(answer.get("rules").cloned().unwrap_or_default())
}

/// Lets a node claim nothing more, or says what becomes of new tasks.
pub async fn drain(client: &Client, options: &DrainOptions) -> anyhow::Result<()> {
    if let Some(node) = &options.what.node {
        return steer::drain(client, node, true).await;
    }
    let action = match (options.pause, options.accept) {
        (true, _) => "pause",
        (false, true) => "accept",
        (false, false) => "reject",
    };
    let (scope, value) = scope(&options.what);
    let body = json!({ "scope": scope, "value": value, "action": action, "reason": options.reason });
    let rule = client.post("/admission", &body).await.map_err(advise)?;
    print(&format!("{}\n", told(&rule)))?;
    if options.wait { wait(client, &rule).await } else { Ok(()) }
}

/// Lets a node claim again, or lifts what was said about new tasks.
pub async fn undrain(client: &Client, what: &Drained) -> anyhow::Result<()> {
    if let Some(node) = &what.node {
        return steer::drain(client, node, false).await;
    }
    let (scope, value) = scope(what);
    let value = value.map(|value| format!("&value={}", segment(value))).unwrap_or_default();
    let answer = client.delete(&format!("/admission?scope={scope}{value}")).await.map_err(advise)?;
    let held = match answer.get("released").and_then(Value::as_u64) {
        None | Some(0) => String::new(),
        Some(1) => "; 1 held task goes on".to_owned(),
        Some(tasks) => format!("; {tasks} held tasks go on"),
    };
    print(&format!("The rule is lifted{held}\n"))
}

fn scope(what: &Drained) -> (&'static str, Option<&str>) {
    let values = [("queue", &what.queue), ("tenant", &what.tenant), ("owner", &what.owner)];
    let given = values.into_iter().find_map(|(scope, value)| Some((scope, Some(value.as_deref()?))));
    given.unwrap_or(("all", None))
}

/// Waits until nothing is left of what a rule is about.
async fn wait(client: &Client, rule: &Value) -> anyhow::Result<()> {
    let connection = connection::Connection::new(client);
    connection.answered();
    let is_same = |other: &&Value| ["scope", "value"].iter().all(|name| other.get(name) == rule.get(name));
    let mut turns = interval(ASK_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told_of = (plain(rule.get("text")), still_to_end(rule));
    told_of.1.iter().for_each(|line| say(line));
    loop {
        turns.tick().await;
        let answer =
            connection.persist(async || client.get("/admission", None).await).await.map_err(advise)?;
        let rules = answer.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let Some(now) = rules.iter().find(is_same) else {
            bail!("the rule was lifted meanwhile");
        };
        if now.get("safe") == Some(&Value::Bool(true)) {
            return print(&format!("{}\n", told(now)));
        }
        let (text, tasks) = (plain(now.get("text")), still_to_end(now));
        if text != told_of.0 {
            say(&told(now));
        }
        if let Some(line) = tasks.as_ref().filter(|tasks| told_of.1.as_ref() != Some(tasks)) {
            say(line);
        }
        told_of = (text, tasks);
    }
}

/// The tasks that are waited for, or the oldest of them.
fn still_to_end(rule: &Value) -> Option<String> {
    let tasks = rule.get("left").and_then(Value::as_array).filter(|tasks| !tasks.is_empty())?;
    let each: Vec<String> = tasks
        .iter()
        .map(|task| {
            let status = status::of(task);
            let node = plain(task.get("node"));
            let on = if node.is_empty() { String::new() } else { format!(" on {}", shown_name(&node)) };
            format!("{} ({}, {status}{on})", plain(task.get("task")), shown_name(&plain(task.get("queue"))))
        })
        .collect();
    Some(format!("still to end: {}", each.join(", ")))
}

/// What a rule is about, what it says, and what is left.
fn told(rule: &Value) -> String {
    format!("{}: new tasks are {}; {}", shown_name(&of(rule)), becomes(rule), plain(rule.get("text")))
}

fn becomes(rule: &Value) -> &'static str {
    match rule.get("action").and_then(Value::as_str) {
        Some("reject") => "refused",
        Some("pause") => "held",
        _ => "taken",
    }
}

fn of(rule: &Value) -> String {
    let value = || plain(rule.get("value"));
    match rule.get("scope").and_then(Value::as_str) {
        Some("queue") => {
            let name = plain(rule.get("name"));
            format!("queue {}", if name.is_empty() { value() } else { name })
        }
        Some("tenant") => format!("tenant {}", value()),
        Some("owner") => format!("user {}", value()),
        _ => "all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_line() {
        let rule = json!({
            "scope": "queue", "value": "6b", "name": "mail", "action": "reject", "reason": "upgrade",
            "at": "2026-11-20T08:24:27", "text": "empty: safe to upgrade", "safe": true,
        });
        assert_eq!(told(&rule), "queue mail: new tasks are refused; empty: safe to upgrade");
        let table = TABLE.render(std::slice::from_ref(&rule), Screen::default());
        let line = "queue mail | refused   | upgrade | 2026-11-20T08:24:27 | empty: safe to upgrade | \n";
        assert!(table.contains(line), "{table}");
        assert_eq!(of(&json!({ "scope": "queue", "value": "6b", "name": null })), "queue 6b");
        assert_eq!(of(&json!({ "scope": "owner", "value": "anna" })), "user anna");
        assert_eq!(of(&json!({ "scope": "all", "value": null })), "all");
    }

    #[test]
    fn what_is_drained_is_a_scope() {
        let none = Drained { node: None, queue: None, tenant: None, owner: None, all: true };
        assert_eq!(scope(&none), ("all", None));
        let tenant = Drained { tenant: Some("acme".into()), all: false, ..none };
        assert_eq!(scope(&tenant), ("tenant", Some("acme")));
    }
}
