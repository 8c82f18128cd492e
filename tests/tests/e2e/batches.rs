//! Many writes at once: each has the outcome that it would have alone.

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Status, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{
    Ahead, CancelRequest, Claim, Finish, Finished, Interim, Renewed, Retried, Run, RunWrite, Start, Started,
    Wishes, Written,
};
use disbatch_tests::World;

use crate::claims::{LEASE, claimant, enlarge, queue, start, success};

const STORED: Written = Written::Finished(Finished::Stored);
const NOT_RUNNING: Written = Written::Finished(Finished::NotRunning);

struct Scene {
    world: World,
    store: Store,
    claims: Vec<Claim>,
    starts: Vec<Start>,
    runs: Vec<Run>,
}

impl Scene {
    /// So many claimed tasks.
    async fn claimed(tasks: u32) -> anyhow::Result<Self> {
        let world = World::new().await?;
        let store = world.store();
        store.ensure_indexes().await?;
        let id = world.queue("Demo", doc! { "threads": 10_000, "sort": "fifo" }).await?;
        for number in 0..tasks {
            world.submit(id, vec![doc! { "n": number }]).await?;
        }
        let queue = queue(&world, id).await?;
        let slots: Vec<u64> = (0..u64::from(tasks)).collect();
        let batch = store.claim_tasks(&queue, &claimant("n1"), &slots, &mut Ahead::default()).await?;
        let starts = (1u32..).zip(&batch.claims).map(|(pid, claim)| start(claim, &store, pid)).collect();
        let runs = batch.claims.iter().map(Claim::run).collect();
        Ok(Self { world, store, claims: batch.claims, starts, runs })
    }

    /// So many running tasks.
    async fn running(tasks: u32) -> anyhow::Result<Self> {
        let scene = Self::claimed(tasks).await?;
        let started = scene.write(&scene.start_all()).await?;
        assert!(started.iter().all(|written| *written == Written::Started), "{started:?}");
        Ok(scene)
    }

    fn start_all(&self) -> Vec<RunWrite> {
        self.starts.iter().cloned().map(RunWrite::Start).collect()
    }

    fn finish(&self, number: usize, finish: Finish) -> RunWrite {
        RunWrite::Finish { run: self.runs[number].clone(), finish }
    }

    fn renew(&self, number: usize) -> RunWrite {
        RunWrite::Renew { run: self.runs[number].clone(), lease: LEASE }
    }

    fn task(&self, number: usize) -> TaskId {
        self.claims[number].task
    }

    async fn write(&self, writes: &[RunWrite]) -> anyhow::Result<Vec<Written>> {
        Ok(self.store.write_runs(writes).await?.into_iter().collect::<Result<_, StoreError>>()?)
    }
}

/// What differs between any two tasks, or any two runs of this test.
fn without_chance(mut task: Document) -> anyhow::Result<Document> {
    for field in ["_id", "params", "ctime", "mtime", "started", "pid", "slot", "lease_until"] {
        if let Some(value) = task.get_mut(field) {
            *value = Bson::from(format!("{:?}", value.element_type()));
        }
    }
    for entry in task.get_array_mut("history")? {
        if let Bson::Document(entry) = entry {
            entry.get_datetime("at")?;
            entry.remove("at");
        }
    }
    Ok(task)
}

