//! Steps of several processes in the orders in which they would do harm. Here the operations themselves are called, as runners,
//! DENs and web servers do. Where one of them is to stand still or to die, its way to the database leads through the test.

use std::time::Duration;

use anyhow::{Context, bail};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::callbacks::{Heard, LogSweep, MOST_CALLS, Report, Token};
use disbatch_core::model::{QueueId, Status, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{
    Ahead, Buried, CancelRequest, Cancelled, Detached, Evidence, Finished, Renewed, Run, Started, Wishes,
};
use disbatch_tests::{World, eventually};
use futures::TryStreamExt;

use super::{external, note, pieces, until_no_pieces};
use crate::claims::{LEASE, claimant, enlarge, queue, start, success};
use crate::detour::Held;

/// How long a service may be silent.
const SILENCE: Duration = Duration::from_secs(600);

/// The largest document of a collection in bytes.
const LARGEST: usize = 16 * 1024 * 1024;

/// What the update says that lets a task wait for its next attempt, and nothing before it.
const LETS_WAIT: &str = "to be tried again";

struct Scene {
    world: World,
    store: Store,
    queue: QueueId,
}

/// A task that was begun, and what its web service shows.
struct Given {
    task: TaskId,
    run: Run,
    token: Token,
}

impl Scene {
    async fn new(fields: Document) -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let mut all = doc! { "threads": 10 };
        all.extend(fields);
        let queue = world.queue("Web", all).await?;
        let store = world.store();
        Ok(Self { world, store, queue })
    }

    /// With tasks that are tried twice.
    async fn of_two_attempts() -> anyhow::Result<Self> {
        let backoff = doc! { "base": 3600, "factor": 1, "jitter": 0 };
        Self::new(doc! { "max_attempts": 2, "backoff": backoff }).await
    }

    /// Begins with the task that waits.
    async fn begin(&self) -> anyhow::Result<Run> {
        let queue = queue(&self.world, self.queue).await?;
        let batch = self.store.claim_tasks(&queue, &claimant("n1"), &[0], &mut Ahead::default()).await?;
        let claim = batch.claims.first().context("nothing waits")?;
        match self.store.start_task(&start(claim, &self.store, 1)).await? {
            Started::Running(_, run) => {
                assert_eq!(run, claim.run());
                Ok(run)
            }
            Started::NotClaimed => bail!("it is not claimed"),
        }
    }

    async fn register(&self, run: Run) -> anyhow::Result<Given> {
        let token = Token::new()?;
        assert!(self.store.register_external(&run, &token.fingerprint(), SILENCE).await?);
        Ok(Given { task: run.task, run, token })
    }

    /// A new task, of which its service is about to be told.
    async fn registered(&self) -> anyhow::Result<Given> {
        self.world.submit(self.queue, vec![doc! {}]).await?;
        let run = self.begin().await?;
        self.register(run).await
    }

    /// A new task that its service has.
    async fn handed_over(&self) -> anyhow::Result<Given> {
        let given = self.registered().await?;
        assert_eq!(self.store.detach_external(&given.run).await?, Detached::Done);
        Ok(given)
    }

    /// The next attempt of a task that waits for it.
    async fn begin_again(&self, task: TaskId) -> anyhow::Result<Run> {
        self.world.until_status(task, -7).await?;
        self.world.set(task, doc! { "run_at": DateTime::from_millis(1_000) }).await?;
        assert_eq!(self.store.sweep_tasks().await?.due, 1);
        self.begin().await
    }

    async fn log(&self, given: &Given, text: &str) -> anyhow::Result<Heard> {
        Ok(self.store.callback_log(given.task, &given.token, text.as_bytes().to_vec()).await?)
    }

    async fn says(&self, given: &Given, status: Status, message: &str) -> anyhow::Result<Heard> {
        Ok(self.store.callback_status(given.task, &given.token, report(status, message)).await?)
    }

    /// What any DEN does about a task whose lease is over.
    async fn lapse(&self, task: TaskId) -> anyhow::Result<()> {
        let running = doc! { "_id": task, "status": 0 };
        let past = doc! { "$set": { "lease_until": DateTime::from_millis(1_000) } };
        self.world.tasks().update_one(running, past).await?;
        for found in self.store.expired_runs().await? {
            self.store.end_lapsed_external(&found).await?;
        }
        Ok(())
    }

    /// The ids of all files of output.
    async fn files(&self) -> anyhow::Result<Vec<ObjectId>> {
        let files = self.world.database().collection::<Document>("tasks.files");
        let found: Vec<Document> = files.find(doc! {}).await?.try_collect().await?;
        Ok(found.iter().filter_map(|file| file.get_object_id("_id").ok()).collect())
    }

    async fn content(&self, file: ObjectId) -> anyhow::Result<String> {
        let pieces: Vec<Vec<u8>> = self.store.read_output(file).await?.try_collect().await?;
        Ok(String::from_utf8(pieces.concat())?)
    }

    /// Makes a task so large that no more than so many bytes fit.
    async fn fill(&self, task: TaskId, left: usize) -> anyhow::Result<()> {
        self.world.set(task, doc! { "params": "" }).await?;
        let size = bson::serialize_to_vec(&self.world.task(task).await?)?.len();
        enlarge(&self.world, task, left + size).await?;
        assert_eq!(bson::serialize_to_vec(&self.world.task(task).await?)?.len(), LARGEST - left);
        Ok(())
    }
}

