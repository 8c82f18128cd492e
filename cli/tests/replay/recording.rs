//! The recorded runs.

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    /// What it tries.
    pub name: String,
    program: String,
    /// The arguments.
    pub argv: Vec<String>,
    exit_code: Value,
    stdout: Option<String>,
    stderr: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOutput {
    /// The exit status.
    pub exit_code: i64,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// The recorded outcome; nothing if it is not told.
    pub fn outcome(&self) -> Option<ProgramOutput> {
        let (stdout, stderr) = (self.stdout.clone()?, self.stderr.clone()?);
        Some(ProgramOutput { exit_code: self.exit_code.as_i64()?, stdout, stderr })
    }
}

impl ProgramOutput {
    /// All that was printed.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// The runs of `disbatch`, in the order in which they were made.
pub fn in_scope() -> anyhow::Result<Vec<Run>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/cli.jsonl");
    let text = std::fs::read_to_string(path).context(path)?;
    let runs: Result<Vec<Run>, _> = text.lines().map(serde_json::from_str).collect();
    Ok(runs?.into_iter().filter(|run| run.program == "disbatch").collect())
}

/// The ids in an output that is not told, as later runs use them.
pub fn ids_told_elsewhere(name: &str) -> &'static str {
    match name {
        "create-queue" => "6b0003c7686c8275d91f20ef",
        "create-task" => "6b0003c9686c8275d801333e",
        _ => "", // Nothing refers to the ids of the others.
    }
}
