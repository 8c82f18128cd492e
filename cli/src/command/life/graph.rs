//! `disbatch graph TASK`

use serde_json::Value;

use crate::api::{Client, query};
use crate::args::{GraphOptions, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, plain, print};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Distance", cell: |node| plain(node.get("distance")), cut: Cut::Never },
        Column { title: "Task", cell: task, cut: Cut::Late },
        Column { title: "Status", cell: standing, cut: Cut::Never },
        Column { title: "After", cell: |node| plain(node.get("after")), cut: Cut::Early },
        Column { title: "Waits for", cell: |node| plain(node.get("waits")), cut: Cut::Early },
    ],
    noun: "tasks",
};

/// Prints the tasks that a task comes after, and those that come after it.
pub async fn run(client: &Client, which: &GraphOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let pairs = [
        (".depth", which.depth.map(|depth| depth.to_string())),
        (".limit", options.limit.map(|limit| limit.to_string())),
    ];
    let path = format!("/tasks/{}/graph{}", which.id, query(pairs));
    let graph = client.get(&path, None).await.map_err(advise)?;
    print(&document(&graph, options, |graph| text(graph, Screen::of_stdout()))?)
}

/// A line for each task, those that come first at the top.
fn text(graph: &Value, screen: Screen) -> String {
    let array = |name: &str| graph.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (nodes, edges) = (array("nodes"), array("edges"));
    let mut rows: Vec<Value> = nodes.iter().map(|node| row(node, nodes, edges)).collect();
    rows.sort_by_key(|row| row.get("distance").and_then(Value::as_i64));
    let more = graph.get("more").and_then(Value::as_bool) == Some(true);
    let more = if more { "There are more: --limit and --depth say how many\n" } else { "" };
    format!("{}{more}", TABLE.render(&rows, screen))
}

/// A node with the tasks that it comes after, and those of them that it still waits for.
fn row(node: &Value, nodes: &[Value], edges: &[Value]) -> Value {
    let key = node.get("key");
    let earlier = |only_waiting: bool| {
        let to_this = edges.iter().filter(|edge| edge.get("to") == key);
        let to_this = to_this.filter(|edge| !only_waiting || edge.get("waiting") == Some(&Value::Bool(true)));
        let from = to_this.filter_map(|edge| nodes.iter().find(|node| node.get("key") == edge.get("from")));
        from.map(task).collect::<Vec<String>>().join(", ")
    };
    let mut row = node.clone();
    if let Some(row) = row.as_object_mut() {
        row.insert("after".to_owned(), earlier(false).into());
        row.insert("waits".to_owned(), earlier(true).into());
    }
    row
}

/// Its id, if whoever asks may know it.
fn task(node: &Value) -> String {
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
        let text = text(&graph, Screen::default());
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
