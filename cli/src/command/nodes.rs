//! `disbatch nodes`, `disbatch nodes rm NODE`, `disbatch update-node NODE maxthreads N` and `disbatch doctor`

use std::collections::BTreeMap;
use std::process::ExitCode;

use disbatch_wire::explanations::{Diagnosis, Finding};
use disbatch_wire::nodes::{Node, NodeAddresses, NodeStats};
use serde_json::Value;

use crate::api::{Client, read, segment};
use crate::args::NodesCommand;
use crate::command::{Session, in_perls_words, pairs};
use crate::output::{Column, Cut, Table, date, known, plain, print, shown_name, shows_marks, visible};

const TABLE: Table<Node> = Table {
    columns: &[
        Column { title: "ID", cell: |node| node.id.clone(), cut: Cut::Late },
        Column { title: "Node", cell: |node| plain(Some(&node.node)), cut: Cut::Early },
        Column { title: "Maxthreads", cell: |node| plain(node.maxthreads.as_ref()), cut: Cut::Never },
        Column { title: "Last seen (UTC)", cell: |node| date(node.timestamp.as_ref()), cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Running", cell: |node| known(&node.running), cut: Cut::Never },
        Column { title: "Load", cell: load, cut: Cut::Never },
        Column { title: "Version", cell: |node| known(&node.version), cut: Cut::Early },
        Column { title: "Labels", cell: labels, cut: Cut::Early },
        Column { title: "Addresses", cell: addresses, cut: Cut::Early },
    ],
    noun: "nodes",
};

pub async fn run(session: &Session, command: Option<&NodesCommand>) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    if let Some(NodesCommand::Rm { node }) = command {
        client.delete(&format!("/nodes/{}", segment(node))).await?;
        return print(&format!("Removed node {}\n", shown_name(node)));
    }
    let nodes = client.get("/nodes?.details=1", None).await.map_err(in_perls_words)?;
    TABLE.print(&nodes, listing)
}

/// How it is doing, and whether another DEN uses its name.
fn state(node: &Node) -> String {
    let state = known(&node.state);
    if node.rival.is_some() { format!("{state}, twice") } else { state }
}

/// `0.52 of 4`
fn load(node: &Node) -> String {
    let NodeStats { load, cpus, .. } = node.stats.unwrap_or_default();
    match (load, cpus) {
        (Some(load), Some(cpus)) => format!("{load:.2} of {cpus}"),
        (Some(load), None) => format!("{load:.2}"),
        (None, _) => String::new(),
    }
}

fn labels(node: &Node) -> String {
    let labels = node.labels.iter().flatten();
    labels.map(|(name, value)| format!("{name}={}", plain(Some(value)))).collect::<Vec<String>>().join(" ")
}

fn addresses(node: &Node) -> String {
    let NodeAddresses { private, public } = node.addresses.clone().unwrap_or_default();
    [private, public].concat().join(" ")
}

/// Changes fields of a node. The DCI knows one, `maxthreads`.
pub async fn update(client: &Client, node: Option<String>, fields: Vec<String>) -> anyhow::Result<()> {
    let node = node.filter(|name| !name.is_empty()).ok_or_else(|| anyhow::anyhow!("Node name not given"))?;
    let fields: BTreeMap<String, Value> =
        pairs(fields)?.into_iter().map(|(field, text)| (field, value(text))).collect();
    let body = serde_json::to_value(fields)?;
    client.post(&format!("/nodes/{}", segment(&node)), &body).await?;
    print(&format!("Updated node {node}: {body}\n"))
}

/// A number or null; anything else is text, for the DCI to refuse.
fn value(text: String) -> Value {
    match text.as_str() {
        "null" => Value::Null,
        digits => digits.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
    }
}

/// Prints what the checks of the whole have found. The exit status is that of monitoring systems: 0 fine, 1 warnings, 2 errors.
pub async fn doctor(session: &Session) -> anyhow::Result<ExitCode> {
    let answer = session.client.get("/doctor", None).await?;
    let marks = if shows_marks() { ["✓", "!", "✗", "-"] } else { ["ok", "warning", "error", "skipped"] };
    session.print(&answer, |answer| text(answer, marks))?;
    Ok(ExitCode::from(match answer.get("level").and_then(Value::as_str) {
        Some("ok") => 0,
        Some("warning") => 1,
        _ => 2,
    }))
}

fn text(answer: &Value, [fine, warning, error, skipped]: [&str; 4]) -> String {
    let Ok(diagnosis) = read::<Diagnosis>(answer.clone()) else { return plain(Some(answer)) + "\n" };
    let line = |finding: &Finding| {
        let mark = match &finding.level[..] {
            "ok" => fine,
            "warning" => warning,
            "skipped" => skipped,
            _ => error,
        };
        let subject =
            finding.subject.as_deref().map(|subject| format!("{}: ", visible(subject))).unwrap_or_default();
        let advice =
            finding.advice.as_deref().map(|advice| format!("    {}\n", visible(advice))).unwrap_or_default();
        format!("{mark} {}: {subject}{}\n{advice}", visible(&finding.check), visible(&finding.text))
    };
    diagnosis.findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn nodes_have_what_people_look_for() {
        let node = json!({
            "id": "6b", "node": "vm", "maxthreads": 4, "timestamp": 0, "state": "alive", "running": 2,
            "stats": { "load": 0.5234, "cpus": 8 }, "version": "1.2", "labels": { "gpu": "yes", "zone": "a" },
            "addresses": { "private": ["10.0.0.5"], "public": ["203.0.113.9"] }, "rival": "other",
        });
        let table = TABLE.render(&[read(node).unwrap()], Screen::default());
        let line = "6b | vm   | 4          | 1970-01-01T00:00:00 | alive, twice | 2       | 0.52 of 8 | 1.2     \
                    | gpu=yes zone=a | 10.0.0.5 203.0.113.9 | \n";
        assert!(table.contains(line), "{table}");
        let perl = json!({"id": "6b", "node": "vm", "maxthreads": null, "timestamp": 0});
        assert!(TABLE.render(&[read(perl).unwrap()], Screen::default()).ends_with("\n1 total nodes.\n"));
    }

    #[test]
    fn values_are_numbers_or_null() {
        assert_eq!(value("16".into()), Value::from(16));
        assert_eq!(value("null".into()), Value::Null);
        assert_eq!(value("-1".into()), Value::from("-1"));
    }

    #[test]
    fn findings_have_a_mark_and_what_to_do() {
        let answer = json!({"level": "error", "findings": [
            {"check": "database", "level": "ok", "text": "fine"},
            {"check": "nodes", "level": "error", "subject": "n\u{1b}1", "text": "it is gone", "advice": "Start it."},
        ]});
        assert_eq!(
            text(&answer, ["✓", "!", "✗", "-"]),
            "✓ database: fine\n✗ nodes: n\u{fffd}1: it is gone\n    Start it.\n"
        );
    }
}
