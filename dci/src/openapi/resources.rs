//! The file sets of tasks and queues, definitions of plugins when they are sent, and requests on the routes of the web extensions; and
//! what web services send. These types are never made: they only describe.

use disbatch_wire::queues::Queue;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Any object: what describes types knows it by this name.
pub type Object = Map<String, Value>;

/// Adds to the description how somebody shows who they are: with a password or a token, with each request. Browsers have sessions.
/// Where nobody is asked, none of them is needed.
pub fn tell_security(description: &mut Value) {
    description["components"]["securitySchemes"] = json!({
        "password": {
            "type": "http", "scheme": "basic", "description": "The name and the password of a user.",
        },
        "token": {
            "type": "http", "scheme": "bearer",
            "description": "A token, which `POST /account/tokens` makes. It may also be sent in place of a password.",
        },
        "session": {
            "type": "apiKey", "in": "cookie", "name": "disbatch",
            "description": "The session of a browser, which `POST /login` begins; over TLS it is called \
                `__Host-disbatch`. What changes something needs the form token of the session's pages, too, in the \
                header `X-Disbatch-Form-Token` or as the first field `.form_token` of a form.",
        },
    });
    description["security"] = json!([{}, { "password": [] }, { "token": [] }, { "session": [] }]);
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
#[derive(Deserialize, ToSchema)]
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
#[derive(Deserialize, ToSchema)]
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
#[derive(Deserialize, ToSchema)]
pub struct TaskOutput {
    /// The name of the set that gets a new version, which whoever asks may store files in.
    name: String,
    /// Which files. All that are new or have changed unless given.
    #[schema(max_items = 100)]
    patterns: Option<Vec<String>>,
}

/// The manifest of a plugin with its name. In place of the manifest there may be `worker`, in the form of the lex jobs-scheduler.
#[derive(ToSchema)]
#[schema(example = json!({"_id": "My::Report", "engine": "http", "http": {"url": "https://reports.example/run"}}))]
pub struct NewWorker {
    /// The plugin's name: letters, digits, `_` and `:`. `name` will do as well.
    #[schema(rename = "_id")]
    id: String,
    /// `container`, `http` or `kubernetes`.
    engine: Option<String>,
    description: Option<String>,
    version: Option<String>,
    /// JSON Schema of the parameters of its tasks.
    params: Option<Object>,
    /// What forms of new tasks and schedules begin with.
    template: Option<Object>,
    /// What the engine has to know.
    container: Option<Object>,
    http: Option<Object>,
    kubernetes: Option<Object>,
    /// All of it, in the form of the lex jobs-scheduler: `name`, `description`, `engine`, `image`, `url`, `httpHeaders`, `timeout`,
    /// `template`, and our `callback_auth`.
    worker: Option<Object>,
}

/// The same without a name.
#[derive(ToSchema)]
#[schema(example = json!({"engine": "http", "http": {"url": "https://reports.example/run"}, ".rev": 1}))]
pub struct WorkerDefinition {
    /// `container`, `http` or `kubernetes`.
    engine: Option<String>,
    /// The revision that this is a change of.
    #[schema(rename = ".rev")]
    rev: Option<i64>,
}

/// Definitions from elsewhere. A list of them will do as well.
#[derive(ToSchema)]
#[schema(example = json!({
    "documents": [{"_id": "csv", "worker": {"name": "CSV upload", "image": "registry.example/csv"}}], "replace": true,
}))]
pub struct WorkersImport {
    documents: Vec<Object>,
    /// Whether they take the place of workers of their names.
    replace: Option<bool>,
}

/// How a task of a web service has ended.
#[derive(ToSchema)]
#[schema(example = json!({"status": "FINISHED", "message": "3 rows", "result": {"rows": 3}}))]
pub struct CallbackStatus {
    /// `FINISHED`, `FAILED`, `ABORTED`, or a positive number.
    status: Value,
    /// What there is to say about it, at most 64 KiB: a note of the task's history, and its standard error unless it has
    /// succeeded.
    message: Option<String>,
    /// The task's structured result.
    result: Option<Object>,
}

/// A search over all fields.
#[derive(ToSchema)]
#[schema(example = json!({"filter": {"params.to": "you"}, "options": {"limit": 10, "sort": {"_id": -1}}}))]
pub struct Search {
    /// What to look for; only operators that compare.
    filter: Option<Object>,
    /// `limit` (at most 100), `skip` and `sort`.
    options: Option<Object>,
    /// Only how many match.
    count: Option<Value>,
    /// Over many lines.
    pretty: Option<Value>,
    /// Leaves output out; on unless given.
    terse: Option<Value>,
    /// Archived tasks too.
    #[schema(rename = ".archive")]
    archive: Option<Value>,
}

