//! `disbatch array list`

use super::{ended, state};
use crate::api::{Client, query};
use crate::args::{ArrayFilter, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print};

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |array| plain(array.get("id")), cut: Cut::Late },
        Column { title: "Queue", cell: |array| plain(array.get("queue")), cut: Cut::Late },
        Column { title: "Elements", cell: |array| plain(array.get("items")), cut: Cut::Early },
        Column { title: "Ended", cell: ended, cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Created (UTC)", cell: |array| plain(array.get("created")), cut: Cut::Never },
    ],
    noun: "arrays",
};

/// Prints the arrays that there are.
pub async fn run(client: &Client, filter: &ArrayFilter, options: &ListingOptions) -> anyhow::Result<()> {
    let arrays = client.get(&address(filter, options.limit), None).await.map_err(advise)?;
    print(&list(&arrays, options, |arrays| TABLE.render(arrays, Screen::of_stdout()))?)
}

fn address(filter: &ArrayFilter, limit: Option<i64>) -> String {
    let pairs = [
        ("queue", filter.queue.clone()),
        ("state", filter.state.clone()),
        (".before", filter.before.clone()),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/arrays{}", query(pairs))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arrays_are_lines() {
        let array = json!({
            "id": "6b", "queue": "7c", "items": "0-99", "count": 100, "done": 70, "state": "open", "succeeded": null,
            "created": "2026-11-20T08:24:27",
        });
        let text = TABLE.render(&[array], Screen::default());
        let line = "6b | 7c    | 0-99     | 70 of 100 | open  | 2026-11-20T08:24:27 | \n";
        assert!(text.contains(line) && text.ends_with("\n1 total arrays.\n"), "{text}");
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_address() {
        assert_eq!(address(&ArrayFilter::default(), None), "/arrays");
        let filter =
            ArrayFilter { queue: Some("a b".into()), state: Some("open".into()), before: Some("6b".into()) };
        assert_eq!(address(&filter, Some(5)), "/arrays?queue=a%20b&state=open&.before=6b&.limit=5");
    }
}
