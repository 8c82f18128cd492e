//! What request bodies look like. These types are never made: they describe, and have the names of what is taken.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::resources::{Object, QueueFiles, TaskFiles};

/// A new queue.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"name": "mail", "plugin": "Disbatch::Plugin::Demo"}))]
pub struct NewQueue {
    /// A name that no other queue has.
    #[schema(min_length = 1)]
    name: String,
    /// One of `GET /plugins`.
    #[schema(min_length = 1)]
    plugin: String,
    /// How many of its tasks may run at once, over all nodes; without it none until `threads` are set.
    #[schema(minimum = 0)]
    threads: Option<u64>,
    /// In which order they start: `fifo`, `lifo` or `default`.
    sort: Option<String>,
}

/// What to change of a queue. At least one key.
#[derive(Deserialize, ToSchema)]
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
    /// By what it is decided which task is next: `fifo` or `lifo`, by age; `priority`; or `fair`, where groups share the
    /// queue. Without it, `sort` says it.
    policy: Option<String>,
    /// How often each class of priorities is preferred before it is the first one's turn again: `[2, 1]` prefers
    /// priorities above 0 twice and then the others once. Without it, the highest priority is always preferred.
    #[schema(min_items = 2, max_items = 10)]
    scheme: Option<Vec<u32>>,
    /// What the groups of a fair queue share: `turns`, the default, or `use`.
    share: Option<String>,
    /// How much more than others groups get, by their names: 1 to 100.
    weights: Option<Object>,
    /// How many tasks of a group may run at once over all nodes.
    #[schema(minimum = 1)]
    group_threads: Option<u32>,
    /// Where use is shared: after how many seconds what was used counts half; 3600 by default.
    #[schema(maximum = 2_592_000)]
    half_life: Option<f64>,
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
    /// What pages call its tasks: text in which `{name}` is the parameter of this name, and `{a.b}` a part of one.
    #[schema(max_length = 200)]
    title: Option<String>,
    /// After how many seconds a running task is given up whose runner renews no lease, as Perl's.
    unleased_limit: Option<f64>,
    /// When ended tasks go. Its parts may also be given one by one, as `retention.delete_after`.
    retention: Option<Retention>,
    /// Which attempts are recorded for bundles; null for none. Its parts may also be given one by one, as `record.share`.
    record: Option<Record>,
    /// Which version of its plugin runs its tasks; null for the one that each node finds first. Nodes without it claim none of them.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+_-]+$")]
    version: Option<String>,
    /// Another version of its plugin that runs a part of its tasks, until it is worse or you decide; null for none. Its parts may also be
    /// given one by one, as `canary.share`.
    canary: Option<Canary>,
    /// Which tasks run a second time in another queue; null for none. Its parts may also be given one by one, as `shadow.share`.
    shadow: Option<ShadowRule>,
    /// How many of its tasks may start in what time, on all nodes together. Its parts may also be given one by one, as
    /// `rate.n`.
    rate: Option<Rate>,
    /// The same for each group of a queue whose `policy` is `fair`.
    group_rate: Option<Rate>,
    /// Which nodes may run its tasks; null for all. Its parts may also be given one by one, as `nodes.names` and `nodes.labels.gpu`.
    nodes: Option<NodeSelector>,
    /// The file sets of tasks that say nothing of them themselves.
    files: Option<QueueFiles>,
    /// Which parameters of new tasks become tags, by their paths: `["params.customer"]` gives a task with the customer 7 the tag
    /// `customer=7`.
    #[schema(max_items = 10)]
    index: Option<Vec<String>>,
    /// Whose queue it is, by which rights may be granted. Only for the role `admin`.
    #[schema(max_length = 200)]
    tenant: Option<String>,
    /// What the client has seen of these fields, in the same form, or as the text of it: `{"timeout": 3600}`. What differs from it is
    /// changed, if it is still so, and the rest is left as it is.
    #[serde(rename = ".was")]
    was: Option<Object>,
}

impl QueueChange {
    /// What has parts that may be given one by one: `backoff.base`.
    pub const GROUPS: &[&str] =
        &["backoff", "canary", "group_rate", "nodes", "rate", "record", "retention", "shadow"];
}

/// Which nodes may run the tasks of a queue: those that have all the labels, and one of the names if there are some.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"labels": {"gpu": "yes"}, "names": ["worker1", "worker2"]}))]
pub struct NodeSelector {
    /// Labels and their values, as `labels` of the nodes' configuration has them. Text as `gpu=yes, zone=a` is taken too.
    labels: Option<Object>,
    /// Names of nodes. Text with commas is taken too.
    names: Option<Vec<String>>,
}

/// A pause in seconds: `base` times `factor` to the power of the failures, at most `max`, changed at random by up to
/// its part `jitter`.
#[derive(Deserialize, ToSchema)]
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
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"archive_after": 604_800}))]
pub struct Retention {
    #[schema(minimum = 0)]
    archive_after: Option<f64>,
    #[schema(minimum = 0)]
    delete_after: Option<f64>,
}

/// Which attempts of its tasks are recorded, and for how long recordings are kept.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"share": 0.1, "keep": 7}))]
pub struct Record {
    /// Which part of them.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    share: f64,
    /// Days; 7 unless given.
    #[schema(exclusive_minimum = 0, maximum = 3650)]
    keep: Option<f64>,
}

/// A version of a plugin that is tried.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"version": "1.3.0", "share": 0.05}))]
pub struct Canary {
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+_-]+$")]
    version: String,
    /// Which part of the tasks.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    share: f64,
}

