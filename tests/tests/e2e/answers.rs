//! Tasks that wait for the answer of a person, without a runner, whoever dies meanwhile.

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::gates::LockRequest;
use disbatch_core::model::{QueueId, Status, TaskId};
use disbatch_core::task::question::{Awaiting, Question, Replied, Reply};
use disbatch_core::task::{CancelRequest, Cancelled, Finish, Finished, Pause, TaskOptions};
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::leases::{run, success};

/// Asks what `params.ask` says, and prints what it is told of the answer. Whoever has `params.sleep` in its first attempt does not end after that.
const ASKS: Script<'_> = Script {
    name: "Asks",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
task = json.load(sys.stdin)
params = task["params"]
if "answer" in task or "ask" not in params:
    print(json.dumps([task.get("answer"), task.get("storage")]))
    sys.exit()
print("asking")
control = os.open(f"/dev/fd/{os.environ['DISBATCH_CONTROL_FD']}", os.O_WRONLY)
os.write(control, json.dumps({"storage": {"step": 1}, "await": params["ask"]}).encode() + b"\n")
if params.get("sleep") and task["attempt"] == 1:
    time.sleep(600)
sys.exit(params.get("exit", 0))
"#,
};

/// A question with a form of one field.
fn question(fields: &Document) -> Document {
    let form = doc! { "properties": { "go": { "type": "boolean" } }, "required": ["go"] };
    let mut ask = doc! { "title": "Go on?", "form": form };
    ask.extend(fields.clone());
    doc! { "ask": ask }
}

async fn submit(world: &World, queue: QueueId, params: Document) -> anyhow::Result<TaskId> {
    world.submit(queue, vec![params]).await?.first().copied().context("no task")
}

async fn until_awaiting(world: &World, id: TaskId) -> anyhow::Result<Awaiting> {
    eventually(&format!("task {id} to wait for an answer"), || async {
        let task = world.store().find_task(id).await?.context("no task")?;
        Ok(Awaiting::of(&task))
    })
    .await
}

fn reply(by: &str, go: bool) -> Reply {
    let Value::Object(value) = json!({ "go": go }) else { unreachable!() };
    Reply { value, by: by.to_owned() }
}

/// What an attempt with an answer has printed.
fn told(task: &Document) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(task.get_str("stdout")?)?)
}

#[tokio::test]
async fn a_task_waits_without_a_runner_and_its_next_attempt_gets_the_answer() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let _den = world.den("n1")?;
    let asking = submit(&world, queue, question(&doc! { "who": ["ann"] })).await?;
    let awaiting = until_awaiting(&world, asking).await?;
    let task = world.task(asking).await?;
    for gone in ["slot", "lease_until", "pid", "instance", "run_at", "failures"] {
        assert!(!task.contains_key(gone), "{gone}: {task}");
    }
    assert_eq!((awaiting.title.as_str(), awaiting.attempt, awaiting.deadline), ("Go on?", 1, None));
    // The only slot is free.
    let other = submit(&world, queue, doc! {}).await?;
    world.until_status(other, 1).await?;
    let store = world.store();
    assert_eq!(store.run_now(asking, "now").await?, disbatch_core::task::Retried::NotEnded(Status::Deferred));
    let replied = store.answer_task(asking, &awaiting, &reply("ann", true)).await?;
    assert_eq!(replied, Replied::Stored(Status::Queued));
    let task = world.until_status(asking, 1).await?;
    let told = told(&task)?;
    assert_eq!((&told[0]["value"], &told[0]["by"]), (&json!({ "go": true }), &json!("ann")));
    assert_eq!(told[1], json!({ "step": 1 }), "what it had saved is there");
    assert!(!task.contains_key("awaiting") && !task.contains_key("failures"), "{task}");
    let attempts = store.list_attempts(asking).await?;
    let outcome = |field: &str| attempts[0].get(field).cloned();
    assert_eq!((attempts.len(), outcome("status")), (1, Some(Bson::Int32(-7))));
    assert_eq!((outcome("stdout"), outcome("error")), (Some("asking\n".into()), None));
    // Tried again by hand, it asks again.
    store.retry_task(asking, "again").await?;
    assert_eq!(until_awaiting(&world, asking).await?.attempt, 3);
    world.end().await
}

