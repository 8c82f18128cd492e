//! A warm runner whose DEN fails it, on a real database. The DEN is played by the test.

use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use bson::oid::ObjectId;
use bson::{DateTime, Document, RawDocumentBuf, doc};
use disbatch_core::link::{Answer, Ask, Assignment, Go, ToDen, ToRunner, read, write};
use disbatch_core::model::{NodeName, QueueId, Status};
use disbatch_core::task::{Finish, Finished, Run, Start, Started};
use disbatch_tests::{PATIENCE, Script, World, binary, eventually};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const LEASE: Duration = Duration::from_secs(30);

/// The DEN's side of a runner.
struct Den {
    runner: Child,
    link: UnixStream,
    lease: Duration,
    number: i64,
}

impl Den {
    fn start(world: &World, arguments: &[&str]) -> anyhow::Result<Self> {
        let (link, far) = std::os::unix::net::UnixStream::pair()?;
        let mut command = Command::new(binary("dtr")?);
        command
            .arg("--config")
            .arg(world.config())
            .args(["--node", "n1", "--no-echo", "--link", "0"])
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .kill_on_drop(true);
        let runner = command.spawn()?;
        drop(command);
        link.set_nonblocking(true)?;
        Ok(Self { runner, link: UnixStream::from_std(link)?, lease: LEASE, number: 0 })
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.runner.id().context("the runner has ended")
    }

    async fn tell(&mut self, message: ToRunner) -> anyhow::Result<()> {
        Ok(timeout(PATIENCE, write(&mut self.link, &message)).await??)
    }

    async fn heard(&mut self) -> anyhow::Result<ToDen> {
        timeout(PATIENCE, read(&mut self.link)).await??.context("the runner has closed the link")
    }

    /// Assigns the task, and waits until the runner has taken it.
    async fn assign(&mut self, world: &World, run: &Run) -> anyhow::Result<Assignment> {
        self.number += 1;
        let task = world.task(run.task).await?;
        let queues = world.database().collection::<Document>("queues");
        let queue =
            queues.find_one(doc! { "_id": task.get_object_id("queue")? }).await?.context("no queue")?;
        let assignment = Assignment {
            number: self.number,
            run: run.clone(),
            task: RawDocumentBuf::try_from(&task)?,
            queue: RawDocumentBuf::try_from(&queue)?,
            at: DateTime::from_millis(1_700_000_000_123),
            lease_ms: self.lease.as_millis().try_into()?,
            go: None,
            schedule: None,
            schedule_problem: None,
            workers: Vec::new(),
            lane: false,
        };
        self.tell(ToRunner::Assign(Box::new(assignment.clone()))).await?;
        match self.heard().await? {
            ToDen::Taken { of } if of == self.number => Ok(assignment),
            other => bail!("{other:?}"),
        }
    }

    /// Starts the task in the database, in the name of the runner.
    async fn write_start(&self, world: &World, assignment: &Assignment) -> anyhow::Result<()> {
        let run = &assignment.run;
        let start = Start {
            task: run.task,
            from: Status::Claimed,
            node: run.node.clone(),
            claim: run.instance.clone().map(|instance| (run.attempt, instance)),
            claimed: None,
            at: assignment.at,
            lease: self.lease,
            pid: self.pid()?,
            waiting: None,
        };
        match world.store().start_task(&start).await? {
            Started::Running(..) => Ok(()),
            Started::NotClaimed => bail!("the task is not claimed"),
        }
    }

    async fn go(&mut self) -> anyhow::Result<()> {
        let boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
        let until_ms = (boot + self.lease.mul_f64(0.9)).as_millis().try_into()?;
        self.tell(ToRunner::Go(Go { of: self.number, until_ms, deadline_in_ms: None })).await
    }

    /// As a DEN does it: assigns the task, starts it, and lets it begin.
    async fn begin(&mut self, world: &World, run: &Run) -> anyhow::Result<()> {
        let assignment = self.assign(world, run).await?;
        self.write_start(world, &assignment).await?;
        self.go().await
    }

    async fn asked(&mut self) -> anyhow::Result<(i64, Ask)> {
        match self.heard().await? {
            ToDen::Ask { id, of, ask } if of == self.number => Ok((id, ask)),
            other => bail!("{other:?}"),
        }
    }

