//! `disbatch show ID`, `disbatch explain ID` and `disbatch explain --queue QUEUE`

use disbatch_values::status::Status;
use disbatch_wire::explanations::{Explained, Gate, QueueExplanation};
use serde_json::Value;

use crate::api::{Client, read, segment};
use crate::args::{ExplainOptions, Format, ShownArray, seconds};
use crate::command::life::details;
use crate::command::life::history::exit;
use crate::command::life::run::progress_text;
use crate::command::{Session, arrays, oid};
use crate::output::{facts, plain, shows_marks, texts, visible};
use crate::status;

pub async fn run(session: &Session, id: &str) -> anyhow::Result<()> {
    let client = &session.client;
    let mut task = match details(client, id).await {
        Ok(task) => task,
        Err(error) => match arrays::in_place_of_task(client, id, &error).await? {
            Some(_) => {
                let shown = ShownArray { id: id.to_owned(), elements: false, from: None };
                return arrays::show(session, &shown).await;
            }
            None => return Err(error.into()),
        },
    };
    if session.listing.format() == Format::Table {
        name_queue(client, &mut task).await;
    }
    session.print(&task, text)
}

/// Puts the queue's name before its id, as far as that can be had: a queue may be gone.
async fn name_queue(client: &Client, task: &mut Value) {
    let id = oid(task.get("queue"));
    if let Ok(queue) = client.get(&format!("/queues/{}", segment(&id)), None).await
        && let Some(name) = queue.get("name").filter(|name| !name.is_null())
    {
        task["queue"] = format!("{} ({id})", plain(Some(name))).into();
    }
}

/// Why it is in its status, as its history tells of tasks that did not come to an end of their own.
fn reason(task: &Value) -> String {
    let is_told = matches!(status::code(task), Some(-7..=-3));
    let last = task.get("history").and_then(Value::as_array).and_then(|history| history.last());
    // The submission is no reason for anything.
    let last = last.filter(|last| last.get("status") == task.get("status"));
    match last.and_then(|last| last.get("note")).filter(|_| is_told) {
        Some(note) => plain(Some(note)),
        None if status::code(task) == Some(-6) => "its runner or its node disappeared".to_owned(),
        None => String::new(),
    }
}

fn text(task: &Value) -> String {
    let field = |name: &str| plain(task.get(name));
    let lines = [
        ("Task", oid(task.get("_id").or(task.get("id")))),
        ("Queue", oid(task.get("queue"))),
        ("Status", state(task)),
        ("Reason", reason(task)),
        ("Asks", asks(task)),
        ("Answered by", task.get("answer").map(|answer| plain(answer.get("by"))).unwrap_or_default()),
        ("Progress", task.get("progress").map(progress_text).unwrap_or_default()),
        ("Attempt", attempt(task)),
        ("Node", field("node")),
        ("Version", field("plugin_version")),
        ("Created", field("ctime")),
        ("Not before", field("run_at")),
        ("Started", field("started")),
        ("Changed", field("mtime")),
        ("Deadline", field("deadline")),
        ("Timeout", task.get("timeout").and_then(Value::as_f64).map(seconds::words).unwrap_or_default()),
        ("Unique key", field("unique")),
        ("Group", field("group")),
        ("Priority", field("priority")),
        ("Tags", texts(task, "tags").join(", ")),
        ("Cancel", cancel(task.get("cancel"))),
        ("Exit", exit(task.get("exit"))),
        ("Parameters", field("params")),
        ("Files in", files(task, "input", "taken")),
        ("Files out", files(task, "output", "version")),
        ("Result", field("result")),
        ("Output", output(task, "stdout")),
        ("Errors", output(task, "stderr")),
    ];
    facts(lines) + &facts(steps(task))
}

pub fn asks(task: &Value) -> String {
    let Some(awaiting) = task.get("awaiting") else { return String::new() };
    format!("{} (of {})", plain(awaiting.get("title")), who(awaiting))
}

pub fn who(awaiting: &Value) -> String {
    let who = texts(awaiting, "who");
    if who.is_empty() { "operators".to_owned() } else { who.join(", ") }
}

/// How far each step is: `convert (My::Convert): failed, code 1, 3.2 s`.
fn steps(task: &Value) -> impl Iterator<Item = (String, String)> {
    let is_over = status::code(task).is_some_and(status::has_ended);
    let steps = task.get("steps").and_then(Value::as_array).into_iter().flatten();
    steps.enumerate().map(move |(index, step)| {
        let plugin = Some(plain(step.get("plugin"))).filter(|plugin| !plugin.is_empty());
        let plugin = plugin.map(|plugin| format!(" ({plugin})")).unwrap_or_default();
        let never_ran = is_over && status::code(step) == Some(Status::Queued.code());
        let status = if never_ran { "not run".to_owned() } else { status::of(step) };
        let facts = [status, exit(step.get("exit")), plain(step.get("message"))];
        let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        (format!("Step {}", index + 1), format!("{}{plugin}: {}", plain(step.get("name")), facts.join(", ")))
    })
}

fn state(task: &Value) -> String {
    let Some(code) = status::code(task) else { return plain(task.get("status")) };
    let word = status::word(code);
    if word.ends_with(char::is_numeric) { word } else { format!("{word} ({code})") }
}

fn attempt(task: &Value) -> String {
    let Some(attempt) = task.get("attempt").and_then(Value::as_i64) else { return String::new() };
    // What was interrupted or given back costs none of the failures that a task may have.
    let most = task.get("max_attempts").and_then(Value::as_i64);
    let failed = task.get("failures").and_then(Value::as_i64).filter(|failures| *failures > 0);
    let failed = failed.map(|failures| match most {
        Some(most) => format!(", after {failures} of at most {most} failures"),
        None => format!(", after {failures} failure{}", if failures == 1 { "" } else { "s" }),
    });
    format!("{attempt}{}", failed.unwrap_or_default())
}

