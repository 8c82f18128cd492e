//! What requests and answers look like. These types are never made: they only describe.

use disbatch_wire::Oid;
use serde_json::Value;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// Why a request is not answered as hoped. Some errors have further keys that say what is meant.
#[derive(ToSchema)]
#[schema(example = json!({"error": "no queue 'nosuch'"}))]
pub struct ErrorBody {
    /// What is wrong. A sentence, except where an unknown node is changed: there the result of the write.
    error: Value,
}

/// A task as stored. `.fields` may leave out any of its keys.
#[derive(ToSchema)]
#[schema(example = json!({
    "_id": {"$oid": "6b0003bb686c8275d8013333"}, "queue": {"$oid": "6b0003bb686c8275d70dc2f1"},
    "status": 1, "node": "worker1", "params": {"to": "you"}, "stdout": "done\n", "stderr": null,
    "ctime": "2026-11-20T08:24:27", "mtime": "2026-11-20T08:24:29", "complete": true,
}))]
pub struct Task {
    #[schema(rename = "_id")]
    oid: Option<Oid>,
    /// The queue's id.
    queue: Option<Value>,
    /// -7 deferred, -6 orphaned, -5 cancelled, -3 terminated, -2 queued, -1 claimed, 0 running, 1 succeeded, 2 failed; more from plugins.
    status: Option<Value>,
    /// Where it runs; null until it is claimed.
    node: Option<Value>,
    /// What the plugin gets.
    params: Option<Value>,
    /// How far each of its steps is: `name`, `plugin`, `params`, `status`, and once it has begun `started` and `output_at`, where
    /// its output begins; then `ended`, `exit` and `message`. Only of tasks that have some.
    steps: Option<Vec<Value>>,
    /// Which file sets it gets and leaves: `input` and `output`, each with `name` and perhaps `patterns`. Once it has begun
    /// there is `input.taken`, the version that it got, and then `output.version`, the one that it has left. Only of tasks that
    /// have some.
    files: Option<Value>,
    /// What its plugin has saved for the next run of its schedule, or for the next attempt.
    storage: Option<Value>,
    /// What it asks a person, while it waits for the answer: `title`, `form`, `who`, `deadline`, `on_deadline`, `asked`, since when it waits, and the
    /// `attempt` that has asked.
    awaiting: Option<Value>,
    /// The answer to that, for its next attempt: `value`, `by`, `at` and `attempt`. `value` and `by` are null if nobody has answered in time.
    answer: Option<Value>,
    /// True if the plugin gets secure parameters too, which are never shown. Only of tasks that have some.
    has_secure_params: Option<bool>,
    /// Output: text, null, or the id of a file in `GridFS`.
    stdout: Option<Value>,
    /// Errors, likewise.
    stderr: Option<Value>,
    /// When it was created, UTC; seconds since 1970 with `.epoch`.
    ctime: Option<Value>,
    /// When it last changed, likewise.
    mtime: Option<Value>,
    /// The version of its plugin that runs it or ran it last, with `.details`. Only where its queue pins one, or tries one.
    plugin_version: Option<String>,
    /// Whether the output is stored: false if storing failed.
    complete: Option<Value>,
    /// Whose it is, for a fair queue. Only of tasks that have one.
    group: Option<String>,
    /// Higher ones come first where the queue goes by priority. Only of tasks that have one.
    priority: Option<i32>,
    /// What it is found by. Only of tasks that have some.
    tags: Option<Vec<String>>,
    /// True if an application has put it into the inbox, and no DEN has moved it yet. It waits, so its status is -2.
    inbox: Option<bool>,
    /// Why the inbox has refused it: `reason`, and `by`, a word for what has refused it. Only of such tasks, which are cancelled (-5).
    refused: Option<Value>,
    /// When it moved to the archive; only of archived tasks.
    archived: Option<Value>,
    /// For whom it is; only if it is for a tenant.
    tenant: Option<Value>,
    /// Who has submitted it: a login name; only where users log in.
    owner: Option<Value>,
}

/// How many tasks match.
#[derive(ToSchema)]
#[schema(example = json!({"count": 17}))]
pub struct Count {
    count: u64,
}

/// An array of tasks; one task for `.limit=1`; the number of tasks with `.count`; `{}` when nothing matches.
pub enum Tasks {}

impl PartialSchema for Tasks {
    fn schema() -> RefOr<Schema> {
        let task = || Ref::from_schema_name("Task");
        AnyOfBuilder::new()
            .item(ArrayBuilder::new().items(task()))
            .item(task())
            .item(Ref::from_schema_name("Count"))
            .item(ObjectBuilder::new().max_properties(Some(0)))
            .description(Some(
                "An array; one task for `.limit=1`; the number with `.count`; `{}` when nothing matches.",
            ))
            .into()
    }
}

