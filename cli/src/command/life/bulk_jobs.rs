//! `disbatch bulk-jobs`

use crate::api::Client;
use crate::args::ListingOptions;
use crate::command::life::advise;
use crate::command::oid;
use crate::output::{Column, Cut, Screen, Table, list, plain, print};

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |job| oid(job.get("id").or(job.get("_id"))), cut: Cut::Late },
        Column { title: "Action", cell: |job| plain(job.get("action")), cut: Cut::Never },
        Column { title: "State", cell: |job| plain(job.get("state")), cut: Cut::Never },
        Column { title: "Total", cell: |job| plain(job.get("total")), cut: Cut::Never },
        Column { title: "Done", cell: |job| plain(job.get("done")), cut: Cut::Never },
        Column { title: "Skipped", cell: |job| plain(job.get("skipped")), cut: Cut::Never },
        Column { title: "Reason", cell: |job| plain(job.get("reason")), cut: Cut::Early },
    ],
    noun: "bulk jobs",
};

/// Prints the bulk jobs, or cancels one.
pub async fn run(client: &Client, cancel: Option<String>, options: &ListingOptions) -> anyhow::Result<()> {
    if let Some(id) = cancel {
        client.post(&format!("/bulk/{id}/cancel"), &serde_json::json!({})).await.map_err(advise)?;
        return print(&format!("Cancelled bulk job {id}; what it has done is not undone\n"));
    }
    let jobs = client.get("/bulk", None).await.map_err(advise)?;
    print(&list(&jobs, options, |jobs| TABLE.render(jobs, Screen::of_stdout()))?)
}
