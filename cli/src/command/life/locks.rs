//! `disbatch locks [NAME]` and `disbatch graph TASK`

use disbatch_wire::locks::{Lock, LockTask};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Client, query, read, segment};
use crate::args::{GraphOptions, ListingOptions, LocksOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, plain, print};
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

const GRAPH: Table = Table {
    columns: &[
        Column { title: "Distance", cell: |node| plain(node.get("distance")), cut: Cut::Never },
        Column { title: "Task", cell: graph_task, cut: Cut::Late },
        Column { title: "Status", cell: standing, cut: Cut::Never },
        Column { title: "After", cell: |node| plain(node.get("after")), cut: Cut::Early },
        Column { title: "Waits for", cell: |node| plain(node.get("waits")), cut: Cut::Early },
    ],
    noun: "tasks",
};

/// Prints the tasks that a task comes after, and those that come after it.
pub async fn graph(client: &Client, which: &GraphOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let pairs = [
        (".depth", which.depth.map(|depth| depth.to_string())),
        (".limit", options.limit.map(|limit| limit.to_string())),
    ];
    let path = format!("/tasks/{}/graph{}", which.id, query(pairs));
    let graph = client.get(&path, None).await.map_err(advise)?;
    print(&document(&graph, options, |graph| graph_text(graph, Screen::of_stdout()))?)
}

/// A line for each task, those that come first at the top.
fn graph_text(graph: &Value, screen: Screen) -> String {
    let array = |name: &str| graph.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (nodes, edges) = (array("nodes"), array("edges"));
    let mut rows: Vec<Value> = nodes.iter().map(|node| row(node, nodes, edges)).collect();
    rows.sort_by_key(|row| row.get("distance").and_then(Value::as_i64));
    let more = graph.get("more").and_then(Value::as_bool) == Some(true);
    let more = if more { "There are more: --limit and --depth say how many\n" } else { "" };
    format!("{}{more}", GRAPH.render(&rows, screen))
}

/// A node with the tasks that it comes after, and those of them that it still waits for.
fn row(node: &Value, nodes: &[Value], edges: &[Value]) -> Value {
    let key = node.get("key");
    let earlier = |only_waiting: bool| {
        let to_this = edges.iter().filter(|edge| edge.get("to") == key);
        let to_this = to_this.filter(|edge| !only_waiting || edge.get("waiting") == Some(&Value::Bool(true)));
        let from = to_this.filter_map(|edge| nodes.iter().find(|node| node.get("key") == edge.get("from")));
        from.map(graph_task).collect::<Vec<String>>().join(", ")
    };
    let mut row = node.clone();
    if let Some(row) = row.as_object_mut() {
        row.insert("after".to_owned(), earlier(false).into());
        row.insert("waits".to_owned(), earlier(true).into());
    }
    row
}

/// Its id, if whoever asks may know it.
fn graph_task(node: &Value) -> String {
    Some(plain(node.get("id"))).filter(|id| !id.is_empty()).unwrap_or_else(|| "(of another queue)".to_owned())
}

fn standing(node: &Value) -> String {
    Some(status::of(node)).filter(|word| !word.is_empty()).unwrap_or_else(|| plain(node.get("word")))
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

    #[test]
    fn tasks_stand_behind_those_that_they_come_after() {
        let graph = json!({
            "nodes": [
                { "key": 0, "id": "8d", "status": -4, "distance": 0 },
                { "key": 1, "id": "6b", "status": 1, "distance": -1 },
                { "key": 2, "hidden": true, "status": 0, "distance": -1 },
                { "key": 3, "id": "9e", "status": null, "word": "gone", "distance": 1 },
            ],
            "edges": [
                { "from": 1, "to": 0, "waiting": false }, { "from": 2, "to": 0, "waiting": true },
                { "from": 0, "to": 3, "waiting": false },
            ],
            "more": true,
        });
        let text = graph_text(&graph, Screen::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("-1       | 6b "), "{text}");
        assert!(
            lines[4]
                .contains("| 8d                 | blocked   | 6b, (of another queue) | (of another queue) |"),
            "{text}"
        );
        assert!(lines[5].contains("| gone      | 8d "), "{text}");
        assert!(text.ends_with("There are more: --limit and --depth say how many\n"), "{text}");
    }
}
