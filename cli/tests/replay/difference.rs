//! The table of deliberate differences of the command line in `docs/compatibility.md`.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

use crate::recording::ProgramOutput;

/// One line of the table.
#[derive(Debug)]
pub struct Difference {
    name: String,
    exit_code: i64,
    text: String,
}

/// The table's lines by recording.
pub fn read() -> anyhow::Result<BTreeMap<String, Difference>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compatibility.md");
    let document = std::fs::read_to_string(path).context(path)?;
    let (_, table) = document.split_once("| Run | Perl | Here | Why |").context("there is no table")?;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|')).map(row);
    rows.map(|row| row.map(|row| (row.name.clone(), row))).collect()
}

/// The column "Here" starts with the exit status, and goes on with a part of the output in backquotes.
fn row(line: &str) -> anyhow::Result<Difference> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    ensure!(cells.len() == 4, "the table has a line without four cells: {line}");
    let exit_code = cells[2].split(' ').next().and_then(|word| word.parse().ok());
    Ok(Difference {
        name: cells[0].trim_matches('`').to_owned(),
        exit_code: exit_code.with_context(|| format!("no exit status in {line}"))?,
        text: cells[2].split('`').nth(1).unwrap_or_default().to_owned(),
    })
}

impl Difference {
    /// Whether the outcome is the one that the table promises.
    pub fn check(&self, outcome: &ProgramOutput) -> Result<(), String> {
        if outcome.exit_code == self.exit_code && outcome.text().contains(&self.text) {
            Ok(())
        } else {
            Err(format!("{}: is not as listed: {outcome:?}", self.name))
        }
    }
}
