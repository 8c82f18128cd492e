//! No more tasks of a queue start than its rate allows, however many DENs there are, and a node takes on work no faster
//! than its configuration says.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::explain::{Reader, explain};
use disbatch_core::model::{Queue, QueueId, whole_number};
use disbatch_core::task::{Ahead, TaskOptions};
use disbatch_tests::{Dci, Script, World, always, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::claims::{claimant, queue};

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\necho done\n" };

/// A queue with these fields in a world with all indexes.
async fn limited(fields: Document) -> anyhow::Result<(World, Queue)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let mut with_threads = doc! { "threads": 1_000_000 };
    with_threads.extend(fields);
    let id = world.queue("Demo", with_threads).await?;
    let queue = queue(&world, id).await?;
    Ok((world, queue))
}

/// Starts that were taken and used at some moment between two times, by the clock that the server has too.
struct Used {
    after: i64,
    before: i64,
    starts: u64,
}

/// Claims until nothing is left, as a DEN does, but takes more starts than it needs.
async fn claim_all(world: &World, queue: &Queue, number: u64) -> anyhow::Result<Vec<Used>> {
    let (store, den) = (world.store(), claimant(&format!("n{number}")));
    let (mut ahead, mut slot, mut used) = (Ahead::default(), number * 1_000_000, Vec::new());
    loop {
        if store.claimable_tasks(queue, 1).await? == 0 {
            return Ok(used);
        }
        let after = store.now().timestamp_millis();
        let granted = store.take_starts(queue, None, 1 + 3 * number).await?;
        let before = store.now().timestamp_millis();
        let slots: Vec<u64> = (slot..slot + granted.starts.min(2)).collect();
        slot += 2;
        if !slots.is_empty() {
            let batch = store.claim_tasks(queue, &den, &slots, &mut ahead).await?;
            let starts = u64::try_from(batch.claims.len())?;
            store.return_starts(&granted, granted.starts - starts).await?;
            used.push(Used { after, before, starts });
        }
        if let Some(next) = granted.next {
            tokio::time::sleep(next).await;
        }
    }
}

#[tokio::test]
async fn four_claimers_together_keep_to_the_rate_in_every_stretch_of_time() -> anyhow::Result<()> {
    let (world, queue) = limited(doc! { "rate": { "n": 40, "per": 1, "burst": 5 } }).await?;
    let tasks = 80;
    world.submit(queue.id, vec![doc! {}; tasks]).await?;
    let all = try_join_all((0..4).map(|number| claim_all(&world, &queue, number))).await?;
    let mut used: Vec<Used> = all.into_iter().flatten().collect();
    used.sort_unstable_by_key(|used| used.after);
    assert_eq!(used.iter().map(|used| used.starts).sum::<u64>(), tasks as u64);
    assert_eq!(world.count(queue.id, doc! { "status": -1 }).await?, tasks as u64);
    for from in &used {
        for to in &used {
            let within = |one: &&Used| one.after >= from.after && one.before <= to.before;
            let starts: u64 = used.iter().filter(within).map(|used| used.starts).sum();
            let millis = u64::try_from((to.before - from.after).max(0))?;
            assert!(starts * 1_000 <= 40 * millis + 5 * 1_000, "{starts} starts in {millis} ms");
        }
    }
    world.end().await
}

#[tokio::test]
async fn what_is_given_back_can_be_taken_again_and_nothing_else() -> anyhow::Result<()> {
    let (world, queue) = limited(doc! { "rate": { "n": 1, "per": 3_600, "burst": 5 } }).await?;
    let store = world.store();
    let allowed = async || {
        let standing = store.rate_standing(&queue, None).await?.context("no rate")?;
        Ok::<_, anyhow::Error>((standing.allowed, standing.next))
    };
    assert_eq!(allowed().await?, (5, None));
    let first = store.take_starts(&queue, None, 3).await?;
    let second = store.take_starts(&queue, None, 9).await?;
    assert_eq!((first.starts, first.next, second.starts), (3, None, 2));
    let refused = store.take_starts(&queue, None, 1).await?;
    let soon = Duration::from_secs(5);
    assert_eq!(
        (second.next, refused.starts, refused.next),
        (Some(soon), 0, Some(soon)),
        "others may give some back"
    );
    let (none, next) = allowed().await?;
    let (next, hour) = (next.context("it allows a start")?, Duration::from_secs(3_600));
    assert!(none == 0 && next > hour / 2 && next <= hour, "{none} {next:?}");
    store.return_starts(&first, 3).await?;
    assert_eq!(allowed().await?, (3, None));
    store.return_starts(&first, 1).await?;
    store.return_starts(&refused, 5).await?;
    assert_eq!(allowed().await?.0, 3, "nothing is left of these to be given back");
    store.return_starts(&second, 1).await?;
    assert_eq!(store.take_starts(&queue, None, 9).await?.starts, 4);
    assert_eq!(allowed().await?.0, 0);
    world.end().await
}

