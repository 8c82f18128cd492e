//! `disbatch admission`, and `disbatch drain` and `undrain` for new tasks

use std::time::Duration;

use anyhow::bail;
use disbatch_wire::admission::{AdmissionAction, AdmissionChange, AdmissionLifted, AdmissionRule};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::{Client, read, segment};
use crate::args::{DrainOptions, Drained};
use crate::command::Session;
use crate::command::life::{Connection, steer};
use crate::output::{Column, Cut, Table, known, print, say, shown_name};
use crate::status;

const TABLE: Table<AdmissionRule> = Table {
    columns: &[
        Column { title: "Of", cell: |rule| subject(rule), cut: Cut::Early },
        Column { title: "New tasks", cell: |rule| becomes(rule).to_owned(), cut: Cut::Never },
        Column { title: "Reason", cell: |rule| known(&rule.reason), cut: Cut::Early },
        Column { title: "Since (UTC)", cell: |rule| known(&rule.at), cut: Cut::Never },
        Column { title: "Left", cell: |rule| rule.text.clone(), cut: Cut::Never },
    ],
    noun: "rules",
};

const ASK_EVERY: Duration = Duration::from_secs(1);

pub async fn run(session: &Session) -> anyhow::Result<()> {
    let answer = session.client.get("/admission", None).await?;
    TABLE.print(answer.get("rules").unwrap_or(&Value::Null), &session.listing)
}

/// Lets a node claim nothing more, or says what becomes of new tasks.
pub async fn drain(client: &Client, options: &DrainOptions) -> anyhow::Result<()> {
    if let Some(node) = &options.what.node {
        return steer::drain(client, node, options.interrupt).await;
    }
    let action = match (options.pause, options.accept) {
        (true, _) => AdmissionAction::Pause,
        (false, true) => AdmissionAction::Accept,
        (false, false) => AdmissionAction::Reject,
    };
    let (scope, value) = scope(&options.what);
    let change = AdmissionChange {
        scope: scope.to_owned(),
        value: value.map(str::to_owned),
        action,
        reason: options.reason.clone(),
    };
    let rule: AdmissionRule = read(client.post("/admission", &change).await?)?;
    print(&format!("{}\n", told(&rule)))?;
    if options.wait { wait(client, &rule).await } else { Ok(()) }
}

/// Lets a node claim again, or lifts what was said about new tasks.
pub async fn undrain(client: &Client, what: &Drained) -> anyhow::Result<()> {
    if let Some(node) = &what.node {
        return steer::undrain(client, node).await;
    }
    let (scope, value) = scope(what);
    let value = value.map(|value| format!("&value={}", segment(value))).unwrap_or_default();
    let answer = client.delete(&format!("/admission?scope={scope}{value}")).await?;
    let held = match read::<AdmissionLifted>(answer)?.released {
        0 => String::new(),
        1 => "; 1 held task goes on".to_owned(),
        tasks => format!("; {tasks} held tasks go on"),
    };
    print(&format!("The rule is lifted{held}\n"))
}

fn scope(what: &Drained) -> (&'static str, Option<&str>) {
    let values = [("queue", &what.queue), ("tenant", &what.tenant), ("owner", &what.owner)];
    let given = values.into_iter().find_map(|(scope, value)| Some((scope, Some(value.as_deref()?))));
    given.unwrap_or(("all", None))
}

async fn wait(client: &Client, rule: &AdmissionRule) -> anyhow::Result<()> {
    let connection = Connection::new(client);
    connection.answered();
    let mut turns = interval(ASK_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told_of = (rule.text.clone(), still_to_end(rule));
    told_of.1.iter().for_each(|line| say(line));
    loop {
        turns.tick().await;
        let answer = connection.get("/admission").await?;
        let rules = answer.get("rules").and_then(Value::as_array).into_iter().flatten();
        let mut rules = rules.filter_map(|rule| read::<AdmissionRule>(rule.clone()).ok());
        let Some(now) = rules.find(|other| (&other.scope, &other.value) == (&rule.scope, &rule.value)) else {
            bail!("the rule was lifted meanwhile");
        };
        if now.safe {
            return print(&format!("{}\n", told(&now)));
        }
        let tasks = still_to_end(&now);
        if now.text != told_of.0 {
            say(&told(&now));
        }
        if let Some(line) = tasks.as_ref().filter(|tasks| told_of.1.as_ref() != Some(tasks)) {
            say(line);
        }
        told_of = (now.text, tasks);
    }
}

fn still_to_end(rule: &AdmissionRule) -> Option<String> {
    let each = rule.left.iter().map(|left| {
        let status = status::word(left.status);
        let on = left.node.as_ref().map(|node| format!(" on {}", shown_name(node))).unwrap_or_default();
        format!("{} ({}, {status}{on})", left.task, shown_name(&left.queue))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("still to end: {}", each.join(", ")))
}

fn told(rule: &AdmissionRule) -> String {
    format!("{}: new tasks are {}; {}", shown_name(&subject(rule)), becomes(rule), rule.text)
}

fn becomes(rule: &AdmissionRule) -> &'static str {
    match rule.action.as_deref() {
        Some("reject") => "refused",
        Some("pause") => "held",
        _ => "taken",
    }
}

fn subject(rule: &AdmissionRule) -> String {
    let value = rule.value.as_deref().unwrap_or_default();
    match rule.scope.as_str() {
        "queue" => format!("queue {}", rule.name.as_deref().unwrap_or(value)),
        "tenant" => format!("tenant {value}"),
        "owner" => format!("user {value}"),
        _ => "all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn a_rule_is_a_line() {
        let rule = json!({
            "scope": "queue", "value": "6b", "name": "mail", "action": "reject", "reason": "upgrade",
            "at": "2026-11-20T08:24:27", "text": "empty: safe to upgrade", "safe": true,
        });
        let read = |rule| read::<AdmissionRule>(rule).unwrap();
        let rule = read(rule);
        assert_eq!(told(&rule), "queue mail: new tasks are refused; empty: safe to upgrade");
        let table = TABLE.render(&[rule], Screen::default());
        let line = "queue mail | refused   | upgrade | 2026-11-20T08:24:27 | empty: safe to upgrade | \n";
        assert!(table.contains(line), "{table}");
        let subject = |rule| subject(&read(rule));
        assert_eq!(subject(json!({ "scope": "queue", "value": "6b", "name": null })), "queue 6b");
        assert_eq!(subject(json!({ "scope": "owner", "value": "anna" })), "user anna");
        assert_eq!(subject(json!({ "scope": "all", "value": null })), "all");
    }

    #[test]
    fn what_is_drained_is_a_scope() {
        let none = Drained { node: None, queue: None, tenant: None, owner: None, all: true };
        assert_eq!(scope(&none), ("all", None));
        let tenant = Drained { tenant: Some("acme".into()), all: false, ..none };
        assert_eq!(scope(&tenant), ("tenant", Some("acme")));
    }
}