fn report(status: Status, message: &str) -> Report {
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    Report { status, message, result: None }
}

fn request() -> CancelRequest {
    CancelRequest { by: "a test".to_owned(), reason: None }
}

#[tokio::test]
async fn what_an_earlier_attempt_has_come_to_does_not_end_a_later_one() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let first = scene.handed_over().await?;
    assert_eq!(scene.says(&first, Status::Failed, "no disk").await?, Heard::Done);
    assert_eq!(scene.says(&first, Status::Failed, "no disk").await?, Heard::Done, "the same again");
    let run = scene.begin_again(first.task).await?;
    assert_eq!(run.attempt, 2);
    // Its files are being brought, so nothing is registered yet; and the service has had no answer in time.
    assert_eq!(scene.says(&first, Status::Failed, "no disk").await?, Heard::Over);
    assert!(matches!(
        scene.store.renew_lease(&run, LEASE).await?,
        Renewed::Held(Wishes { cancel: false, .. })
    ));
    let second = scene.register(run).await?;
    assert_eq!(scene.says(&first, Status::Failed, "no disk").await?, Heard::Over);
    assert_eq!(scene.store.detach_external(&second.run).await?, Detached::Done);
    assert_eq!(scene.says(&second, Status::Succeeded, "").await?, Heard::Done);
    assert_eq!(scene.world.status(first.task).await?, 1);
    scene.world.end().await
}

#[tokio::test]
async fn whoever_completes_what_was_noted_leaves_a_later_attempt_alone() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let way = Held::at(&scene.world, LETS_WAIT).await?;
    let first = scene.handed_over().await?;
    let (slow, task, token) = (way.store.clone(), first.task, first.token.clone());
    let late =
        tokio::spawn(
            async move { slow.callback_status(task, &token, report(Status::Failed, "no disk")).await },
        );
    way.reached().await?;
    assert_eq!(scene.says(&first, Status::Failed, "no disk").await?, Heard::Done);
    let run = scene.begin_again(task).await?;
    way.release();
    assert_eq!(late.await??, Heard::Done);
    assert!(matches!(
        scene.store.renew_lease(&run, LEASE).await?,
        Renewed::Held(Wishes { cancel: false, .. })
    ));
    assert_eq!(scene.store.finish_task(&run, &success("done\n")).await?, Finished::Stored);
    assert_eq!(scene.store.list_attempts(task).await?.len(), 1);
    scene.world.end().await
}

#[tokio::test]
async fn a_cancel_keeps_a_failure_that_is_being_put_together_from_being_tried_again() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let way = Held::at(&scene.world, LETS_WAIT).await?;
    let given = scene.handed_over().await?;
    assert_eq!(scene.log(&given, "half\n").await?, Heard::Done);
    let (slow, task, token) = (way.store.clone(), given.task, given.token.clone());
    let ending =
        tokio::spawn(
            async move { slow.callback_status(task, &token, report(Status::Failed, "no disk")).await },
        );
    way.reached().await?;
    assert_eq!(scene.store.cancel_task(task, &request()).await?, Cancelled::Requested);
    assert_eq!(scene.store.cancel_task(task, &request()).await?, Cancelled::Requested, "twice");
    way.release();
    assert_eq!(ending.await??, Heard::Done);
    let ended = scene.world.task(task).await?;
    assert_eq!((ended.get_i32("status")?, ended.get_str("stdout")?), (2, "half\n"), "{ended}");
    assert_eq!(ended.get_document("cancel")?.get_str("by")?, "a test");
    assert_eq!(scene.store.list_attempts(task).await?, Vec::<Document>::new());
    assert!(matches!(scene.store.cancel_task(task, &request()).await?, Cancelled::Ended(_)));
    scene.world.end().await
}

