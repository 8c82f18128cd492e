//! Bundles: all that is known of one attempt of a task, to run it again elsewhere; and recordings, which are made of attempts while they run.
//!
//! A bundle is a tar archive with these files, in this order:
//!
//! | file | |
//! | --- | --- |
//! | `bundle.json` | a [`Bundle`] |
//! | `stdin.json` | what the plugin was given on standard input, without what is secret: the task |
//! | `recording.json` | the [`Recording`] without its input, if there is one |
//! | `stdout`, `stderr` | the output, each up to [`LARGEST_STREAM`] bytes |
//! | `files/SHA256` | what is in the files that the task got, up to [`LARGEST_FILES`] bytes of all of them |

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Object, options};

/// The version of the format that is described here. A reader refuses others.
pub const VERSION: u32 = 1;

/// A bundle has so many bytes of each stream at most.
pub const LARGEST_STREAM: u64 = 64 * 1024 * 1024;

/// A bundle has so many bytes of input files at most.
pub const LARGEST_FILES: u64 = 64 * 1024 * 1024;

/// A bundle names so many files of a file set at most.
pub const MOST_FILES: usize = 10_000;

/// What is in input files is below this, named by its SHA-256 sum.
pub const FILES: &str = "files/";

/// The names of its files.
pub const BUNDLE: &str = "bundle.json";
pub const STDIN: &str = "stdin.json";
pub const RECORDING: &str = "recording.json";

/// Of which attempt.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct BundleOptions {
    /// Of this attempt, counted from 1; the latest one that is over unless given.
    #[serde(rename = ".attempt", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub attempt: Option<i64>,
}

/// How many recorded attempts.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct RecordingSearch {
    /// At most so many: 100 unless given.
    #[serde(rename = ".limit", default, deserialize_with = "options::integer_up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
}

/// An attempt that was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "task": "6b0003bb686c8275d8013333", "attempt": 1, "at": "2026-11-20T08:24:27.123Z", "expires": "2026-11-27T08:24:27.123Z",
})))]
pub struct RecordedAttempt {
    /// The task's id.
    pub task: String,
    /// Which attempt it is, counted from 1.
    pub attempt: i64,
    /// When it had ended: ISO 8601, UTC.
    pub at: String,
    /// Until when the recording is kept.
    pub expires: String,
}

/// One attempt of a task: the file `bundle.json` of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bundle {
    /// The version of this format.
    #[cfg_attr(feature = "openapi", schema(example = 1))]
    pub v: u32,
    /// The release of Disbatch that has made it.
    pub made_by: String,
    /// The task's id.
    pub task: String,
    /// Which attempt it is, counted from 1.
    pub attempt: i64,
    /// Whether the attempt was recorded. If not, the queue and the input are what they were when the bundle was made.
    pub recorded: bool,
    /// The plugin's name.
    pub plugin: String,
    /// The version of the plugin that ran, if one was chosen for the attempt, or the recorded manifest says one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The queue's document.
    pub queue: Object,
    /// The node that had it, if any had.
    pub node: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// Standard output and standard error.
    pub streams: Vec<Stream>,
    /// The file sets of the task, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<BundledFiles>,
    /// What the plugin was given besides and is not in the bundle, because it is secret: `secure_params`, and names of variables.
    pub secrets: Vec<String>,
    /// What is not in the bundle, in words.
    pub not_recorded: Vec<String>,
}

/// What came of an attempt, as its task has it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outcome {
    /// The status; one that is not above 0 has not ended.
    pub status: i64,
    /// How the plugin ended, and what it used: times in seconds, memory in bytes.
    pub exit: Option<Object>,
    /// The structured result.
    pub result: Option<Object>,
    /// Why it ended so, where that is not the plugin's doing.
    pub note: Option<String>,
    /// How its steps ended, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepOutcome>,
}

/// What came of a step.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepOutcome {
    /// What people call it.
    pub name: String,
    /// The plugin that does it; that of the queue if none is named.
    pub plugin: Option<String>,
    /// The status; -2 if it was not begun.
    pub status: i64,
    /// When it began: ISO 8601, UTC.
    pub started: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
}

/// The file sets of a task.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BundledFiles {
    /// What it got.
    pub input: Option<BundledSet>,
    /// What it left.
    pub output: Option<BundledSet>,
}

/// A file set, or the part of it that a task has to do with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BundledSet {
    /// The name of the set.
    pub name: String,
    /// Of which version.
    pub version: Option<i64>,
    /// Which of its files: those that match one of these; all if there are none.
    pub patterns: Vec<String>,
    /// The files; null if they are not known.
    pub files: Option<Vec<BundledFile>>,
}

/// A file of a file set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BundledFile {
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// Their SHA-256 sum, in hexadecimal.
    pub sha256: String,
    /// Who may read, write and run it: the lower nine bits of its mode.
    pub mode: u32,
    /// When it was changed, in milliseconds since 1970.
    pub mtime: i64,
    /// Whether its bytes are in the bundle, as `files/SHA256`.
    pub included: bool,
}

