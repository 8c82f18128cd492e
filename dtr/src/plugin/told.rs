//! What a plugin is told besides the task: the variables that tell it about that, and what the plugin's manifest and the node's
//! configuration say to an adapter.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bson::{Bson, DateTime};
use disbatch_core::callbacks::Token;
use disbatch_core::model::{Rules, SHADOW_OF, SHADOW_TENANT, TaskId, TraceContext, extended, whole_number};
use disbatch_core::plugin::Engine;
use disbatch_core::secrets::{NamedSecrets, SecureParams};
use disbatch_core::task::{STORAGE, commit_name};
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Job;
use crate::guard;
use crate::steps::OfStep;

pub const WORK_DIR: &str = "DISBATCH_WORK_DIR";

pub const SECURE_PARAMS: &str = "JOB_SECURE_PARAMS";

const ALLOWED_ADDRESSES: &str = "DISBATCH_NOTIFY_ALLOW";

/// Longer values are only on standard input: the kernel limits a variable to 128 KiB.
const LONGEST: usize = 64 * 1024;

#[derive(Debug, Clone, Default)]
pub struct About {
    /// When the newest run of the task's schedule that succeeded began and ended.
    pub last_success: [Option<DateTime>; 2],
    pub step: Option<OfStep>,
    /// Whether it finds secure parameters in a variable, too.
    pub secure_params_in_environment: bool,
    /// Whether it stops where it is when it is told to, and goes on in another attempt.
    pub interruptible: bool,
    /// The database in which it may end its task, if it may.
    pub commits_in: Option<String>,
    /// What it finds in variables that nobody else sees; an adapter finds it in its input.
    pub secrets: NamedSecrets,
    pub config: PathBuf,
    /// The private addresses that it may send messages to, if it sends any.
    pub allowed_addresses: Option<String>,
    pub adapter: Option<Adapter>,
    pub callback: Option<Callback>,
}

/// Names and values of the variables that tell a plugin about its task, without what is secret.
pub fn variables(job: &Job<'_>) -> Vec<(&'static str, String)> {
    let (task, about) = (job.task, job.about);
    let schedule = task.rest.get("schedule").and_then(Bson::as_object_id);
    let text = |name: &str| task.rest.get(name).and_then(Bson::as_str);
    let tenant = text("tenant").or(text(SHADOW_TENANT)).or(job.queue.tenant()).unwrap_or_default();
    let [start, finish] = about.last_success.map(time);
    let mut variables = vec![
        (guard::TASK_VARIABLE, task.id.to_string()),
        ("DISBATCH_QUEUE_ID", job.queue.id.to_string()),
        ("DISBATCH_QUEUE", without_end(&job.queue.display_name())),
        ("DISBATCH_PLUGIN", job.name.base().to_owned()),
        ("DISBATCH_NODE", job.run.node.as_str().to_owned()),
        ("DISBATCH_ATTEMPT", job.run.attempt.to_string()),
        ("JOB_ID", schedule.map_or_else(|| task.id.to_string(), |schedule| schedule.to_hex())),
        ("RUN_ID", task.id.to_string()),
        ("TENANT_ID", without_end(tenant)),
        ("LAST_SUCCESS_START", start),
        ("LAST_SUCCESS_FINISH", finish),
    ];
    variables.extend(task.rest.contains_key(SHADOW_OF).then(|| ("DISBATCH_SHADOW", "1".to_owned())));
    let trace = TraceContext::of_task(&task.rest);
    variables
        .extend(trace.iter().flat_map(TraceContext::variables).map(|(name, value)| (name, value.to_owned())));
    variables.extend(job.private_folder().map(|folder| (WORK_DIR, folder.to_string_lossy().into_owned())));
    if let Some(database) = &about.commits_in {
        variables.push(("DISBATCH_DATABASE", database.clone()));
        variables.push(("DISBATCH_COMMIT", commit_name(task.id, job.run.attempt)));
    }
    variables.extend(about.allowed_addresses.as_ref().map(|allowed| (ALLOWED_ADDRESSES, allowed.clone())));
    if let Some(step) = &about.step {
        variables.extend([
            ("DISBATCH_STEP", step.number.to_string()),
            ("DISBATCH_STEPS", step.of.to_string()),
            ("DISBATCH_STEP_NAME", without_end(&step.name)),
        ]);
    }
    if let Some(array) = task.rest.get("array").and_then(Bson::as_document) {
        let index = array.get("index").and_then(whole_number).unwrap_or_default().to_string();
        let value = match array.get("value") {
            None => index.clone(),
            Some(Bson::String(text)) => without_end(text),
            Some(other) => extended(other),
        };
        let id = array.get_object_id("id").map(|id| id.to_hex()).unwrap_or_default();
        variables.extend([("DISBATCH_ARRAY_ID", id), ("DISBATCH_ARRAY_INDEX", index)]);
        variables.extend(Some(("DISBATCH_ARRAY_VALUE", value)).filter(|(_, value)| value.len() <= LONGEST));
    }
    let storage = task.rest.get(STORAGE).filter(|storage| **storage != Bson::Null);
    let storage = storage.map_or_else(String::new, extended);
    let long = [("JOB_PARAMS", extended(task.params())), ("JOB_STORAGE", storage)];
    variables.extend(long.into_iter().filter(|(_, value)| value.len() <= LONGEST));
    variables
}

