//! Poison: tasks with which something cannot be done. They hold up nothing but themselves.

mod life;
mod limits;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::explain::{Reader, explain, hold};
use disbatch_core::model::{QueueId, Selector, TaskId};
use disbatch_tests::{Den, Script, World, eventually};
use futures::TryStreamExt;
use serde_json::json;
use tokio::time::Instant;

/// The largest document of MongoDB.
const DOCUMENT: usize = 16 * 1024 * 1024;

/// An ordinary task has ended within this time, whatever others are like.
const PROMPTLY: Duration = Duration::from_secs(20);

/// What a DEN says before it leaves the database alone.
const BACKS_OFF: [&str; 2] = ["cannot work with the database", "a runner ended without starting its task"];

/// Does nothing, in a process that is kept: many of the tasks can run.
const QUICK: Script<'_> = Script {
    name: "Quick",
    text: r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    done = {"id": json.loads(line)["env"]["DISBATCH_TASK_ID"]}
    os.write(3, json.dumps({"done": done}).encode() + b"\n")
"#,
};

/// A world with a queue of poison and one of ordinary tasks, and two DENs.
struct Scene {
    world: World,
    poison: QueueId,
    ordinary: QueueId,
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.configure(json!({ "lease": 3 }))?;
        let manifest = json!({ "name": QUICK.name, "command": ["./run"], "warm": true });
        QUICK.install_as(&world.plugins(), &manifest)?;
        let poison = world.queue(QUICK.name, doc! { "threads": 12 }).await?;
        let ordinary = world.queue(QUICK.name, doc! { "threads": 4 }).await?;
        world.store().ensure_indexes().await?;
        Ok(Self { world, poison, ordinary })
    }

    async fn dens(&self) -> anyhow::Result<[Den; 2]> {
        Ok([self.world.den_at_work("node1").await?, self.world.den_at_work("node2").await?])
    }

    /// Sees to it that ordinary tasks that are submitted now have ended soon.
    async fn ordinary_tasks_run(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let ids = self.world.submit(self.ordinary, vec![doc! { "a": 1 }; 6]).await?;
        for id in ids {
            self.world.until_status(id, 1).await?;
        }
        ensure!(began.elapsed() < PROMPTLY, "ordinary tasks took {:?}", began.elapsed());
        Ok(())
    }

    /// Waits until no task of poison waits or runs.
    async fn poison_has_ended(&self) -> anyhow::Result<()> {
        let open = doc! { "status": { "$in": [-7, -4, -2, -1, 0] } };
        let ended = eventually("poison to end", async || {
            Ok((self.world.count(self.poison, open.clone()).await? == 0).then_some(()))
        });
        let Err(error) = ended.await else { return Ok(()) };
        let mut left = doc! { "queue": self.poison };
        left.extend(open.clone());
        let only = doc! { "params": 0 };
        let left = self.world.tasks().find(left).projection(only).await?.try_collect::<Vec<_>>().await?;
        bail!("{error}: {left:?}")
    }
}

fn never_backed_off(dens: &[Den]) -> anyhow::Result<()> {
    for den in dens {
        let log = den.log()?;
        for line in log.lines() {
            ensure!(!BACKS_OFF.iter().any(|words| line.contains(words)), "{line}");
        }
    }
    Ok(())
}

/// A queued task of exactly so many bytes.
fn of_size(queue: QueueId, bytes: usize, fields: Document) -> anyhow::Result<Document> {
    let now = SystemClock.now();
    let mut task = doc! {
        "_id": ObjectId::new(), "queue": queue, "status": -2, "node": Bson::Null, "params": { "a": "" },
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now,
    };
    task.extend(fields);
    let without = bson::serialize_to_vec(&task)?.len();
    let filler = bytes.checked_sub(without).context("it is larger without params")?;
    task.insert("params", doc! { "a": "x".repeat(filler) });
    assert_eq!(bson::serialize_to_vec(&task)?.len(), bytes);
    Ok(task)
}

async fn insert(world: &World, task: Document) -> anyhow::Result<TaskId> {
    let id = TaskId(task.get_object_id("_id")?);
    // A server with a small cache may need some time for so much.
    eventually("the cache to have room", async || Ok(world.tasks().insert_one(&task).await.ok())).await?;
    Ok(id)
}

#[tokio::test]
async fn tasks_without_room_for_a_run_end_alone() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let (world, mut ids) = (&scene.world, Vec::new());
    // From those that cannot be claimed to those that could be claimed, and not started or ended.
    for left in [1, 20, 60, 120, 200, 300, 452, 2_000] {
        ids.push(insert(world, of_size(scene.poison, DOCUMENT - left, doc! {})?).await?);
    }
    let dens = scene.dens().await?;
    scene.ordinary_tasks_run().await?;
    scene.poison_has_ended().await?;
    for id in &ids {
        let only = doc! { "status": 1, "history": 1 };
        let task =
            world.tasks().find_one(doc! { "_id": id }).projection(only).await?.context("it is there")?;
        assert_eq!(task.get_i32("status")?, -3);
        let aside = world.store().find_aside(*id).await?.map(|aside| aside.reason);
        let history = task.get_array("history").ok().and_then(|all| all.last()?.as_document());
        let noted = history.and_then(|entry| Some(entry.get_str("note").ok()?.to_owned()));
        let why = aside.or(noted).context("nobody says why")?;
        assert!(why.contains("16777216") || why.contains("no room"), "{why}");
    }
    // Whoever was slower meets nothing of it.
    scene.ordinary_tasks_run().await?;
    never_backed_off(&dens)?;
    assert_eq!(world.store().delete_tasks(&ids).await?, ids.len() as u64);
    drop(dens);
    scene.world.end().await
}

