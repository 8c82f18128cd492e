//! Versions of plugins, and which of them runs the tasks of a queue.

use std::fmt;
use std::str::FromStr;

use bson::Bson;

use super::{Canary, PluginName, PluginNameError, Queue, Task, TaskId};

/// The field of a queue that pins a version of its plugin. Absent: its tasks are run by the version that each node has found first.
pub const VERSION: &str = "version";

/// The field of a task, and of its attempts, with the version that the claim has chosen. Absent: the one that its node has found first.
pub const PLUGIN_VERSION: &str = "plugin_version";

/// A version has so many characters at most.
pub const LONGEST_VERSION: usize = 64;

/// The text is no version of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{value}' is no version of a plugin: it must be text of 1 to {LONGEST_VERSION} letters, digits and '.', '-', '+' and '_'"
)]
pub struct VersionError {
    value: String,
}

/// A version of a plugin, `1.2.0` for instance. Versions are names: of two, none is the newer one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of_field(value: &Bson) -> Result<Self, VersionError> {
        match value {
            Bson::String(text) => text.parse(),
            other => Err(VersionError { value: other.to_string() }),
        }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(value: &str) -> Result<Self, VersionError> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
        if (1..=LONGEST_VERSION).contains(&value.len()) && value.bytes().all(is_legal) {
            Ok(Self(value.to_owned()))
        } else {
            Err(VersionError { value: value.to_owned() })
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a queue has no plugin that could run its tasks.
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
    /// The version that its claim has chosen, if it has chosen one.
    pub fn plugin_version(&self) -> Option<Version> {
        self.rest.get(PLUGIN_VERSION).and_then(|value| Version::of_field(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;

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
