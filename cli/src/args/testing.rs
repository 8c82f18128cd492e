//! For tests of what the commands of a group read.

use clap::{Command, Subcommand};

/// The command that stands in the words behind the name of its group.
pub fn subcommand<T: Subcommand>(words: &[&str]) -> Result<T, String> {
    let group = T::augment_subcommands(Command::new("group").no_binary_name(true));
    let read = group.try_get_matches_from(words).and_then(|matches| T::from_arg_matches(&matches));
    read.map_err(|error| error.to_string())
}