    /// Waits for the end of the task. Whatever is asked before that concerns nobody here.
    async fn until_finish(&mut self) -> anyhow::Result<(i64, Finish)> {
        loop {
            match self.asked().await? {
                (id, Ask::Finish(finish)) => return Ok((id, *finish)),
                (id, _) => self.tell(ToRunner::Answer { id, answer: Answer::Done }).await?,
            }
        }
    }

    /// Leaves the runner alone, and waits for its end.
    async fn leave(self) -> anyhow::Result<ExitStatus> {
        drop(self.link);
        let mut runner = self.runner;
        Ok(timeout(PATIENCE, runner.wait()).await.context("the runner does not end")??)
    }
}

/// Claims a new task for node n1.
async fn claimed(world: &World, queue: QueueId) -> anyhow::Result<Run> {
    let task = world.claimed(queue, doc! {}, "n1").await?;
    let lease_until = DateTime::from_millis(DateTime::MAX.timestamp_millis());
    world.set(task, doc! { "attempt": 1, "instance": "i", "lease_until": lease_until }).await?;
    Ok(Run { task, queue, node: NodeName::new("n1"), attempt: 1, instance: Some("i".to_owned()) })
}

/// A plugin that leaves a line in the file `ran` each time.
async fn tracing_queue(world: &World, then: &str) -> anyhow::Result<QueueId> {
    let text = format!("#!/bin/sh\necho $$ >> {}/ran\n{then}\n", world.path().display());
    world.script_queue(Script { name: "Trace", text: &text }, 10).await
}

fn runs(world: &World) -> Vec<i32> {
    let text = std::fs::read_to_string(world.path().join("ran")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

async fn files(world: &World) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>("tasks.files").count_documents(doc! {}).await?)
}

/// That one attempt was run and has ended well, and was written once.
fn assert_ran_once(world: &World, task: &Document) {
    assert_eq!(task.get_i32("status").ok(), Some(1), "{task}");
    assert_eq!(runs(world).len(), 1);
    let history = task.get_array("history").map(Vec::len).ok();
    assert_eq!(history, Some(2), "started and finished once: {task}");
}

#[tokio::test]
async fn a_runner_starts_by_itself_what_its_den_has_not_come_to() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "cat").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    let pid = den.pid()?;
    den.assign(&world, &run).await?;
    assert!(den.leave().await?.success());
    let task = world.task(run.task).await?;
    assert_ran_once(&world, &task);
    assert_eq!(task.get_datetime("started")?.timestamp_millis(), 1_700_000_000_123);
    assert!(task.get_str("stdout")?.contains(&format!("\"pid\":{pid}")), "{task}");
    world.end().await
}

#[tokio::test]
async fn a_runner_goes_on_with_what_its_den_has_started() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    let assignment = den.assign(&world, &run).await?;
    den.write_start(&world, &assignment).await?;
    assert!(den.leave().await?.success());
    assert_ran_once(&world, &world.task(run.task).await?);
    world.end().await
}

#[tokio::test]
async fn a_runner_without_its_den_leaves_alone_what_is_not_claimed_any_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.assign(&world, &run).await?;
    world.set(run.task, doc! { "status": -2, "node": null }).await?;
    let before = world.task(run.task).await?;
    assert_eq!(den.leave().await?.code(), Some(1));
    assert_eq!(world.task(run.task).await?, before);
    assert!(runs(&world).is_empty());
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_assigned_as_its_runner_leaves_is_run() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.assign(&world, &run).await?;
    den.tell(ToRunner::Gone { of: den.number }).await?;
    // It is stopped while both are on their way: the signal that makes it leave, and the next task.
    let pid = Pid::from_raw(den.pid()?.try_into()?);
    kill(pid, Signal::SIGSTOP)?;
    kill(pid, Signal::SIGTERM)?;
    den.number += 1;
    let task = world.task(run.task).await?;
    let queue = world.database().collection::<Document>("queues").find_one(doc! {}).await?;
    let assignment = Assignment {
        number: den.number,
        run: run.clone(),
        task: RawDocumentBuf::try_from(&task)?,
        queue: RawDocumentBuf::try_from(&queue.context("no queue")?)?,
        at: DateTime::from_millis(1_700_000_000_123),
        lease_ms: 30_000,
        go: None,
        schedule: None,
        schedule_problem: None,
        workers: Vec::new(),
        lane: false,
    };
    den.tell(ToRunner::Assign(Box::new(assignment))).await?;
    kill(pid, Signal::SIGCONT)?;
    assert!(den.leave().await?.success());
    assert_ran_once(&world, &world.task(run.task).await?);
    world.end().await
}