#[tokio::test]
async fn a_cancel_is_kept_where_whoever_made_the_end_has_died() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let given = scene.handed_over().await?;
    let end = doc! { "status": 2, "reason": "service", "message": "no disk", "at": scene.store.now() };
    scene.world.set(given.task, doc! { "external.end": end }).await?;
    assert_eq!(scene.store.cancel_task(given.task, &request()).await?, Cancelled::Requested);
    scene.lapse(given.task).await?;
    assert_eq!(scene.world.status(given.task).await?, 2);
    scene.world.end().await
}

#[tokio::test]
async fn a_cancel_that_crosses_the_handing_over_is_kept_whoever_dies() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    // An update that notes an end, and a type before a name is that of null: no end was noted before.
    let way = Held::at(&scene.world, "\nexternal.end").await?;
    let given = scene.registered().await?;
    assert_eq!(scene.store.cancel_task(given.task, &request()).await?, Cancelled::Requested);
    let (slow, run) = (way.store.clone(), given.run.clone());
    let runner = tokio::spawn(async move { slow.detach_external(&run).await });
    eventually("the task to be handed over", || async {
        Ok(external(&scene.world.task(given.task).await?).contains_key("since").then_some(()))
    })
    .await?;
    runner.abort();
    scene.lapse(given.task).await?;
    let ended = scene.world.until_status(given.task, -3).await?;
    assert_eq!(note(&ended), "cancelled", "{ended}");
    scene.world.end().await
}

#[tokio::test]
async fn a_cancel_is_kept_where_a_task_is_left_to_its_service() -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let given = scene.registered().await?;
    assert_eq!(scene.log(&given, "begun\n").await?, Heard::Done);
    let read = scene.store.find_task(given.task).await?.context("no task")?;
    assert_eq!(scene.store.cancel_task(given.task, &request()).await?, Cancelled::Requested);
    let buried = scene.store.bury(&read, Evidence::ProcessGone, "it died").await?;
    assert_eq!(buried, Buried::LeftToService);
    let ended = scene.world.until_status(given.task, -3).await?;
    assert_eq!((ended.get_str("stdout")?, note(&ended)), ("begun\n", "cancelled".to_owned()));
    scene.world.end().await
}

#[tokio::test]
async fn a_registration_that_comes_late_forgets_nothing() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.registered().await?;
    for line in ["one\n", "two\n"] {
        assert_eq!(scene.log(&given, line).await?, Heard::Done);
    }
    let fingerprint = given.token.fingerprint();
    assert!(scene.store.register_external(&given.run, &fingerprint, SILENCE).await?, "it is done");
    assert!(external(&scene.world.task(given.task).await?).get_bool("called")?);
    assert_eq!(scene.log(&given, "three\n").await?, Heard::Done);
    assert_eq!(scene.says(&given, Status::Succeeded, "").await?, Heard::Done);
    assert_eq!(scene.world.task(given.task).await?.get_str("stdout")?, "one\ntwo\nthree\n");
    assert!(!scene.store.register_external(&given.run, &fingerprint, SILENCE).await?, "it is over");
    scene.world.end().await
}

