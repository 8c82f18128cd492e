//! Counters of tasks: they add up whatever happens to tasks, and are mended where nobody could count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Phase, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{CancelRequest, Cancelled, Retried, TaskOptions};
use disbatch_tests::{Dci, Script, Server, World, eventually};
use futures::TryStreamExt;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::detour;
use crate::plan::plans;

/// A DEN that does not mend what is to be found out.
fn unaudited() -> Value {
    json!({ "auditor": { "enabled": 0 }, "lease": 3 })
}

/// The tasks of a queue by status, without those that run.
async fn truth(world: &World, queue: QueueId) -> anyhow::Result<BTreeMap<i64, i64>> {
    let pipeline = [
        doc! { "$match": { "queue": queue, "status": { "$nin": [-1, 0] } } },
        doc! { "$group": { "_id": "$status", "tasks": { "$sum": 1 } } },
    ];
    let groups: Vec<Document> = world.tasks().aggregate(pipeline).await?.try_collect().await?;
    groups
        .iter()
        .map(|group| Ok((i64::from(group.get_i32("_id")?), i64::from(group.get_i32("tasks")?))))
        .collect()
}

async fn counters(store: &Store, queue: QueueId) -> anyhow::Result<BTreeMap<i64, i64>> {
    let totals = store.read_counters().await?.context("counters may not be read")?;
    let mut counters = totals.by_status(queue).context("nobody has audited")?.clone();
    counters.retain(|_, tasks| *tasks != 0);
    Ok(counters)
}

/// Waits until the counters are what there is. No audit may help.
async fn add_up(world: &World, queue: QueueId) -> anyhow::Result<BTreeMap<i64, i64>> {
    let store = world.store();
    let seen = std::cell::RefCell::new(String::new());
    eventually("counters that add up", || async {
        let (truth, counters) = (truth(world, queue).await?, counters(&store, queue).await?);
        *seen.borrow_mut() = format!("there are {truth:?}, and the counters say {counters:?}");
        Ok((truth == counters).then_some(truth))
    })
    .await
    .with_context(|| seen.take())
}

/// A store that notes moves, with a base for `queue`.
async fn audited(world: &World, queue: QueueId) -> anyhow::Result<Store> {
    let store = world.store();
    store.ensure_indexes().await?;
    store.audit_window(&[queue]).await?;
    Ok(store)
}

#[tokio::test]
async fn counters_add_up_through_all_that_can_happen_to_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(unaudited())?;
    let text = "#!/bin/sh\nread -r line\ncase \"$line\" in *fail*) exit 3;; *) exit 0;; esac\n";
    let queue = world.script_queue(Script { name: "Mixed", text }, 4).await?;
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": { "base": 0.05, "jitter": 0 } }).await?;
    let store = audited(&world, queue).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (first, second) = (world.den("n1")?, world.den("n2")?);

    let submit = json!({ "queue": queue.to_string(), "params": vec![json!({ "do": "well" }); 15] });
    dci.posted("/tasks", &submit).await?;
    let bad = json!({ "queue": queue.to_string(), "params": vec![json!({ "do": "fail" }); 5] });
    dci.posted("/tasks", &bad).await?;
    let later = TaskOptions {
        start: Some(disbatch_core::task::StartAt::In(Duration::from_secs(3600))),
        ..TaskOptions::default()
    };
    let deferred = store.submit_tasks(queue, vec![doc! {}; 3], &later).await?.ids;
    let once = json!({ "queue": queue.to_string(), "params": [{ "do": "once" }], ".idempotency_key": "k" });
    for _ in 0..3 {
        dci.posted("/tasks", &once).await?;
    }
    let ended =
        || async { Ok((world.count(queue, doc! { "status": { "$gte": 1 } }).await? == 21).then_some(())) };
    eventually("the end of 21 tasks", ended).await?;
    let all = add_up(&world, queue).await?;
    assert_eq!(all.get(&-7), Some(&3), "{all:?}");

    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    assert_eq!(store.cancel_task(deferred[0], &request).await?, Cancelled::Cancelled);
    assert_eq!(store.retry_task(deferred[0], "again").await?, Retried::Queued);
    world.set(deferred[1], doc! { "run_at": bson::DateTime::from_millis(0) }).await?;
    world.set(deferred[2], doc! { "deadline": bson::DateTime::from_millis(0) }).await?;
    world.until_status(deferred[2], -5).await?;
    world.until_status(deferred[0], 1).await?;
    world.until_status(deferred[1], 1).await?;
    let job = |action: &str, status: i64| json!({ "action": action, "filter": { "queue": queue.to_string(), "status": status } });
    for body in [job("archive", 1), job("delete", 2), job("retry", -5)] {
        let (status, answer) = dci.post("/bulk", &body).await?;
        ensure!(status == 202, "{body}: {status} {answer}");
        let path = format!("/bulk/{}", answer["id"].as_str().context("no id")?);
        eventually("the end of a bulk job", || async {
            Ok((dci.get(&path).await?["state"] == "done").then_some(()))
        })
        .await?;
    }
    world.until_status(deferred[2], -5).await?;
    // Its deadline is past, so it ends at once again.
    let all = add_up(&world, queue).await?;
    assert_eq!(all.get(&2), None, "{all:?}");
    first.end_with(Signal::SIGTERM).await?;
    second.end_with(Signal::SIGTERM).await?;
    world.end().await
}