#[tokio::test]
async fn what_many_have_taken_is_counted_on() -> anyhow::Result<()> {
    let (world, queue) = limited(doc! { "rate": { "n": 1, "per": 604_800, "burst": 100 } }).await?;
    let store = world.store();
    // More takes than the document keeps apart.
    for taken in 0..90_u64 {
        let granted = store.take_starts(&queue, None, 1).await?;
        assert_eq!(granted.starts, 1, "after {taken}");
    }
    let standing = store.rate_standing(&queue, None).await?.context("no rate")?;
    assert_eq!(standing.allowed, 10);
    let rates = world.database().collection::<Document>("rates");
    let stored = rates.find_one(doc! { "_id": { "queue": queue.id } }).await?.context("no document")?;
    assert!(stored.get_array("takes")?.len() <= 32, "{stored}");
    assert!(stored.get_datetime("full")?.timestamp_millis() > store.now().timestamp_millis());
    world.end().await
}

#[tokio::test]
async fn another_rate_does_not_wait_for_what_the_one_before_was_owed() -> anyhow::Result<()> {
    let (world, slow) = limited(doc! { "rate": { "n": 1, "per": 604_800, "burst": 50 } }).await?;
    let store = world.store();
    assert_eq!(store.take_starts(&slow, None, 50).await?.starts, 50);
    world.update_queue(slow.id, doc! { "rate": { "n": 1, "per": 1, "burst": 2 } }).await?;
    let quick = queue(&world, slow.id).await?;
    let granted = store.take_starts(&quick, None, 1).await?;
    let next = granted.next.context("there was none to be had")?;
    assert!(granted.starts == 0 && next <= Duration::from_secs(1), "{granted:?}");
    tokio::time::sleep(next).await;
    assert!(
        store.take_starts(&quick, None, 1).await?.starts == 1,
        "the next start is possible when it was said"
    );
    world.end().await
}

#[tokio::test]
async fn each_group_has_a_rate_of_its_own() -> anyhow::Result<()> {
    let rates = doc! { "policy": "fair", "group_rate": { "n": 1, "per": 3_600, "burst": 2 } };
    let (world, queue) = limited(rates).await?;
    let store = world.store();
    for group in ["acme/anna", "acme/bert", ""] {
        let granted = store.take_starts(&queue, Some(group), 5).await?;
        assert!(granted.starts == 2 && granted.next.is_some(), "{group}: {granted:?}");
        assert_eq!(store.take_starts(&queue, Some(group), 1).await?.starts, 0, "{group}");
        store.return_starts(&granted, 1).await?;
        assert_eq!(store.take_starts(&queue, Some(group), 5).await?.starts, 1, "{group}");
    }
    let unlimited = store.take_starts(&queue, None, 1_000).await?;
    assert_eq!((unlimited.starts, unlimited.next), (1_000, None), "the queue as a whole has no rate");
    world.end().await
}

#[tokio::test]
async fn a_claim_that_is_given_back_gives_the_start_of_its_group_back() -> anyhow::Result<()> {
    let rates = doc! { "policy": "fair", "group_rate": { "n": 1, "per": 3_600, "burst": 2 } };
    let (world, queue) = limited(rates).await?;
    let (store, den) = (world.store(), claimant("n1"));
    let options = TaskOptions { group: Some("acme".to_owned()), ..TaskOptions::default() };
    store.submit_tasks(queue.id, vec![doc! {}; 3], &options).await?;
    let batch = store.claim_tasks(&queue, &den, &[0, 1, 2], &mut Ahead::default()).await?;
    assert_eq!((batch.claims.len(), batch.grants.len()), (2, 2));
    let granted =
        batch.grants.get(&batch.claims[0].task).context("nothing is said of what it was granted")?;
    store.unclaim_task(&batch.claims[0], "a test").await?;
    store.return_starts(granted, 1).await?;
    let again = store.claim_tasks(&queue, &den, &[3, 4], &mut Ahead::default()).await?;
    assert_eq!(again.claims.len(), 1, "one start was given back");
    world.end().await
}