/// Name and value of the one that is secret, if the plugin is to have it. The value is JSON, or nothing. It is overwritten when
/// it is dropped.
pub fn secret_variable(job: &Job<'_>) -> Option<(&'static str, Zeroizing<Vec<u8>>)> {
    if !job.about.secure_params_in_environment {
        return None;
    }
    let json = job.secure_params.map(SecureParams::json).unwrap_or_default();
    (json.len() <= LONGEST).then_some((SECURE_PARAMS, json))
}

/// ISO 8601, in UTC; empty where there is none.
fn time(at: Option<DateTime>) -> String {
    at.and_then(|at| at.try_to_rfc3339_string().ok()).unwrap_or_default()
}

/// No variable can have the byte that ends one.
fn without_end(text: &str) -> String {
    text.replace('\0', "")
}

/// What is known of an adapter's work before there is a task.
#[derive(Clone)]
pub struct Adapter {
    pub engine: Engine,
    /// What the manifest says.
    pub settings: Value,
    /// What the node's configuration says.
    pub engine_config: Value,
    /// The database of the node's tasks: the same id may be in another one.
    pub database: String,
    /// What the node says of secure parameters in variables, if it says anything.
    pub secure_params_in_environment: Option<bool>,
}

/// With what a web service calls back.
#[derive(Clone, Serialize)]
pub struct Callback {
    /// What it shows; none if its addresses say enough.
    token: Option<String>,
    url: String,
}

/// What an adapter is told besides the task, as it reads it.
#[derive(Serialize)]
pub struct Worker<'a> {
    name: &'a str,
    engine: Engine,
    settings: &'a Value,
    engine_config: &'a Value,
    secrets: BTreeMap<&'a str, &'a str>,
    variables: BTreeMap<&'static str, String>,
    work_dir: Cow<'a, str>,
    database: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secure_params_in_environment: Option<bool>,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    grace: f64,
    /// How many seconds the task may take, by the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<&'a Callback>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({}, not shown)", self.engine)
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callback(not shown)")
    }
}

impl Callback {
    /// To the web server at `server`, about `task`.
    pub fn new(token: &Token, server: &str, task: TaskId) -> Self {
        let server = server.trim_end_matches('/');
        match token.is_in_address() {
            true => Self { token: None, url: format!("{server}/callbacks/{task}-{}", token.text()) },
            false => Self { token: Some(token.text().to_owned()), url: format!("{server}/callbacks/{task}") },
        }
    }
}

