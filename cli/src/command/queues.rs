//! `disbatch queues`

use serde_json::Value;

use crate::api::Client;
use crate::command::{plain, print};

/// The columns: title, and key in the DCI's answer.
const COLUMNS: [(&str, &str); 7] = [
    ("ID", "id"),
    ("Plugin", "plugin"),
    ("Name", "name"),
    ("Threads", "threads"),
    ("Queued", "queued"),
    ("Running", "running"),
    ("Completed", "completed"),
];

/// Prints all queues as a table.
///
/// # Errors
/// The DCI cannot be reached.
pub async fn run(client: &Client) -> anyhow::Result<()> {
    let queues = client.get("/queues", None).await?;
    print(&table(queues.as_array().map(Vec::as_slice).unwrap_or_default()))
}

fn table(queues: &[Value]) -> String {
    let rows: Vec<Vec<String>> =
        queues.iter().map(|queue| COLUMNS.iter().map(|(_, key)| plain(queue.get(*key))).collect()).collect();
    let titles: Vec<String> = COLUMNS.iter().map(|(title, _)| (*title).to_owned()).collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            std::iter::once(&titles).chain(&rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: &[String]| -> String {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$} | "));
        cells.chain(["\n".to_owned()]).collect()
    };
    let rule: String =
        widths.iter().map(|width| format!("{}-+-", "-".repeat(*width))).chain(["\n".to_owned()]).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{body}\n{} total queues.\n", line(&titles), queues.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_has_its_titles() {
        assert_eq!(
            table(&[]),
            "ID | Plugin | Name | Threads | Queued | Running | Completed | \n\
             ---+--------+------+---------+--------+---------+-----------+-\n\n0 total queues.\n"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let queue = serde_json::json!({"id": "6b0003c7686c8275d91f20ef", "plugin": "Demo", "name": "fizz",
            "threads": null, "queued": 0, "running": 0, "completed": 9});
        assert_eq!(
            table(&[queue]),
            "ID                       | Plugin | Name | Threads | Queued | Running | Completed | \n\
             -------------------------+--------+------+---------+--------+---------+-----------+-\n\
             6b0003c7686c8275d91f20ef | Demo   | fizz |         | 0      | 0       | 9         | \n\
             \n1 total queues.\n"
        );
    }
}
