//! A type of its own for each id and name, so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use bson::Bson;
use bson::oid::ObjectId;
use serde::{Deserialize, Serialize};

use super::Version;

/// The id is not 24 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{value}' is not an id: expected 24 hexadecimal digits")]
pub struct IdError {
    value: String,
}

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub ObjectId);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(value: &str) -> Result<Self, IdError> {
                ObjectId::parse_str(value).map(Self).map_err(|_| IdError { value: value.to_owned() })
            }
        }

        impl From<ObjectId> for $name {
            fn from(id: ObjectId) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Bson {
            fn from(id: $name) -> Self {
                Bson::ObjectId(id.0)
            }
        }
    };
}

object_id!(
    /// The `_id` of a document in `tasks`.
    TaskId
);
object_id!(
    /// The `_id` of a document in `queues`.
    QueueId
);
object_id!(
    /// The `_id` of a document in `schedules`.
    ScheduleId
);
object_id!(
    /// The `_id` of a document in `arrays`.
    ArrayId
);
object_id!(
    /// The `_id` of a document in `filesets`: a version of a file set.
    FileSetId
);

/// The name under which a DEN claims tasks: its host name unless `--node` says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Takes any text: Disbatch puts no rule on node names.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name of this host, as `hostname` prints it.
    pub fn of_this_host() -> std::io::Result<Self> {
        let name = nix::unistd::gethostname()?;
        name.into_string().map(Self).map_err(|name| {
            std::io::Error::other(format!("the host name {} is not UTF-8", name.to_string_lossy()))
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&NodeName> for Bson {
    fn from(name: &NodeName) -> Self {
        Bson::String(name.0.clone())
    }
}

/// The text is no legal plugin name. The wording is Perl Disbatch's, clients look for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin value '{value}' must be a valid perl package name, matching /^[\\w:]+$/")]
pub struct PluginNameError {
    value: String,
}

/// The name of a plugin, `Disbatch::Plugin::Demo` for instance: word characters and colons. Where one of several versions is meant, it is
/// followed by that: `My::Mail@1.2.0`. Text from outside is always a name alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PluginName(String);

impl PluginName {
    /// The name as text, with its version if it has one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name alone, without a version.
    pub fn base(&self) -> &str {
        self.0.split_once('@').map_or(self.as_str(), |(base, _)| base)
    }

    pub fn version(&self) -> Option<&str> {
        self.0.split_once('@').map(|(_, version)| version)
    }

    /// The same plugin in this version.
    #[must_use]
    pub fn at(&self, version: &Version) -> Self {
        Self(format!("{}@{version}", self.base()))
    }

    /// The same plugin, in no version.
    #[must_use]
    pub fn without_version(&self) -> Self {
        Self(self.base().to_owned())
    }

    /// For people: `version 1.2.0 of the plugin My::Mail`, or `the plugin My::Mail`.
    pub fn words(&self) -> String {
        match self.version() {
            Some(version) => format!("version {version} of the plugin {}", self.base()),
            None => format!("the plugin {}", self.0),
        }
    }
}

impl FromStr for PluginName {
    type Err = PluginNameError;

    fn from_str(value: &str) -> Result<Self, PluginNameError> {
        let legal = !value.is_empty() && value.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
        if legal { Ok(Self(value.to_owned())) } else { Err(PluginNameError { value: value.to_owned() }) }
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PluginName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How a queue or node is named in a URL or on a command line: an id if it is 24 lower-case hexadecimal
/// digits, else a name (Disbatch 4 routes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    Id(ObjectId),
    Name(String),
}

impl Selector {
    /// Decides which of the two `text` is.
    pub fn parse(text: &str) -> Self {
        let is_id =
            text.len() == 24 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match ObjectId::parse_str(text) {
            Ok(id) if is_id => Self::Id(id),
            _ => Self::Name(text.to_owned()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_an_id_only_in_lower_case_hex() {
        assert!(matches!(Selector::parse("6b0003bb686c8275d70dc2f1"), Selector::Id(_)));
        assert_eq!(
            Selector::parse("6B0003BB686C8275D70DC2F1"),
            Selector::Name("6B0003BB686C8275D70DC2F1".into())
        );
        assert_eq!(Selector::parse("mail"), Selector::Name("mail".into()));
    }

    #[test]
    fn plugin_names_are_perl_package_names() {
        assert!("Disbatch::Plugin::Demo".parse::<PluginName>().is_ok());
        let error = "bad plugin;".parse::<PluginName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "plugin value 'bad plugin;' must be a valid perl package name, matching /^[\\w:]+$/"
        );
        assert!("".parse::<PluginName>().is_err());
    }

    #[test]
    fn a_plugin_may_be_meant_in_a_version() {
        let name: PluginName = "My::Mail".parse().unwrap();
        assert_eq!(
            (name.base(), name.version(), name.words()),
            ("My::Mail", None, "the plugin My::Mail".into())
        );
        let (one, two) = ("1.2".parse().unwrap(), "2".parse().unwrap());
        let pinned = name.at(&one);
        assert_eq!(
            (pinned.base(), pinned.version(), pinned.as_str()),
            ("My::Mail", Some("1.2"), "My::Mail@1.2")
        );
        assert_eq!((pinned.at(&two).as_str(), pinned.without_version()), ("My::Mail@2", name));
        assert_eq!(pinned.words(), "version 1.2 of the plugin My::Mail");
        assert!("My::Mail@1.2".parse::<PluginName>().is_err(), "text from outside is a name alone");
    }

    #[test]
    fn a_bad_task_id_is_named_in_the_error() {
        let error = "zzz".parse::<TaskId>().unwrap_err();
        assert_eq!(error.to_string(), "'zzz' is not an id: expected 24 hexadecimal digits");
    }
}