#[tokio::test]
async fn of_two_answers_at_once_one_wins_and_the_other_sees_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let den = world.den("n1")?;
    let store = world.store();
    for _ in 0..8 {
        let id = submit(&world, queue, question(&doc! {})).await?;
        let awaiting = until_awaiting(&world, id).await?;
        let (yes, no) = (reply("ann", true), reply("bob", false));
        let (first, second) =
            tokio::join!(store.answer_task(id, &awaiting, &yes), store.answer_task(id, &awaiting, &no));
        let (winner, loser) = match (first?, second?) {
            (Replied::Stored(_), loser) => ("ann", loser),
            (loser, Replied::Stored(_)) => ("bob", loser),
            other => anyhow::bail!("{other:?}"),
        };
        let Replied::NotAwaited(_, Some(answer)) = loser else { anyhow::bail!("{loser:?}") };
        assert_eq!(answer.get_str("by")?, winner);
        let task = world.until_status(id, 1).await?;
        assert_eq!(told(&task)?[0]["by"], json!(winner));
    }
    drop(den);
    world.end().await
}

#[tokio::test]
async fn after_its_deadline_a_task_is_cancelled_or_goes_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let _den = world.den("n1")?;
    let ended = submit(&world, queue, question(&doc! { "deadline": 0.5 })).await?;
    let task = world.until_status(ended, -5).await?;
    assert_eq!(task.get_str("error")?, "nobody has answered in time");
    assert!(!task.contains_key("awaiting") && !task.contains_key("answer"), "{task}");
    let on = question(&doc! { "deadline": 0.5, "on_deadline": "continue" });
    let on = submit(&world, queue, on).await?;
    let told = told(&world.until_status(on, 1).await?)?;
    assert_eq!((&told[0]["value"], &told[0]["by"]), (&Value::Null, &Value::Null));
    assert_eq!(told[0]["attempt"], json!(1));
    // One whose time is over is not answered, whether a DEN has seen that or not.
    let late = submit(&world, queue, question(&doc! {})).await?;
    let awaiting = until_awaiting(&world, late).await?;
    world.set(late, doc! { "awaiting.deadline": DateTime::from_millis(1_000) }).await?;
    let replied = world.store().answer_task(late, &awaiting, &reply("ann", true)).await?;
    assert_eq!(replied, Replied::NotAwaited(Status::Deferred, None));
    world.end().await
}

#[tokio::test]
async fn a_runner_that_dies_after_its_plugin_has_asked_has_not_asked() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    world.update_queue(queue, doc! { "on_orphan": "requeue", "max_attempts": 3 }).await?;
    let _den = world.den("n1")?;
    let mut params = question(&doc! {});
    params.insert("sleep", true);
    let id = submit(&world, queue, params).await?;
    let pid = eventually("the plugin to have said it", || async {
        let task = world.task(id).await?;
        let has_said = task.contains_key("storage");
        Ok(has_said.then(|| task.get_i32("pid").map(i64::from).or_else(|_| task.get_i64("pid"))))
    })
    .await??;
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
    let awaiting = until_awaiting(&world, id).await?;
    assert_eq!(awaiting.attempt, 2, "the next attempt asks");
    assert_eq!(world.store().list_attempts(id).await?[0].get_i32("status")?, -6);
    world.end().await
}

#[tokio::test]
async fn a_den_that_dies_does_not_matter_to_what_waits() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let den = world.den("n1")?;
    let id = submit(&world, queue, question(&doc! {})).await?;
    let awaiting = until_awaiting(&world, id).await?;
    den.end_with(Signal::SIGKILL).await?;
    let replied = world.store().answer_task(id, &awaiting, &reply("ann", false)).await?;
    assert_eq!(replied, Replied::Stored(Status::Queued));
    let _den = world.den("n2")?;
    let task = world.until_status(id, 1).await?;
    assert_eq!(told(&task)?[0]["value"], json!({ "go": false }));
    world.end().await
}