#[tokio::test]
async fn a_task_that_waits_for_a_rate_is_told_when_it_allows_a_start() -> anyhow::Result<()> {
    let (world, queue) = limited(doc! { "rate": { "n": 1, "per": 3_600 } }).await?;
    let store = world.store();
    let task = world.submit(queue.id, vec![doc! {}]).await?[0];
    let gate = async || {
        let facts = store.facts_of_task(task).await?.context("no task")?;
        let gates = explain(&facts, Reader::OfAll).gates;
        gates.into_iter().find(|gate| gate.name == "queue_rate").context("no gate")
    };
    let open = gate().await?;
    assert!(open.open && open.text.ends_with(", 1 in 3600 s, allows 1 start now."), "{open:?}");
    assert_eq!(store.take_starts(&queue, None, 1).await?.starts, 1);
    let closed = gate().await?;
    assert!(!closed.open && closed.text.contains("allows the next start in"), "{closed:?}");
    world.end().await
}

#[tokio::test]
async fn rates_are_set_and_shown_by_the_api() -> anyhow::Result<()> {
    let (world, queue) = limited(doc! {}).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (path, details) = (format!("/queues/{}", queue.id), format!("/queues/{}?.details=1", queue.id));
    assert_eq!(dci.get(&details).await?.get("rate_now"), None);
    dci.posted(&path, &json!({ "rate": { "n": 5, "per": 3600, "burst": 3 } })).await?;
    let shown = dci.get(&details).await?;
    assert_eq!(shown["rate"], json!({ "n": 5, "per": 3600, "burst": 3 }));
    assert_eq!(shown["rate_now"], json!({ "allowed": 3, "next_in": null }));
    let limited = crate::claims::queue(&world, queue.id).await?;
    assert_eq!(world.store().take_starts(&limited, None, 9).await?.starts, 3);
    let shown = dci.get(&details).await?;
    let next = shown["rate_now"]["next_in"].as_f64().context(shown.to_string())?;
    assert!(shown["rate_now"]["allowed"] == 0 && (1.0..=720.0).contains(&next), "{shown}");
    for (wrong, about) in [
        (json!({ "rate": { "n": 0, "per": 1 } }), "rate.n must be an integer from 1 to 100000"),
        (json!({ "rate.n": 5 }), "rate must be an object with n and per"),
        (json!({ "rate": { "n": 1, "per": 1, "each": 1 } }), "rate must be an object with any of"),
        (json!({ "group_rate": { "n": 1, "per": 1 } }), "group_rate must be of a queue whose policy is"),
    ] {
        let (status, answer) = dci.post(&path, &wrong).await?;
        let said = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && said.starts_with(about), "{wrong}: {status} {answer}");
    }
    dci.posted(&path, &json!({ "rate": null })).await?;
    assert_eq!(dci.get(&details).await?["rate"], Value::Null);
    world.end().await
}

/// When a task was claimed, by the server's clock, in milliseconds since 1970.
fn claimed_at(task: &Document) -> anyhow::Result<i64> {
    let history = || task.get_array("history").map(|all| all.iter().filter_map(Bson::as_document));
    let with = |status: i64, entry: &&Document| entry.get("status").and_then(whole_number) == Some(status);
    // Or started by its claim.
    let claim = history()?.rfind(|entry| with(-1, entry)).or(history()?.rfind(|entry| with(0, entry)));
    let claim = claim.context("it was not claimed")?;
    Ok(claim.get_datetime("at")?.timestamp_millis())
}

/// When the tasks of a queue were claimed, in order. All must have succeeded.
async fn claim_times(world: &World, queue: QueueId) -> anyhow::Result<Vec<i64>> {
    let tasks = world.until_all_ended(queue).await?;
    ensure!(tasks.iter().all(|task| task.get("status").and_then(whole_number) == Some(1)), "{tasks:?}");
    let mut times = tasks.iter().map(claimed_at).collect::<anyhow::Result<Vec<i64>>>()?;
    times.sort_unstable();
    Ok(times)
}

/// The most that were claimed within so many milliseconds.
fn most_within(times: &[i64], millis: i64) -> usize {
    let from = |from: &i64| times.iter().filter(|at| (*from..*from + millis).contains(*at)).count();
    times.iter().map(from).max().unwrap_or(0)
}