/// One object for each task.
#[derive(ToSchema)]
#[schema(example = json!([{"to": "you"}, {"to": "me"}]))]
pub struct TaskParams(Vec<Object>);

/// One task for each document of a collection.
#[derive(ToSchema)]
#[schema(example = json!({"filter": {"active": true}, "params": {"to": "document.address"}}))]
pub struct FromCollection {
    /// Which documents; only operators that compare.
    filter: Object,
    /// The pattern: `document.KEY` stands for the document's value of KEY.
    params: Object,
}

/// A queue's attribute.
#[derive(ToSchema)]
#[schema(example = json!({"queueid": "6b0003bb686c8275d70dc2f1", "attr": "threads", "value": 2}))]
pub struct QueueAttribute {
    /// The queue's id.
    queueid: String,
    /// `threads`
    attr: String,
    value: u32,
}

/// A new queue.
#[derive(ToSchema)]
#[schema(example = json!({"type": "Disbatch::Plugin::Demo", "name": "mail"}))]
pub struct StartQueue {
    /// Its plugin.
    #[schema(rename = "type")]
    plugin: String,
    name: String,
}

/// The queue to delete.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d70dc2f1"}))]
pub struct DeleteQueue {
    id: String,
}

/// New tasks. Both values may be text.
#[derive(ToSchema)]
#[schema(example = json!({"queueid": "mail", "object": "[{\"to\":\"you\"}]"}))]
pub struct CreateTasks {
    /// The queue's name or id.
    queueid: String,
    /// An array with one object for each task, or its JSON as text.
    object: Value,
}

/// New tasks from a collection.
#[derive(ToSchema)]
#[schema(example = json!({
    "queueid": "mail", "collection": "people", "jsonfilter": "{\"active\":true}",
    "params": "{\"to\":\"document.address\"}",
}))]
pub struct CreateTasksFromQuery {
    /// The queue's name or id.
    queueid: String,
    collection: String,
    /// Which documents: an object, or its JSON as text.
    jsonfilter: Value,
    /// The pattern: an object, or its JSON as text.
    params: Value,
}

/// A search within one queue or all.
#[derive(ToSchema)]
#[schema(example = json!({"queue": "6b0003bb686c8275d70dc2f1", "filter": "{\"status\":1}", "limit": 10}))]
pub struct SearchTasks {
    /// The queue's id.
    queue: Option<String>,
    /// An object, or its JSON as text.
    filter: Option<Value>,
    limit: Option<u32>,
    skip: Option<u32>,
    /// Answers only how many match, as `[1, count]`.
    count: Option<Value>,
    /// Leaves output out.
    terse: Option<Value>,
}

/// `QueueBalance`'s settings.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"max_tasks": {"* 07:00": 10, "0 00:00": 50}, "queues": [["low"], ["high"]]}))]
pub struct BalanceChange {
    /// From when in the week how many tasks may run: `<0-6 or *> HH:MM`, with 0 for Sundays.
    max_tasks: Object,
    /// Names of queues, in tiers: the second goes first, then the next ones, and the first gets what these leave.
    queues: Vec<Vec<String>>,
    /// Pauses until then, in seconds since 1970.
    disabled: Option<u64>,
}

/// All queues with their tasks counted, in the order of the database.
#[utoipa::path(
    get, path = "/scheduler-json", tag = "Disbatch::Web::V3", operation_id = "schedulerJson",
    responses((status = 200, description = "All queues, as from `GET /queues`.", body = Vec<Queue>)),
)]
fn scheduler() {}

#[cfg(test)]
mod tests {
    use crate::openapi::description;

    #[test]
    fn every_way_in_is_described() {
        let description = description();
        let schemes = description["components"]["securitySchemes"].as_object().unwrap();
        let required = description["security"].as_array().unwrap();
        let named: Vec<&String> = required.iter().flat_map(|one| one.as_object().unwrap().keys()).collect();
        assert_eq!((schemes.len(), named.len(), required.len()), (3, 3, 4));
        assert!(named.iter().all(|name| schemes.contains_key(*name)), "{named:?}");
        for (path, refusals) in
            [("/tasks", true), ("/users", true), ("/login", false), ("/assets/{asset}", false)]
        {
            let responses = &description["paths"][path]["get"]["responses"];
            for status in ["401", "403", "429"] {
                assert_eq!(responses.get(status).is_some(), refusals, "{path}: {status}");
            }
        }
    }
}
