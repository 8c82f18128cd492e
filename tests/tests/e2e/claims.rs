//! Claims of many tasks at once: each task and each place is given once, whatever is behind the mark is found, and
//! the order is kept. Here the operations themselves are called, as a DEN does.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{NodeName, Queue, QueueId, Selector, Status, TaskId};
use disbatch_core::slots::Holder;
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Claim, Claimant, Finish, Finished, RunWrite, Start, Written};
use disbatch_tests::{World, eventually};
use futures::TryStreamExt;
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

pub const LEASE: Duration = Duration::from_secs(60);

pub fn claimant(name: &str) -> Claimant {
    Claimant {
        node: NodeName::new(name),
        instance: format!("start of {name}"),
        lease: Some(LEASE),
        fence: None,
    }
}

pub async fn queue(world: &World, id: QueueId) -> anyhow::Result<Queue> {
    world.store().find_queue(&Selector::Id(id.0)).await?.context("no queue")
}

pub fn start(claim: &Claim, store: &Store, pid: u32) -> Start {
    Start {
        task: claim.task,
        from: Status::Claimed,
        node: claim.node.clone(),
        claim: Some((claim.attempt, claim.instance.clone())),
        claimed: None,
        at: store.now(),
        lease: LEASE,
        pid,
        waiting: None,
    }
}

pub fn success(stdout: &str) -> Finish {
    Finish {
        status: Status::Succeeded,
        stdout: stdout.into(),
        stderr: Bson::Null,
        complete: true,
        result: None,
        exit: None,
        note: None,
        last_line: None,
        pause: None,
        recorded: None,
        trial: None,
    }
}

/// Makes a task so large that no more than so many bytes fit, with what it has already. A server with a small cache
/// may need some time for that.
pub async fn enlarge(world: &World, task: TaskId, left: usize) -> anyhow::Result<()> {
    let filler = "x".repeat(16 * 1024 * 1024 - left);
    eventually("the cache to have room", || async {
        Ok(world.set(task, doc! { "params": &filler }).await.ok())
    })
    .await
}

/// A queue with the given number of tasks, and one DEN's view of it.
struct Scene {
    world: World,
    queue: Queue,
    ids: Vec<TaskId>,
    den: Claimant,
    ahead: Ahead,
    slots: u64,
}

impl Scene {
    async fn new(sort: &str, tasks: usize) -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let id = world.queue("Demo", doc! { "threads": 10_000, "sort": sort }).await?;
        let ids = world.submit(id, vec![doc! {}; tasks]).await?;
        let queue = queue(&world, id).await?;
        Ok(Self { world, queue, ids, den: claimant("n1"), ahead: Ahead::default(), slots: 0 })
    }

    /// Claims so many with fresh places.
    async fn claim(&mut self, number: u64) -> anyhow::Result<Vec<Claim>> {
        let slots: Vec<u64> = (self.slots..self.slots + number).collect();
        self.slots += number;
        let store = self.world.store();
        let batch = store.claim_tasks(&self.queue, &self.den, &slots, &mut self.ahead).await?;
        assert!(batch.taken.is_empty());
        assert!(!batch.exhausted || (batch.claims.len() as u64) < number);
        Ok(batch.claims)
    }
}

fn tasks(claims: &[Claim]) -> Vec<TaskId> {
    claims.iter().map(|claim| claim.task).collect()
}

