//! What file sets look like. These types are never made: they only describe.

use disbatch_wire::files::FileEntry;
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

/// How long a content is.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChunkLength {
    /// How many bytes the whole content has.
    #[param(minimum = 1)]
    length: u64,
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
