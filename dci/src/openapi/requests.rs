//! What request bodies look like. These types are never made: they only describe.

use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A new queue.
#[derive(ToSchema)]
#[schema(example = json!({"name": "mail", "plugin": "Disbatch::Plugin::Demo"}))]
pub struct NewQueue {
    /// A name that no other queue has.
    #[schema(min_length = 1)]
    name: String,
    /// One of `GET /plugins`.
    #[schema(min_length = 1)]
    plugin: String,
}

/// What to change of a queue. At least one key.
#[derive(ToSchema)]
#[schema(example = json!({"threads": 4}))]
pub struct QueueChange {
    /// A name that no other queue has.
    #[schema(min_length = 1)]
    name: Option<String>,
    /// One of `GET /plugins`.
    plugin: Option<String>,
    /// How many of its tasks may run at once over all nodes.
    threads: Option<u32>,
    /// Whether nothing more of it is claimed. Running tasks go on.
    paused: Option<bool>,
    /// Whether it takes new tasks; true by default.
    accepting: Option<bool>,
    /// Why it is paused or takes no tasks.
    #[schema(max_length = 200)]
    reason: Option<String>,
    /// The order of claiming: `fifo`, `lifo`, or `default`, the server's.
    sort: Option<String>,
    /// What becomes of a task whose runner dies: `fail`, the default, or `requeue`.
    on_orphan: Option<String>,
    /// What a runner does that cannot reach the database: `keep` on, the default with `fail`; or `stop`, the default
    /// with `requeue`.
    on_lost_lease: Option<String>,
    /// How often a task may be tried. By default once, or 3 times if only its runner dies and `on_orphan` is
    /// `requeue`.
    #[schema(minimum = 1)]
    max_attempts: Option<u32>,
    /// How long to wait between attempts. Its parts may also be given one by one, as `backoff.base`.
    backoff: Option<BackoffRule>,
    /// How long an attempt may take, in seconds.
    timeout: Option<f64>,
    /// How long a plugin has between SIGTERM and SIGKILL, in seconds; 10 by default.
    #[schema(minimum = 0)]
    grace: Option<f64>,
    /// After how many seconds a running task is given up whose runner renews no lease, as Perl's.
    unleased_limit: Option<f64>,
    /// When ended tasks go. Its parts may also be given one by one, as `retention.delete_after`.
    retention: Option<Retention>,
    /// Whose queue it is, by which rights may be granted. Only for the role `admin`.
    #[schema(max_length = 200)]
    tenant: Option<String>,
}

/// A pause in seconds: `base` times `factor` to the power of the failures, at most `max`, changed at random by up to
/// its part `jitter`.
#[derive(ToSchema)]
#[schema(example = json!({"base": 1, "factor": 2, "max": 3600, "jitter": 0.1}))]
pub struct BackoffRule {
    /// 1 by default.
    #[schema(minimum = 0)]
    base: Option<f64>,
    /// 2 by default.
    #[schema(minimum = 0)]
    factor: Option<f64>,
    /// 3600 by default.
    #[schema(minimum = 0)]
    max: Option<f64>,
    /// 0.1 by default.
    #[schema(minimum = 0, maximum = 1)]
    jitter: Option<f64>,
}

/// After how many seconds ended tasks are archived, and deleted.
#[derive(ToSchema)]
#[schema(example = json!({"archive_after": 604_800}))]
pub struct Retention {
    #[schema(minimum = 0)]
    archive_after: Option<f64>,
    #[schema(minimum = 0)]
    delete_after: Option<f64>,
}

/// Why something is done.
#[derive(ToSchema)]
#[schema(example = json!({"reason": "wrong address"}))]
pub struct Reason {
    /// For the task's history.
    #[schema(max_length = 200)]
    reason: Option<String>,
}

/// What to change of a node. At least one key.
#[derive(ToSchema)]
#[schema(example = json!({"maxthreads": 8}))]
pub struct NodeChange {
    /// How many tasks may run on it at once; null for no limit.
    maxthreads: Option<u32>,
    /// Whether it is to claim nothing more. Running tasks go on.
    draining: Option<bool>,
}

/// New tasks. With `collection` and `filter`, `params` is the pattern for one task per document found: a value
/// `document.KEY` takes the document's value of KEY.
#[derive(ToSchema)]
#[schema(example = json!({"queue": "mail", "params": [{"to": "you"}, {"to": "me"}]}))]
pub struct NewTasks {
    /// The queue's name or id.
    queue: String,
    /// One object, or an array with one object for each task. Keys have no dot.
    params: OneOrMany,
    /// The collection that has one document for each task. Not one of Disbatch's own that hold tasks, or tell about
    /// people: that is answered by 403.
    collection: Option<String>,
    /// Which of its documents; only operators that compare.
    #[schema(value_type = Option<Object>)]
    filter: Option<Map<String, Value>>,
    /// Not before this time: ISO 8601, or seconds since 1970.
    #[schema(rename = ".run_at")]
    run_at: Option<Value>,
    /// Not before so many seconds from now, by the clock of the database.
    #[schema(rename = ".delay", minimum = 0)]
    delay: Option<f64>,
    /// How long an attempt may take, in seconds.
    #[schema(rename = ".timeout")]
    timeout: Option<f64>,
    /// When the task must have ended.
    #[schema(rename = ".deadline")]
    deadline: Option<Value>,
    /// How long the plugin has between SIGTERM and SIGKILL, in seconds.
    #[schema(rename = ".grace", minimum = 0)]
    grace: Option<f64>,
    /// How often the task may be tried.
    #[schema(rename = ".max_attempts", minimum = 1)]
    max_attempts: Option<u32>,
    /// How long to wait between attempts.
    #[schema(rename = ".backoff")]
    backoff: Option<BackoffRule>,
    /// A key that no other task of the queue may have until this one has ended. For one task.
    #[schema(rename = ".unique", max_length = 200)]
    unique: Option<String>,
    /// What only the plugin is told, of all these tasks: an object of at most 64 KiB as JSON. It is encrypted before it is
    /// stored, and no answer has it. The answer is 503 if the server has no key for that.
    #[schema(rename = ".secure_params", value_type = Option<Object>)]
    secure_params: Option<Map<String, Value>>,
    /// The same key with the same request creates its tasks once, and is answered the same for a week.
    #[schema(rename = ".idempotency_key", max_length = 200)]
    idempotency_key: Option<String>,
}

/// One object, or several.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(Map<String, Value>),
    /// Several.
    Many(Vec<Map<String, Value>>),
}
