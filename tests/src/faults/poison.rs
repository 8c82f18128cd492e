//! Poison: tasks with which something cannot be done, put into the database behind everyone's back.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::notifications::QUEUE;
use disbatch_core::task::TaskOptions;
use tokio::time::{Instant, interval};

use super::checks::Evidence;
use super::random::Random;
use super::work::Work;
use super::world::{How, World};
use crate::Script;

/// The field that tells them from tasks of the suite.
pub const MARK: &str = "poison";

/// What some of them run, that can.
pub const PLUGIN: Script<'_> = Script { name: "Poison", text: "#!/bin/sh\nexit 0\n" };

/// An ordinary task has ended within this time when nothing else is broken.
const PROMPTLY: Duration = Duration::from_secs(20);

/// The largest document of MongoDB.
const DOCUMENT: usize = 16 * 1024 * 1024;

/// Fields that something is done with.
const FIELDS: [&str; 20] = [
    "queue",
    "node",
    "params",
    "mtime",
    "history",
    "attempt",
    "failures",
    "instance",
    "slot",
    "lease_until",
    "run_at",
    "deadline",
    "timeout",
    "group",
    "locks",
    "waiting_for",
    "steps",
    "exit",
    "cancel",
    "external",
];

/// Kinds of it, for [`task`].
const KINDS: u64 = 4;

fn odd_value(random: &mut Random) -> Bson {
    match random.below(7) {
        0 => "odd".into(),
        1 => 3.5.into(),
        2 => i64::MAX.into(),
        3 => vec![Bson::from(DateTime::from_millis(5))].into(),
        4 => doc! { "a": 1 }.into(),
        5 => true.into(),
        _ => DateTime::MIN.into(),
    }
}

/// One of a kind, for this queue.
fn task(kind: u64, queue: QueueId, random: &mut Random) -> anyhow::Result<RawDocumentBuf> {
    let past = DateTime::from_millis(1_700_000_000_000);
    let statuses = [-7, -4, -2, -2, -1, 0];
    let status = *random.pick(&statuses).unwrap_or(&-2);
    let mut task = doc! {
        "_id": ObjectId::new(), "queue": queue, "status": status, "node": Bson::Null, MARK: true, "params": { "text": "QQQQ" },
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": past, "mtime": past, "run_at": past,
    };
    if status == -4 {
        task.insert("gate", "new");
    }
    if status == -1 || status == 0 {
        task.extend(doc! { "node": "gone", "attempt": 1_i64, "instance": "i", "lease_until": past });
    }
    match kind {
        // Its end has no room.
        0 => {
            let room = usize::try_from(1 + random.below(600))?;
            let filler = DOCUMENT.saturating_sub(room + bson::serialize_to_vec(&task)?.len());
            task.insert("params", doc! { "text": "x".repeat(filler) });
        }
        // It cannot be read.
        1 => {
            let mut bytes = bson::serialize_to_vec(&task)?;
            if let Some(at) = bytes.windows(4).position(|four| four == b"QQQQ") {
                bytes[at..at + 4].copy_from_slice(&[0xff, 0xfe, 0xff, 0xfe]);
            }
            return Ok(RawDocumentBuf::from_bytes(bytes)?);
        }
        _ => {
            let field = *random.pick(&FIELDS).unwrap_or(&"mtime");
            task.insert(field, odd_value(random));
        }
    }
    Ok(RawDocumentBuf::try_from(&task)?)
}

/// Puts one into the database. Returns whether it is there: it is not while the database is away, or cannot have such.
pub async fn one(world: &World, kind: u64, random: &mut Random) -> anyhow::Result<bool> {
    let task = task(kind, world.poison, random)?;
    let tasks = world.tasks().clone_with_type::<RawDocumentBuf>();
    Ok(tasks.insert_one(task).await.is_ok())
}

pub fn any(random: &mut Random) -> u64 {
    random.below(KINDS)
}

/// When nothing else is broken, one of each kind is put beside ordinary tasks, which must have ended soon. Returns these, and what
/// they had to wait for.
pub async fn beside_ordinary_tasks(
    world: &World,
    random: &mut Random,
) -> anyhow::Result<(Vec<TaskId>, Vec<String>)> {
    for kind in 0..KINDS {
        one(world, kind, random).await?;
    }
    let (began, mut ids) = (Instant::now(), Vec::new());
    for queue in world.queues.iter().filter(|queue| queue.how == How::Program) {
        let quick = Work { millis: 5, lines: 1, fails: 0 }.params();
        ids.extend(world.store.submit_tasks(queue.id, vec![quick; 2], &TaskOptions::default()).await?.ids);
    }
    let all: Vec<ObjectId> = ids.iter().map(|id| id.0).collect();
    let open = doc! { "_id": { "$in": all }, "status": { "$in": [-7, -4, -2, -1, 0] } };
    let mut looks = interval(Duration::from_millis(100));
    let mut waiting = u64::MAX;
    while waiting > 0 && began.elapsed() < PROMPTLY {
        looks.tick().await;
        waiting = world.tasks().count_documents(open.clone()).await?;
    }
    let late = (waiting > 0).then(|| format!("{waiting} ordinary tasks have not ended after {PROMPTLY:?}"));
    Ok((ids, late.into_iter().collect()))
}

/// What is left of it that is neither over nor set aside, although something is to be done with it.
pub async fn left(world: &World) -> anyhow::Result<Vec<String>> {
    let due = doc! { MARK: true, "queue": world.poison, "status": -2, "node": Bson::Null };
    let only = doc! { "status": 1 };
    let mut found = world.tasks().find(due).projection(only).await?;
    let mut left = Vec::new();
    while found.advance().await? {
        let task: Document = found.deserialize_current()?;
        let id = TaskId(task.get_object_id("_id")?);
        if world.store.find_aside(id).await?.is_none() {
            left.push(format!("poison {id} (status {}) goes round and round", Evidence::status(&task)));
        }
    }
    Ok(left)
}

/// Matches the tasks of the suite, which do not deliver messages either.
pub fn none() -> Document {
    doc! { MARK: { "$ne": true }, "queue": { "$ne": QUEUE } }
}
