//! What file sets look like. These types are never made: they only describe.

use utoipa::{IntoParams, ToSchema};

/// Which sets.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FileSetSearch {
    /// Only those behind this name: for the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// At most so many; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Which version.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FileVersion {
    /// Its number. With `GET`, the newest unless given; with `DELETE`, all.
    #[param(rename = ".version", minimum = 1)]
    version: Option<i64>,
}

/// Which files, and which versions are told besides.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FileSearch {
    /// The number of the version; the newest unless given.
    #[param(rename = ".version", minimum = 1)]
    version: Option<i64>,
    /// Only files whose paths begin so.
    #[param(rename = ".prefix")]
    prefix: Option<String>,
    /// Only files behind this path: for the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// At most so many files; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Of the versions, only those below this number. 100 of them are told.
    #[param(rename = ".before")]
    before: Option<i64>,
}

/// A version of a file set.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "6b0003bb686c8275d8015555", "name": "data", "version": 3, "state": "done", "count": 2, "bytes": 4096,
    "created": "2026-11-20T08:24:27", "committed": "2026-11-20T08:24:29", "expires": null, "by": "anna",
    "tenant": "acme", "task": null,
}))]
pub struct FileSetVersion {
    id: String,
    /// The name of the set.
    name: String,
    /// Its number, from 1 on.
    version: i64,
    /// `open` while it is made, then `done`.
    state: String,
    /// How many files it has.
    count: u64,
    /// How many bytes these have together.
    bytes: u64,
    created: Option<String>,
    committed: Option<String>,
    /// When it goes away by itself.
    expires: Option<String>,
    /// The user who has made it, or has submitted the task.
    by: Option<String>,
    /// For whom it is: those who have a role on this tenant may read it. Null: those who have it on all queues.
    tenant: Option<String>,
    /// The id of the task that has left it.
    task: Option<String>,
}

/// A file set by its newest version: its fields are those of the version.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "6b0003bb686c8275d8015555", "name": "data", "version": 3, "state": "done", "count": 2, "bytes": 4096,
    "created": "2026-11-20T08:24:27", "committed": "2026-11-20T08:24:29", "expires": null, "by": "anna",
    "tenant": "acme", "task": null, "versions": 2, "bytes_of_all": 8192,
}))]
pub struct FileSetSummary {
    id: String,
    name: String,
    version: i64,
    state: String,
    count: u64,
    bytes: u64,
    created: Option<String>,
    committed: Option<String>,
    expires: Option<String>,
    by: Option<String>,
    tenant: Option<String>,
    task: Option<String>,
    /// How many versions it has.
    versions: u64,
    /// How many bytes these say they have. Equal files are stored once.
    bytes_of_all: u64,
}

/// A version with some of its files.
#[derive(ToSchema)]
pub struct FileSetPage {
    id: String,
    name: String,
    version: i64,
    state: String,
    count: u64,
    bytes: u64,
    created: Option<String>,
    committed: Option<String>,
    expires: Option<String>,
    by: Option<String>,
    tenant: Option<String>,
    task: Option<String>,
    /// In the order of the bytes of their paths.
    entries: Vec<FileEntry>,
    /// What `.after` is for the next page; null if there is none.
    next: Option<String>,
    /// The versions of the set, the newest first.
    versions: Vec<FileSetVersion>,
}

/// A file of a version.
#[derive(ToSchema)]
#[schema(example = json!({
    "path": "bin/run", "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "size": 3,
    "mode": "755", "mtime": "2026-11-20T08:24:27",
}))]
pub struct FileEntry {
    /// Parts with `/` between them, none of which is empty, `.` or `..`.
    path: String,
    /// What its content is known by.
    sha256: String,
    /// Bytes.
    size: u64,
    /// Who may read, write and run it: three octal digits. By default `644`.
    mode: Option<String>,
    /// When it was changed. By default now.
    mtime: Option<String>,
}