/// A stream of output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stream {
    /// `stdout` or `stderr`.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// Those of them that are in the bundle: the first ones.
    pub included: u64,
}

/// What was recorded of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recording {
    /// The version of this format.
    #[cfg_attr(feature = "openapi", schema(example = 1))]
    pub v: u32,
    /// When the plugin began: ISO 8601, UTC. Times of what follows are milliseconds since then.
    pub at: String,
    /// The queue's document as it was.
    pub queue: Object,
    /// The plugin; that of the first step if there are several.
    pub plugin: RecordedPlugin,
    /// The steps, if the task has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RecordedStep>,
    /// The environment of the plugin, or of the first step's; nothing of a warm plugin, which had begun before.
    pub environment: Vec<Variable>,
    /// The private folder, if it has one.
    pub folder: Option<String>,
    /// The standard input without what is secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// The lines of the control channel.
    pub control: Vec<ControlLine>,
    /// When output came.
    pub output: Vec<OutputPiece>,
    /// What the plugin was given that is secret: `secure_params`, and names of variables.
    pub secrets: Vec<String>,
    /// What was too large to be recorded whole, in words.
    pub cut: Vec<String>,
    /// What was not recorded, in words.
    pub not_recorded: Vec<String>,
}

impl Recording {
    /// What was recorded of a plugin: that of the task, or of one of its steps.
    pub fn of_plugin(&self, name: &str) -> Option<&RecordedPlugin> {
        let of_steps = self.steps.iter().map(|step| &step.plugin);
        of_steps.chain([&self.plugin]).find(|recorded| recorded.name == name)
    }

    /// With what recordings of several attempts have in common: the queue, the plugins, and variables that are no task's own.
    pub fn with(self, common: Self) -> Self {
        let step =
            |(own, common): (RecordedStep, RecordedStep)| RecordedStep { plugin: common.plugin, ..own };
        let mut environment = [common.environment, self.environment].concat();
        environment.sort_by(|one, other| one.name.cmp(&other.name));
        Self {
            queue: common.queue,
            plugin: common.plugin,
            steps: self.steps.into_iter().zip(common.steps).map(step).collect(),
            environment,
            cut: [self.cut, common.cut].concat(),
            not_recorded: common.not_recorded,
            ..self
        }
    }
}

/// A step of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordedStep {
    /// What people call it.
    pub name: String,
    /// When it began; null if it did not.
    pub ms: Option<u64>,
    pub plugin: RecordedPlugin,
}

/// A plugin as it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordedPlugin {
    /// Its name, as the queue gives it.
    pub name: String,
    /// Its own version, if its manifest has one.
    pub version: String,
    /// Its manifest, with the defaults left out.
    pub manifest: Object,
    /// Its program, files of its folder, and of its Perl module.
    pub files: Vec<PluginFile>,
}

/// A file of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PluginFile {
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// Their SHA-256 sum, in hexadecimal; null if the file is too large to be read for each task.
    pub sha256: Option<String>,
}

/// A variable of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Variable {
    pub name: String,
    /// Null if it is secret, or too long.
    pub value: Option<String>,
    /// Whether it is left out because it is, or may be, secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// A line of the control channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ControlLine {
    pub ms: u64,
    pub line: String,
}

/// Output that came at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputPiece {
    pub ms: u64,
    /// `stdout` or `stderr`, as the plugin wrote it.
    pub stream: String,
    /// Where it begins in what the plugin wrote there.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_and_what_is_not_are_one_recording() {
        let plugin = |name: &str| RecordedPlugin { name: name.to_owned(), ..RecordedPlugin::default() };
        let step = |name: &str, ms, plugin| RecordedStep { name: name.to_owned(), ms, plugin };
        let variable = |name: &str| Variable { name: name.to_owned(), ..Variable::default() };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let own = Recording {
            v: VERSION,
            at: "now".to_owned(),
            steps: vec![step("get", Some(1), plugin("")), step("use", None, plugin(""))],
            environment: vec![variable("B"), variable("D")],
            input: "{}".to_owned(),
            cut: words(&["one"]),
            ..Recording::default()
        };
        let common = Recording {
            queue: "q".into(),
            plugin: plugin("One"),
            steps: vec![step("", None, plugin("One")), step("", None, plugin("Two"))],
            environment: vec![variable("A"), variable("C")],
            cut: words(&["other"]),
            not_recorded: words(&["the world"]),
            ..Recording::default()
        };
        let whole = Recording {
            queue: "q".into(),
            plugin: plugin("One"),
            steps: vec![step("get", Some(1), plugin("One")), step("use", None, plugin("Two"))],
            environment: ["A", "B", "C", "D"].map(variable).to_vec(),
            cut: words(&["one", "other"]),
            not_recorded: words(&["the world"]),
            ..own.clone()
        };
        assert_eq!(own.with(common), whole);
    }
}