#[tokio::test]
async fn tasks_are_claimed_in_order_singly_and_in_batches() -> anyhow::Result<()> {
    for sort in ["fifo", "lifo", "default"] {
        let mut scene = Scene::new(sort, 100).await?;
        let mut claimed = Vec::new();
        for number in [1, 1, 30, 2, 80] {
            claimed.extend(scene.claim(number).await?);
        }
        let mut expected = scene.ids.clone();
        if sort == "lifo" {
            expected.reverse();
        }
        assert_eq!(tasks(&claimed), expected, "{sort}");
        for claim in &claimed {
            let stored = scene.world.task(claim.task).await?;
            assert_eq!(Document::try_from(claim.document.as_ref())?, stored, "the task as it was claimed");
            assert_eq!((claim.attempt, stored.get_i32("status")?), (1, -1));
        }
        assert!(scene.claim(1).await?.is_empty());
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_put_back_behind_the_mark_is_claimed_first_when_told_and_soon_anyway() -> anyhow::Result<()>
{
    let mut scene = Scene::new("fifo", 3_000).await?;
    let first = scene.claim(10).await?;
    scene.world.store().unclaim_task(&first[3], "a test").await?;
    scene.ahead.look_back(scene.queue.id);
    let next = scene.claim(2).await?;
    assert_eq!(tasks(&next), [first[3].task, scene.ids[10]]);
    assert_eq!(next[0].attempt, 2);
    scene.world.store().unclaim_task(&first[5], "a test").await?;
    let mut others = 0;
    let again = async || {
        let claimed = scene.claim(1).await?;
        others += 1;
        Ok(claimed.into_iter().find(|claim| claim.task == first[5].task))
    };
    let again = eventually_mut("the task to be claimed again", again).await?;
    assert_eq!(again.attempt, 2);
    assert!(others < 2_900, "it was not claimed last");
    scene.world.end().await
}

/// As [`eventually`], for a condition that changes what it looks at.
async fn eventually_mut<T>(
    what: &str,
    condition: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let condition = tokio::sync::Mutex::new(condition);
    eventually(what, || async { (*condition.lock().await)().await }).await
}

#[tokio::test]
async fn older_ids_and_tasks_of_old_clients_are_found_when_nothing_else_is_left() -> anyhow::Result<()> {
    let mut scene = Scene::new("fifo", 5).await?;
    scene.claim(5).await?;
    let old = ObjectId::from_parts(1_000, [1; 5], [1; 3]);
    let task = doc! { "_id": old, "queue": scene.queue.id, "status": -2, "node": -1, "params": {} };
    scene.world.tasks().insert_one(task).await?;
    let found = async || Ok(scene.claim(1).await?.into_iter().next());
    let found = eventually_mut("the old task to be claimed", found).await?;
    assert_eq!((found.task, found.attempt), (TaskId(old), 1));
    scene.world.end().await
}

#[tokio::test]
async fn a_taken_place_costs_one_try_and_a_task_that_cannot_grow_costs_itself() -> anyhow::Result<()> {
    let mut scene = Scene::new("fifo", 8).await?;
    let store = scene.world.store();
    let other = claimant("n2");
    index_slots(&scene.world).await?;
    store.claim_tasks(&scene.queue, &other, &[2], &mut Ahead::default()).await?;
    // So large that a claim does not fit any more.
    enlarge(&scene.world, scene.ids[3], 400).await?;
    let slots = [0, 1, 2, 3, 4];
    let batch = store.claim_tasks(&scene.queue, &scene.den, &slots, &mut scene.ahead).await?;
    assert_eq!(batch.taken, [2]);
    let mut claimed = tasks(&batch.claims);
    claimed.sort_unstable();
    let expected = [1, 2, 4, 5].map(|number: usize| scene.ids[number]);
    assert!(expected[..3].iter().all(|task| claimed.contains(task)), "{claimed:?}");
    assert_eq!(claimed.len(), 4);
    assert_eq!(scene.world.status(scene.ids[3]).await?, -2);
    let batch = store.claim_tasks(&scene.queue, &scene.den, &[2], &mut scene.ahead).await?;
    assert_eq!((batch.taken, batch.claims.len()), (vec![2], 0), "one try");
    scene.world.end().await
}

/// The index by which releases before gave each slot once. It stays until an operator removes it.
pub async fn index_slots(world: &World) -> anyhow::Result<()> {
    let taken = doc! { "status": { "$gte": -1, "$lte": 0 }, "slot": { "$exists": true } };
    let options = IndexOptions::builder().unique(true).partial_filter_expression(taken).build();
    let index = IndexModel::builder().keys(doc! { "queue": 1, "slot": 1 }).options(options).build();
    world.tasks().create_index(index).await?;
    Ok(())
}

/// Claims, starts and ends tasks until there are none, as one of many DENs. Returns what it had.
async fn work(store: Store, queue: QueueId, number: u64) -> anyhow::Result<Vec<TaskId>> {
    let (den, holder) = (claimant(&format!("n{number}")), Holder::drawn());
    let mut ahead = Ahead::default();
    let mut had = Vec::new();
    loop {
        let looks = store.look_at_queues(&[queue]).await?;
        let look = looks.get(&queue).context("no queue")?;
        let held = store.held_slots(&[queue]).await?;
        let places: HashSet<u64> = held.iter().map(|slot| slot.number).collect();
        let threads = look.queue.claim_limit();
        let free =
            (0..threads).map(|slot| (slot + number * 5) % threads).filter(|slot| !places.contains(slot));
        let wanted = usize::try_from(number % 6 + 1)?;
        let slots: Vec<u64> = free.take(wanted).collect();
        if slots.is_empty() {
            continue;
        }
        let slots = store.hold_slots(queue, (holder, &den.node), &slots).await?;
        let batch = store.claim_tasks(&look.queue, &den, &slots, &mut ahead).await?;
        let held: Vec<(QueueId, u64)> = slots.into_iter().map(|slot| (queue, slot)).collect();
        if batch.exhausted && batch.claims.is_empty() {
            store.release_slots(holder, &held).await?;
            return Ok(had);
        }
        let starts: Vec<RunWrite> =
            batch.claims.iter().map(|claim| RunWrite::Start(start(claim, &store, 1))).collect();
        for written in store.write_runs(&starts).await? {
            assert_eq!(written?, Written::Started);
        }
        let end = |claim: &Claim| RunWrite::Finish { run: claim.run(), finish: success("done\n") };
        let ends: Vec<RunWrite> = batch.claims.iter().map(end).collect();
        for written in store.write_runs(&ends).await? {
            assert_eq!(written?, Written::Finished(Finished::Stored));
        }
        had.extend(batch.claims.iter().map(|claim| claim.task));
        store.release_slots(holder, &held).await?;
    }
}

/// Watches that no more are claimed or running than there are places, and that none is taken twice.
async fn watch(world: &World, queue: QueueId, threads: usize) -> anyhow::Result<()> {
    let taken = doc! { "queue": queue, "status": { "$in": [-1, 0] } };
    while world.count(queue, doc! { "status": { "$lt": 1 } }).await? > 0 {
        let found = world
            .tasks()
            .find(taken.clone())
            .projection(doc! { "slot": 1 })
            .read_concern(mongodb::options::ReadConcern::snapshot())
            .await?;
        let found: Vec<Document> = found.try_collect().await?;
        let slots: HashSet<Option<i64>> = found.iter().map(|task| task.get_i64("slot").ok()).collect();
        assert!(found.len() <= threads && slots.len() == found.len(), "{found:?}");
        assert!(!slots.contains(&None));
    }
    Ok(())
}

#[tokio::test]
async fn of_many_dens_none_gets_a_task_or_a_place_that_another_has() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let id = world.queue("Demo", doc! { "threads": 40, "sort": "fifo" }).await?;
    let ids = world.submit(id, vec![doc! {}; 1_500]).await?;
    let dens = (0..24).map(|number| tokio::spawn(work(world.store(), id, number)));
    let (_, had) = futures::try_join!(watch(&world, id, 40), async {
        futures::future::try_join_all(dens).await?.into_iter().collect::<anyhow::Result<Vec<_>>>()
    })?;
    let all: Vec<TaskId> = had.into_iter().flatten().collect();
    let distinct: HashSet<TaskId> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (ids.len(), ids.len()));
    let again =
        world.count(id, doc! { "$or": [{ "attempt": { "$ne": 1 } }, { "status": { "$ne": 1 } }] }).await?;
    assert_eq!(again, 0, "each was claimed once and ended");
    world.end().await
}

