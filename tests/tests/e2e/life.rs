//! What may happen to a task between its start and its end: retries, cancellation, timeouts, limits of time.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use disbatch_core::model::{NodeName, QueueId, Selector, TaskId};
use disbatch_core::node::{Draining, NodeChange};
use disbatch_core::task::{CancelRequest, Cancelled, Retried};
use disbatch_tests::{Script, World, always, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::metrics::looks;

/// Prints its attempt, and fails until the third.
const THIRD_TIME: Script<'_> = Script {
    name: "ThirdTime",
    text: "#!/bin/sh\necho \"attempt $DISBATCH_ATTEMPT\"\n[ \"$DISBATCH_ATTEMPT\" -ge 3 ]\n",
};

/// Says that it works, and goes on until it is killed.
const ENDLESS: Script<'_> =
    Script { name: "Endless", text: "#!/bin/sh\necho started\nwhile :; do sleep 0.1; done\n" };

fn quick() -> Document {
    doc! { "base": 0.05, "factor": 1, "jitter": 0 }
}

async fn attempts(world: &World, task: TaskId) -> anyhow::Result<Vec<Document>> {
    Ok(world.store().list_attempts(task).await?)
}

/// Without -1: a task for which a runner is ready is started when it is claimed.
fn statuses(task: &Document) -> anyhow::Result<Vec<i32>> {
    let entries = task.get_array("history")?.iter().filter_map(Bson::as_document);
    let statuses = entries.map(|entry| Ok(entry.get_i32("status")?)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(statuses.into_iter().filter(|status| *status != -1).collect())
}

fn last_note(task: &Document) -> anyhow::Result<String> {
    let last = task.get_array("history")?.last().and_then(Bson::as_document).cloned().unwrap_or_default();
    Ok(last.get_str("note")?.to_owned())
}

fn request() -> CancelRequest {
    CancelRequest { by: "a test".to_owned(), reason: Some("enough".to_owned()) }
}

async fn until_printed(world: &World, task: TaskId, text: &str) -> anyhow::Result<()> {
    eventually("output while it runs", || async {
        let (stdout, _) = world.live(task, 1).await?;
        Ok((stdout == text.as_bytes()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_failed_task_is_tried_again_and_its_earlier_outputs_are_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(THIRD_TIME, 1).await?;
    world.update_queue(queue, doc! { "max_attempts": 5, "backoff": quick() }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!(task.get_str("stdout")?, "attempt 3\n");
    assert_eq!(
        (task.get_i64("attempt").or(task.get_i32("attempt").map(i64::from))?, task.get_i32("failures")?),
        (3, 2)
    );
    assert_eq!(statuses(&task)?, [0, -7, -2, 0, -7, -2, 0, 1]);
    for gone in ["slot", "lease_until", "instance", "pid"] {
        assert!(!task.contains_key(gone), "{gone} belongs to a run: {task}");
    }
    let kept = attempts(&world, ids[0]).await?;
    let outputs: Vec<&str> =
        kept.iter().map(|attempt| attempt.get_str("stdout")).collect::<Result<_, _>>()?;
    assert_eq!(outputs, ["attempt 1\n", "attempt 2\n"]);
    assert!(kept.iter().all(|attempt| attempt.get_i32("status").ok() == Some(2)));
    let exit = task.get_document("exit")?;
    assert_eq!(exit.get_i32("code")?, 0);
    assert!(exit.get_f64("duration")? > 0.0 && exit.get_i64("peak_memory")? > 100_000, "{exit}");
    world.end().await
}

#[tokio::test]
async fn attempts_are_used_up_and_a_retry_by_hand_starts_anew() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(THIRD_TIME, 1).await?;
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": quick() }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], 2).await?;
    assert_eq!(task.get_str("stdout")?, "attempt 2\n");
    let store = world.store();
    let both = futures::join!(store.retry_task(ids[0], "once"), store.retry_task(ids[0], "twice"));
    let queued = [both.0?, both.1?].iter().filter(|retried| **retried == Retried::Queued).count();
    assert_eq!(queued, 1, "of two at the same time, one does it");
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!(task.get_str("stdout")?, "attempt 3\n");
    assert_eq!(attempts(&world, ids[0]).await?.len(), 2);
    world.end().await
}

#[tokio::test]
async fn a_status_of_the_plugins_own_is_final() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho '{\"status\": 7}' >&3\n";
    let queue = world.script_queue(Script { name: "Seven", text }, 1).await?;
    world.update_queue(queue, doc! { "max_attempts": 5, "backoff": quick() }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], 7).await?;
    assert_eq!(statuses(&task)?, [0, 7]);
    world.end().await
}

#[tokio::test]
async fn a_task_that_waits_is_cancelled_at_once_and_never_runs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 0).await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    assert_eq!(world.store().cancel_task(ids[0], &request()).await?, Cancelled::Cancelled);
    let task = world.task(ids[0]).await?;
    assert_eq!(task.get_i32("status")?, -5);
    assert_eq!(last_note(&task)?, "cancelled by a test: enough");
    let again = world.store().cancel_task(ids[0], &request()).await?;
    assert!(matches!(again, Cancelled::Ended(_)), "{again:?}");
    let unknown = TaskId(bson::oid::ObjectId::new());
    assert_eq!(world.store().cancel_task(unknown, &request()).await?, Cancelled::NoSuchTask);
    world.end().await
}

#[tokio::test]
async fn a_running_task_is_cancelled_within_moments_and_keeps_its_output() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    until_printed(&world, ids[0], "started\n").await?;
    let asked = Instant::now();
    assert_eq!(world.store().cancel_task(ids[0], &request()).await?, Cancelled::Requested);
    let task = world.until_status(ids[0], -3).await?;
    // The lease is renewed every ten seconds, so somebody has told the runner.
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(task.get_str("stdout")?, "started\n");
    assert!(task.get_bool("complete")?);
    let exit = task.get_document("exit")?;
    assert_eq!((exit.get_i32("signal")?, exit.get_str("reason")?), (15, "cancel"));
    assert_eq!(task.get_document("cancel")?.get_str("reason")?, "enough");
    let live = world.database().collection::<Document>("tasks.live");
    eventually("what was shown meanwhile to be removed", || async {
        Ok((live.count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_task_of_a_den_that_has_been_replaced_can_be_cancelled() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let den = world.den("n1")?;
    until_printed(&world, ids[0], "started\n").await?;
    den.end_with(Signal::SIGKILL).await?;
    let _successor = world.den_at_work("n1").await?;
    let asked = Instant::now();
    world.store().cancel_task(ids[0], &request()).await?;
    world.until_status(ids[0], -3).await?;
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    world.end().await
}

#[tokio::test]
async fn a_timeout_ends_a_plugin_that_does_not_listen() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\ntrap 'echo no' TERM\necho started\nwhile :; do sleep 0.1; done\n";
    let queue = world.script_queue(Script { name: "Deaf", text }, 1).await?;
    world.update_queue(queue, doc! { "timeout": 0.5, "grace": 0.5 }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], -3).await?;
    assert_eq!(task.get_str("stdout")?, "started\nno\n");
    let exit = task.get_document("exit")?;
    assert_eq!((exit.get_i32("signal")?, exit.get_str("reason")?), (9, "timeout"));
    assert!(exit.get_f64("duration")? >= 0.9, "{exit}");
    assert_eq!(last_note(&task)?, "it took longer than its timeout");
    world.end().await
}

#[tokio::test]
async fn a_deadline_ends_tasks_that_run_and_those_that_wait() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ENDLESS, 1).await?;
    // They are not to be made while tasks wait for their deadlines.
    world.store().ensure_indexes().await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    // Theirs are not the same, or the second might be begun with when the first has just ended.
    for (id, seconds) in [(ids[0], 5), (ids[1], 3)] {
        let deadline = world.store().now().timestamp_millis() + seconds * 1_000;
        world.set(id, doc! { "deadline": bson::DateTime::from_millis(deadline) }).await?;
    }
    let _den = world.den("n1")?;
    let ended = eventually("both to end", || async {
        let ended = [world.status(ids[0]).await?, world.status(ids[1]).await?];
        Ok(ended.iter().all(|status| *status < -2).then_some(ended))
    })
    .await?;
    assert_eq!(ended, [-3, -5], "the one that ran was terminated, the other cancelled");
    world.end().await
}

