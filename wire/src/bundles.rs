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

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the format that is described here. A reader refuses others.
pub const VERSION: u32 = 1;

/// A bundle has so many bytes of each stream at most.
pub const LARGEST_STREAM: u64 = 64 * 1024 * 1024;

/// The names of its files.
pub const BUNDLE: &str = "bundle.json";
pub const STDIN: &str = "stdin.json";
pub const RECORDING: &str = "recording.json";

/// An attempt that was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
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
    /// The queue's document.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub queue: Value,
    /// The node that had it, if any had.
    pub node: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// Standard output and standard error.
    pub streams: Vec<Stream>,
    /// What the plugin was given besides and is not in the bundle, because it is secret: `secure_params`, and names of variables.
    pub secrets: Vec<String>,
    /// What is not in the bundle, in words.
    pub not_recorded: Vec<String>,
}

/// What came of an attempt, as its task has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outcome {
    /// The status; one that is not above 0 has not ended.
    pub status: i64,
    /// How the plugin ended, and what it used: times in seconds, memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub exit: Option<Value>,
    /// The structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub result: Option<Value>,
    /// Why it ended so, where that is not the plugin's doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub queue: Value,
    pub plugin: RecordedPlugin,
    /// The environment of the plugin; nothing of a warm plugin, which had begun before.
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

/// A plugin as it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordedPlugin {
    /// Its name, as the queue gives it.
    pub name: String,
    /// Its own version, if its manifest has one.
    pub version: String,
    /// Its manifest, with the defaults left out.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub manifest: Value,
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