#[tokio::test]
async fn large_tasks_in_any_status_end_alone() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let past = DateTime::from_millis(1_700_000_000_000);
    let gone = doc! { "node": "gone", "attempt": 1_i64, "instance": "i", "lease_until": past };
    let states = [
        (-7, doc! { "run_at": past }),
        (-4, doc! { "gate": "new" }),
        (-2, doc! { "deadline": past }),
        (-1, gone.clone()),
        (0, gone.clone()),
        (
            0,
            doc! { "node": "node1", "attempt": 1_i64, "instance": "i", "lease_until": past, "max_attempts": 5 },
        ),
        (-1, doc! { "node": "node1", "mtime": past }),
    ];
    for (number, (status, fields)) in states.into_iter().enumerate() {
        let mut fields = fields;
        fields.insert("status", status);
        if status == -1 || status == 0 {
            fields.insert("slot", i64::try_from(number)?);
        }
        insert(world, of_size(scene.poison, DOCUMENT - 1, fields)?).await?;
    }
    let dens = scene.dens().await?;
    scene.ordinary_tasks_run().await?;
    scene.poison_has_ended().await?;
    scene.ordinary_tasks_run().await?;
    never_backed_off(&dens)?;
    drop(dens);
    scene.world.end().await
}

/// Values of all kinds.
fn odd_values() -> Vec<Bson> {
    let decimal: bson::Decimal128 = "12.5".parse().unwrap_or_else(|_| bson::Decimal128::from_bytes([0; 16]));
    vec![
        "odd".into(),
        3.5.into(),
        f64::NAN.into(),
        i64::MAX.into(),
        i64::MIN.into(),
        true.into(),
        Bson::Null,
        Bson::Array(Vec::new()),
        Bson::Array(vec![DateTime::from_millis(5).into(), "x".into()]),
        doc! { "a": 1 }.into(),
        ObjectId::new().into(),
        DateTime::MAX.into(),
        DateTime::MIN.into(),
        decimal.into(),
        Bson::MinKey,
        Bson::RegularExpression(bson::Regex { pattern: cstr!("x").into(), options: cstr!("").into() }),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0xff] }),
    ]
}

/// The fields of tasks that something is done with.
const FIELDS: [&str; 38] = [
    "queue",
    "node",
    "params",
    "stdout",
    "stderr",
    "ctime",
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
    "grace",
    "max_attempts",
    "backoff",
    "unique",
    "group",
    "group_slot",
    "priority",
    "after",
    "waiting_for",
    "gate",
    "locks",
    "lock_round",
    "needs_lock",
    "holds_locks",
    "dependents",
    "steps",
    "exit",
    "result",
    "progress",
    "cancel",
    "external",
    "schedule",
];

fn in_status(status: i32, queue: QueueId) -> Document {
    let past = DateTime::from_millis(1_700_000_000_000);
    let mut task = doc! {
        "_id": ObjectId::new(), "queue": queue, "status": status, "node": Bson::Null, "params": { "a": 1 },
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": past, "mtime": past,
    };
    match status {
        -7 => task.insert("run_at", past),
        -4 => task.insert("gate", "new"),
        -1 | 0 => {
            task.extend(doc! { "node": "gone", "attempt": 1_i64, "instance": "i", "lease_until": past });
            None
        }
        _ => None,
    };
    task
}