impl ToSchema for Tasks {}

/// One for each id, or null.
pub enum ChosenTasks {}

impl PartialSchema for ChosenTasks {
    fn schema() -> RefOr<Schema> {
        let one = AnyOfBuilder::new()
            .item(Ref::from_schema_name("ChosenTask"))
            .item(ObjectBuilder::new().schema_type(Type::Null));
        ArrayBuilder::new().items(one).into()
    }
}

impl ToSchema for ChosenTasks {}

/// Where a task stands; or with `.fields` these.
pub enum WaitAnswer {}

impl PartialSchema for WaitAnswer {
    fn schema() -> RefOr<Schema> {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name("Waited"))
            .item(Ref::from_schema_name("ChosenTask"))
            .description(Some("Where the task stands; or with `.fields` these."))
            .into()
    }
}

impl ToSchema for WaitAnswer {}

/// How a task is written.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OneTask {
    /// With all fields. On unless empty or 0, as all switches.
    #[param(rename = ".details")]
    details: Option<String>,
    /// Output that is in `GridFS` as text.
    #[param(rename = ".full")]
    full: Option<String>,
    /// `[terse mode]` in place of output.
    #[param(rename = ".terse")]
    terse: Option<String>,
    /// Times as seconds since 1970.
    #[param(rename = ".epoch")]
    epoch: Option<String>,
}

/// Which tasks, and how they are written. Other fields of an index of `tasks` may be given too.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TaskSearch {
    /// A task's id.
    #[param(pattern = "^[0-9a-f]{24}$")]
    id: Option<String>,
    /// A queue's name, or its id.
    queue: Option<String>,
    /// Any of these. Needs a queue, a node or tags with it, as the indexes demand.
    status: Option<Vec<i32>>,
    /// Host name.
    node: Option<String>,
    /// All of these tags: several times, or with commas between them.
    #[param(example = json!(["customer=7"]), max_items = 20)]
    tags: Option<Vec<String>>,
    /// One of these tags.
    #[param(max_items = 20)]
    any_tags: Option<Vec<String>>,
    /// Made at this time or later, as their ids say: ISO 8601, UTC unless it has a zone, seconds since 1970, or an age (`2h`, `7d`).
    #[param(rename = ".created_since", example = "7d")]
    created_since: Option<String>,
    /// Made before this time.
    #[param(rename = ".created_until")]
    created_until: Option<String>,
    /// At most so many. With 1, the answer is no array.
    #[param(rename = ".limit")]
    limit: Option<i64>,
    /// Leaves out so many first. The server steps over each of them: for many pages, see `.after`.
    #[param(rename = ".skip", minimum = 0)]
    skip: Option<i64>,
    /// In the order of ids: `id` for the oldest task first, `-id` for the newest; `id` with `.after` and `.before`. The page has
    /// 100 tasks unless `.limit` says something else, at most 10,000.
    #[param(rename = ".order", example = "-id")]
    order: Option<String>,
    /// Only what comes after this task in that order: the next page.
    #[param(rename = ".after", pattern = "^[0-9a-f]{24}$")]
    after: Option<String>,
    /// Only what comes right before this task in that order: the previous page.
    #[param(rename = ".before", pattern = "^[0-9a-f]{24}$")]
    before: Option<String>,
    /// Answers only how many match. Of a queue, or statuses of it, the counters are asked beyond 10,000. On unless empty or 0, as all switches.
    #[param(rename = ".count")]
    count: Option<String>,
    /// Which keys to answer: a JSON array of names, or an object of name and 0 or 1. `secure_params` is refused.
    #[param(rename = ".fields", example = "[\"status\",\"mtime\"]")]
    fields: Option<String>,
    /// Output that is in `GridFS` as text.
    #[param(rename = ".full")]
    full: Option<String>,
    /// `[terse mode]` in place of output.
    #[param(rename = ".terse")]
    terse: Option<String>,
    /// Times as seconds since 1970.
    #[param(rename = ".epoch")]
    epoch: Option<String>,
    /// Archived tasks too.
    #[param(rename = ".archive")]
    archive: Option<String>,
    /// Over many lines.
    #[param(rename = ".pretty")]
    pretty: Option<String>,
    /// With all fields, also those that Disbatch does not have.
    #[param(rename = ".details")]
    details: Option<String>,
}