#[tokio::test]
async fn a_paused_queue_and_a_draining_node_claim_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(THIRD_TIME, 2).await?;
    world.update_queue(queue, doc! { "paused": true }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den_at_work("n1").await?;
    let waits = || async { Ok(world.status(ids[0]).await? == -2) };
    always("a paused queue waits", Duration::from_secs(2), waits).await?;
    let node = Selector::Name("n1".to_owned());
    let draining = |draining| NodeChange { draining: Some(draining), ..NodeChange::default() };
    world.store().update_node(&node, draining(Draining::Yes)).await?;
    eventually("the node to say so", || async {
        let entry = world.store().find_node(&node).await?.unwrap_or_default();
        Ok((entry.get_str("state").ok() == Some("draining")).then_some(()))
    })
    .await?;
    world.update_queue(queue, doc! { "paused": false }).await?;
    always("a draining node waits", Duration::from_secs(2), waits).await?;
    world.store().update_node(&node, draining(Draining::No)).await?;
    world.until_status(ids[0], 2).await?;
    world.end().await
}

#[tokio::test]
async fn a_den_that_is_told_to_drain_stays_until_its_tasks_have_ended() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": 0 } }))?;
    let gate = world.path().join("gate");
    let text = format!("#!/bin/sh\nuntil [ -e {} ]; do sleep 0.05; done\necho through\n", gate.display());
    let queue = world.script_queue(Script { name: "Gate", text: &text }, 1).await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    let den = world.den_with("n1", &["--drain"])?;
    eventually("one to run", || async {
        Ok((world.count(queue, doc! { "status": 0 }).await? == 1).then_some(()))
    })
    .await?;
    den.signal(Signal::SIGTERM)?;
    eventually("the DEN to wait", || async {
        Ok(den.log()?.contains("waiting for running tasks to end").then_some(()))
    })
    .await?;
    // By that it is told whether it is well.
    let before = looks(&den).await?;
    eventually("it to look again", || async { Ok((looks(&den).await? > before).then_some(())) }).await?;
    std::fs::write(gate, "")?;
    eventually("it to end", || async { Ok(den.log()?.contains("ended; running tasks").then_some(())) })
        .await?;
    let ended = [world.status(ids[0]).await?, world.status(ids[1]).await?];
    assert!(ended.contains(&1) && ended.contains(&-2), "one ran to its end, the other waits: {ended:?}");
    let node = world.store().find_node(&Selector::Name("n1".to_owned())).await?.unwrap_or_default();
    assert_eq!(node.get_str("state")?, "stopped");
    world.end().await
}