#[tokio::test]
async fn values_of_any_type_in_any_field_hold_up_nobody() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let mut tasks = Vec::new();
    for (of_field, field) in FIELDS.into_iter().enumerate() {
        for (of_value, value) in odd_values().into_iter().enumerate() {
            let statuses = [-7, -6, -5, -4, -3, -1, 0, 1];
            // All of them would be many: each value in each status, in some fields.
            let some = statuses.into_iter().enumerate().filter(|(at, _)| (of_field + of_value + at) % 3 == 0);
            for status in some.map(|(_, status)| status).chain([-2]) {
                let mut task = in_status(status, scene.poison);
                task.insert(field, value.clone());
                tasks.push(task);
            }
        }
    }
    // Each kind of number is a status, and so is a list of one.
    for status in [-7, -4, -2, -1, 0] {
        for value in
            [Bson::from(i64::from(status)), f64::from(status).into(), vec![Bson::from(status)].into()]
        {
            let mut task = in_status(status, scene.poison);
            task.insert("status", value);
            tasks.push(task);
        }
    }
    let many = tasks.len();
    // Some the server does not take, as an index cannot have them.
    let inserted = world.tasks().insert_many(tasks).ordered(false).await;
    let refused = match inserted {
        Ok(_) => 0,
        Err(error) => match error.kind.as_ref() {
            mongodb::error::ErrorKind::InsertMany(many) => many.write_errors.as_ref().map_or(0, Vec::len),
            _ => return Err(error.into()),
        },
    };
    ensure!(refused * 10 < many, "{refused} of {many} were refused");
    let dens = scene.dens().await?;
    scene.ordinary_tasks_run().await?;
    scene.ordinary_tasks_run().await?;
    // What can run does, and what cannot ends or is set aside: nothing goes round and round.
    let waiting = doc! { "status": -2, "queue": scene.poison, "node": Bson::Null };
    let left = std::cell::RefCell::new(Vec::new());
    let gone_through = eventually("the poison to be gone through", async || {
        let mut found = world.tasks().find(waiting.clone()).await?;
        left.borrow_mut().clear();
        while found.advance().await? {
            let task = found.deserialize_current()?;
            if world.store().find_aside(TaskId(task.get_object_id("_id")?)).await?.is_none() {
                left.borrow_mut().push(task);
            }
        }
        Ok(left.borrow().is_empty().then_some(()))
    });
    if let Err(error) = gone_through.await {
        let left = left.borrow();
        bail!("{error}: {} are left, as {:?}", left.len(), left.iter().take(9).collect::<Vec<_>>());
    }
    scene.ordinary_tasks_run().await?;
    never_backed_off(&dens)?;
    drop(dens);
    scene.world.end().await
}

/// A task with text that is none, which the server takes and no driver can read.
fn unreadable(queue: QueueId, status: i32) -> anyhow::Result<RawDocumentBuf> {
    let mut task = in_status(status, queue);
    task.insert("params", doc! { "text": "QQQQ" });
    let mut bytes = bson::serialize_to_vec(&task)?;
    let at = bytes.windows(4).position(|four| four == b"QQQQ").context("the text is there")?;
    bytes[at..at + 4].copy_from_slice(&[0xff, 0xfe, 0xff, 0xfe]);
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

#[tokio::test]
async fn tasks_that_cannot_be_read_end_alone() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let raw = world.tasks().clone_with_type::<RawDocumentBuf>();
    for status in [-7, -4, -2, -1, 0] {
        raw.insert_one(unreadable(scene.poison, status)?).await?;
    }
    // At the head of the queue, before all ids that are such.
    let odd_ids: Vec<Document> = (0..200)
        .map(|number| {
            let mut task = in_status(-2, scene.ordinary);
            task.insert("_id", number);
            task
        })
        .collect();
    world.tasks().insert_many(odd_ids).await?;
    let dens = scene.dens().await?;
    scene.ordinary_tasks_run().await?;
    scene.poison_has_ended().await?;
    scene.ordinary_tasks_run().await?;
    never_backed_off(&dens)?;
    drop(dens);
    scene.world.end().await
}

/// Nothing that is done with the task is allowed.
#[tokio::test]
async fn a_task_that_the_server_lets_nobody_change_is_set_aside() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let ids = world.submit(scene.poison, vec![doc! { "a": 1 }; 3]).await?;
    for id in &ids {
        world.set(*id, doc! { "frozen": true }).await?;
    }
    let validator = doc! { "$or": [{ "frozen": { "$ne": true } }, { "status": { "$type": "string" } }] };
    let strict = doc! { "collMod": "tasks", "validator": validator, "validationLevel": "strict" };
    world.database().run_command(strict).await?;
    let dens = scene.dens().await?;
    scene.ordinary_tasks_run().await?;
    let store = world.store();
    for id in &ids {
        let aside = eventually("it to be set aside", async || Ok(store.find_aside(*id).await?)).await?;
        assert!(aside.reason.contains("Document failed validation"), "{}", aside.reason);
        assert_eq!(world.status(*id).await?, -2);
        let facts = store.facts_of_task(*id).await?.context("it is there")?;
        let told = explain(&facts, Reader::OfAll);
        assert!(told.summary.contains("set aside"), "{told:?}");
    }
    let queue = store.find_queue(&Selector::Id(scene.poison.0)).await?.context("it is there")?;
    let held = hold(&queue, &store.head_of_queue(&queue).await?, Reader::OfAll);
    assert!(held.gate.as_str() == "blocked" && held.text.contains("set aside"), "{held:?}");
    let nodes = world.database().collection::<Document>("nodes");
    eventually("a node to say so", async || {
        let node = nodes.find_one(doc! { "aside": { "$gte": 3 } }).await?;
        Ok(node.map(|_| ()))
    })
    .await?;
    // When it can be changed again, it runs.
    world.database().run_command(doc! { "collMod": "tasks", "validator": {} }).await?;
    for id in ids {
        world.until_status(id, 1).await?;
    }
    never_backed_off(&dens)?;
    drop(dens);
    scene.world.end().await
}
