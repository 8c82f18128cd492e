//! Names of file sets, and paths in them. Whoever writes a file to the disk under a path goes by an [`EntryPath`], which
//! leads nowhere else. Pure.

use std::fmt;
use std::str::FromStr;

use bson::Bson;

/// A path has so many bytes at most.
const LONGEST_PATH: usize = 1024;

/// A part of a path has so many bytes at most, by the rule of file systems.
const LONGEST_PART: usize = 255;

/// A name has so many characters at most.
const LONGEST_NAME: usize = 200;

/// Words that stand in the place of a name in addresses.
const RESERVED: [&str; 2] = ["contents", "versions"];

/// The name of a file set: letters, digits, `.`, `_` and `-`, the first of which is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetName(String);

/// The text is no name of a file set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{value}' is no name of a file set: expected up to {most} letters, digits, '.', '_' and '-', beginning with a \
     letter or a digit, and neither 'contents' nor 'versions'",
    most = LONGEST_NAME
)]
pub struct SetNameError {
    value: String,
}

impl SetName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SetName {
    type Err = SetNameError;

    fn from_str(value: &str) -> Result<Self, SetNameError> {
        let is_legal = value.len() <= LONGEST_NAME
            && value.starts_with(|first: char| first.is_ascii_alphanumeric())
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && !RESERVED.contains(&value);
        if is_legal {
            Ok(Self(value.to_owned()))
        } else {
            Err(SetNameError { value: value.chars().take(LONGEST_NAME).collect() })
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SetName> for Bson {
    fn from(name: SetName) -> Self {
        Bson::String(name.0)
    }
}

/// At the top of a private folder, what begins so is between the runner and the plugin.
pub const RESERVED_PREFIX: &str = ".disbatch-";

/// Where a file is in a set: parts with `/` between them, none of which is empty, `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPath(String);

/// The text is no path in a file set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no path in a file set: {why}")]
pub struct PathError {
    value: String,
    why: &'static str,
}

impl EntryPath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts. There is at least one.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether a task could not have it in its private folder: what begins so is between runner and plugin there.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED_PREFIX)
    }

    /// The parts that are folders, and the name of the file.
    pub fn folders_and_name(&self) -> (impl Iterator<Item = &str>, &str) {
        let (folders, name) = match self.0.rsplit_once('/') {
            Some((folders, name)) => (Some(folders), name),
            None => (None, self.0.as_str()),
        };
        (folders.into_iter().flat_map(|folders| folders.split('/')), name)
    }
}

impl FromStr for EntryPath {
    type Err = PathError;

    fn from_str(value: &str) -> Result<Self, PathError> {
        let wrong = |why| PathError { value: value.chars().take(LONGEST_PATH).collect(), why };
        if value.is_empty() || value.len() > LONGEST_PATH {
            return Err(wrong("expected 1 to 1024 bytes"));
        }
        if value.contains('\0') {
            return Err(wrong("it has a null character"));
        }
        for part in value.split('/') {
            match part {
                "" => return Err(wrong("it has an empty part, or begins or ends with a slash")),
                "." | ".." => return Err(wrong("it has a part that is a dot or two")),
                long if long.len() > LONGEST_PART => return Err(wrong("a part has more than 255 bytes")),
                _ => {}
            }
        }
        Ok(Self(value.to_owned()))
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<EntryPath> for Bson {
    fn from(path: EntryPath) -> Self {
        Bson::String(path.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_stand_in_addresses_as_they_are() {
        for name in ["data", "foo_result", "2024-01.x", "A"] {
            assert_eq!(name.parse::<SetName>().unwrap().as_str(), name);
        }
        for wrong in ["", ".data", "-x", "a/b", "a b", "contents", "versions", "ä", "a\0", &"x".repeat(201)]
        {
            assert!(wrong.parse::<SetName>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn paths_lead_nowhere_else() {
        let path: EntryPath = "a/b.d/c".parse().unwrap();
        let (folders, name) = path.folders_and_name();
        assert_eq!((folders.collect::<Vec<_>>(), name), (vec!["a", "b.d"], "c"));
        let path: EntryPath = "...".parse().unwrap();
        let (folders, name) = path.folders_and_name();
        assert_eq!((folders.count(), name, path.parts().count()), (0, "...", 1));
        for wrong in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/.", "a\0b", &"x/".repeat(513)]
        {
            assert!(wrong.parse::<EntryPath>().is_err(), "{wrong:?}");
        }
        assert!("x".repeat(255).parse::<EntryPath>().is_ok());
        assert!("x".repeat(256).parse::<EntryPath>().is_err());
        let error = "../x".parse::<EntryPath>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"../x\" is no path in a file set: it has a part that is a dot or two"
        );
    }

    proptest! {
        #[test]
        fn a_path_is_below_the_folder_that_it_is_in(text in "[a./\\x00ä\\\\]{0,12}|\\PC{0,20}") {
            if let Ok(path) = text.parse::<EntryPath>() {
                let components: Vec<Component<'_>> = Path::new(path.as_str()).components().collect();
                prop_assert!(components.iter().all(|part| matches!(part, Component::Normal(_))), "{:?}", components);
                prop_assert_eq!(components.len(), path.parts().count());
                prop_assert_eq!(path.as_str(), text.as_str());
            }
        }
    }
}
