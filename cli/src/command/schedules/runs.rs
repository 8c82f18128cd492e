//! `disbatch schedule runs`

use serde_json::Value;

use super::path;
use crate::api::{Client, query};
use crate::args::{ListingOptions, RunsOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Task", cell: |run| plain(run.get("task")), cut: Cut::Never },
        Column { title: "For (UTC)", cell: |run| plain(run.get("for")), cut: Cut::Never },
        Column { title: "Status", cell: |run| plain(run.get("word")), cut: Cut::Never },
        Column { title: "Started", cell: |run| plain(run.get("started")), cut: Cut::Late },
        Column { title: "Ended", cell: |run| plain(run.get("ended")), cut: Cut::Late },
        Column { title: "Node", cell: |run| plain(run.get("node")), cut: Cut::Early },
    ],
    noun: "runs",
};

/// Prints the runs of a schedule, the latest first.
pub async fn run(client: &Client, options: &RunsOptions, listing: &ListingOptions) -> anyhow::Result<()> {
    let pairs =
        [(".limit", listing.limit.map(|limit| limit.to_string())), (".before", options.before.clone())];
    let address = format!("{}/runs{}", path(&options.schedule)?, query(pairs));
    let mut answer = client.get(&address, None).await.map_err(advise)?;
    let runs = answer.get_mut("runs").map(Value::take).unwrap_or_default();
    print(&list(&runs, listing, |runs| TABLE.render(runs, Screen::of_stdout()))?)?;
    if let Some(next) = answer.get("next").and_then(Value::as_str) {
        crate::output::say(&format!("there are earlier ones: --before {next}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_are_lines() {
        let run = json!({
            "task": "8d", "for": "2026-11-20T02:00:00Z", "word": "succeeded", "started": "2026-11-20T02:00:01",
            "ended": null, "node": "vm",
        });
        let text = TABLE.render(std::slice::from_ref(&run), Screen::default());
        assert!(
            text.contains("8d") && text.contains("2026-11-20T02:00:00Z") && text.contains("succeeded"),
            "{text}"
        );
    }
}
