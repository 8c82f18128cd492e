//! What time brings about: one look tells whether there is any of it, and costs the same in a large database.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{NodeName, QueueId};
use disbatch_core::node::Beat;
use disbatch_core::store::Store;
use disbatch_core::task::{Outlook, Question};
use disbatch_tests::World;

use crate::plan::{most, plans, stages};

const LEASE: Duration = Duration::from_secs(30);

fn ago(world: &World, seconds: i64) -> DateTime {
    DateTime::from_millis(world.store().now().timestamp_millis() - seconds * 1_000)
}

async fn outlook(world: &World, claim_from: &[QueueId]) -> anyhow::Result<Outlook> {
    let node = NodeName::new("n1");
    let question = Question { claim_from, ..Question::new(&node, LEASE) };
    Ok(world.store().look_around(&question).await?)
}

#[tokio::test]
async fn a_look_tells_what_there_is_to_do_and_what_was_done_is_gone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let node = NodeName::new("n1");
    let queue = world.queue("P", doc! { "threads": 1 }).await?;
    let other = world.queue("P", doc! { "threads": 1 }).await?;
    let nothing = Outlook::default();
    assert_eq!(outlook(&world, &[queue]).await?, nothing, "an empty database");

    let task = world.submit(queue, vec![doc! {}]).await?[0];
    assert!(outlook(&world, &[queue]).await?.claimable);
    assert_eq!(outlook(&world, &[other]).await?, nothing);
    assert_eq!(outlook(&world, &[]).await?, nothing);
    world.set(task, doc! { "node": -1 }).await?;
    assert!(outlook(&world, &[queue]).await?.claimable, "as old programs have it");

    // Deferred, then due.
    let in_a_minute = ago(&world, -60);
    world.set(task, doc! { "status": -7, "run_at": in_a_minute }).await?;
    let deferred = outlook(&world, &[queue]).await?;
    let next = deferred.next.expect("it is deferred");
    assert!(next > Duration::from_secs(30) && next < Duration::from_secs(90), "{next:?}");
    assert_eq!(Outlook { next: None, ..deferred }, nothing);
    world.set(task, doc! { "run_at": ago(&world, 1) }).await?;
    assert_eq!(outlook(&world, &[]).await?, Outlook { due: true, ..nothing.clone() });
    assert_eq!(store.sweep_tasks().await?.due, 1);
    assert_eq!(outlook(&world, &[]).await?, nothing);

    // Queued, with a deadline in the past.
    world.set(task, doc! { "deadline": ago(&world, 1) }).await?;
    assert_eq!(outlook(&world, &[]).await?, Outlook { due: true, ..nothing.clone() });
    assert_eq!(store.sweep_tasks().await?.overdue, 1);
    assert_eq!(outlook(&world, &[queue]).await?, nothing, "its deadline does not matter any more");

    // Claimed by another node; its lease ran out.
    world.set(task, doc! { "status": -1, "node": "n2", "slot": 0, "lease_until": ago(&world, 1) }).await?;
    assert_eq!(outlook(&world, &[]).await?, Outlook { due: true, lapsed: true, ..nothing.clone() });
    world.set(task, doc! { "node": "n1" }).await?;
    assert!(outlook(&world, &[]).await?.occupied);
    assert_eq!(store.sweep_tasks().await?.given_back, 1);
    world.set(task, doc! { "status": 1, "group_slot": 3 }).await?;
    assert_eq!(outlook(&world, &[]).await?, Outlook { stale_slots: true, ..nothing.clone() });
    assert_eq!(store.clear_stale_slots().await?, 1);

    // Claimed long ago without a lease.
    let claimed = doc! { "status": -1, "node": "n1", "lease_until": Bson::Null, "mtime": ago(&world, 301) };
    world.set(task, claimed).await?;
    let occupied = Outlook { occupied: true, ..nothing.clone() };
    assert_eq!(outlook(&world, &[]).await?, occupied, "by the server's clock it was changed a moment ago");
    assert_eq!(store.orphan_stale_claims(&node).await?, 0);
    world.set(task, doc! { "history": [{ "at": ago(&world, 301) }] }).await?;
    let stale = Outlook { occupied: true, stale_claims: true, ..nothing.clone() };
    assert_eq!(outlook(&world, &[]).await?, stale);
    assert_eq!(store.orphan_stale_claims(&node).await?, 1);
    assert_eq!(outlook(&world, &[queue]).await?, nothing);
    world.end().await
}

#[tokio::test]
async fn a_sweep_without_time_for_more_leaves_the_rest_to_the_next() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    for _ in 0..3 {
        let queue = world.queue("P", doc! { "threads": 1 }).await?;
        for task in world.submit(queue, vec![doc! {}; 2]).await? {
            world.set(task, doc! { "status": -7, "run_at": ago(&world, 1) }).await?;
        }
    }
    for expected in [2, 2, 2, 0] {
        assert_eq!(store.sweep_for(Duration::ZERO).await?.due, expected, "those of a queue");
    }
    world.end().await
}

