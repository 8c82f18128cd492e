//! The commands about sets of files.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use disbatch_values::files::{Patterns, SetName};

#[derive(Debug, Subcommand)]
pub enum FilesCommand {
    /// Store files as a new version of a set; what was broken off goes on where it was
    Put(PutFiles),
    /// Get the files of a set into a folder; those that are there already are left as they are
    Get(GetFiles),
    /// Show the sets, or the files of one
    Ls(ListFiles),
    /// Remove a set with all of its versions, or one version
    Rm(RemoveFiles),
}

#[derive(Debug, Clone, Args)]
pub struct PutFiles {
    /// The name of the set: letters, digits, `.`, `_` and `-`
    #[arg(value_parser = set_name)]
    pub name: String,
    /// Folders, whose files are stored with their paths below the folder; and files, which are stored by their names. Links
    /// in folders are not followed
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only files whose paths in the set match this pattern, as *.csv or data/**; may be repeated
    #[arg(long = "match", value_name = "GLOB", value_parser = pattern)]
    pub matching: Vec<String>,
    /// For whom the set is, if it is new and you may store files for several
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Let the version go away by itself: ISO 8601 or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct GetFiles {
    /// The name of the set
    #[arg(value_parser = set_name)]
    pub name: String,
    /// Where to put them: a folder, which is made if it is not there
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Only files whose paths match this pattern, as *.csv or data/**; may be repeated
    #[arg(long = "match", value_name = "GLOB", value_parser = pattern)]
    pub matching: Vec<String>,
    /// Of this version [default: the newest]
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub number: Option<i64>,
}

#[derive(Debug, Clone, Args)]
pub struct ListFiles {
    /// The name of a set, whose files are shown; without it, the sets are
    #[arg(value_parser = set_name)]
    pub name: Option<String>,
    /// Of this version [default: the newest]
    #[arg(long = "version", value_name = "N", requires = "name", value_parser = clap::value_parser!(i64).range(1..))]
    pub number: Option<i64>,
    /// Only files whose paths begin so
    #[arg(long, value_name = "TEXT", requires = "name")]
    pub prefix: Option<String>,
    /// The versions of the set in place of its files
    #[arg(long, requires = "name", conflicts_with_all = ["number", "prefix"])]
    pub versions: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RemoveFiles {
    /// The name of the set
    #[arg(value_parser = set_name)]
    pub name: String,
    /// Only this version
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub number: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAndVersion {
    pub name: String,
    /// The number of the version. `None`: the newest.
    pub version: Option<i64>,
}

pub fn set_name(text: &str) -> Result<String, String> {
    text.parse::<SetName>().map(|name| name.to_string()).map_err(|error| error.to_string())
}

/// A set as `NAME` or `NAME@VERSION`.
pub fn set_and_version(text: &str) -> Result<SetAndVersion, String> {
    let (name, version) = match text.split_once('@') {
        None => (text, None),
        Some((name, number)) => {
            let number = number.parse::<i64>().ok().filter(|number| *number >= 1);
            (name, Some(number.ok_or_else(|| "expected NAME@VERSION with a number from 1 on".to_owned())?))
        }
    };
    Ok(SetAndVersion { name: set_name(name)?, version })
}

fn pattern(text: &str) -> Result<String, String> {
    Patterns::new([text]).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_name_with_or_without_a_version() {
        let of = |name: &str, version| SetAndVersion { name: name.to_owned(), version };
        assert_eq!(set_and_version("data"), Ok(of("data", None)));
        assert_eq!(set_and_version("data@12"), Ok(of("data", Some(12))));
        for wrong in ["", "../x", "a b", "data@", "data@0", "data@new", "@1", "contents"] {
            assert!(set_and_version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_is_looked_at_before_anything_is_sent() {
        assert_eq!(pattern("**/*.csv"), Ok("**/*.csv".to_owned()));
        assert!(pattern("a[").unwrap_err().contains("cannot be understood"));
    }
}
