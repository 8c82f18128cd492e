//! `disbatch attempts ID`

use serde_json::Value;

use crate::api::Client;
use crate::args::{ListingOptions, seconds};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Attempt", cell: |attempt| plain(attempt.get("attempt")), cut: Cut::Never },
        Column { title: "Status", cell: status::of, cut: Cut::Never },
        Column { title: "Node", cell: |attempt| plain(attempt.get("node")), cut: Cut::Early },
        Column { title: "Started (UTC)", cell: |attempt| plain(attempt.get("started")), cut: Cut::Never },
        Column { title: "Ended (UTC)", cell: |attempt| plain(attempt.get("ended")), cut: Cut::Never },
        Column { title: "Exit", cell: |attempt| exit(attempt.get("exit")), cut: Cut::Early },
        Column { title: "Note", cell: |attempt| plain(attempt.get("note")), cut: Cut::Early },
    ],
    noun: "attempts",
};

/// Prints the attempts of a task.
///
/// # Errors
/// There is no such task, or the DCI cannot be reached.
pub async fn run(client: &Client, id: &str, options: &ListingOptions) -> anyhow::Result<()> {
    let attempts = client.get(&format!("/tasks/{id}/attempts"), None).await.map_err(advise)?;
    print(&list(&attempts, options, |attempts| TABLE.render(attempts, Screen::of_stdout()))?)
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
    fn the_exit_is_told_in_words() {
        let facts = json!({"signal": 9, "oom": true, "reason": "timeout", "duration": 90.5, "cpu": 0.25,
            "peak_memory": 12_582_912});
        assert_eq!(exit(Some(&facts)), "timeout, signal 9, out of memory, 1 min 30 s, 250 ms CPU, 12.0 MiB");
        assert_eq!(exit(Some(&json!({"code": 1, "oom": false}))), "code 1");
        assert_eq!(exit(None), "");
    }
}