/// What the server noted about each operation on the tasks: no collection was scanned, nothing sorted, and no more
/// documents read than needed.
async fn check_profile(world: &World, most_documents: i64) -> anyhow::Result<()> {
    let profile = world.database().collection::<Document>("system.profile");
    let of_tasks = doc! { "ns": format!("{}.tasks", world.database().name()) };
    let noted: Vec<Document> = profile.find(of_tasks).await?.try_collect().await?;
    assert!(noted.len() >= 10, "{noted:?}");
    for operation in noted {
        let plan = operation.get_str("planSummary").unwrap_or_default();
        assert!(!plan.contains("COLLSCAN"), "{operation}");
        assert!(!operation.get_bool("hasSortStage").unwrap_or(false), "{operation}");
        let count =
            |field: &str| operation.get(field).and_then(disbatch_core::model::whole_number).unwrap_or(0);
        assert!(count("docsExamined") <= most_documents, "{operation}");
        assert!(count("keysExamined") <= 2 * most_documents + 10, "{operation}");
    }
    Ok(())
}

#[tokio::test]
async fn everything_around_a_claim_is_found_by_index_in_every_order() -> anyhow::Result<()> {
    for sort in ["fifo", "lifo", "default"] {
        let mut scene = Scene::new(sort, 2_000).await?;
        let store = scene.world.store();
        let ended = |_| doc! { "_id": ObjectId::new(), "queue": scene.queue.id, "status": 1, "node": "n1" };
        scene.world.tasks().insert_many((0..2_000).map(ended)).await?;
        let until = DateTime::from_millis(221_845_392_000_000 + 60_000);
        let covered = |_| doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "node": "n9", "lease_until": until };
        scene.world.tasks().insert_many((0..500).map(covered)).await?;
        let other = scene.world.queue("Demo", doc! { "threads": 5 }).await?;
        scene.world.submit(other, vec![doc! {}; 2_000]).await?;
        scene.world.database().run_command(doc! { "profile": 2 }).await?;
        let mut claims = scene.claim(1).await?;
        claims.extend(scene.claim(40).await?);
        claims.extend(scene.claim(40).await?);
        let looks = store.look_at_queues(&[scene.queue.id, other]).await?;
        assert_eq!((looks[&scene.queue.id].running, looks[&other].running), (81, 0));
        let starts: Vec<_> = claims.iter().map(|claim| RunWrite::Start(start(claim, &store, 1))).collect();
        store.write_runs(&starts).await?;
        let run = claims[0].run();
        store.write_runs(&[RunWrite::Renew { run: run.clone(), lease: LEASE }]).await?;
        store.finish_task(&run, &success("")).await?;
        store.running_on_node(&scene.den.node, &[]).await?;
        store.uncover_own(&scene.den.node, &[], LEASE).await?;
        assert!(!store.silent_owners().await?.silent.is_empty());
        store.uncover_silent(&[scene.den.node.to_string()], LEASE).await?;
        store.sweep_tasks().await?;
        scene.world.database().run_command(doc! { "profile": 0 }).await?;
        check_profile(&scene.world, 81).await?;
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_look_tells_what_runs_and_which_places_it_has() -> anyhow::Result<()> {
    let mut scene = Scene::new("fifo", 4).await?;
    scene.claim(2).await?;
    let perls = scene.world.claimed(scene.queue.id, doc! {}, "perl").await?;
    assert_eq!(scene.world.status(perls).await?, -1);
    let gone = QueueId(ObjectId::new());
    let mut looks = scene.world.store().look_at_queues(&[scene.queue.id, gone]).await?;
    let look = looks.remove(&scene.queue.id).context("no look")?;
    let mut slots = look.slots.clone();
    slots.sort_unstable();
    assert_eq!(
        (look.running, slots, look.queue.claim_limit()),
        (3, vec![0, 1], 10_000),
        "Perl's has no place"
    );
    assert!(looks.is_empty(), "a queue that is not there is left out");
    scene.world.end().await
}

#[tokio::test]
async fn a_claim_without_a_lease_has_none() -> anyhow::Result<()> {
    let mut scene = Scene::new("fifo", 4).await?;
    scene.den.lease = None;
    let mut claims = scene.claim(1).await?;
    claims.extend(scene.claim(2).await?);
    for task in tasks(&claims) {
        assert!(!scene.world.task(task).await?.contains_key("lease_until"));
    }
    scene.den.lease = Some(LEASE);
    let claim = scene.claim(1).await?;
    let until = *scene.world.task(claim[0].task).await?.get_datetime("lease_until")?;
    assert!(until > DateTime::from_millis(scene.world.store().now().timestamp_millis() + 30_000));
    scene.world.end().await
}