/// A version to be opened.
#[derive(ToSchema)]
#[schema(example = json!({".tenant": "acme"}))]
pub struct NewFileSet {
    /// For whom it is. By default that of the set; for a new set that of whoever asks, if there is one only, and nobody's for
    /// those who have the role on all queues.
    #[schema(rename = ".tenant", max_length = 200)]
    tenant: Option<String>,
    /// When it is to go away by itself: ISO 8601, or seconds since 1970.
    #[schema(rename = ".expires")]
    expires: Option<String>,
}

/// Files to be added. An array of them will do as well.
#[derive(ToSchema)]
pub struct NewFiles {
    #[schema(max_items = 1000)]
    entries: Vec<FileEntry>,
}

/// Files that were added.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8015555", "added": 2}))]
pub struct FilesAdded {
    /// The id of the version.
    id: String,
    /// How many of the files of the request the version has.
    added: u64,
}

/// Versions that are gone.
#[derive(ToSchema)]
#[schema(example = json!({"name": "data", "deleted": 3}))]
pub struct FileSetDeleted {
    name: String,
    /// How many versions, with those that were open.
    deleted: u64,
}

/// How far a content is.
#[derive(ToSchema)]
#[schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "length": 5_242_880, "done": false,
    "missing": [{"first": 3, "last": 4}],
}))]
pub struct ContentChunks {
    sha256: String,
    /// How many bytes it has; null if nothing of it was sent, so that all chunks are missing.
    length: Option<u64>,
    /// Whether it is there, and need not be sent.
    done: bool,
    /// The chunks that are to be sent.
    missing: Vec<ChunkRange>,
}

/// Numbers of chunks.
#[derive(ToSchema)]
pub struct ChunkRange {
    first: u64,
    last: u64,
}

/// How long a content is.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChunkLength {
    /// How many bytes the whole content has.
    #[param(minimum = 1)]
    length: u64,
}

/// A chunk that is there.
#[derive(ToSchema)]
#[schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "n": 0, "outcome": "stored",
}))]
pub struct ChunkStored {
    sha256: String,
    n: u64,
    /// `stored`; or `known`: it had been sent before, and what was sent then stays.
    outcome: String,
}

/// A content that is there.
#[derive(ToSchema)]
#[schema(example = json!({
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "done": true,
}))]
pub struct ContentFinished {
    sha256: String,
    done: bool,
}

/// The file sets of a task.
#[derive(ToSchema)]
#[schema(example = json!({"input": {"name": "data", "patterns": ["*.csv"]}, "output": {"name": "result"}}))]
pub struct TaskFiles {
    /// What it gets before it begins.
    input: Option<TaskInput>,
    /// What it leaves when it has succeeded.
    output: Option<TaskOutput>,
}

/// The file sets of a queue's tasks that say nothing of them themselves.
#[derive(ToSchema)]
#[schema(example = json!({"input": {"name": "data"}, "output": {"name": "result"}}))]
pub struct QueueFiles {
    /// What a task gets before it begins.
    input: Option<TaskInput>,
    /// What a task leaves when it has succeeded.
    output: Option<TaskOutput>,
    /// `true`, and alone: each task has them in `Fileset` of its parameters, as jobs of etcdq do. For those who may read and make
    /// all sets of the queue's tenant.
    from_params: Option<bool>,
}

/// The files that a task gets.
#[derive(ToSchema)]
pub struct TaskInput {
    /// The name of a set that whoever asks may read. It need not be there yet.
    name: String,
    /// The number of the version; the newest when the task begins unless given.
    #[schema(minimum = 1)]
    version: Option<i64>,
    /// Which files: `*` and `?` stand for what is within a part of a path, `**` for any parts. All unless given.
    #[schema(max_items = 100)]
    patterns: Option<Vec<String>>,
}

/// The files that a task leaves.
#[derive(ToSchema)]
pub struct TaskOutput {
    /// The name of the set that gets a new version, which whoever asks may store files in.
    name: String,
    /// Which files. All that are new or have changed unless given.
    #[schema(max_items = 100)]
    patterns: Option<Vec<String>>,
}
