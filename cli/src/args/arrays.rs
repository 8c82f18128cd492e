//! The commands about arrays.

use clap::{Args, Subcommand};

use super::shape::{Shape, shape};
use crate::args::id;

/// What is done with arrays.
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

/// Which arrays.
#[derive(Debug, Default, Args)]
pub struct ArrayFilter {
    /// Those of this queue, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Those in this state: open, or done when all of their tasks have ended
    #[arg(long, value_name = "STATE", value_parser = ["open", "done"])]
    pub state: Option<String>,
    /// Those that are older than this one
    #[arg(long, value_name = "ID", value_parser = id::parse)]
    pub before: Option<String>,
}

/// An array that is to be shown.
#[derive(Debug, Args)]
pub struct ShownArray {
    /// The array's id
    #[arg(value_name = "ID", value_parser = id::parse)]
    pub id: String,
    /// Show its tasks, too: as many as --limit says, or 100
    #[arg(long)]
    pub elements: bool,
    /// Begin with the task at this place, counted from 0
    #[arg(long, value_name = "N", requires = "elements")]
    pub from: Option<u32>,
}

/// An array that something is done with.
#[derive(Debug, Args)]
pub struct ArrayAct {
    /// The array's id
    #[arg(value_name = "ID", value_parser = id::parse)]
    pub id: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print the id of the bulk job that does it, and do not wait for that
    #[arg(long)]
    pub detach: bool,
}

/// What the help of each command shows. Those of a group come with its name.
pub static SHAPES: [Shape; 5] = [
    shape(
        "array",
        &[],
        "disbatch array list\n  disbatch array show 6b0003bb686c8275d8013333\n  \
         disbatch array retry 6b0003bb686c8275d8013333 --reason 'disk was full'",
    ),
    shape(
        "array list",
        &["limit", "format", "pretty"],
        "disbatch array list\n  disbatch array list --queue render --state open --format json",
    ),
    shape(
        "array show",
        &["limit", "format", "pretty"],
        "disbatch array show 6b0003bb686c8275d8013333\n  \
         disbatch array show 6b0003bb686c8275d8013333 --elements --from 1000 --limit 50",
    ),
    shape(
        "array cancel",
        &[],
        "disbatch array cancel 6b0003bb686c8275d8013333 --reason 'wrong film'\n  \
         disbatch array cancel 6b0003bb686c8275d8013333 --detach",
    ),
    shape("array retry", &[], "disbatch array retry 6b0003bb686c8275d8013333 --reason 'disk was full'"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::testing::subcommand;

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
