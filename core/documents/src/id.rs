//! A type of its own for each id and name, and for versions of plugins, so that they cannot be mixed up; and which version of its plugin runs
//! the tasks of a queue.

use std::fmt;
use std::str::FromStr;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use serde::{Deserialize, Serialize};
use serde_with::DeserializeFromStr;

use super::{Canary, Queue, Task};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an id: expected 24 hexadecimal digits")]
pub struct IdError(String);

macro_rules! object_ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
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
                ObjectId::parse_str(value).map(Self).map_err(|_| IdError(value.to_owned()))
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
    )+};
}

object_ids! {
    /// The `_id` of a document in `tasks`.
    TaskId,
    /// The `_id` of a document in `queues`.
    QueueId,
    /// The `_id` of a document in `schedules`.
    ScheduleId,
    /// The `_id` of a document in `arrays`.
    ArrayId,
    /// The `_id` of a document in `filesets`: a version of a file set.
    FileSetId,
}

/// The name under which a DEN claims tasks: its host name unless `--node` says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Takes any text: Disbatch puts no rule on node names.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub fn of_this_host() -> std::io::Result<Self> {
        let name = nix::unistd::gethostname()?;
        name.into_string().map(Self).map_err(|name| {
            std::io::Error::other(format!("the host name {} is not UTF-8", name.to_string_lossy()))
        })
    }
}

disbatch_values::shown_as_text!(NodeName);

impl From<&NodeName> for Bson {
    fn from(name: &NodeName) -> Self {
        Bson::String(name.0.clone())
    }
}

/// The wording is Perl Disbatch's, clients look for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin value '{0}' must be a valid perl package name, matching /^[\\w:]+$/")]
pub struct PluginNameError(String);

/// The name of a plugin, `Disbatch::Plugin::Demo` for instance: word characters and colons. Where one of several versions is meant, it is
/// followed by that: `My::Mail@1.2.0`. Text from outside is always a name alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, DeserializeFromStr)]
#[serde(transparent)]
pub struct PluginName(String);

impl PluginName {
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

disbatch_values::shown_as_text!(PluginName, PluginNameError, |name| {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
});

/// How a queue or node is named in a URL or on a command line: an id if it is 24 lower-case hexadecimal
/// digits, else a name (Disbatch 4 routes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    Id(ObjectId),
    Name(String),
}

impl Selector {
    pub fn parse(text: &str) -> Self {
        let is_id =
            text.len() == 24 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match ObjectId::parse_str(text) {
            Ok(id) if is_id => Self::Id(id),
            _ => Self::Name(text.to_owned()),
        }
    }

    /// Matches the document that is named so, whose name is in `field`.
    pub fn filter(&self, field: &str) -> Document {
        match self {
            Self::Id(id) => doc! { "_id": id },
            Self::Name(name) => doc! { field: name },
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

/// The field of a queue that pins a version of its plugin. Absent: its tasks are run by the version that each node has found first.
pub const VERSION: &str = "version";

/// The field of a task, and of its attempts, with the version that the claim has chosen. Absent: the one that its node has found first.
pub const PLUGIN_VERSION: &str = "plugin_version";

pub const LONGEST_VERSION: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no version of a plugin: it must be text of 1 to {LONGEST_VERSION} letters, digits and '.', '-', '+' and '_'"
)]
pub struct VersionError(String);

/// A version of a plugin, `1.2.0` for instance. Versions are names: of two, none is the newer one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    fn of_field(value: &Bson) -> Result<Self, VersionError> {
        match value {
            Bson::String(text) => text.parse(),
            other => Err(VersionError(other.to_string())),
        }
    }
}

