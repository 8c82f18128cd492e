//! What a plugin is given that is run without a database: a task and its queue, made up or as they were.

use std::io;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{
    CANARY, NodeName, PluginName, QueueId, TaskId, VERSION, from_extended, to_document,
};
use disbatch_core::schedules::ForRun;
use disbatch_core::task::Run;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::boot_time::Asked;
use crate::work::Begun;

/// What a task has unless its queue says otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// What the plugin is given.
#[derive(Debug)]
pub enum Given {
    /// A task that has these parameters, and nothing else of interest.
    Params(Map<String, Value>),
    /// The task of an earlier run.
    Earlier(Box<Earlier>),
}

/// A run that is to be run again.
#[derive(Debug, Default)]
pub struct Earlier {
    /// The task, as the plugin was given it.
    pub task: Map<String, Value>,
    pub queue: Map<String, Value>,
    pub node: Option<String>,
    pub attempt: i64,
    /// When the newest run of its schedule that had succeeded began and ended, as variables have it.
    pub last_success: [Option<String>; 2],
}

/// A task of a queue that has this plugin, as if they were there.
pub(super) fn begun(plugin: &PluginName, given: Given, node: NodeName) -> io::Result<Begun> {
    match given {
        Given::Params(params) => of_params(plugin, &params, node),
        Given::Earlier(earlier) => of_earlier(plugin, *earlier, node),
    }
}

fn of_params(plugin: &PluginName, params: &Map<String, Value>, node: NodeName) -> io::Result<Begun> {
    let (id, queue, now) = (ObjectId::new(), ObjectId::new(), SystemClock.now());
    let task = doc! {
        "_id": id, "queue": queue, "status": 0, "node": &node, "params": to_document(params),
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now, "attempt": 1_i64,
    };
    let of_queue = doc! { "_id": queue, "name": "local", "plugin": plugin.as_str() };
    let run = Run { task: TaskId(id), queue: QueueId(queue), node, attempt: 1, instance: None };
    as_begun((task, of_queue), run, None)
}

fn of_earlier(plugin: &PluginName, earlier: Earlier, own: NodeName) -> io::Result<Begun> {
    let Earlier { task, queue, node, attempt, last_success } = earlier;
    let task = from_extended(task);
    let id = |name: &str| {
        let missing = |_| io::Error::other(format!("the task has no {name} that is an id"));
        task.get_object_id(name).map_err(missing)
    };
    let (task_id, queue_id) = (id("_id")?, id("queue")?);
    let mut of_queue = from_extended(queue);
    // Which version runs is said by the task, or by what is installed here.
    for field in [VERSION, CANARY] {
        of_queue.remove(field);
    }
    of_queue.extend(doc! { "_id": queue_id, "plugin": plugin.as_str() });
    let node = node.map_or(own, NodeName::new);
    let run = Run { task: TaskId(task_id), queue: QueueId(queue_id), node, attempt, instance: None };
    let time =
        |text: &Option<String>| text.as_deref().and_then(|text| DateTime::parse_rfc3339_str(text).ok());
    let [last_success_start, last_success_finish] = last_success.each_ref().map(time);
    let schedule = task.get_object_id("schedule").ok().map(|id| ForRun {
        id,
        name: String::new(),
        storage: None,
        last_success_start,
        last_success_finish,
    });
    as_begun((task, of_queue), run, schedule)
}

fn as_begun((task, queue): (Document, Document), run: Run, schedule: Option<ForRun>) -> io::Result<Begun> {
    Ok(Begun {
        task: read(task)?,
        queue: Ok(Some(read(queue)?)),
        schedule: Ok(schedule),
        workers: Vec::new(),
        run,
        asked: Asked::now(),
        until_deadline: None,
        lease: LEASE,
    })
}

/// As it would come from the database: what looks like extended JSON is read as it is.
fn read<T: DeserializeOwned>(document: Document) -> io::Result<T> {
    let bytes = bson::serialize_to_vec(&document).map_err(io::Error::other)?;
    bson::deserialize_from_slice(&bytes).map_err(io::Error::other)
}
