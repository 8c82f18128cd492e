//! `disbatch locks [NAME]` and `disbatch graph TASK`

use disbatch_wire::locks::{GraphNode, Lock, LockDetails, LockTask, TaskGraph};

use crate::api::{address, segment};
use crate::args::{GraphOptions, LocksOptions};
use crate::command::Session;
use crate::output::{Column, Cut, Screen, Table, known};
use crate::status;

const LOCKS: Table<Lock> = Table {
    columns: &[
        Column { title: "Lock", cell: |lock| lock.name.clone(), cut: Cut::Early },
        Column { title: "Held by", cell: |lock| lock.held_by.to_string(), cut: Cut::Never },
        Column { title: "Waiting", cell: |lock| lock.waiting.to_string(), cut: Cut::Never },
        Column { title: "First holder", cell: |lock| known(&lock.holders.first().map(task)), cut: Cut::Late },
    ],
    noun: "locks",
};

const HOLDERS: Table<LockTask> = Table { columns: &TASKS, noun: "tasks that hold it" };

const WAITERS: Table<LockTask> = Table { columns: &TASKS, noun: "tasks that wait for it" };

const TASKS: [Column<LockTask>; 5] = [
    Column { title: "Task", cell: task, cut: Cut::Late },
    Column { title: "Mode", cell: mode, cut: Cut::Never },
    Column { title: "Status", cell: |held| known(&held.status.map(status::word)), cut: Cut::Never },
    Column { title: "Node", cell: |held| known(&held.node), cut: Cut::Early },
    Column { title: "Since (UTC)", cell: |held| known(&held.since), cut: Cut::Never },
];

pub async fn run(session: &Session, which: &LocksOptions) -> anyhow::Result<()> {
    if let Some(name) = &which.name {
        let path = format!("/locks/{}", segment(name));
        return session.print_document(&path, |lock| details(lock, Screen::of_stdout())).await;
    }
    session.print_list(&address("/locks", which, session.listing.limit)?, &LOCKS).await
}

fn details(lock: &LockDetails, screen: Screen) -> String {
    format!("{}\n{}", HOLDERS.render(&lock.holders, screen), WAITERS.render(&lock.waiters, screen))
}

/// The id of a task, if whoever asks may know it.
fn named(id: Option<&str>) -> String {
    id.unwrap_or("(of another queue)").to_owned()
}

fn task(held: &LockTask) -> String {
    named(held.id.as_deref())
}

fn mode(held: &LockTask) -> String {
    held.places.map_or_else(|| held.mode.clone(), |places| format!("1 of {places}"))
}

#[derive(Debug)]
struct GraphRow {
    node: GraphNode,
    after: String,
    waits: String,
}

const GRAPH: Table<GraphRow> = Table {
    columns: &[
        Column { title: "Distance", cell: |row| row.node.distance.to_string(), cut: Cut::Never },
        Column { title: "Task", cell: |row| named(row.node.id.as_deref()), cut: Cut::Late },
        Column {
            title: "Status",
            cell: |row| row.node.status.map_or_else(|| row.node.word.clone(), status::word),
            cut: Cut::Never,
        },
        Column { title: "After", cell: |row| row.after.clone(), cut: Cut::Early },
        Column { title: "Waits for", cell: |row| row.waits.clone(), cut: Cut::Early },
    ],
    noun: "tasks",
};

pub async fn graph(session: &Session, which: &GraphOptions) -> anyhow::Result<()> {
    let path = address(&format!("/tasks/{}/graph", which.id), which, session.listing.limit)?;
    session.print_document(&path, |graph| graph_text(graph, Screen::of_stdout())).await
}

/// A line for each task, those that come first at the top.
fn graph_text(graph: &TaskGraph, screen: Screen) -> String {
    let mut rows: Vec<GraphRow> = graph.nodes.iter().map(|node| row(node, graph)).collect();
    rows.sort_by_key(|row| row.node.distance);
    let more = if graph.more { "There are more: --limit and --depth say how many\n" } else { "" };
    format!("{}{more}", GRAPH.render(&rows, screen))
}

fn row(node: &GraphNode, graph: &TaskGraph) -> GraphRow {
    let earlier = |only_waiting: bool| {
        let to_this = graph.edges.iter().filter(|edge| edge.to == node.key);
        let to_this = to_this.filter(|edge| edge.waiting || !only_waiting);
        let from = to_this.filter_map(|edge| graph.nodes.iter().find(|node| node.key == edge.from));
        from.map(|node| named(node.id.as_deref())).collect::<Vec<String>>().join(", ")
    };
    GraphRow { node: node.clone(), after: earlier(false), waits: earlier(true) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::read;

    #[test]
    fn a_lock_tells_who_has_it_and_who_waits() {
        let holder = json!({ "id": "6b", "mode": "places", "places": 3, "status": 0, "node": "vm" });
        let waiter = json!({ "hidden": true, "mode": "exclusive", "status": -4 });
        let lock =
            json!({ "name": "db", "held_by": 1, "waiting": 1, "holders": [holder], "waiters": [waiter] });
        let text = details(&read(lock.clone()).unwrap(), Screen::default());
        assert!(text.contains("6b   | 1 of 3 | running | vm   |"), "{text}");
        assert!(text.contains("(of another queue) | exclusive | blocked |"), "{text}");
        assert!(text.ends_with("1 total tasks that wait for it.\n"), "{text}");
        let row = LOCKS.render(&[read(lock).unwrap()], Screen::default());
        assert!(row.contains("db   | 1       | 1       | 6b           |"), "{row}");
    }

    #[test]
    fn tasks_stand_behind_those_that_they_come_after() {
        let graph = json!({
            "nodes": [
                { "key": 0, "id": "8d", "status": -4, "word": "blocked", "distance": 0 },
                { "key": 1, "id": "6b", "status": 1, "word": "succeeded", "distance": -1 },
                { "key": 2, "hidden": true, "status": 0, "word": "running", "distance": -1 },
                { "key": 3, "id": "9e", "status": null, "word": "gone", "distance": 1 },
            ],
            "edges": [
                { "from": 1, "to": 0, "waiting": false }, { "from": 2, "to": 0, "waiting": true },
                { "from": 0, "to": 3, "waiting": false },
            ],
            "more": true,
        });
        let text = graph_text(&read(graph).unwrap(), Screen::default());
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
