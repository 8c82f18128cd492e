//! File sets: their versions, the files of these, and the contents that files have.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::liberal::Set;
use crate::options;

/// A path, or a part of one, has so many bytes at most where files are looked for.
const LONGEST_PATH: usize = 1024;

/// Which sets.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FileSetSearch {
    /// Only those behind this name: for the next page.
    #[serde(rename = ".after", default, deserialize_with = "path")]
    pub after: Option<String>,
    /// At most so many; 100 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
}

/// Which version.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FileVersion {
    /// Its number. With `GET`, the newest unless given; with `DELETE`, all.
    #[serde(rename = ".version", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub version: Option<i64>,
}

/// Which files, and which versions are told besides.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FileSearch {
    /// The number of the version; the newest unless given.
    #[serde(rename = ".version", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub version: Option<i64>,
    /// Only files whose paths begin so.
    #[serde(rename = ".prefix", default, deserialize_with = "path")]
    pub prefix: Option<String>,
    /// Only files behind this path: for the next page.
    #[serde(rename = ".after", default, deserialize_with = "path")]
    pub after: Option<String>,
    /// At most so many files; 100 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
    /// Of the versions, only those below this number. 100 of them are told.
    #[serde(rename = ".before", default, deserialize_with = "options::integer")]
    pub before: Option<i64>,
}

/// The beginning of a path, or a path, or a name.
fn path<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(value).ok().filter(|text| text.len() <= LONGEST_PATH);
    let wrong =
        || D::Error::custom(format!("{} must be text of at most {LONGEST_PATH} bytes", options::QUOTES));
    text.map(Some).ok_or_else(wrong)
}

/// A version to be opened.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({".tenant": "acme"})))]
pub struct NewFileSet {
    /// For whom it is. By default that of the set; for a new set that of whoever asks, if there is one only, and nobody's for
    /// those who have the role on all queues.
    #[serde(rename = ".tenant")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, max_length = 200))]
    pub tenant: Set<Value>,
    /// When it is to go away by itself: ISO 8601, or seconds since 1970.
    #[serde(rename = ".expires")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires: Set<Value>,
}

/// How long a content is.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ChunkLength {
    /// How many bytes the whole content has.
    #[cfg_attr(feature = "openapi", param(value_type = u64, minimum = 1))]
    pub length: Option<Value>,
}

/// A version of a file set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8015555", "name": "data", "version": 3, "state": "done", "count": 2, "bytes": 4096,
    "created": "2026-11-20T08:24:27", "committed": "2026-11-20T08:24:29", "expires": null, "by": "anna",
    "tenant": "acme", "task": null,
})))]
pub struct FileSetVersion {
    pub id: String,
    /// The name of the set.
    pub name: String,
    /// Its number, from 1 on.
    pub version: i64,
    /// `open` while it is made, then `done`.
    pub state: String,
    /// How many files it has.
    pub count: u64,
    /// How many bytes these have together.
    pub bytes: u64,
    pub created: Option<String>,
    pub committed: Option<String>,
    /// When it goes away by itself.
    pub expires: Option<String>,
    /// The user who has made it, or has submitted the task.
    pub by: Option<String>,
    /// For whom it is: those who have a role on this tenant may read it. Null: those who have it on all queues.
    pub tenant: Option<String>,
    /// The id of the task that has left it.
    pub task: Option<String>,
}

/// A file set by its newest version: its fields are those of the version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8015555", "name": "data", "version": 3, "state": "done", "count": 2, "bytes": 4096,
    "created": "2026-11-20T08:24:27", "committed": "2026-11-20T08:24:29", "expires": null, "by": "anna",
    "tenant": "acme", "task": null, "versions": 2, "bytes_of_all": 8192,
})))]
pub struct FileSetSummary {
    #[serde(flatten)]
    pub newest: FileSetVersion,
    /// How many versions it has.
    pub versions: u64,
    /// How many bytes these say they have. Equal files are stored once.
    pub bytes_of_all: u64,
}

/// A version with some of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileSetPage {
    #[serde(flatten)]
    pub set: FileSetVersion,
    /// In the order of the bytes of their paths.
    pub entries: Vec<FileEntry>,
    /// What `.after` is for the next page; null if there is none.
    pub next: Option<String>,
    /// The versions of the set, the newest first.
    pub versions: Vec<FileSetVersion>,
}

/// A file of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "path": "bin/run", "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "size": 3,
    "mode": "755", "mtime": "2026-11-20T08:24:27",
})))]
pub struct FileEntry {
    /// Parts with `/` between them, none of which is empty, `.` or `..`.
    pub path: String,
    /// What its content is known by.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Who may read, write and run it: three octal digits. By default `644`.
    pub mode: Option<String>,
    /// When it was changed. By default now.
    pub mtime: Option<String>,
}

/// Files to be added. An array of them will do as well.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewFiles {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<FileEntry>, max_items = 1000))]
    pub entries: Vec<Value>,
}

/// Files that were added.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8015555", "added": 2})))]
pub struct FilesAdded {
    /// The id of the version.
    pub id: String,
    /// How many of the files of the request the version has.
    pub added: u64,
}

/// Versions that are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "data", "deleted": 3})))]
pub struct FileSetDeleted {
    pub name: String,
    /// How many versions, with those that were open.
    pub deleted: u64,
}

/// How far a content is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "length": 5_242_880, "done": false,
    "missing": [{"first": 3, "last": 4}],
})))]
pub struct ContentChunks {
    pub sha256: String,
    /// How many bytes it has; null if nothing of it was sent, so that all chunks are missing.
    pub length: Option<u64>,
    /// Whether it is there, and need not be sent.
    pub done: bool,
    /// The chunks that are to be sent.
    pub missing: Vec<ChunkRange>,
}

/// Numbers of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChunkRange {
    pub first: u64,
    pub last: u64,
}

/// A chunk that is there.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "n": 0, "outcome": "stored",
})))]
pub struct ChunkStored {
    pub sha256: String,
    pub n: u64,
    /// `stored`; or `known`: it had been sent before, and what was sent then stays.
    pub outcome: &'static str,
}

/// A content that is there.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "done": true,
})))]
pub struct ContentFinished {
    pub sha256: String,
    pub done: bool,
}