/// Of so many who claim at once, no more get a task than there are places.
#[tokio::test]
async fn a_place_of_a_queue_is_given_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let id: QueueId = world.script_queue(ENDLESS, 5).await?;
    world.submit(id, vec![doc! {}; 60]).await?;
    let queue = world.store().find_queue(&Selector::Id(id.0)).await?.expect("it was made");
    let claim = |number: u64| {
        let (store, queue) = (world.store(), queue.clone());
        let claimant = disbatch_core::task::Claimant {
            node: NodeName::new(format!("n{number}")),
            instance: number.to_string(),
            lease: Some(Duration::from_secs(60)),
            fence: None,
        };
        let holder = disbatch_core::slots::Holder::drawn();
        async move {
            let mut got = 0;
            let mut ahead = disbatch_core::task::Ahead::default();
            for slot in 0..5 {
                let place = (slot + number) % 5;
                let held = store.hold_slots(queue.id, (holder, &claimant.node), &[place]).await?;
                got += store.claim_tasks(&queue, &claimant, &held, &mut ahead).await?.claims.len();
            }
            anyhow::Ok(got)
        }
    };
    let got = futures::future::try_join_all((0..40).map(claim)).await?;
    assert_eq!(got.iter().sum::<usize>(), 5, "{got:?}");
    assert_eq!(world.count(id, doc! { "status": -1 }).await?, 5);
    world.end().await
}
