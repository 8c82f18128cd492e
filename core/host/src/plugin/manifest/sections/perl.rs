//! The key `perl` of a manifest.

use serde::{Deserialize, Serialize};

use super::Wrong;
use crate::plugin::perl::file_of;

/// A Perl module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Perl {
    /// The module; that of the plugin's name when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Folders in which modules are looked for first; relative to the folder of the manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lib: Vec<String>,
    /// The interpreter; that of the node when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perl: Option<String>,
}

impl Perl {
    pub(in super::super) fn check(&self) -> Result<(), Wrong> {
        match &self.class {
            Some(class) if file_of(class).is_none() => {
                Err(("class", format!("{class:?} is not the name of a Perl module")))
            }
            _ if self.lib.iter().any(String::is_empty) => {
                Err(("lib", "a folder must not be empty".to_owned()))
            }
            _ if self.perl.as_deref() == Some("") => Err(("perl", "must name a program".to_owned())),
            _ => Ok(()),
        }
    }
}
