//! The commands that look for tasks and locks, those about arrays, and those that submit or change single tasks.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Serialize, Serializer};

use crate::args::life::status;
use crate::args::seconds;
use crate::args::task::parse_id;

/// Which tasks. All that is given must be so.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize)]
#[command(next_help_heading = "Which tasks, in place of a JSON object")]
pub struct TaskFilter {
    /// Of this queue, by name or id [default: of all queues]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// In these statuses, by word or number, with commas between them
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status,
        allow_hyphen_values = true)]
    #[serde(serialize_with = "commas", skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<i64>,
    /// On this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub tags: TagFilter,
    #[command(flatten)]
    #[serde(flatten)]
    pub created: CreatedFilter,
    /// Changed last since then: so long ago (90s, 5m, 2h, 7d), or ISO 8601
    #[arg(long, value_name = "WHEN", value_parser = when)]
    #[serde(skip)]
    pub since: Option<When>,
    /// Changed last until then
    #[arg(long, value_name = "WHEN", value_parser = when)]
    #[serde(skip)]
    pub until: Option<When>,
    /// With this text in their parameters
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Older than this one: those that the list before did not have
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    #[serde(rename = ".after")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Serialize)]
pub struct TagFilter {
    /// With this tag, as customer=7; repeated for others that they must have, too
    #[arg(long, value_name = "TAG")]
    #[serde(rename = "tags", skip_serializing_if = "Vec::is_empty")]
    pub tag: Vec<String>,
    /// With this tag, or another one that is given so
    #[arg(long, value_name = "TAG")]
    #[serde(rename = "any_tags", skip_serializing_if = "Vec::is_empty")]
    pub any_tag: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Serialize)]
pub struct CreatedFilter {
    /// Made since then: so long ago (90s, 5m, 2h, 7d), or ISO 8601
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub created_since: Option<When>,
    /// Made before then
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub created_until: Option<When>,
}

impl When {
    /// As the DCI reads it where it takes both.
    pub fn text(&self) -> String {
        match self {
            Self::Ago(age) => format!("{}s", seconds::value(*age)),
            Self::At(time) => time.clone(),
        }
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

/// Statuses as the DCI reads them in an address.
pub(in crate::args) fn commas<S: Serializer>(statuses: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    serializer.serialize_str(&statuses.join(","))
}

/// A point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// So long ago.
    Ago(Duration),
    /// As the DCI reads it.
    At(String),
}

fn when(text: &str) -> Result<When, String> {
    if let Ok(age) = seconds::parse(text) {
        return Ok(When::Ago(age));
    }
    // A day, at least; the DCI knows the rest.
    let is_time = text.len() >= 10 && text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('-');
    if !is_time {
        return Err(format!(
            "'{text}' is no time: write 90s, 5m, 2h or 7d for so long ago, or 2026-11-20T08:24:27Z"
        ));
    }
    Ok(When::At(if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() }))
}

impl TaskFilter {
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

#[derive(Debug, Default, Args, Serialize)]
pub struct LocksOptions {
    /// Show this lock, with those who wait for it [default: all locks]
    #[arg(conflicts_with_all = ["prefix", "after"])]
    #[serde(skip)]
    pub name: Option<String>,
    /// Only those whose names begin so; those of arrays begin with array:
    #[arg(long, value_name = "TEXT")]
    #[serde(rename = ".prefix")]
    pub prefix: Option<String>,
    /// Only those whose names come after this one
    #[arg(long, value_name = "NAME")]
    #[serde(rename = ".after")]
    pub after: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub struct GraphOptions {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    #[serde(skip)]
    pub id: String,
    /// How far to go in both directions [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    #[serde(rename = ".depth")]
    pub depth: Option<u32>,
}

#[derive(Debug, Args)]
pub struct BatchOptions {
    /// File with up to 1,000 entries, each an object with queue, params and options as POST /tasks takes it: one on each line,
    /// or a JSON array; `-` is standard input
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct SetTaskOptions {
    /// Ids of tasks that wait
    #[arg(required = true, value_name = "ID", value_parser = parse_id)]
    pub ids: Vec<String>,
    /// Let those with a higher one go first, in queues that go by priority or are fair: -1000 to 1000
    #[arg(long, required = true, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1000..=1000))]
    pub priority: i64,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Show the arrays, the latest first
    List(ArrayFilter),
    /// Show how far one is
    Show(ShownArray),
    /// Cancel those of its tasks that have not ended: one that runs is ended
    Cancel(ArrayAct),
    /// Queue those of its tasks once more that have ended without success
    Retry(ArrayAct),
}

#[derive(Debug, Default, Args, Serialize)]
pub struct ArrayFilter {
    /// Those of this queue, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Those in this state: open, or done when all of their tasks have ended
    #[arg(long, value_name = "STATE", value_parser = ["open", "done"])]
    pub state: Option<String>,
    /// Those that are older than this one
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    #[serde(rename = ".before")]
    pub before: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub struct ShownArray {
    /// The array's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    #[serde(skip)]
    pub id: String,
    /// Show its tasks, too: as many as --limit says, or 100
    #[arg(long)]
    #[serde(skip)]
    pub elements: bool,
    /// Begin with the task at this place, counted from 0
    #[arg(long, value_name = "N", requires = "elements")]
    #[serde(rename = ".from")]
    pub from: Option<u32>,
}

#[derive(Debug, Args)]
pub struct ArrayAct {
    /// The array's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print the id of the bulk job that does it, and do not wait for that
    #[arg(long)]
    pub detach: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::subcommand;

    #[test]
    fn times_are_ages_or_points() {
        assert_eq!(when("1h"), Ok(When::Ago(Duration::from_secs(3_600))));
        assert_eq!(when("2026-11-20"), Ok(When::At("2026-11-20T00:00:00Z".into())));
        assert_eq!(when("2026-11-20T08:24:27+01:00"), Ok(When::At("2026-11-20T08:24:27+01:00".into())));
        for wrong in ["yesterday", "1w", "", "-1h", "last-week-or-so"] {
            assert!(when(wrong).unwrap_err().contains("is no time"), "{wrong}");
        }
    }

    const ID: &str = "6b0003bb686c8275d8013333";

    #[test]
    fn arrays_are_named_by_their_ids() {
        let id = ID.to_uppercase();
        let words = ["show", id.as_str(), "--elements", "--from", "200"];
        let ArrayCommand::Show(shown) = subcommand(&words).unwrap() else { panic!() };
        assert_eq!((shown.id.as_str(), shown.elements, shown.from), (ID, true, Some(200)));
    }

    #[test]
    fn mistakes_are_told_before_anything_is_sent() {
        for (words, message) in [
            (&["show"][..], "ID"),
            (&["show", "mail"], "24 hexadecimal digits"),
            (&["show", ID, "--from", "5"], "--elements"),
            (&["list", "--state", "closed"], "[possible values: open, done]"),
            (&["list", "--before", "yesterday"], "24 hexadecimal digits"),
            (&["cancel"], "ID"),
            (&["retry", ID, "--yes"], "--yes"),
        ] {
            let error = subcommand::<ArrayCommand>(words).unwrap_err();
            assert!(error.contains(message), "{words:?}: {error}");
        }
    }
}