impl<'a> Worker<'a> {
    /// What the adapter of a job is told. `None`: it has none. The variable with secure parameters is not among the others: whoever may use
    /// the engine can see what is made of them.
    pub fn of(job: &Job<'a>) -> Option<Self> {
        let adapter = job.about.adapter.as_ref()?;
        let variables = variables(job).into_iter().filter(|(name, _)| *name != WORK_DIR).collect();
        let rules = Rules::of(job.task, Some(job.queue));
        Some(Self {
            name: job.name.base(),
            engine: adapter.engine,
            settings: &adapter.settings,
            engine_config: &adapter.engine_config,
            secrets: job.about.secrets.by_name().collect(),
            variables,
            work_dir: job.folder.to_string_lossy(),
            database: &adapter.database,
            secure_params_in_environment: adapter.secure_params_in_environment,
            grace: rules.grace.as_secs_f64(),
            timeout: rules.timeout.map(|timeout| timeout.as_secs_f64()),
            callback: job.about.callback.as_ref(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use disbatch_core::model::{NodeName, Queue, Task};
    use disbatch_core::task::Run;
    use serde_json::json;

    use super::*;
    use crate::isolation::is_set_here;

    /// As it comes from the database: what looks like extended JSON is read as it is.
    fn read<T: serde::de::DeserializeOwned>(document: Document) -> T {
        bson::deserialize_from_slice(&bson::serialize_to_vec(&document).unwrap()).unwrap()
    }

    /// The variables of a task with these fields in a queue with those.
    fn of(task: Document, queue: Document, about: &About) -> BTreeMap<&'static str, String> {
        let mut all = BTreeMap::new();
        with_job(task, queue, about, |job| {
            let secret =
                secret_variable(job).map(|(name, value)| (name, String::from_utf8(value.to_vec()).unwrap()));
            all = variables(job).into_iter().chain(secret).collect();
            // Recordings tell by that which are the task's own.
            assert!(all.keys().all(|name| is_set_here(name.as_ref())), "{all:?}");
        });
        all
    }

    fn with_job(task: Document, queue: Document, about: &About, look: impl FnOnce(&Job<'_>)) {
        let id = task.get_object_id("_id").unwrap_or_else(|_| ObjectId::from_bytes([1; 12]));
        let mut document = doc! { "_id": id, "queue": ObjectId::from_bytes([2; 12]), "status": 0 };
        document.extend(task);
        let mut of_queue = doc! { "_id": ObjectId::from_bytes([2; 12]), "name": "q\0ueue" };
        of_queue.extend(queue);
        let (task, queue): (Task, Queue) = (read(document), read(of_queue));
        let secret = json!({ "password": "horse" });
        let params = SecureParams::new(secret.as_object().unwrap().clone());
        let (name, node) = ("Test".parse().unwrap(), NodeName::new("n1"));
        let run = Run { task: TaskId(id), queue: queue.id, node, attempt: 3, instance: None };
        let job = Job {
            task: &task,
            json: None,
            secure_params: params.as_ref(),
            queue: &queue,
            name: &name,
            run: &run,
            folder: Path::new("/tmp/x"),
            folder_is_used: false,
            until: Duration::ZERO,
            about,
        };
        look(&job);
    }

    #[test]
    fn an_ordinary_task_has_these_and_no_others() {
        let variables = of(doc! { "params": { "a": 1 } }, doc! {}, &About::default());
        let (task, queue) = ("01".repeat(12), "02".repeat(12));
        let expected = [
            ("DISBATCH_TASK_ID", task.as_str()),
            ("DISBATCH_QUEUE_ID", queue.as_str()),
            ("DISBATCH_QUEUE", "queue"),
            ("DISBATCH_PLUGIN", "Test"),
            ("DISBATCH_NODE", "n1"),
            ("DISBATCH_ATTEMPT", "3"),
            ("DISBATCH_WORK_DIR", "/tmp/x"),
            ("JOB_ID", task.as_str()),
            ("RUN_ID", task.as_str()),
            ("TENANT_ID", ""),
            ("LAST_SUCCESS_START", ""),
            ("LAST_SUCCESS_FINISH", ""),
            ("JOB_PARAMS", r#"{"a":1}"#),
            ("JOB_STORAGE", ""),
        ];
        let expected: BTreeMap<&str, String> =
            expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        assert_eq!(variables, expected);
    }

    #[test]
    fn a_task_of_a_trace_is_told_of_it() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let task = doc! { "trace": { "parent": parent, "baggage": "user=ann" } };
        let variables = of(task, doc! {}, &About::default());
        assert_eq!((&variables["TRACEPARENT"][..], &variables["BAGGAGE"][..]), (parent, "user=ann"));
        assert!(!variables.contains_key("TRACESTATE"), "{variables:?}");
    }

    #[test]
    fn a_task_without_a_folder_is_told_of_none() {
        let of_task = |folder| {
            let mut names = Vec::new();
            with_job(doc! {}, doc! {}, &About::default(), |job| {
                let job = Job { folder: Path::new(folder), ..*job };
                names = variables(&job).into_iter().map(|(name, _)| name).collect();
            });
            names
        };
        assert!(of_task("/tmp/x").contains(&WORK_DIR) && !of_task("/").contains(&WORK_DIR));
    }

    #[test]
    fn a_task_of_a_schedule_is_told_of_earlier_runs() {
        let schedule = ObjectId::from_bytes([7; 12]);
        let task =
            doc! { "schedule": schedule, "tenant": "acme", "storage": { "cursor": [1, { "$oid": "x" }] } };
        let at = |millis| Some(DateTime::from_millis(millis));
        let about =
            About { last_success: [at(1_795_163_067_344), at(1_795_163_068_000)], ..About::default() };
        let variables = of(task, doc! { "tenant": "other" }, &about);
        assert_eq!(variables["JOB_ID"], "07".repeat(12));
        assert_eq!(variables["RUN_ID"], "01".repeat(12));
        assert_eq!(variables["TENANT_ID"], "acme");
        assert_eq!(variables["JOB_STORAGE"], r#"{"cursor":[1,{"$oid":"x"}]}"#);
        assert_eq!(variables["LAST_SUCCESS_START"], "2026-11-20T08:24:27.344Z");
        assert_eq!(variables["LAST_SUCCESS_FINISH"], "2026-11-20T08:24:28Z");
        let variables = of(doc! { "storage": Bson::Null }, doc! { "tenant": "other" }, &About::default());
        assert_eq!((variables["TENANT_ID"].as_str(), variables["JOB_STORAGE"].as_str()), ("other", ""));
    }

    #[test]
    fn a_step_knows_its_number_and_secure_parameters_are_there_for_who_asks() {
        let step = OfStep { number: 2, of: 3, name: "convert".to_owned() };
        let allowed_addresses = Some("10.0.0.0/8,chat.local".to_owned());
        let about = About {
            step: Some(step),
            commits_in: Some("jobs".to_owned()),
            allowed_addresses,
            secure_params_in_environment: true,
            ..About::default()
        };
        let variables = of(doc! {}, doc! {}, &about);
        let named = |name: &str| variables[name].as_str();
        assert_eq!((named("DISBATCH_STEP"), named("DISBATCH_STEPS")), ("2", "3"));
        assert_eq!(named("DISBATCH_STEP_NAME"), "convert");
        assert_eq!(named("DISBATCH_DATABASE"), "jobs");
        assert_eq!(named("DISBATCH_COMMIT"), format!("{}.3", "01".repeat(12)));
        assert_eq!(named("DISBATCH_NOTIFY_ALLOW"), "10.0.0.0/8,chat.local");
        assert_eq!(named("JOB_SECURE_PARAMS"), r#"{"password":"horse"}"#);
    }

    #[test]
    fn an_element_of_an_array_knows_which_it_is() {
        let of_array = |array: Document| {
            let variables = of(doc! { "array": array }, doc! {}, &About::default());
            ["ID", "INDEX", "VALUE"].map(|name| variables.get(&*format!("DISBATCH_ARRAY_{name}")).cloned())
        };
        let id = ObjectId::from_bytes([9; 12]);
        let expected = |value: &str| [id.to_hex().as_str(), "3", value].map(|text| Some(text.to_owned()));
        assert_eq!(of_array(doc! { "id": id, "index": 3_i64 }), expected("3"));
        assert_eq!(of_array(doc! { "id": id, "index": 3_i64, "value": "a b.tif" }), expected("a b.tif"));
        assert_eq!(of_array(doc! { "id": id, "index": 3_i64, "value": 7_i64 }), expected("7"));
        assert_eq!(
            of_array(doc! { "id": id, "index": 3_i64, "value": { "a": [1] } }),
            expected(r#"{"a":[1]}"#)
        );
        let long = doc! { "id": id, "index": 3_i64, "value": "x".repeat(LONGEST + 1) };
        assert_eq!(of_array(long)[2], None);
    }

    #[test]
    fn what_is_too_long_for_a_variable_is_left_out() {
        let long = "x".repeat(LONGEST);
        let variables = of(doc! { "params": { "a": &long }, "storage": &long }, doc! {}, &About::default());
        assert!(!variables.contains_key("JOB_PARAMS") && !variables.contains_key("JOB_STORAGE"));
    }
}
