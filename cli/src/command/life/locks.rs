//! `disbatch locks [NAME]`

use disbatch_wire::locks::{Lock, LockTask};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Client, query, read, segment};
use crate::args::{ListingOptions, LocksOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, print};
use crate::status;

const LOCKS: Table = Table {
    columns: &[
        Column { title: "Lock", cell: |json| of(json, |lock: Lock| lock.name), cut: Cut::Early },
        Column {
            title: "Held by",
            cell: |json| of(json, |lock: Lock| lock.held_by.to_string()),
            cut: Cut::Never,
        },
        Column {
            title: "Waiting",
            cell: |json| of(json, |lock: Lock| lock.waiting.to_string()),
            cut: Cut::Never,
        },
        Column {
            title: "First holder",
            cell: |json| of(json, |lock: Lock| lock.holders.first().map(task).unwrap_or_default()),
            cut: Cut::Late,
        },
    ],
    noun: "locks",
};

const HOLDERS: Table = Table { columns: &TASKS, noun: "tasks that hold it" };

const WAITERS: Table = Table { columns: &TASKS, noun: "tasks that wait for it" };

const TASKS: [Column; 5] = [
    Column { title: "Task", cell: |json| of(json, |held: LockTask| task(&held)), cut: Cut::Late },
    Column { title: "Mode", cell: |json| of(json, mode), cut: Cut::Never },
    Column { title: "Status", cell: status::of, cut: Cut::Never },
    Column {
        title: "Node",
        cell: |json| of(json, |held: LockTask| held.node.unwrap_or_default()),
        cut: Cut::Early,
    },
    Column {
        title: "Since (UTC)",
        cell: |json| of(json, |held: LockTask| held.since.unwrap_or_default()),
        cut: Cut::Never,
    },
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

/// Its id, if whoever asks may know it.
fn task(held: &LockTask) -> String {
    held.id.clone().unwrap_or_else(|| "(of another queue)".to_owned())
}

fn mode(held: LockTask) -> String {
    held.places.map_or(held.mode, |places| format!("1 of {places}"))
}

fn of<T: Default + Serialize + DeserializeOwned>(json: &Value, cell: impl FnOnce(T) -> String) -> String {
    read(json.clone()).map(cell).unwrap_or_default()
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