#[tokio::test]
async fn a_result_that_the_den_does_not_store_is_stored_all_the_same() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "echo out").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.begin(&world, &run).await?;
    den.until_finish().await?;
    // The DEN stands still, and keeps the link.
    let task = world.until_status(run.task, 1).await?;
    assert_ran_once(&world, &task);
    assert_eq!(task.get_str("stdout")?, "out\n");
    assert!(den.leave().await?.success());
    world.end().await
}

#[tokio::test]
async fn a_lease_that_the_den_does_not_renew_is_renewed_all_the_same() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "until [ -e go ]; do sleep 0.05; done").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.lease = Duration::from_secs(6);
    den.begin(&world, &run).await?;
    let started = world.task(run.task).await?.get_datetime("lease_until")?.timestamp_millis();
    let (_, ask) = den.asked().await?;
    assert!(matches!(ask, Ask::Renew), "{ask:?}");
    eventually("the lease is renewed", || async {
        let until = world.task(run.task).await?.get_datetime("lease_until")?.timestamp_millis();
        Ok((until > started).then_some(()))
    })
    .await?;
    std::fs::write(std::fs::read_link(format!("/proc/{}/cwd", den.pid()?))?.join("go"), "")?;
    assert!(den.leave().await?.success());
    assert_ran_once(&world, &world.task(run.task).await?);
    world.end().await
}

#[tokio::test]
async fn a_result_that_the_den_stored_before_it_died_is_not_stored_twice() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "echo out").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.begin(&world, &run).await?;
    let (_, finish) = den.until_finish().await?;
    assert_eq!(world.store().finish_task(&run, &finish).await?, Finished::Stored);
    let stored = world.task(run.task).await?;
    assert!(den.leave().await?.success());
    assert_eq!(world.task(run.task).await?, stored);
    assert_ran_once(&world, &stored);
    world.end().await
}

#[tokio::test]
async fn the_result_of_a_runner_that_died_before_the_answer_is_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "echo out").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &[])?;
    den.begin(&world, &run).await?;
    let (_, finish) = den.until_finish().await?;
    let folder = std::fs::read_link(format!("/proc/{}/cwd", den.pid()?))?;
    den.runner.kill().await?;
    assert_eq!(world.store().finish_task(&run, &finish).await?, Finished::Stored);
    assert_ran_once(&world, &world.task(run.task).await?);
    eventually("its guard removes the folder", || async { Ok((!folder.exists()).then_some(())) }).await?;
    world.end().await
}

#[tokio::test]
async fn a_file_without_an_answer_is_stored_anew_and_the_first_removed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "echo out").await?;
    let run = claimed(&world, queue).await?;
    let mut den = Den::start(&world, &["--gfs", "1"])?;
    den.begin(&world, &run).await?;
    let (_, Ask::Upload { file, stream, encoding, bytes }) = den.asked().await? else { bail!("no upload") };
    assert_eq!(bytes, b"out\n");
    world.store().put_output(file, (run.task, stream), encoding, &bytes[..]).await?;
    assert!(den.leave().await?.success());
    let task = world.task(run.task).await?;
    assert_ran_once(&world, &task);
    let stored = task.get_object_id("stdout")?;
    assert_ne!(stored, file);
    assert_eq!(world.chunks(stored).await?.len(), 1);
    assert!(world.file(file).await.is_err());
    assert!(world.chunks(file).await?.is_empty());
    // That of standard error, which is empty.
    assert_eq!(files(&world).await?, 2);
    world.end().await
}

#[tokio::test]
async fn large_files_are_stored_by_the_runner_and_its_end_by_the_den() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = tracing_queue(&world, "head -c 3145728 /dev/zero | tr '\\0' x").await?;
    let mut den = Den::start(&world, &["--gfs", "1"])?;
    let pid = den.pid()?;
    for _ in 0..2 {
        let run = claimed(&world, queue).await?;
        den.begin(&world, &run).await?;
        let (id, finish) = den.until_finish().await?;
        let file: ObjectId = finish.stdout.as_object_id().context("it is in a file")?;
        assert_eq!(world.file(file).await?.get_i32("length")?, 3 << 20);
        den.tell(ToRunner::Answer { id, answer: Answer::Stored }).await?;
    }
    assert_eq!(den.pid()?, pid);
    assert!(den.leave().await?.success());
    world.end().await
}
