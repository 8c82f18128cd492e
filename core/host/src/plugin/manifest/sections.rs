//! What a manifest says to the engines that run programs of this host, where they need more than a command.

use disbatch_values::sections::Wrong;
use serde::{Deserialize, Serialize};

use crate::plugin::perl::file_of;

/// The key `perl` of a manifest: a Perl module.
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
    pub(super) fn check(&self) -> Result<(), Wrong> {
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

/// The key `program` of a manifest: a program of Disbatch 4.4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    #[serde(rename = "type", skip_serializing_if = "super::is_default")]
    pub kind: ProgramType,
    /// The program; the one that has the plugin's name when neither this nor `command` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Arguments before those that it is given for each task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// What a program of Disbatch 4.4 is given, and where it leaves its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramType {
    /// The task in a file and a configuration; its answer is a file.
    #[default]
    Default,
    /// The same without a configuration.
    Nomongo,
    /// The task's id and a configuration; its answer is a document in the collection `results`.
    Mongo,
    /// The task's id and a configuration: it is a runner itself, and ends the task by itself.
    Handoff,
}

impl Program {
    /// Whether a manifest may say so. The configuration says what it likes.
    pub(super) fn check(&self, has_command: bool) -> Result<(), Wrong> {
        if self.kind == ProgramType::Handoff {
            let why =
                "a DEN starts such a program as its own user: only plugins of the configuration may name it";
            return Err(("type", format!("handoff: {why}")));
        }
        if self.path.as_deref() == Some("") {
            return Err(("path", "must name a program".to_owned()));
        }
        if has_command && (self.path.is_some() || !self.args.is_empty()) {
            return Err(("path", "is not to be set beside command, nor is args".to_owned()));
        }
        Ok(())
    }
}