#[tokio::test]
async fn a_run_ends_its_task_only_when_its_service_can_say_nothing_more() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let silent = scene.registered().await?;
    for _ in 0..2 {
        assert!(scene.store.withdraw_external(&silent.run).await?);
        assert_eq!(scene.log(&silent, "late\n").await?, Heard::Over);
    }
    assert!(scene.store.register_external(&silent.run, &silent.token.fingerprint(), SILENCE).await?);
    assert_eq!(scene.log(&silent, "late\n").await?, Heard::Over, "what comes late does not undo it");
    assert_eq!(scene.store.detach_external(&silent.run).await?, Detached::NotRunning);
    assert_eq!(scene.store.finish_task(&silent.run, &success("own\n")).await?, Finished::Stored);

    let heard = scene.registered().await?;
    assert_eq!(scene.log(&heard, "begun\n").await?, Heard::Done);
    for _ in 0..2 {
        assert!(!scene.store.withdraw_external(&heard.run).await?);
        assert_eq!(scene.log(&heard, "more\n").await?, Heard::Done);
    }
    assert_eq!(scene.store.detach_external(&heard.run).await?, Detached::Done);
    assert!(!scene.store.withdraw_external(&heard.run).await?, "it is the service's");
    assert_eq!(scene.says(&heard, Status::Succeeded, "").await?, Heard::Done);
    assert_eq!(scene.world.task(heard.task).await?.get_str("stdout")?, "begun\nmore\nmore\n");
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_service_that_refuses_after_it_has_called_back_fails_with_its_log() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.registered().await?;
    assert_eq!(scene.log(&given, "begun\n").await?, Heard::Done);
    assert!(!scene.store.withdraw_external(&given.run).await?);
    for _ in 0..2 {
        scene.store.fail_external(&given.run, "it has answered with 500").await?;
        assert_eq!(scene.store.detach_external(&given.run).await?, Detached::Ended);
    }
    let ended = scene.world.task(given.task).await?;
    assert_eq!((ended.get_i32("status")?, ended.get_str("stdout")?), (2, "begun\n"));
    assert_eq!(ended.get_str("stderr")?, "it has answered with 500\n");
    assert_eq!(scene.log(&given, "late\n").await?, Heard::Over);
    scene.world.end().await
}

#[tokio::test]
async fn of_two_who_make_the_same_failure_the_log_of_one_stays() -> anyhow::Result<()> {
    for is_cancelled in [false, true] {
        two_who_make_the_same_failure(is_cancelled).await?;
    }
    Ok(())
}

async fn two_who_make_the_same_failure(is_cancelled: bool) -> anyhow::Result<()> {
    let scene = Scene::of_two_attempts().await?;
    let way = Held::at(&scene.world, LETS_WAIT).await?;
    let given = scene.handed_over().await?;
    let piece = "x".repeat(700_000);
    for _ in 0..2 {
        assert_eq!(scene.log(&given, &piece).await?, Heard::Done);
    }
    let (slow, task, token) = (way.store.clone(), given.task, given.token.clone());
    // It has kept the attempt, with its file, and the other one is faster.
    let late =
        tokio::spawn(
            async move { slow.callback_status(task, &token, report(Status::Failed, "no disk")).await },
        );
    way.reached().await?;
    assert_eq!(scene.says(&given, Status::Failed, "no disk").await?, Heard::Done);
    assert_eq!(scene.world.status(task).await?, -7);
    if is_cancelled {
        // It keeps the number of that attempt.
        let request = CancelRequest { by: "a test".to_owned(), reason: None };
        assert_eq!(scene.store.cancel_task(task, &request).await?, Cancelled::Cancelled);
    }
    way.release();
    assert_eq!(late.await??, Heard::Done);
    let attempts = scene.store.list_attempts(task).await?;
    assert_eq!(attempts.len(), 1);
    let kept = attempts[0].get_object_id("stdout")?;
    assert_eq!(scene.files().await?, [kept], "one file, which the attempt refers to");
    assert_eq!(scene.content(kept).await?, piece.repeat(2));
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_log_that_the_task_has_no_room_for_is_in_a_file() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.handed_over().await?;
    let text = "é☃x\n".repeat(100_000);
    assert_eq!(scene.log(&given, &text).await?, Heard::Done);
    scene.fill(given.task, 500_000).await?;
    assert_eq!(scene.says(&given, Status::Succeeded, "").await?, Heard::Done);
    let ended = scene.world.task(given.task).await?;
    assert_eq!((ended.get_i32("status")?, ended.get_bool("complete")?), (1, true));
    let file = ended.get_object_id("stdout")?;
    assert_eq!(scene.content(file).await?, text);
    assert_eq!(scene.files().await?, [file]);
    scene.world.end().await
}

