//! A table of tasks, whose rows change by themselves.

use std::collections::HashMap;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Document;
use bson::oid::ObjectId;

use super::columns::{Cell, Column};

#[derive(Debug, Template)]
#[template(path = "tasks/table.html")]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl HtmlSafe for Table {}

#[derive(Debug, Template)]
#[template(path = "tasks/row.html")]
pub struct Row {
    id: String,
    /// How many columns there are.
    width: usize,
    /// None: the task is not there any more.
    cells: Option<Vec<Cell>>,
}

impl HtmlSafe for Row {}

impl Table {
    /// A table of tasks.
    pub fn of(rows: Vec<Row>, columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The ids of its tasks, in order.
    pub fn ids(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.id.as_str()).collect()
    }
}

impl Row {
    /// The row of a task. `names` are those of queues.
    pub fn of(task: &Document, columns: &[Column], names: &HashMap<ObjectId, String>) -> Self {
        let cells = columns.iter().map(|column| column.cell(task, names)).collect();
        let id = task.get_object_id("_id").map(ObjectId::to_hex).unwrap_or_default();
        Self { id, width: columns.len(), cells: Some(cells) }
    }

    /// The row of a task that was there.
    pub fn of_gone(id: ObjectId, columns: &[Column]) -> Self {
        Self { id: id.to_hex(), width: columns.len(), cells: None }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";
    const TASK: &str = "6b0003bb686c8275d8013333";

    #[test]
    fn rows_show_tasks_as_text() {
        let queue = ObjectId::parse_str(QUEUE).unwrap();
        let names = HashMap::from([(queue, "q<1>".to_owned())]);
        let task = doc! {
            "_id": ObjectId::parse_str(TASK).unwrap(), "queue": queue, "status": 1, "node": "<vm>",
            "params": { "text": "<script>\"x\"</script>" }, "progress": { "percent": 50, "message": "<b>" },
            "ctime": bson::DateTime::from_millis(1_795_163_067_344), "result": { "a": "&" },
        };
        let row = Row::of(&task, &Column::ALL, &names);
        let html = Table::of(vec![row], &Column::ALL).render().unwrap();
        for part in [
            "<tr id=\"task-6b0003bb686c8275d8013333\">",
            "<a href=\"/tasks/6b0003bb686c8275d8013333\">",
            "name=\"ids\" value=\"6b0003bb686c8275d8013333\"",
            "<a class=\"name\" href=\"/queues/6b0003bb686c8275d70dc2f1\">q&#60;1&#62;</a>",
            "succeeded",
            "&#60;vm&#62;",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "&#60;script&#62;",
            "value=\"50\"",
            "&#60;b&#62;",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert_eq!(html.matches("<th scope=\"col\"").count(), Column::ALL.len() + 1);
    }

    #[test]
    fn rows_of_any_shape_and_length_are_rows() {
        let long = "x".repeat(10_000);
        let tasks = [
            doc! { "_id": ObjectId::parse_str(TASK).unwrap() },
            doc! { "_id": "odd", "queue": &long, "status": "<x>", "node": &long, "params": &long },
        ];
        let rows = tasks.iter().map(|task| Row::of(task, &Column::ALL, &HashMap::new())).collect();
        let html = Table::of(rows, &Column::ALL).render().unwrap();
        assert_eq!(html.matches("<tr id=").count(), 2, "{html}");
        assert!(html.contains("no status") && html.contains("&#60;x&#62;"), "{html}");
        let gone = Row::of_gone(ObjectId::parse_str(TASK).unwrap(), &Column::USUAL).render().unwrap();
        assert!(gone.contains("colspan=\"6\"") && gone.contains("It is not here any more."), "{gone}");
        assert!(!gone.contains("checkbox"), "nothing can be done with it: {gone}");
    }
}