#[tokio::test]
async fn four_dens_together_start_no_more_than_the_rate() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 16).await?;
    world.update_queue(queue, doc! { "rate": { "n": 10, "per": 1, "burst": 2 } }).await?;
    let nodes = world.database().collection::<Document>("nodes");
    let mut dens = Vec::new();
    for node in ["n1", "n2", "n3", "n4"] {
        nodes.insert_one(doc! { "node": node, "maxthreads": 4 }).await?;
        dens.push(world.den_at_work(node).await?);
    }
    world.submit(queue, vec![doc! {}; 40]).await?;
    let times = claim_times(&world, queue).await?;
    let span = times[times.len() - 1] - times[0];
    // 38 intervals of 100 ms, less what the first claim took.
    assert!(span >= 3_300, "all were claimed within {span} ms");
    // Between what was granted and its claim there is a moment.
    assert!(most_within(&times, 1_000) <= 10 * 2 + 2, "{times:?}");
    drop(dens);
    world.end().await
}

#[tokio::test]
async fn a_den_wakes_when_the_rate_allows_the_next_start() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 10).await?;
    world.update_queue(queue, doc! { "rate": { "n": 4, "per": 1 } }).await?;
    let _den = world.den_at_work("n1").await?;
    world.submit(queue, vec![doc! {}; 13]).await?;
    let times = claim_times(&world, queue).await?;
    let span = times[times.len() - 1] - times[0];
    // A start each 250 ms. With looks alone, of which there is one a second, it would take twelve seconds.
    assert!((2_500..9_000).contains(&span), "{times:?}");
    world.end().await
}

#[tokio::test]
async fn a_node_takes_on_work_no_faster_than_it_may() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "node_increase": 3 }))?;
    let queue = world.script_queue(QUICK, 20).await?;
    let _den = world.den_at_work("n1").await?;
    world.submit(queue, vec![doc! {}; 12]).await?;
    let times = claim_times(&world, queue).await?;
    assert!(most_within(&times, 990) <= 3, "{times:?}");
    let span = times[times.len() - 1] - times[0];
    assert!((2_900..9_000).contains(&span), "{times:?}");
    world.end().await
}

#[tokio::test]
async fn each_queue_of_a_node_grows_no_faster_than_it_may() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "queue_increase": 2 }))?;
    let first = world.script_queue(QUICK, 20).await?;
    let second = world.queue(QUICK.name, doc! { "threads": 20 }).await?;
    let _den = world.den_at_work("n1").await?;
    for queue in [first, second] {
        world.submit(queue, vec![doc! {}; 6]).await?;
    }
    let (first, second) = (claim_times(&world, first).await?, claim_times(&world, second).await?);
    for times in [&first, &second] {
        assert!(most_within(times, 990) <= 2, "{times:?}");
        let span = times[times.len() - 1] - times[0];
        assert!((1_900..7_000).contains(&span), "{times:?}");
    }
    assert!(first[0] < second[5] && second[0] < first[5], "they do not wait for each other");
    world.end().await
}

#[tokio::test]
async fn each_group_of_a_fair_queue_keeps_to_its_rate() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 10).await?;
    let rate = doc! { "n": 1, "per": 3_600, "burst": 2 };
    world.update_queue(queue, doc! { "policy": "fair", "group_rate": rate }).await?;
    let ids = world.submit(queue, vec![doc! {}; 10]).await?;
    for (id, group) in ids.into_iter().zip(["acme/anna", "acme/bert"].into_iter().cycle()) {
        world.set(id, doc! { "group": group }).await?;
    }
    let _den = world.den("n1")?;
    let ended = |group: &'static str| world.count(queue, doc! { "group": group, "status": 1 });
    eventually("two tasks of each group", || async {
        let (anna, bert) = futures::try_join!(ended("acme/anna"), ended("acme/bert"))?;
        Ok((anna == 2 && bert == 2).then_some(()))
    })
    .await?;
    always("no other task starts", Duration::from_secs(2), || async {
        Ok(world.count(queue, doc! { "status": -2 }).await? == 6)
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_den_wakes_when_the_rate_of_a_group_allows_the_next_start() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 10).await?;
    world.update_queue(queue, doc! { "policy": "fair", "group_rate": { "n": 4, "per": 1 } }).await?;
    for id in world.submit(queue, vec![doc! {}; 11]).await? {
        world.set(id, doc! { "group": "acme" }).await?;
    }
    let _den = world.den("n1")?;
    let times = claim_times(&world, queue).await?;
    let span = times[times.len() - 1] - times[0];
    // A start each 250 ms; with looks alone it would take ten seconds.
    assert!((2_200..8_000).contains(&span), "{times:?}");
    world.end().await
}