#[tokio::test]
async fn a_task_without_room_ends_all_the_same() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    for left in [64, 20_000] {
        let given = scene.handed_over().await?;
        scene.fill(given.task, left).await?;
        assert_eq!(scene.says(&given, Status::Failed, &"x".repeat(60_000)).await?, Heard::Done);
        assert_eq!(scene.world.status(given.task).await?, 2, "with {left} bytes");
        // Somebody wants the end, or nothing is heard.
        let given = scene.handed_over().await?;
        scene.fill(given.task, left).await?;
        assert_eq!(scene.store.cancel_task(given.task, &request()).await?, Cancelled::Terminated);
        assert_eq!(scene.world.status(given.task).await?, -3, "with {left} bytes");
        let given = scene.handed_over().await?;
        scene.fill(given.task, left).await?;
        scene.lapse(given.task).await?;
        assert_eq!(scene.world.status(given.task).await?, -3, "with {left} bytes");
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_dead_run_without_room_to_be_left_to_its_service_is_buried() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.registered().await?;
    // A sign of life that takes no room.
    assert_eq!(scene.log(&given, "").await?, Heard::Done);
    assert_eq!(scene.store.cancel_task(given.task, &request()).await?, Cancelled::Requested);
    scene.fill(given.task, 32).await?;
    let read = scene.store.find_task(given.task).await?.context("no task")?;
    assert_eq!(scene.store.bury(&read, Evidence::ProcessGone, "it died").await?, Buried::Orphaned);
    scene.world.end().await
}

#[tokio::test]
async fn many_short_pieces_of_a_log_make_few_documents() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.handed_over().await?;
    let lines: Vec<String> = (0..600).map(|number| format!("{number}\n")).collect();
    for line in &lines {
        assert_eq!(scene.log(&given, line).await?, Heard::Done);
    }
    assert_eq!(pieces(&scene.world).await?, 3);
    let long_ago = DateTime::from_millis(1_000);
    scene.world.set(given.task, doc! { "external.log": MOST_CALLS, "external.heard": long_ago }).await?;
    assert_eq!(scene.log(&given, "x").await?, Heard::LogFull);
    let heard = *scene.world.task(given.task).await?.get_document("external")?.get_datetime("heard")?;
    assert!(heard > long_ago, "it is at work all the same");
    assert_eq!(scene.log(&given, "").await?, Heard::Done, "it may still say that it is at work");
    assert_eq!(scene.says(&given, Status::Succeeded, "").await?, Heard::Done);
    assert_eq!(scene.world.task(given.task).await?.get_str("stdout")?, lines.concat());
    scene.world.end().await
}

#[tokio::test]
async fn a_piece_that_comes_after_the_end_leaves_nothing() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let given = scene.handed_over().await?;
    let way = Held::at(&scene.world, "$push").await?;
    let (slow, task, token) = (way.store.clone(), given.task, given.token.clone());
    let late = tokio::spawn(async move { slow.callback_log(task, &token, b"late\n".to_vec()).await });
    way.reached().await?;
    assert_eq!(scene.says(&given, Status::Succeeded, "").await?, Heard::Done);
    way.release();
    assert_eq!(late.await??, Heard::Over, "nobody is told that it is stored");
    assert_eq!(scene.world.task(task).await?.get("stdout"), Some(&Bson::Null));
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn old_logs_of_tasks_that_run_keep_nobody_from_those_behind_them() -> anyhow::Result<()> {
    let scene = Scene::new(doc! {}).await?;
    let now = scene.store.now().timestamp_millis();
    let hours_ago = |hours: i64| DateTime::from_millis(now - hours * 3_600_000);
    let sheet = |task: ObjectId, attempt: i64, at: DateTime| {
        doc! { "task": task, "attempt": attempt, "n": 0_i64, "at": at, "pieces": [] }
    };
    let running: Vec<ObjectId> = (0..2_500).map(|_| ObjectId::new()).collect();
    let task = |id: &ObjectId| doc! { "_id": *id, "queue": scene.queue, "status": 0, "attempt": 2_i64 };
    scene.world.tasks().insert_many(running.iter().map(task)).await?;
    let mut sheets: Vec<Document> = running.iter().map(|id| sheet(*id, 2, hours_ago(48))).collect();
    // Of a task that is gone, of an earlier attempt, and one that is too young.
    sheets.extend([
        sheet(ObjectId::new(), 1, hours_ago(36)),
        sheet(running[0], 1, hours_ago(30)),
        sheet(ObjectId::new(), 1, hours_ago(1)),
    ]);
    scene.world.database().collection::<Document>("callbacks.log").insert_many(sheets).await?;
    let mut sweep = LogSweep::default();
    assert_eq!(scene.store.sweep_callback_logs(&mut sweep).await?, 0);
    assert_eq!(scene.store.sweep_callback_logs(&mut sweep).await?, 2);
    assert_eq!(pieces(&scene.world).await?, 2_501);
    for _ in 0..3 {
        assert_eq!(scene.store.sweep_callback_logs(&mut sweep).await?, 0, "from the start again");
    }
    scene.world.end().await
}
