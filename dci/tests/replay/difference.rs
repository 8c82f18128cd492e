//! The table of deliberate differences in `docs/compatibility.md`.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::recording::Response;

/// One line of the table.
#[derive(Debug)]
pub struct Difference {
    name: String,
    status: u16,
    text: String,
}

/// The table's lines that name recordings, by recording.
pub fn read() -> anyhow::Result<BTreeMap<String, Difference>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compatibility.md");
    let document = std::fs::read_to_string(path).context(path)?;
    let (_, table) = document.split_once("| Recording | Perl | Here | Why |").context("there is no table")?;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let differences: Vec<Difference> = rows.map(row).collect::<anyhow::Result<_>>()?;
    let count = differences.len();
    let by_name: BTreeMap<String, Difference> =
        differences.into_iter().map(|difference| (difference.name.clone(), difference)).collect();
    ensure!(by_name.len() == count, "a recording is listed twice");
    Ok(by_name)
}

/// The column "Here" starts with the status, and goes on with a part of the answer in backquotes.
fn row(line: &str) -> anyhow::Result<Difference> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    ensure!(cells.len() == 4, "the table has a line without four cells: {line}");
    let status = cells[2].split(' ').next().and_then(|word| word.parse().ok());
    Ok(Difference {
        name: cells[0].trim_matches('`').to_owned(),
        status: status.with_context(|| format!("no status in {line}"))?,
        text: cells[2].split('`').nth(1).unwrap_or_default().to_owned(),
    })
}

/// `POST /balance` tells errors in a key of its own, the routes of Disbatch 3 in an array.
fn is_error(json: &Value) -> bool {
    let told = |value: &Value| value.is_string() || value["error"].is_string();
    told(&json["error"]) || json["status"].is_string() || (json[0] == 0 && told(&json[1]))
}

impl Difference {
    /// Whether the answer is the one that the table promises. Errors are JSON that says what is wrong.
    pub fn check(&self, answer: &Response) -> Result<(), String> {
        let body = answer.body.as_deref().unwrap_or_default();
        let wrong = |what: &str| Err(format!("{}: {what}: {} {body}", self.name, answer.status));
        if answer.status != self.status {
            return wrong("the status is not the listed one");
        }
        if !body.contains(&self.text) {
            return wrong("the answer does not hold the listed text");
        }
        let error = serde_json::from_str(body).is_ok_and(|json: Value| is_error(&json));
        if answer.status >= 400 && !error && !body.is_empty() {
            return wrong("the error is not told in JSON");
        }
        Ok(())
    }
}
