//! `disbatch locks [NAME]`

use serde_json::Value;

use crate::api::{Client, query, segment};
use crate::args::{ListingOptions, LocksOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, plain, print};
use crate::status;

const LOCKS: Table = Table {
    columns: &[
        Column { title: "Lock", cell: |lock| plain(lock.get("name")), cut: Cut::Early },
        Column { title: "Held by", cell: |lock| plain(lock.get("held_by")), cut: Cut::Never },
        Column { title: "Waiting", cell: |lock| plain(lock.get("waiting")), cut: Cut::Never },
        Column { title: "First holder", cell: first, cut: Cut::Late },
    ],
    noun: "locks",
};

const HOLDERS: Table = Table { columns: &TASKS, noun: "tasks that hold it" };

const WAITERS: Table = Table { columns: &TASKS, noun: "tasks that wait for it" };

const TASKS: [Column; 5] = [
    Column { title: "Task", cell: task, cut: Cut::Late },
    Column { title: "Mode", cell: mode, cut: Cut::Never },
    Column { title: "Status", cell: status::of, cut: Cut::Never },
    Column { title: "Node", cell: |task| plain(task.get("node")), cut: Cut::Early },
    Column { title: "Since (UTC)", cell: |task| plain(task.get("since")), cut: Cut::Never },
];

/// Prints the locks that tasks hold or wait for, or one of them.
pub async fn run(client: &Client, which: &LocksOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let screen = Screen::of_stdout();
    if let Some(name) = &which.name {
        let lock = client.get(&format!("/locks/{}", segment(name)), None).await.map_err(advise)?;
        return print(&document(&lock, options, |lock| details(lock, screen))?);
    }
    let pairs = [
        (".prefix", which.prefix.clone()),
        (".after", which.after.clone()),
        (".limit", options.limit.map(|limit| limit.to_string())),
    ];
    let locks = client.get(&format!("/locks{}", query(pairs)), None).await.map_err(advise)?;
    print(&list(&locks, options, |locks| LOCKS.render(locks, screen))?)
}

fn details(lock: &Value, screen: Screen) -> String {
    let of = |name: &str| lock.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    format!("{}\n{}", HOLDERS.render(of("holders"), screen), WAITERS.render(of("waiters"), screen))
}

fn first(lock: &Value) -> String {
    lock.pointer("/holders/0").map(task).unwrap_or_default()
}

/// Its id, if whoever asks may know it.
fn task(task: &Value) -> String {
    Some(plain(task.get("id"))).filter(|id| !id.is_empty()).unwrap_or_else(|| "(of another queue)".to_owned())
}

fn mode(task: &Value) -> String {
    match task.get("places").and_then(Value::as_u64) {
        Some(places) => format!("1 of {places}"),
        None => plain(task.get("mode")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lock_tells_who_has_it_and_who_waits() {
        let holder = json!({ "id": "6b", "mode": "places", "places": 3, "status": 0, "node": "vm" });
        let waiter = json!({ "hidden": true, "mode": "exclusive", "status": -4 });
        let lock =
            json!({ "name": "db", "held_by": 1, "waiting": 1, "holders": [holder], "waiters": [waiter] });
        let text = details(&lock, Screen::default());
        assert!(text.contains("6b   | 1 of 3 | running | vm   |"), "{text}");
        assert!(text.contains("(of another queue) | exclusive | blocked |"), "{text}");
        assert!(text.ends_with("1 total tasks that wait for it.\n"), "{text}");
        let row = LOCKS.render(&[lock], Screen::default());
        assert!(row.contains("db   | 1       | 1       | 6b           |"), "{row}");
    }
}