#[tokio::test]
async fn a_task_is_the_same_whether_it_is_written_alone_or_with_others() -> anyhow::Result<()> {
    let scene = Scene::claimed(6).await?;
    let (store, world) = (&scene.store, &scene.world);
    assert!(matches!(store.start_task(&scene.starts[0]).await?, Started::Running(..)));
    scene.write(&scene.start_all()[1..]).await?;
    for number in 1..6 {
        let stored = world.task(scene.task(number)).await?;
        assert_eq!(stored.get_i64("pid")?, i64::from(scene.starts[number].pid), "each has its own values");
        assert_eq!(*stored.get_datetime("started")?, scene.starts[number].at);
        assert_eq!(without_chance(stored)?, without_chance(world.task(scene.task(0)).await?)?);
    }
    let finish = |number: usize| {
        let result =
            doc! { "text": "$status", "operator": { "$add": [1] }, "n": i32::try_from(number).unwrap() };
        Finish { result: Some(result), exit: Some(doc! { "code": 0 }), ..success("$stdout\n") }
    };
    let failure = || Finish { status: Status::Failed, note: Some("it failed".to_owned()), ..success("") };
    store.finish_task(&scene.runs[0], &finish(0)).await?;
    store.finish_task(&scene.runs[3], &failure()).await?;
    let mut ends: Vec<RunWrite> =
        [1, 2].into_iter().map(|number| scene.finish(number, finish(number))).collect();
    ends.extend([4, 5].map(|number| scene.finish(number, failure())));
    assert_eq!(scene.write(&ends).await?, [STORED; 4]);
    for (number, like) in [(1, 0), (2, 0), (4, 3), (5, 3)] {
        let mut stored = world.task(scene.task(number)).await?;
        if like == 0 {
            assert_eq!(stored.get_document("result")?.get_i32("n")?, i32::try_from(number)?);
            stored.get_document_mut("result")?.insert("n", 0);
        }
        assert_eq!(without_chance(stored)?, without_chance(world.task(scene.task(like)).await?)?);
    }
    scene.world.end().await
}

#[tokio::test]
async fn writes_whose_answer_was_lost_are_recognised_when_repeated() -> anyhow::Result<()> {
    let scene = Scene::claimed(4).await?;
    let starts = scene.start_all();
    assert_eq!(scene.write(&starts).await?, [Written::Started; 4]);
    assert_eq!(scene.write(&starts).await?, [Written::Started; 4], "by the same runners at the same time");
    let late = Start { pid: 4_000_000, ..scene.starts[0].clone() };
    let both = [RunWrite::Start(late), starts[1].clone()];
    assert_eq!(scene.write(&both).await?, [Written::NotClaimed, Written::Started]);
    let ends: Vec<RunWrite> = (0..4).map(|number| scene.finish(number, success("out"))).collect();
    assert_eq!(scene.write(&ends).await?, [STORED; 4]);
    let before = scene.world.task(scene.task(0)).await?;
    assert_eq!(scene.write(&ends).await?, [STORED; 4]);
    assert_eq!(scene.world.task(scene.task(0)).await?, before, "nothing is written twice");
    let other = scene.finish(0, success("another output"));
    assert_eq!(scene.write(&[other, ends[1].clone()]).await?, [NOT_RUNNING, STORED]);
    scene.world.end().await
}

#[tokio::test]
async fn an_end_is_recognised_after_the_task_was_archived_or_tried_again() -> anyhow::Result<()> {
    let scene = Scene::running(3).await?;
    let ends: Vec<RunWrite> = (0..3).map(|number| scene.finish(number, success("out"))).collect();
    assert_eq!(scene.write(&ends).await?, [STORED; 3]);
    assert_eq!(scene.store.archive_tasks(&[scene.task(0)]).await?.moved, 1);
    assert_eq!(scene.store.retry_task(scene.task(1), "by hand").await?, Retried::Queued);
    assert_eq!(scene.write(&ends).await?, [STORED; 3]);
    assert_eq!(scene.store.finish_task(&scene.runs[1], &success("out")).await?, Finished::Stored);
    assert_eq!(scene.store.finish_task(&scene.runs[0], &success("other")).await?, Finished::NotRunning);
    assert_eq!(scene.store.finish_task(&scene.runs[1], &success("other")).await?, Finished::NotRunning);
    scene.world.end().await
}

#[tokio::test]
async fn a_document_that_would_be_too_large_is_stored_without_what_makes_it_so() -> anyhow::Result<()> {
    let scene = Scene::running(5).await?;
    enlarge(&scene.world, scene.task(2), 50_000).await?;
    let output = "y".repeat(100_000);
    let mut ends: Vec<RunWrite> = (0..4).map(|number| scene.finish(number, success(&output))).collect();
    // And one that fits into no command.
    ends.push(scene.finish(4, success(&"z".repeat(17_000_000))));
    assert_eq!(scene.write(&ends).await?, [STORED; 5]);
    for number in 0..5 {
        let whole = [0, 1, 3].contains(&number);
        let only = doc! { "status": 1, "stdout": 1, "stderr": 1, "complete": 1 };
        let found = scene.world.tasks().find_one(doc! { "_id": scene.task(number) }).projection(only).await?;
        let task = found.context("it is there")?;
        assert_eq!((task.get_i32("status")?, task.get_bool("complete")?), (1, whole));
        assert_eq!(task.get_str("stdout").is_ok(), whole);
        let told = task.get_str("stderr").unwrap_or_default();
        assert_eq!(told.contains("what came out could not be stored"), !whole, "{told}");
    }
    scene.world.end().await
}

