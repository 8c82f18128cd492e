//! `disbatch nodes` and `disbatch nodes rm NODE`

use serde_json::Value;

use crate::api::{Client, segment};
use crate::args::{ListingOptions, NodesCommand};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print, shown_name};

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |node| plain(node.get("id")), cut: Cut::Late },
        Column { title: "Node", cell: |node| plain(node.get("node")), cut: Cut::Early },
        Column { title: "Maxthreads", cell: |node| plain(node.get("maxthreads")), cut: Cut::Never },
        Column { title: "Last seen (UTC)", cell: |node| date(node.get("timestamp")), cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Never },
        Column { title: "Running", cell: |node| plain(node.get("running")), cut: Cut::Never },
        Column { title: "Load", cell: load, cut: Cut::Never },
        Column { title: "Version", cell: |node| plain(node.get("version")), cut: Cut::Early },
        Column { title: "Labels", cell: labels, cut: Cut::Early },
        Column { title: "Addresses", cell: addresses, cut: Cut::Early },
    ],
    noun: "nodes",
};

/// Prints all nodes, or removes one.
///
/// # Errors
/// The DCI cannot be reached; or there is no such node, or its DEN is alive.
pub async fn run(
    client: &Client,
    command: Option<&NodesCommand>,
    options: &ListingOptions,
) -> anyhow::Result<()> {
    if let Some(NodesCommand::Rm { node }) = command {
        client.delete(&format!("/nodes/{}", segment(node))).await.map_err(advise)?;
        return print(&format!("Removed node {}\n", shown_name(node)));
    }
    let nodes = client.get("/nodes?.details=1", None).await?;
    print(&list(&nodes, options, |nodes| TABLE.render(nodes, Screen::of_stdout()))?)
}

/// How it is doing, and whether another DEN uses its name.
fn state(node: &Value) -> String {
    let state = plain(node.get("state"));
    if node.get("rival").is_some_and(|rival| !rival.is_null()) { format!("{state}, twice") } else { state }
}

/// `0.52 of 4`
fn load(node: &Value) -> String {
    let stats = |name| node.get("stats").and_then(|stats| stats.get(name));
    match (stats("load").and_then(Value::as_f64), stats("cpus").and_then(Value::as_u64)) {
        (Some(load), Some(cpus)) => format!("{load:.2} of {cpus}"),
        (Some(load), None) => format!("{load:.2}"),
        (None, _) => String::new(),
    }
}

fn labels(node: &Value) -> String {
    let labels = node.get("labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().map(|(name, value)| format!("{name}={}", plain(Some(value))));
    pairs.collect::<Vec<String>>().join(" ")
}

fn addresses(node: &Value) -> String {
    let of = |kind| node.get("addresses").and_then(|all| all.get(kind)).and_then(Value::as_array);
    let all = of("private").into_iter().flatten().chain(of("public").into_iter().flatten());
    all.map(|address| plain(Some(address))).collect::<Vec<String>>().join(" ")
}

/// Milliseconds since 1970 as the DCI writes other times; anything else as it is.
pub fn date(value: Option<&Value>) -> String {
    let Some(millis) = value.and_then(Value::as_i64) else { return plain(value) };
    let seconds = millis.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // From 0000-03-01.
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_dates() {
        for (millis, text) in [
            (json!(1_795_163_066_819_i64), "2026-11-20T08:24:26"),
            (json!(0), "1970-01-01T00:00:00"),
            (json!(-1), "1969-12-31T23:59:59"),
            (json!(951_782_400_000_i64), "2000-02-29T00:00:00"),
            (json!("x"), "x"),
            (Value::Null, ""),
        ] {
            assert_eq!(date(Some(&millis)), text);
        }
    }

    #[test]
    fn nodes_have_what_people_look_for() {
        let node = json!({
            "id": "6b", "node": "vm", "maxthreads": 4, "timestamp": 0, "state": "alive", "running": 2,
            "stats": { "load": 0.5234, "cpus": 8 }, "version": "1.2", "labels": { "gpu": "yes", "zone": "a" },
            "addresses": { "private": ["10.0.0.5"], "public": ["203.0.113.9"] }, "rival": "other",
        });
        let table = TABLE.render(&[node], Screen::default());
        let line = "6b | vm   | 4          | 1970-01-01T00:00:00 | alive, twice | 2       | 0.52 of 8 | 1.2     \
                    | gpu=yes zone=a | 10.0.0.5 203.0.113.9 | \n";
        assert!(table.contains(line), "{table}");
        let perl = json!({"id": "6b", "node": "vm", "maxthreads": null, "timestamp": 0});
        assert!(TABLE.render(&[perl], Screen::default()).ends_with("\n1 total nodes.\n"));
    }
}