#[tokio::test]
async fn an_orphan_and_claims_that_are_given_back_are_counted() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(unaudited())?;
    let text = "#!/bin/sh\nread -r _ _ _ runner _ < /proc/$PPID/stat\nkill -9 $runner\nsleep 100\n";
    let queue = world.script_queue(Script { name: "Regicide", text }, 2).await?;
    let store = audited(&world, queue).await?;
    let ids = store.submit_tasks(queue, vec![doc! {}; 3], &TaskOptions::default()).await?.ids;
    let den = world.den("n1")?;
    for id in &ids {
        world.until_status(*id, -6).await?;
    }
    den.end_with(Signal::SIGTERM).await?;
    assert_eq!(add_up(&world, queue).await?, BTreeMap::from([(-6, 3)]));

    let claimed = store.submit_tasks(queue, vec![doc! {}; 4], &TaskOptions::default()).await?.ids;
    let lapsed = doc! { "status": -1, "node": "gone", "lease_until": bson::DateTime::from_millis(0) };
    for id in &claimed {
        // As if a DEN had claimed it whose moves have been written.
        world.set(*id, lapsed.clone()).await?;
    }
    let drifted = counters(&store, queue).await?;
    assert_eq!(drifted, BTreeMap::from([(-6, 3), (-2, 4)]));
    let swept = store.sweep_tasks().await?;
    assert_eq!(swept.given_back, 4);
    // That claim was never noted, and the sweep was: eight.
    assert_eq!(counters(&store, queue).await?.get(&-2), Some(&8));
    let mended = store.audit_window(&[queue]).await?;
    assert_eq!(mended.corrections.iter().map(|c| (c.status, c.by)).collect::<Vec<_>>(), [(-2, -4)]);
    assert_eq!(counters(&store, queue).await?, truth(&world, queue).await?);
    world.end().await
}

/// Eight processes move the same tasks, each with its own connection, and exactly those that win count.
#[tokio::test]
async fn of_many_that_move_a_task_the_one_that_does_counts() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let store = audited(&world, queue).await?;
    let ids = store.submit_tasks(queue, vec![doc! {}; 40], &TaskOptions::default()).await?.ids;
    let contenders: Vec<Store> = (0..8).map(|_| world.store()).collect();
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    let contend = |store: Store, rotate: usize| {
        let (mut ids, request) = (ids.clone(), request.clone());
        ids.rotate_left(rotate);
        async move {
            for id in &ids {
                store.cancel_task(*id, &request).await?;
                store.retry_task(*id, "again").await?;
            }
            store.cancel_task(ids[0], &request).await?;
            store.archive_tasks(&ids[..5]).await?;
            store.delete_tasks(&ids[3..8]).await?;
            store.flush_counters().await?;
            anyhow::Ok(())
        }
    };
    let all = contenders.into_iter().enumerate().map(|(index, store)| contend(store, index * 5));
    futures::future::try_join_all(all).await?;
    let (truth, counted) = (truth(&world, queue).await?, counters(&store, queue).await?);
    if truth != counted {
        // Two that archive or delete the same tasks at once cannot tell whose they were; then they say so.
        let documents = world.database().collection::<Document>("counters");
        let doubts = documents.count_documents(doc! { "doubt": { "$type": "date" } }).await?;
        assert!(doubts > 0, "{counted:?} is not {truth:?}, and nobody doubts it");
        store.audit_window(&[queue]).await?;
        assert_eq!(counters(&store, queue).await?, truth);
    }
    world.end().await
}

