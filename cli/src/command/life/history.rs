//! `disbatch history ID`

use serde_json::{Value, json};

use crate::api::Client;
use crate::args::ListingOptions;
use crate::command::life::{advise, details};
use crate::output::{Column, Cut, Screen, Table, list, plain, print};
use crate::status;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |entry| plain(entry.get("at")), cut: Cut::Never },
        Column { title: "Status", cell: status::of, cut: Cut::Never },
        Column { title: "Attempt", cell: |entry| plain(entry.get("attempt")), cut: Cut::Never },
        Column { title: "Node", cell: |entry| plain(entry.get("node")), cut: Cut::Early },
        Column { title: "Note", cell: |entry| plain(entry.get("note")), cut: Cut::Early },
    ],
    noun: "changes",
};

/// Prints the statuses that a task has been in, as far as they are kept.
pub async fn run(client: &Client, id: &str, options: &ListingOptions) -> anyhow::Result<()> {
    let task = details(client, id).await.map_err(advise)?;
    let history: Value = task.get("history").cloned().unwrap_or_else(|| json!([]));
    print(&list(&history, options, |history| TABLE.render(history, Screen::of_stdout()))?)
}