/// Which of its tasks run a second time, without effects.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"queue": "mail-next", "share": 0.05}))]
pub struct ShadowRule {
    /// Where: the name or id of a queue whose plugin has `"shadow": true` in its manifest.
    queue: String,
    /// Which part of them.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    share: f64,
}

/// So many starts in so many seconds.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"n": 10, "per": 60}))]
pub struct Rate {
    #[schema(minimum = 1, maximum = 100000)]
    n: u32,
    /// Seconds.
    #[schema(minimum = 1, maximum = 604800)]
    per: u32,
    /// How many may start at once; by default what comes in a tenth of a second, and one at least.
    #[schema(minimum = 1, maximum = 10000)]
    burst: Option<u32>,
}

/// What to change of a node. At least one key.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"maxthreads": 8}))]
pub struct NodeChange {
    /// How many tasks may run on it at once; null for no limit.
    maxthreads: Option<u32>,
    /// Whether it is to claim nothing more. Running tasks go on.
    draining: Option<bool>,
    /// With `draining`: running tasks whose plugins can be interrupted stop, and go on elsewhere.
    interrupt: Option<bool>,
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
    /// The collection that has one document for each task. Of Disbatch's own, only `tasks`, `queues`, `nodes` and
    /// `reports`; others are answered by 403.
    collection: Option<String>,
    /// Which of its documents; only operators that compare.
    filter: Option<Object>,
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
    /// Whose tasks these are, as `tenant/user`: whose turn it is in a fair queue.
    #[schema(rename = ".group", min_length = 1, max_length = 200)]
    group: Option<String>,
    /// Higher ones come first, in queues whose policy is `priority` or `fair`; 0 by default.
    #[schema(rename = ".priority", minimum = -1000, maximum = 1000)]
    priority: Option<i32>,
    /// What the tasks are found by, besides what the `index` of their queue gives: text of 1 to 128 characters.
    #[schema(rename = ".tags", max_items = 20, example = json!(["customer=7"]))]
    tags: Option<Vec<String>>,
    /// What only the plugin is told, of all these tasks: an object of at most 64 KiB as JSON. It is encrypted before it is
    /// stored, and no answer has it. The answer is 503 if the server has no key for that.
    #[schema(rename = ".secure_params")]
    secure_params: Option<Object>,
    /// What is done one after the other, in one private folder, until one step does not succeed. Each step gets the
    /// task's params, and its own in the place of those that have the same name.
    #[schema(rename = ".steps", min_items = 1, max_items = 100)]
    steps: Option<Vec<NewStep>>,
    /// Which file sets they get before they begin, and which they leave when they have succeeded. It needs the roles on the
    /// tenant of the tasks that reading and storing these needs without them.
    #[schema(rename = ".files")]
    files: Option<TaskFiles>,
    /// Ids of tasks that these come after. They must exist, and the client must be able to see them.
    #[schema(rename = ".after", min_items = 1, max_items = 1000)]
    after: Option<Vec<String>>,
    /// What those must have come to: `succeeded`, all of them, the default; `finished`, all of them, however; or `any`:
    /// one of them has succeeded.
    #[schema(rename = ".after_when")]
    after_when: Option<String>,
    /// What becomes of these when that cannot come any more: `cancel`, the default, also of those that come after them;
    /// or `wait`, until what has failed is tried again and succeeds.
    #[schema(rename = ".after_failed")]
    after_failed: Option<String>,
    /// Whether each of these comes after the one before, too. Not with `collection`.
    #[schema(rename = ".chain")]
    chain: Option<bool>,
    /// Locks that each of these holds while it runs: `NAME` alone, `NAME/shared` together with others that share it, or
    /// `NAME/3` as one of three. Names have letters, digits and `_.:@-`.
    #[schema(rename = ".locks", min_items = 1, max_items = 50)]
    locks: Option<Vec<String>>,
    /// For whom the tasks are, if the queue is nobody's. It needs the role `submitter` on that tenant.
    #[schema(rename = ".tenant", max_length = 200)]
    tenant: Option<String>,
    /// Creates an array in place of a task: one task for each number of `0-9999%50` or `1,3,5-9:2`, or for each value of an
    /// array. `params` is then one object, or missing. Not with `.chain`, `.unique` or `collection`.
    #[schema(rename = ".array")]
    array: Option<Value>,
    /// The parameter that says which element of the array it is; `item` by default.
    #[schema(rename = ".array_key", max_length = 200)]
    array_key: Option<String>,
    /// How many elements of the array may run at once; the same as `%50`.
    #[schema(rename = ".array_cap", minimum = 1, maximum = 100000)]
    array_cap: Option<u32>,
    /// The params of one more task, which starts when all elements of the array have ended.
    #[schema(rename = ".array_final")]
    array_final: Option<Object>,
    /// What they must have come to for that: `succeeded`, the default, or `finished`.
    #[schema(rename = ".array_final_when")]
    array_final_when: Option<String>,
    /// The same key with the same request creates its tasks once, and is answered the same for a week.
    #[schema(rename = ".idempotency_key", max_length = 200)]
    idempotency_key: Option<String>,
}

/// A step of new tasks.
#[derive(ToSchema)]
#[schema(example = json!({"name": "convert", "plugin": "My::Convert", "params": {"to": "png"}}))]
pub struct NewStep {
    /// What people call it: `step 1` and so on by default.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// The plugin: by default that of the queue; else one of a queue that the client may submit tasks to.
    plugin: Option<String>,
    /// Params of this step alone.
    params: Option<Object>,
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