#[tokio::test]
async fn each_of_a_mixed_batch_is_told_its_own_outcome() -> anyhow::Result<()> {
    let scene = Scene::claimed(7).await?;
    let starts = scene.start_all();
    // 0 and 1 were given back, and 1 was claimed again by another; 2 to 6 run; 3 was taken away.
    for claim in &scene.claims[..2] {
        scene.store.unclaim_task(claim, "a test").await?;
    }
    let other = doc! { "status": -1, "node": "n2", "attempt": 2_i64, "instance": "other" };
    scene.world.set(scene.task(1), other).await?;
    let mut expected = vec![Written::NotClaimed; 2];
    expected.extend([Written::Started; 5]);
    assert_eq!(scene.write(&starts).await?, expected);
    scene.world.set(scene.task(3), doc! { "status": -6 }).await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    scene.store.cancel_task(scene.task(5), &request).await?;
    let before = scene.world.task(scene.task(3)).await?;
    let progress = |number: usize| {
        let run = scene.runs[number].clone();
        RunWrite::Interim { run, interim: Interim::Progress(doc! { "percent": 50 }) }
    };
    let writes = [
        scene.renew(2),
        scene.renew(3),
        scene.finish(3, success("late")),
        progress(3),
        progress(4),
        scene.finish(4, success("out")),
        scene.renew(5),
        starts[6].clone(),
        starts[0].clone(),
    ];
    let held = |cancel| Written::Renewed(Renewed::Held(Wishes { cancel, interrupt: false }));
    let lost = Written::Renewed(Renewed::Lost);
    let expected = [
        held(false),
        lost,
        NOT_RUNNING,
        Written::Done,
        Written::Done,
        STORED,
        held(true),
        Written::Started,
        Written::NotClaimed,
    ];
    assert_eq!(scene.write(&writes).await?, expected);
    assert_eq!(scene.world.task(scene.task(3)).await?, before, "a late run changes nothing");
    let ended = scene.world.task(scene.task(4)).await?;
    assert_eq!(ended.get_document("progress")?.get_i32("percent")?, 50);
    scene.world.end().await
}

#[tokio::test]
async fn renewals_end_no_lease_and_see_cancel_requests() -> anyhow::Result<()> {
    let scene = Scene::running(3).await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    scene.store.cancel_task(scene.task(1), &request).await?;
    let long = Duration::from_secs(3_600);
    let renewals: Vec<RunWrite> =
        scene.runs.iter().map(|run| RunWrite::Renew { run: run.clone(), lease: long }).collect();
    let held = |cancel| Written::Renewed(Renewed::Held(Wishes { cancel, interrupt: false }));
    assert_eq!(scene.write(&renewals).await?, [held(false), held(true), held(false)]);
    for number in 0..3 {
        let until = *scene.world.task(scene.task(number)).await?.get_datetime("lease_until")?;
        assert!(until.to_string().starts_with("9000-01-01 1:00"), "{until}");
    }
    scene.world.end().await
}

#[tokio::test]
async fn more_than_fits_into_a_statement_or_a_command_is_split() -> anyhow::Result<()> {
    let scene = Scene::running(300).await?;
    let output = "x".repeat(100_000);
    let ends: Vec<RunWrite> =
        (0..300).map(|number| scene.finish(number, success(&format!("{number} {output}")))).collect();
    assert_eq!(scene.write(&ends).await?, vec![STORED; 300]);
    for number in [0, 42, 299] {
        let stored = scene.world.task(scene.task(number)).await?;
        assert!(stored.get_str("stdout")?.starts_with(&format!("{number} ")));
    }
    assert_eq!(scene.write(&[]).await?, []);
    scene.world.end().await
}