#[tokio::test]
async fn what_a_killed_process_had_not_written_is_mended_by_the_audit() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "auditor": { "every": 5 } }))?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let _den = world.den_at_work("n1").await?;
    let store = world.store();
    let known =
        || async { Ok(store.read_counters().await?.and_then(|all| all.by_status(queue).map(|_| ()))) };
    eventually("a first audit", known).await?;

    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let body = json!({ "queue": queue.to_string(), "params": vec![json!({ "a": 1 }); 50] });
    dci.posted("/tasks", &body).await?;
    // With SIGKILL.
    drop(dci);
    let before = counters(&store, queue).await?;
    assert_eq!(before.get(&-2), None, "it was killed before it could write");

    let dci = Dci::start(&world.config(), &world.path().join("dci2.log")).await?;
    assert_eq!(dci.posted("/counters/audit", &json!({})).await?, json!({ "asked": true }));
    let mended = || async { Ok((counters(&store, queue).await?.get(&-2) == Some(&50)).then_some(())) };
    eventually("the audit", mended).await?;
    eventually("the note of the audit", || async {
        let all = dci.get("/counters").await?;
        Ok((all["audit"]["corrected"].as_u64() == Some(50)).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn other_programs_make_counters_drift_and_the_auditor_mends_them() -> anyhow::Result<()> {
    let world = World::on(Server::Standalone).await?;
    world.configure(json!({ "auditor": { "every": 2 } }))?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let store = world.store();
    let den = world.den_at_work("n1").await?;
    let known =
        || async { Ok(store.read_counters().await?.and_then(|all| all.by_status(queue).map(|_| ()))) };
    eventually("a first audit", known).await?;
    let task =
        |status: i32| doc! { "_id": ObjectId::new(), "queue": queue, "status": status, "node": "perl" };
    world.tasks().insert_many((0..300).map(|n| task(if n % 3 == 0 { 2 } else { 1 }))).await?;
    world.tasks().insert_many((0..7).map(|_| task(-6))).await?;
    let expected = BTreeMap::from([(-6, 7), (1, 200), (2, 100)]);
    eventually("the auditor", || async { Ok((counters(&store, queue).await? == expected).then_some(())) })
        .await?;
    world.tasks().delete_many(doc! { "status": 1 }).await?;
    world.tasks().update_many(doc! { "status": 2 }, doc! { "$set": { "status": 300 } }).await?;
    let expected = BTreeMap::from([(-6, 7), (256, 100)]);
    eventually("the auditor", || async { Ok((counters(&store, queue).await? == expected).then_some(())) })
        .await?;
    ensure!(den.log()?.contains("a counter had drifted and was corrected"), "{}", den.log()?);
    world.end().await
}

/// Passes bytes on to a server, and its answers only while it may.
async fn proxy(to: String, answers: Arc<AtomicBool>) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (to, answers) = (to.clone(), answers.clone());
            tokio::spawn(async move {
                let server = TcpStream::connect(&to).await?;
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let mut bytes = vec![0; 65536];
                loop {
                    let read = from_server.read(&mut bytes).await?;
                    if read == 0 || !answers.load(Ordering::SeqCst) {
                        return Ok::<_, std::io::Error>(());
                    }
                    to_client.write_all(&bytes[..read]).await?;
                }
            });
        }
    });
    Ok(port)
}