/// More of them than are asked for in one operation.
#[tokio::test]
async fn of_many_queues_it_is_found_together_which_have_something() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queues: Vec<QueueId> = (0..120).map(|_| QueueId(ObjectId::new())).collect();
    let task = |queue: usize, fields: Document| {
        let mut task =
            doc! { "_id": ObjectId::new(), "queue": queues[queue], "status": -2, "node": Bson::Null };
        task.extend(fields);
        task
    };
    let tasks = [
        task(3, doc! {}),
        task(3, doc! {}),
        task(110, doc! { "node": -1, "group": "a", "priority": 5 }),
        task(5, doc! { "status": 1 }),
        task(6, doc! { "node": "elsewhere" }),
        task(7, doc! { "_id": 7 }),
    ];
    world.tasks().insert_many(tasks).await?;
    let look = async |store: Store| anyhow::Ok(store.queues_with_tasks(&queues).await?);
    let (found, plans) = plans(&world, look).await?;
    assert_eq!(found, HashSet::from([queues[3], queues[110]]));
    assert_eq!(plans.len(), queues.len());
    for plan in plans {
        let stages = stages(&plan);
        assert!(stages.contains(&"IXSCAN") && !stages.contains(&"COLLSCAN"), "{plan}");
        assert!(most(&plan, "totalKeysExamined").is_some_and(|keys| keys <= 6), "{plan}");
    }
    world.end().await
}

#[tokio::test]
async fn a_silent_node_is_seen_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let beat = Beat { lease: LEASE, ..Beat::default() };
    store.heartbeat(&NodeName::new("n2"), &beat).await?;
    assert!(!outlook(&world, &[]).await?.silent_nodes);
    let nodes = world.database().collection::<Document>("nodes");
    let seen = |seconds| doc! { "$set": { "seen": ago(&world, seconds) } };
    nodes.update_one(doc! { "node": "n2" }, seen(20)).await?;
    assert!(!outlook(&world, &[]).await?.silent_nodes, "within its lease");
    nodes.update_one(doc! { "node": "n2" }, seen(31)).await?;
    assert!(outlook(&world, &[]).await?.silent_nodes);
    assert!(store.mark_dead_nodes(ago(&world, 2)).await?.is_empty(), "the clock has jumped since");
    assert_eq!(store.mark_dead_nodes(store.server_time().await?).await?.len(), 1);
    assert!(!outlook(&world, &[]).await?.silent_nodes);
    world.end().await
}

/// Ended tasks, running ones and living nodes are many; a look reads none of them.
#[tokio::test]
async fn a_look_reads_an_index_entry_for_each_of_its_parts() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = QueueId(ObjectId::new());
    let old = ago(&world, 3_600);
    let task = |status: i32| doc! { "queue": queue, "status": status, "node": "n2", "mtime": old };
    let ended = (0..1_000).map(|_| {
        let mut task = task(1);
        task.extend(doc! { "deadline": old, "run_at": old });
        task
    });
    let running = (0..500).map(|slot| {
        let mut task = task(0);
        task.extend(doc! { "slot": slot, "lease_until": ago(&world, -60) });
        task
    });
    let waiting = (0..500).map(|_| {
        let mut task = task(-2);
        task.insert("node", Bson::Null);
        task
    });
    world.tasks().insert_many(ended.chain(running).chain(waiting)).await?;
    let nodes = world.database().collection::<Document>("nodes");
    let alive = (0..300).map(|n| {
        doc! { "node": format!("n{n}"), "seen": ago(&world, 0), "lease_ms": 30_000_i64, "state": "alive" }
    });
    nodes.insert_many(alive).await?;
    let left = (0..300).map(|_| doc! { "left": old }).chain((0..300).map(|_| doc! {}));
    world.database().collection::<Document>("inbox").insert_many(left).await?;
    let node = NodeName::new("n2");
    let question = Question { claim_from: &[queue], ..Question::new(&node, LEASE) };
    let look = async |store: Store| anyhow::Ok(store.look_around(&question).await?);
    let (_, plans) = plans(&world, look).await?;
    assert_eq!(plans.len(), 19);
    for plan in plans {
        let stages = stages(&plan);
        assert!(stages.contains(&"IXSCAN"), "{plan}");
        assert!(!stages.contains(&"COLLSCAN") && !stages.contains(&"SORT"), "{plan}");
        for what in ["totalKeysExamined", "totalDocsExamined"] {
            let most = most(&plan, what);
            assert!(most.is_some_and(|most| most <= 6), "{what} {most:?}: {plan}");
        }
    }
    world.end().await
}

/// Web services work on any number of tasks of a node; it sees at once whether it has others.
#[tokio::test]
async fn a_look_passes_over_the_tasks_that_web_services_work_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = QueueId(ObjectId::new());
    let task = |detached: bool| {
        let external = doc! { "detached": detached, "token": "f", "attempt": 1_i64 };
        let lease = ago(&world, -3_600);
        doc! {
            "queue": queue, "status": 0, "node": "n1", "mtime": ago(&world, 0), "lease_until": lease,
            "external": external,
        }
    };
    world.tasks().insert_many((0..2_000).map(|_| task(true))).await?;
    let node = NodeName::new("n1");
    let question = Question::new(&node, LEASE);
    for own in 0..2 {
        assert_eq!(outlook(&world, &[]).await?.occupied, own > 0);
        assert_eq!(store.running_on_node(&node, &[]).await?, own);
        let look = async |store: Store| anyhow::Ok(store.look_around(&question).await?);
        for plan in plans(&world, look).await?.1 {
            for what in ["totalKeysExamined", "totalDocsExamined"] {
                let most = most(&plan, what);
                assert!(most.is_some_and(|most| most <= 10), "{what} {most:?}: {plan}");
            }
        }
        world.tasks().insert_one(task(false)).await?;
    }
    world.end().await
}