fn cancel(request: Option<&Value>) -> String {
    let Some(request) = request.filter(|request| request.is_object()) else { return String::new() };
    let field = |name: &str| plain(request.get(name));
    let words = [("asked for at ", "at"), ("by ", "by"), ("for ", "reason")];
    let words = words.map(|(before, name)| (before, field(name)));
    let words = words.into_iter().filter(|(_, text)| !text.is_empty());
    words.map(|(before, text)| format!("{before}{text}")).collect::<Vec<_>>().join(", ")
}

/// A file set that it gets or leaves, with the version that it has got or left.
fn files(task: &Value, part: &str, version: &str) -> String {
    let Some(part) = task.get("files").and_then(|files| files.get(part)) else { return String::new() };
    let version = part.get(version).or_else(|| part.get("version")).and_then(Value::as_i64);
    let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
    format!("{}{version}", plain(part.get("name")))
}

fn output(task: &Value, stream: &str) -> String {
    match task.get(stream) {
        Some(Value::String(text)) if text.is_empty() => "none".to_owned(),
        Some(Value::String(text)) => format!("{} bytes", text.len()),
        Some(Value::Object(_)) => "in a file".to_owned(),
        _ => String::new(), // None yet.
    }
}

/// Prints why a task does not run: each gate that it has to pass, and whether it is open; or what holds the head of a queue.
pub async fn explain(session: &Session, which: &ExplainOptions) -> anyhow::Result<()> {
    let path = match (&which.id, &which.queue) {
        (Some(id), _) => format!("/tasks/{id}/explain"),
        (None, queue) => format!("/queues/{}/explain", segment(queue.as_deref().unwrap_or_default())),
    };
    let marks = if shows_marks() { ["✓", "✗"] } else { ["ok ", "NO "] };
    let text = if which.id.is_some() { explain_text } else { of_queue };
    session.print_document(&path, |answer| text(answer, marks)).await
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

fn explain_text(answer: &Value, [open, shut]: [&str; 2]) -> String {
    let Ok(task) = read::<Explained>(answer.clone()) else { return plain(Some(answer)) + "\n" };
    let gate = |gate: &Gate| format!("  {} {}\n", if gate.open { open } else { shut }, visible(&gate.text));
    let gates: String = task.gates.iter().map(gate).collect();
    format!("{} {}\n{}\n{gates}", visible(&task.id), visible(&task.word), visible(&task.summary))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_told_in_lines() {
        let task = json!({"_id": {"$oid": "6b0003bb686c8275d8013333"}, "queue": {"$oid": "6b0003bb686c8275d70dc2f1"},
            "status": -3, "attempt": 2, "max_attempts": 3, "failures": 1, "node": "vm", "timeout": 90,
            "ctime": "2026-11-20T08:24:26", "params": {"command": "date"}, "stdout": "héllo", "stderr": {"$oid": "x"},
            "progress": {"percent": 40}, "exit": {"signal": 15, "reason": "timeout"},
            "cancel": {"by": "ashley", "reason": "too\nlong"}});
        let expected = "Task        6b0003bb686c8275d8013333\n\
                        Queue       6b0003bb686c8275d70dc2f1\n\
                        Status      terminated (-3)\n\
                        Progress    40 %\n\
                        Attempt     2, after 1 of at most 3 failures\n\
                        Node        vm\n\
                        Created     2026-11-20T08:24:26\n\
                        Timeout     1 min 30 s\n\
                        Cancel      by ashley, for too\u{fffd}long\n\
                        Exit        timeout, signal 15\n\
                        Parameters  {\"command\":\"date\"}\n\
                        Output      6 bytes\n\
                        Errors      in a file\n";
        assert_eq!(text(&task), expected);
        assert_eq!(text(&json!({"status": 17})), "Status      status 17\n");
        let files = json!({"input": {"name": "data", "taken": 3}, "output": {"name": "result"}});
        let told = text(&json!({"status": 17, "files": files}));
        assert!(told.ends_with("Files in    data version 3\nFiles out   result\n"), "{told}");
        let task = json!({"status": 2, "steps": [
            {"name": "get", "params": {}, "status": 1, "exit": {"code": 0, "duration": 5}},
            {"name": "use\nit", "plugin": "My::Use", "status": 2, "message": "no disk"},
            {"name": "send", "status": -2},
        ]});
        let expected = "Status      failed (2)\n\
                        Step 1      get: succeeded, code 0, 5 s\n\
                        Step 2      use\u{fffd}it (My::Use): failed, no disk\n\
                        Step 3      send: not run\n";
        assert_eq!(text(&task), expected);
    }

    #[test]
    fn gates_are_lines() {
        let answer = json!({"id": "6b", "status": -2, "word": "queued", "summary": "The queue is paused.",
            "gates": [{"gate": "queue_paused", "open": false, "text": "the queue is paused: repairs"},
                      {"gate": "threads", "open": true, "text": "2 of 4 threads are in use"}]});
        assert_eq!(
            explain_text(&answer, ["✓", "✗"]),
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
        let gate =
            json!({"gate": "queue_paused", "open": false, "text": "paused: \u{1b}[2J\n  ok  all is well"});
        let told = explain_text(
            &json!({"id": "6b", "word": "queued", "summary": "a\u{9b}b", "gates": [gate]}),
            ["ok ", "NO "],
        );
        assert_eq!(told, "6b queued\na\u{fffd}b\n  NO  paused: \u{fffd}[2J\u{fffd}  ok  all is well\n");
    }
}