#[tokio::test]
async fn a_flush_whose_answer_was_lost_counts_once() -> anyhow::Result<()> {
    // On a standalone server the driver repeats nothing by itself.
    let world = World::on(Server::Standalone).await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let watcher = audited(&world, queue).await?;
    let answers = Arc::new(AtomicBool::new(true));
    let port = proxy(detour::address(&world)?, answers.clone()).await?;
    let database = detour::database(&world, port).await?;
    let store = Store::with_clock(database, Arc::new(SystemClock));

    store.submit_tasks(queue, vec![doc! {}; 7], &TaskOptions::default()).await?;
    answers.store(false, Ordering::SeqCst);
    let lost = store.flush_counters().await;
    ensure!(lost.is_err(), "the answer was not lost");
    eventually("the write without an answer", || async {
        Ok((counters(&watcher, queue).await?.get(&-2) == Some(&7)).then_some(()))
    })
    .await?;
    answers.store(true, Ordering::SeqCst);
    eventually("a flush with an answer", || async { Ok(store.flush_counters().await.ok()) }).await?;
    assert_eq!(counters(&watcher, queue).await?.get(&-2), Some(&7), "counted once");
    store.submit_tasks(queue, vec![doc! {}; 2], &TaskOptions::default()).await?;
    store.flush_counters().await?;
    assert_eq!(counters(&watcher, queue).await?.get(&-2), Some(&9), "what came after counts too");
    world.end().await
}

#[tokio::test]
async fn an_audit_is_not_fooled_by_moves_that_are_not_written_yet() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let store = audited(&world, queue).await?;
    let other = world.store();
    // Moved just before the audit begins, and while it goes on; nobody flushes but the one who moved them.
    other.submit_tasks(queue, vec![doc! {}; 11], &TaskOptions::default()).await?;
    let moves = async {
        for _ in 0..20 {
            other.submit_tasks(queue, vec![doc! {}; 2], &TaskOptions::default()).await?;
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    let queues = [queue];
    let (window, moved) = tokio::join!(store.audit_window(&queues), moves);
    moved?;
    assert_eq!(window?.corrections, [], "there was no drift");
    assert_eq!(add_up(&world, queue).await?, BTreeMap::from([(-2, 51)]));
    world.end().await
}

#[tokio::test]
async fn counts_are_exact_up_to_a_bound_and_read_no_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let store = audited(&world, queue).await?;
    let task = |_| doc! { "_id": ObjectId::new(), "queue": queue, "status": 1, "node": Bson::Null };
    world.tasks().insert_many((0..10_500).map(task)).await?;
    assert_eq!(store.count_phase(queue, Phase::Completed, 20_000).await?, Amount::Exactly(10_500));
    assert_eq!(store.count_phase(queue, Phase::Completed, 10_500).await?, Amount::Exactly(10_500));
    let count = async |store: Store| anyhow::Ok(store.count_phase(queue, Phase::Completed, 1_000).await?);
    let (counted, mut plans) = plans(&world, count).await?;
    assert_eq!(counted, Amount::MoreThan(1_000));
    let plan = plans.pop().context("nothing was counted")?;
    let stats = plan.get_document("executionStats")?;
    let (keys, docs) = (stats.get_i32("totalKeysExamined")?, stats.get_i32("totalDocsExamined")?);
    assert!(keys <= 1_001 && docs == 0 && plan.to_string().contains("COUNT_SCAN"), "{plan}");

    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let completed = async || anyhow::Ok(dci.get("/queues").await?[0]["completed"].clone());
    // The counters know nothing of these: never less than the bound.
    assert_eq!(completed().await?, 10_000);
    let count = format!("/tasks?queue={queue}&status=1&.count=1");
    assert_eq!(dci.get(&count).await?["count"], 10_000);
    store.audit_window(&[queue]).await?;
    assert_eq!(completed().await?, 10_500);
    assert_eq!(dci.get(&count).await?["count"], 10_500);
    let page = dci.request(reqwest::Method::GET, &count).header("Accept", "text/html").send().await?;
    assert!(page.text().await?.contains("10,500 tasks"));
    let node = format!("/tasks?queue={queue}&node=&.count=1");
    assert_eq!(dci.get(&node).await?["count"], 10_500, "what has no counter is counted");
    // A program that knows of no counters makes it small again: exact at once, as soon as it is counted again.
    world.tasks().delete_many(doc! { "status": 1 }).await?;
    eventually("an exact count", || async { Ok((completed().await? == 0).then_some(())) }).await?;
    world.end().await
}

