//! `disbatch explain ID`, `disbatch explain --queue QUEUE`

use disbatch_wire::explanations::QueueExplanation;
use serde_json::Value;

use crate::api::{Client, read, segment};
use crate::args::{ExplainOptions, ListingOptions};
use crate::command::life::advise;
use crate::output::{document, plain, print, shows_marks, visible};

/// Prints why a task does not run: each gate that it has to pass, and whether it is open; or what holds the head of a queue.
pub async fn run(client: &Client, which: &ExplainOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let path = match (&which.id, &which.queue) {
        (Some(id), _) => format!("/tasks/{id}/explain"),
        (None, queue) => format!("/queues/{}/explain", segment(queue.as_deref().unwrap_or_default())),
    };
    let answer = client.get(&path, None).await.map_err(advise)?;
    let marks = if shows_marks() { ["✓", "✗"] } else { ["ok ", "NO "] };
    let text = if which.id.is_some() { text } else { of_queue };
    print(&document(&answer, options, |answer| text(answer, marks))?)
}

fn of_queue(answer: &Value, [able, unable]: [&str; 2]) -> String {
    let Ok(queue) = read::<QueueExplanation>(answer.clone()) else { return plain(Some(answer)) + "\n" };
    let mut lines = vec![
        format!("{} {}", visible(&queue.name), visible(&queue.gate)),
        visible(&queue.summary),
        format!("  {} of {} threads are taken", queue.running, queue.threads),
    ];
    lines.extend(queue.next.map(|next| format!("  opens at {}", visible(&next))));
    lines.extend(queue.head.map(|head| format!("  first task {}", visible(&head))));
    for chance in queue.nodes.into_iter().flatten() {
        let node = visible(&chance.node);
        lines.push(match chance.able {
            true => format!("  {able} {node}"),
            false => format!("  {unable} {node}: {}", visible(&chance.why.join(", "))),
        });
    }
    lines.join("\n") + "\n"
}

fn text(answer: &Value, [open, shut]: [&str; 2]) -> String {
    let gates = answer.get("gates").and_then(Value::as_array);
    let gates = gates.into_iter().flatten().map(|gate| {
        let mark = if gate.get("open").and_then(Value::as_bool) == Some(true) { open } else { shut };
        format!("  {mark} {}\n", shown(gate.get("text").or(gate.get("gate"))))
    });
    let gates: String = gates.collect();
    let word = shown(answer.get("word").or(answer.get("status")));
    format!("{} {word}\n{}\n{gates}", shown(answer.get("id")), shown(answer.get("summary")))
}

/// On one line: reasons are what somebody has written.
fn shown(value: Option<&Value>) -> String {
    visible(&plain(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_are_lines() {
        let answer = json!({"id": "6b", "status": -2, "word": "queued", "summary": "The queue is paused.",
            "gates": [{"gate": "queue_paused", "open": false, "text": "the queue is paused: repairs"},
                      {"gate": "threads", "open": true, "text": "2 of 4 threads are in use"}]});
        assert_eq!(
            text(&answer, ["✓", "✗"]),
            "6b queued\nThe queue is paused.\n  ✗ the queue is paused: repairs\n  ✓ 2 of 4 threads are in use\n"
        );
    }

    #[test]
    fn a_queue_has_a_gate_and_nodes() {
        let answer = json!({"id": "6b", "name": "mail", "gate": "rate", "summary": "The next start is in 5 s.", "head": "6c",
            "running": 1, "threads": 4, "next": "2026-11-20T08:24:32Z",
            "nodes": [{"node": "n1", "able": true, "why": []}, {"node": "n2\u{1b}", "able": false, "why": ["a", "b"]}]});
        assert_eq!(
            of_queue(&answer, ["✓", "✗"]),
            "mail rate\nThe next start is in 5 s.\n  1 of 4 threads are taken\n  opens at 2026-11-20T08:24:32Z\n  \
             first task 6c\n  ✓ n1\n  ✗ n2\u{fffd}: a, b\n"
        );
    }

    #[test]
    fn reasons_are_no_lines_of_their_own() {
        let gate = json!({"open": false, "text": "paused: \u{1b}[2J\n  ok  all is well"});
        let told = text(
            &json!({"id": "6b", "word": "queued", "summary": "a\u{9b}b", "gates": [gate]}),
            ["ok ", "NO "],
        );
        assert_eq!(told, "6b queued\na\u{fffd}b\n  NO  paused: \u{fffd}[2J\u{fffd}  ok  all is well\n");
    }
}