#[tokio::test]
async fn what_is_wrong_or_fails_does_not_wait() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let _den = world.den("n1")?;
    let wrong = submit(&world, queue, doc! { "ask": { "title": "t", "form": { "type": 5 } } }).await?;
    let task = world.until_status(wrong, 2).await?;
    let history = task.get_array("history")?;
    let note = history.last().and_then(Bson::as_document).and_then(|entry| entry.get_str("note").ok());
    assert!(note.is_some_and(|note| note.starts_with("its plugin cannot ask this: form: ")), "{note:?}");
    let mut fails = question(&doc! {});
    fails.insert("exit", 3);
    let fails = submit(&world, queue, fails).await?;
    let task = world.until_status(fails, 2).await?;
    assert!(!task.contains_key("awaiting"), "{task}");
    world.end().await
}

#[tokio::test]
async fn locks_are_given_back_while_a_task_waits_and_taken_again() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let _den = world.den("n1")?;
    let locked = |params: Document| {
        let world = &world;
        async move {
            let locks = LockRequest::list(["db"])?;
            let options = TaskOptions { locks, ..TaskOptions::default() };
            let ids = world.store().submit_tasks(queue, vec![params], &options).await?.ids;
            ids.first().copied().context("no task")
        }
    };
    let asking = locked(question(&doc! {})).await?;
    let awaiting = until_awaiting(&world, asking).await?;
    let other = locked(doc! {}).await?;
    world.until_status(other, 1).await?;
    let replied = world.store().answer_task(asking, &awaiting, &reply("ann", true)).await?;
    assert_eq!(replied, Replied::Stored(Status::Blocked));
    world.until_status(asking, 1).await?;
    world.end().await
}

#[tokio::test]
async fn a_task_that_waits_can_be_cancelled() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 1).await?;
    let _den = world.den("n1")?;
    let id = submit(&world, queue, question(&doc! { "deadline": 600 })).await?;
    let awaiting = until_awaiting(&world, id).await?;
    let request = CancelRequest { by: "bob".to_owned(), reason: None };
    assert_eq!(world.store().cancel_task(id, &request).await?, Cancelled::Cancelled);
    let replied = world.store().answer_task(id, &awaiting, &reply("ann", true)).await?;
    assert_eq!(replied, Replied::NotAwaited(Status::Cancelled, None));
    assert!(!world.task(id).await?.contains_key("awaiting"));
    world.end().await
}

#[tokio::test]
async fn an_end_whose_answer_was_lost_is_repeated_and_a_cancel_before_it_counts() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(ASKS, 0).await?;
    world.submit(queue, vec![doc! {}; 2]).await?;
    let store = world.store();
    let question = Question::parse(&json!({ "title": "Go on?" }))?;
    let asks = Finish { status: Status::Deferred, pause: Some(Pause::Ask(Box::new(question))), ..success() };
    let first = run(&world, queue, "n1").await?;
    for _ in 0..2 {
        assert_eq!(store.end_attempt(&first, &asks, Some(Duration::ZERO)).await?, Finished::Stored);
    }
    let awaiting = until_awaiting(&world, first.task).await?;
    store.answer_task(first.task, &awaiting, &reply("ann", true)).await?;
    // It has gone on, and nothing is asked twice.
    assert_eq!(store.end_attempt(&first, &asks, Some(Duration::ZERO)).await?, Finished::Stored);
    assert_eq!(world.status(first.task).await?, -2);
    world.set(first.task, doc! { "status": -99 }).await?;
    let second = run(&world, queue, "n1").await?;
    let request = CancelRequest { by: "bob".to_owned(), reason: None };
    assert_eq!(store.cancel_task(second.task, &request).await?, Cancelled::Requested);
    for _ in 0..2 {
        assert_eq!(store.end_attempt(&second, &asks, Some(Duration::ZERO)).await?, Finished::Stored);
    }
    let task = world.task(second.task).await?;
    assert_eq!(world.status(second.task).await?, -3);
    assert!(!task.contains_key("awaiting"), "{task}");
    assert!(store.list_attempts(second.task).await?.is_empty());
    world.end().await
}
