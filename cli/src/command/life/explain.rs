//! `disbatch explain ID`

use serde_json::Value;

use crate::api::Client;
use crate::args::ListingOptions;
use crate::command::life::advise;
use crate::output::{document, plain, print, shows_marks, visible};

/// Prints why a task does not run: each gate that it has to pass, and whether it is open.
pub async fn run(client: &Client, id: &str, options: &ListingOptions) -> anyhow::Result<()> {
    let answer = client.get(&format!("/tasks/{id}/explain"), None).await.map_err(advise)?;
    let marks = if shows_marks() { ["✓", "✗"] } else { ["ok ", "NO "] };
    print(&document(&answer, options, |answer| text(answer, marks))?)
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
    fn reasons_are_no_lines_of_their_own() {
        let gate = json!({"open": false, "text": "paused: \u{1b}[2J\n  ok  all is well"});
        let told = text(
            &json!({"id": "6b", "word": "queued", "summary": "a\u{9b}b", "gates": [gate]}),
            ["ok ", "NO "],
        );
        assert_eq!(told, "6b queued\na\u{fffd}b\n  NO  paused: \u{fffd}[2J\u{fffd}  ok  all is well\n");
    }
}