#[tokio::test]
async fn what_is_few_is_counted_for_all_queues_at_once_and_no_further_than_its_bound() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queues = [0; 3].map(|_| disbatch_core::queue::new_queue_id());
    let tasks = |queue, status: i32, count: usize| {
        std::iter::repeat_with(move || doc! { "_id": ObjectId::new(), "queue": queue, "status": status })
            .take(count)
    };
    let [one, two, none] = queues;
    world.tasks().insert_many(tasks(one, -2, 3).chain(tasks(one, 1, 50)).chain(tasks(two, -7, 4))).await?;
    let store = world.store();
    let few = store.count_few(&queues, &[-2, -7], 7).await?;
    assert_eq!(few, Some([(one, 3), (two, 4)].into()));
    assert_eq!(store.count_few(&queues, &[-2, -7], 6).await?, None, "there are more");
    assert_eq!(store.count_few(&[none], &[1], 0).await?, Some([].into()));
    world.end().await
}

/// The counters have been told of few, and other programs have written many since.
#[tokio::test]
async fn the_overview_never_shows_less_than_its_bound_of_what_the_counters_call_few() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let store = audited(&world, queue).await?;
    assert_eq!(store.read_counters().await?.and_then(|totals| totals.of_statuses(queue, &[2])), Some(0));
    let task = |_| doc! { "_id": ObjectId::new(), "queue": queue, "status": 2, "node": Bson::Null };
    world.tasks().insert_many((0..10_001).map(task)).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let page = dci.request(reqwest::Method::GET, "/").header("Accept", "text/html").send().await?;
    assert!(page.text().await?.contains("10,000"), "counted up to its bound");
    world.end().await
}

#[tokio::test]
async fn queues_without_counters_are_counted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    world.store().ensure_indexes().await?;
    let task = |_| doc! { "_id": ObjectId::new(), "queue": queue, "status": -2, "node": Bson::Null };
    world.tasks().insert_many((0..10_001).map(task)).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    assert_eq!(dci.get("/queues").await?[0]["queued"], 10_001);
    assert_eq!(dci.get("/counters").await?["queues"][0]["counters"], Value::Null);
    world.end().await
}

#[tokio::test]
async fn deadlines_of_ended_tasks_cost_a_sweep_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    audited(&world, queue).await?;
    let past = bson::DateTime::from_millis(0);
    let task =
        |status: i32| doc! { "_id": ObjectId::new(), "queue": queue, "status": status, "deadline": past };
    let ids: Vec<ObjectId> = world
        .tasks()
        .insert_many((0..3000).map(|n| task(if n % 2 == 0 { 1 } else { -5 })).chain([task(-2), task(-7)]))
        .await?
        .inserted_ids
        .values()
        .filter_map(Bson::as_object_id)
        .collect();
    let (swept, plans) = plans(&world, async |store: Store| anyhow::Ok(store.sweep_tasks().await?)).await?;
    let is_of_deadlines = |plan: &&Document| plan.to_string().contains("$deadline");
    let plan = plans.iter().find(is_of_deadlines).context("nothing was looked for")?;
    let stats = plan.get_document("executionStats")?;
    assert!(stats.get_i32("totalDocsExamined")? <= 2, "{plan}");
    assert!(stats.get_i32("totalKeysExamined")? <= 10 && !plan.to_string().contains("COLLSCAN"), "{plan}");
    assert_eq!(swept.overdue, 2);
    let last = TaskId(*ids.iter().max().context("no tasks")?);
    assert_eq!(world.status(last).await?, -5);
    world.end().await
}
