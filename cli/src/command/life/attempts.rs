//! `disbatch attempts ID`

use serde_json::{Value, json};

use crate::api::Client;
use crate::args::{ListingOptions, seconds};
use crate::command::life::{advise, details};
use crate::output::{Column, Cut, Screen, Table, list, plain, print};
use crate::status;

const TABLE: Table = Table {
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
pub async fn run(client: &Client, id: &str, options: &ListingOptions) -> anyhow::Result<()> {
    let mut attempts = client.get(&format!("/tasks/{id}/attempts"), None).await.map_err(advise)?;
    let task = details(client, id).await.map_err(advise)?;
    if let Some(attempts) = attempts.as_array_mut() {
        attempts.extend(latest(&task, attempts.last()));
    }
    print(&list(&attempts, options, |attempts| TABLE.render(attempts, Screen::of_stdout()))?)
}

/// The attempt that the task itself holds, if it is not among the earlier ones.
fn latest(task: &Value, last: Option<&Value>) -> Option<Value> {
    let status = task.get("status")?.as_i64()?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