disbatch_values::shown_as_text!(Version, VersionError, |text| {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    (1..=LONGEST_VERSION).contains(&text.len()) && text.bytes().all(is_legal)
});

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusablePlugin {
    #[error(transparent)]
    Name(#[from] PluginNameError),
    #[error(transparent)]
    Version(#[from] VersionError),
}

impl Queue {
    /// The version that it pins.
    ///
    /// # Errors
    /// What is stored is no version. Nobody knows then which one is meant, so none is.
    pub fn pinned_version(&self) -> Result<Option<Version>, VersionError> {
        match self.rest.get(VERSION) {
            None | Some(Bson::Null) => Ok(None),
            Some(value) => Version::of_field(value).map(Some),
        }
    }

    /// The plugin that runs its tasks, in the version that it pins: what is looked for among the plugins of a node. `None`: it names none.
    pub fn effective_plugin(&self) -> Result<Option<PluginName>, UnusablePlugin> {
        let Some(name) = self.plugin_name()? else { return Ok(None) };
        let version = self.pinned_version()?;
        Ok(Some(version.map_or(name.clone(), |version| name.at(&version))))
    }

    /// All that a node must have before it claims tasks of the queue; empty if it names no plugin.
    pub fn needed_plugins(&self) -> Result<Vec<PluginName>, UnusablePlugin> {
        let Some(plugin) = self.effective_plugin()? else { return Ok(Vec::new()) };
        let canary = Canary::of(self).map(|canary| plugin.at(&canary.version));
        Ok([plugin].into_iter().chain(canary).collect())
    }

    /// The version in which a claim of the task is to run. `None`: that which its node has found first.
    pub fn version_for(&self, task: TaskId) -> Option<Version> {
        let canary = Canary::of(self).filter(|canary| canary.has(task));
        canary.map(|canary| canary.version).or_else(|| self.pinned_version().ok().flatten())
    }

    /// The plugin that runs a task that was claimed: in the version that its claim has chosen. Programs that know nothing of versions choose
    /// none, and then it is the one that the queue pins now.
    pub fn plugin_of(&self, task: &Task) -> Result<Option<PluginName>, UnusablePlugin> {
        let Some(name) = self.plugin_name()? else { return Ok(None) };
        self.pinned_version()?;
        let version = task.plugin_version().or_else(|| self.version_for(task.id));
        Ok(Some(version.map_or(name.clone(), |version| name.at(&version))))
    }
}

impl Task {
    pub fn plugin_version(&self) -> Option<Version> {
        self.rest.get(PLUGIN_VERSION).and_then(|value| Version::of_field(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

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

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn task(fields: Document) -> Task {
        let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0 };
        task.extend(fields);
        bson::deserialize_from_document(task).unwrap()
    }

    #[test]
    fn versions_are_short_and_plain() {
        for right in ["1", "1.2.0", "2026-11-27_a+b", &"x".repeat(64)] {
            assert_eq!(right.parse::<Version>().unwrap().as_str(), right);
        }
        for wrong in ["", "1 2", "1@2", "1/2", "é", &"x".repeat(65), "1\n"] {
            let error = wrong.parse::<Version>().unwrap_err().to_string();
            assert!(error.contains("letters, digits and '.', '-', '+' and '_'"), "{error}");
        }
    }

    #[test]
    fn a_queue_runs_what_it_pins() {
        let plugin = |fields: Document| {
            let found = queue(fields).effective_plugin();
            found.map(|found| found.map(|name| name.to_string())).map_err(|error| error.to_string())
        };
        assert_eq!(plugin(doc! {}), Ok(None));
        assert_eq!(plugin(doc! { "version": "1" }), Ok(None));
        assert_eq!(plugin(doc! { "plugin": "My::Mail" }), Ok(Some("My::Mail".to_owned())));
        assert_eq!(plugin(doc! { "plugin": "Mail", "version": Bson::Null }), Ok(Some("Mail".to_owned())));
        assert_eq!(plugin(doc! { "plugin": "Mail", "version": "1.2" }), Ok(Some("Mail@1.2".to_owned())));
        for (odd, shown) in [(Bson::from(1.2), "1.2"), ("1 2".into(), "1 2")] {
            let error = plugin(doc! { "plugin": "Mail", "version": odd }).unwrap_err();
            assert!(error.starts_with(&format!("'{shown}' is no version of a plugin")), "{error}");
        }
        assert!(plugin(doc! { "plugin": "Mail@1.2" }).is_err(), "the name stays what Perl's clients know");
    }

    #[test]
    fn a_task_runs_in_the_version_of_its_claim() {
        let pins = queue(doc! { "plugin": "Mail", "version": "2" });
        let of = |task: &Task| pins.plugin_of(task).unwrap().unwrap().to_string();
        assert_eq!(of(&task(doc! { "plugin_version": "1" })), "Mail@1");
        assert_eq!(of(&task(doc! {})), "Mail@2", "who has claimed it knows nothing of versions");
        assert_eq!(of(&task(doc! { "plugin_version": 7 })), "Mail@2");
        let bare = queue(doc! { "plugin": "Mail" });
        assert_eq!(bare.plugin_of(&task(doc! {})).unwrap().unwrap().to_string(), "Mail");
    }
}
