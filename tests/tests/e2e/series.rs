//! Numbers over time: what happened to tasks and what nodes were like, as charts show it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{NodeName, QueueId, Status};
use disbatch_core::node::{Beat, Stats};
use disbatch_core::series::{Ended, Numbers, Point};
use disbatch_core::store::Store;
use disbatch_core::task::{
    Ahead, CancelRequest, Claim, Finish, Finished, RunWrite, Start, TaskOptions, Waiting, Written,
};
use disbatch_tests::{Dci, Script, Server, World, eventually};
use futures::TryStreamExt;
use mongodb::IndexModel;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::claims::{claimant, queue, start, success};
use crate::detour;

const MINUTE: Duration = Duration::from_secs(60);

/// A clock that a test sets.
#[derive(Debug)]
struct ManualClock(Mutex<DateTime>);

impl ManualClock {
    fn at(now: DateTime) -> Self {
        Self(Mutex::new(now))
    }

    fn set(&self, now: DateTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a minute, some of them ago.
fn minutes_ago(minutes: i64) -> DateTime {
    let now = SystemClock.now().timestamp_millis() / 60_000;
    DateTime::from_millis((now - minutes) * 60_000)
}

fn later(than: DateTime, seconds: i64) -> DateTime {
    DateTime::from_millis(than.timestamp_millis() + seconds * 1000)
}

/// A process of its own.
fn process(world: &World, clock: &Arc<ManualClock>) -> Store {
    Store::with_clock(world.database().clone(), clock.clone())
}

fn all(points: &[Point]) -> Numbers {
    let mut all = Numbers::default();
    points.iter().for_each(|point| all.merge(&point.numbers));
    all
}

async fn begin(store: &Store, claims: &[Claim]) -> anyhow::Result<()> {
    let begin = |(pid, claim): (u32, &Claim)| {
        let waiting = Waiting::of_document(claim.queue, &claim.document);
        RunWrite::Start(Start { waiting, ..start(claim, store, pid) })
    };
    let starts: Vec<RunWrite> = (1..).zip(claims).map(begin).collect();
    for written in store.write_runs(&starts).await? {
        assert_eq!(written?, Written::Started);
    }
    Ok(())
}

async fn cancel_new_tasks(store: &Store, queue: QueueId, tasks: usize) -> anyhow::Result<()> {
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    for id in store.submit_tasks(queue, vec![doc! {}; tasks], &TaskOptions::default()).await?.ids {
        store.cancel_task(id, &request).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_two_processes_do_is_counted_in_its_minutes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let begun = minutes_ago(10);
    let clock = Arc::new(ManualClock::at(begun));
    let (one, two) = (process(&world, &clock), process(&world, &clock));
    one.ensure_indexes().await?;
    let id = world.queue("Demo", doc! { "threads": 10 }).await?;
    let other = world.queue("Demo", doc! { "threads": 10 }).await?;
    one.submit_tasks(id, vec![doc! {}; 6], &TaskOptions::default()).await?;
    clock.set(later(begun, 3));
    let queue = queue(&world, id).await?;
    let first = one.claim_tasks(&queue, &claimant("n1"), &[0, 1, 2], &mut Ahead::default()).await?.claims;
    let second = two.claim_tasks(&queue, &claimant("n2"), &[3, 4, 5], &mut Ahead::default()).await?.claims;
    begin(&one, &first).await?;
    begin(&two, &second).await?;
    clock.set(later(begun, 70));
    let exit = Some(doc! { "duration": 0.25 });
    let good = Finish { exit: exit.clone(), ..success("out") };
    let write = |claim: &Claim| RunWrite::Finish { run: claim.run(), finish: good.clone() };
    one.write_runs(&first.iter().map(write).collect::<Vec<_>>()).await?;
    let ends = [
        Finish { status: Status::Failed, exit: exit.clone(), ..success("") },
        Finish { status: Status::from_code(77), exit, ..success("") },
        Finish { status: Status::Terminated, ..success("") },
    ];
    for (claim, finish) in second.iter().zip(&ends) {
        assert_eq!(two.finish_task(&claim.run(), finish).await?, Finished::Stored);
    }
    futures::try_join!(one.flush_series(), two.flush_series())?;

    clock.set(later(begun, 150));
    let points = one.series(Some(id), later(begun, 30), MINUTE).await?;
    let times: Vec<DateTime> = points.iter().map(|point| point.at).collect();
    assert_eq!(times, [begun, later(begun, 60), later(begun, 120)]);
    let [waiting, ended, nothing] = &points[..] else { anyhow::bail!("{points:?}") };
    assert_eq!((waiting.numbers.waited.count(), waiting.numbers.ended.total()), (6, 0));
    assert_eq!(waiting.numbers.waited.mean(), Some(Duration::from_secs(3)));
    let median = waiting.numbers.waited.percentile(50).context("no median")?.as_secs_f64();
    assert!((2.1..4.25).contains(&median), "{median} s");
    assert_eq!(ended.numbers.ended, Ended { succeeded: 3, failed: 2, other: 1 });
    assert_eq!((ended.numbers.ran.count(), ended.numbers.waited.count()), (5, 0));
    assert_eq!(ended.numbers.ran.mean(), Some(Duration::from_millis(250)));
    assert_eq!(nothing.numbers, Numbers::default());
    assert_eq!(one.series(None, later(begun, 30), MINUTE).await?, points, "there is but one queue");
    assert_eq!(all(&one.series(Some(other), begun, MINUTE).await?), Numbers::default());

    let documents = world.database().collection::<Document>("series");
    let indexes: Vec<IndexModel> = documents.list_indexes().await?.try_collect().await?;
    let kept = indexes.iter().filter_map(|index| index.options.as_ref()?.expire_after);
    assert_eq!(kept.collect::<Vec<_>>(), [Duration::from_secs(8 * 24 * 3600)]);
    world.end().await
}

/// They make the same documents at the same moment.
#[tokio::test]
async fn of_many_processes_that_write_at_once_none_loses_anything() -> anyhow::Result<()> {
    let world = World::new().await?;
    let clock = Arc::new(ManualClock::at(minutes_ago(3)));
    let queue = world.queue("Demo", doc! {}).await?;
    let processes: Vec<Store> = (0..8).map(|_| process(&world, &clock)).collect();
    let work = processes.iter().map(|store| async move {
        cancel_new_tasks(store, queue, 5).await?;
        store.flush_series().await?;
        anyhow::Ok(())
    });
    futures::future::try_join_all(work).await?;
    for of in [Some(queue), None] {
        let ended = all(&processes[0].series(of, minutes_ago(5), MINUTE).await?).ended;
        assert_eq!(ended, Ended { other: 40, ..Ended::default() });
    }
    processes[0].flush_series().await?;
    let again = all(&processes[0].series(None, minutes_ago(5), MINUTE).await?).ended;
    assert_eq!(again.other, 40, "nothing is written twice");
    world.end().await
}

/// A document for most of the last minutes before `now`, with numbers that differ.
fn past(now: DateTime, queue: Bson, minutes: i64) -> impl Iterator<Item = Document> {
    (0..minutes).filter(|minute| minute % 7 != 3).map(move |minute| {
        let at = later(now, -60 * minute);
        doc! {
            "_id": { "queue": queue.clone(), "at": at }, "at": at, "succeeded": minute, "failed": minute % 5,
            "wait_ms": minute * 10, format!("w{}", minute % 64): minute, format!("r{}", minute % 11): 1_i64,
        }
    })
}

#[tokio::test]
async fn longer_steps_have_what_their_minutes_have() -> anyhow::Result<()> {
    let world = World::new().await?;
    let now = minutes_ago(0);
    let clock = Arc::new(ManualClock::at(later(now, 30)));
    let store = process(&world, &clock);
    let (one, two) = (QueueId(ObjectId::new()), QueueId(ObjectId::new()));
    let documents = world.database().collection::<Document>("series");
    documents.insert_many(past(now, one.into(), 300).chain(past(now, two.into(), 30))).await?;
    documents.insert_many(past(now, Bson::Null, 300)).await?;
    let since = later(now, -299 * 60);
    let minutes = store.series(Some(one), since, MINUTE).await?;
    assert_eq!(minutes.len(), 300);
    for length in [2, 10, 60, 24 * 60] {
        let steps = store.series(Some(one), since, MINUTE * length).await?;
        let mut expected: Vec<Point> = Vec::new();
        for minute in store.series(Some(one), steps[0].at, MINUTE).await? {
            let step = i64::from(length) * 60_000;
            let at = minute.at.timestamp_millis();
            let at = DateTime::from_millis(at - at.rem_euclid(step));
            match expected.last_mut().filter(|point| point.at == at) {
                Some(point) => point.numbers.merge(&minute.numbers),
                None => expected.push(Point { at, ..minute }),
            }
        }
        assert_eq!(steps, expected, "steps of {length} minutes");
    }
    let week = store.series(None, later(now, -7 * 24 * 3600), MINUTE * 60).await?;
    assert_eq!(week.len(), 7 * 24 + 1);
    assert_eq!(all(&week), all(&minutes), "the document of all queues says the same here");

    let hour = store.last_hour().await?;
    assert_eq!(hour.len(), 2);
    let of_minutes: Vec<Ended> = minutes[240..].iter().map(|point| point.numbers.ended).collect();
    assert_eq!(hour[&one], of_minutes);
    assert_eq!(hour[&two].iter().filter(|ended| ended.total() > 0).count(), 25);
    world.end().await
}

const MIXED: Script<'_> = Script {
    name: "Mixed",
    text: "#!/bin/sh\nread -r line\nsleep 0.05\ncase \"$line\" in *fail*) exit 3;; *) exit 0;; esac\n",
};

#[tokio::test]
async fn a_den_a_runner_and_the_web_server_write_what_they_do() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(MIXED, 4).await?;
    // Perl's way: a runner without a link, which writes at its end.
    let task = world.run_by_hand(queue, doc! {}, &[]).await?;
    assert_eq!(task.get_i32("status")?, 1);
    let store = world.store();
    let since = minutes_ago(5);
    let by_hand = all(&store.series(Some(queue), since, MINUTE).await?);
    assert_eq!((by_hand.ended.succeeded, by_hand.waited.count(), by_hand.ran.count()), (1, 1, 1));

    let den = world.den_at_work("n1").await?;
    let mut params = vec![doc! {}; 5];
    params.extend(vec![doc! { "do": "fail" }; 2]);
    world.submit(queue, params).await?;
    world.until_all_ended(queue).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let node = eventually("a node with statistics", || async {
        let nodes = dci.get("/nodes?.details=1").await?;
        Ok(Some(nodes[0].clone()).filter(|node| node["stats"].is_object()))
    })
    .await?;
    let stats = &node["stats"];
    assert!(stats["load"].is_number() && stats["cpus"].as_u64() >= Some(1), "{node}");
    assert!(stats["memory"].as_u64() > stats["memory_available"].as_u64(), "{node}");
    assert_eq!(dci.get("/nodes").await?[0]["stats"], Value::Null);
    let unserved = world.queue("Demo", doc! {}).await?;
    let body = json!({ "queue": unserved.to_string(), "params": [{ "a": 1 }] });
    let answer = dci.posted("/tasks", &body).await?;
    let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str().context("no id")?;
    dci.posted(&format!("/tasks/{id}/cancel"), &json!({})).await?;
    den.end_with(Signal::SIGTERM).await?;

    let numbers = all(&store.series(Some(queue), since, MINUTE).await?);
    assert_eq!(numbers.ended, Ended { succeeded: 6, failed: 2, other: 0 });
    assert_eq!((numbers.waited.count(), numbers.ran.count()), (8, 8));
    let median = numbers.ran.percentile(50).context("no median")?;
    assert!(median > Duration::from_millis(30), "{median:?}");
    eventually("the web server's numbers", || async {
        let numbers = all(&store.series(None, since, MINUTE).await?);
        Ok((numbers.ended == Ended { succeeded: 6, failed: 2, other: 1 }).then_some(()))
    })
    .await?;
    let points = store.node_series(&NodeName::new("n1"), since, MINUTE).await?;
    assert!(points.iter().any(|point| point.load.is_some() && point.running.is_some()), "{points:?}");
    world.end().await
}

#[tokio::test]
async fn nodes_have_a_sample_for_each_minute() -> anyhow::Result<()> {
    let world = World::new().await?;
    let begun = minutes_ago(120).timestamp_millis();
    let begun = DateTime::from_millis(begun - begun.rem_euclid(3_600_000));
    let clock = Arc::new(ManualClock::at(begun));
    let store = process(&world, &clock);
    let (n1, n2) = (NodeName::new("n1"), NodeName::new("n2"));
    let stats = Stats { load: Some(1.5), memory_available: Some(1 << 30), ..Stats::default() };
    for minute in [0, 1, 3, 20] {
        for (seconds, running) in [(0, 10 + minute), (30, 500)] {
            clock.set(later(begun, i64::from(minute) * 60 + seconds));
            let beat = Beat { running: usize::try_from(running)?, stats, ..Beat::default() };
            store.heartbeat(&n1, &beat).await?;
        }
    }
    store.heartbeat(&n2, &Beat::default()).await?;
    store.flush_series().await?;
    let points = store.node_series(&n1, begun, MINUTE).await?;
    let running: Vec<Option<f64>> = points[..5].iter().map(|point| point.running).collect();
    assert_eq!(running, [Some(10.0), Some(11.0), None, Some(13.0), None]);
    assert_eq!((points[0].load, points[0].memory_available), (Some(1.5), Some(f64::from(1 << 30))));
    let hour = store.node_series(&n1, begun, MINUTE * 60).await?;
    assert_eq!(hour.iter().map(|point| point.running).collect::<Vec<_>>(), [Some(16.0)], "the mean");
    let other = store.node_series(&n2, begun, MINUTE).await?;
    let known: Vec<_> = other.iter().filter(|point| point.running.is_some()).collect();
    assert!(known.len() == 1 && known[0].load.is_none(), "{other:?}");
    assert_eq!(all(&store.series(None, begun, MINUTE).await?), Numbers::default());
    world.end().await
}

/// Passes bytes on in both directions as long as it is open.
async fn gate(to: String, open: watch::Receiver<bool>) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (to, mut open) = (to.clone(), open.clone());
            tokio::spawn(async move {
                if *open.borrow() {
                    let mut server = TcpStream::connect(&to).await?;
                    tokio::select! {
                        biased;
                        _ = open.wait_for(|open| !open) => {}
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    }
                }
                Ok::<_, io::Error>(())
            });
        }
    });
    Ok(port)
}

#[tokio::test]
async fn what_cannot_be_written_is_written_later() -> anyhow::Result<()> {
    let world = World::on(Server::Standalone).await?;
    let queue = world.queue("Demo", doc! {}).await?;
    let (control, open) = watch::channel(true);
    let port = gate(detour::address(&world)?, open).await?;
    let database = detour::database(&world, port).await?;
    let since = minutes_ago(2);
    let clock = Arc::new(ManualClock::at(since));
    let store = Store::with_clock(database, clock.clone());
    // What was noted may have been written in the background before the database is away.
    eventually("a write that fails", || async {
        cancel_new_tasks(&store, queue, 3).await?;
        control.send(false)?;
        let failed = store.flush_series().await.is_err();
        control.send(true)?;
        eventually("the database", || async { Ok(store.ping().await.ok()) }).await?;
        Ok(failed.then_some(()))
    })
    .await?;
    cancel_new_tasks(&store, queue, 2).await?;
    store.flush_series().await?;
    let seen = process(&world, &clock).series(Some(queue), since, MINUTE).await?;
    assert_eq!(all(&seen).ended.other, world.count(queue, doc! { "status": -5 }).await?);
    world.end().await
}
