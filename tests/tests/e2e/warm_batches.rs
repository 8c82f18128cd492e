//! Warm plugins whose process is given several tasks at a time: what each of them comes to, whatever becomes of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

/// Does what `params.do` of each task says, in Python, in a thread of its own, and answers it unless that has been done.
const TEXT: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys, threading, time
control = int(os.environ["DISBATCH_CONTROL_FD"])
lock = threading.Lock()
answered, cancelled = set(), {}
def raw(text):
    data = text.encode() + b"\n"
    with lock:
        while data:
            data = data[os.write(control, data):]
def say(id, **line):
    raw(json.dumps({"id": id, **line}))
    if "done" in line:
        answered.add(id)
def work(one, size):
    id = one["env"]["DISBATCH_TASK_ID"]
    exec(one["task"]["params"]["do"], {**globals(), **one, "id": id, "size": size, "cancel": cancelled[id]})
    if id not in answered:
        say(id, done={})
for line in sys.stdin:
    message = json.loads(line)
    if "cancel" in message:
        cancelled[message["cancel"]["id"]].set()
    for one in message.get("tasks", []):
        cancelled[one["env"]["DISBATCH_TASK_ID"]] = threading.Event()
        threading.Thread(target=work, args=(one, len(message["tasks"])), daemon=True).start()
"#;

/// A queue of the plugin above, whose process has up to `max` tasks at a time, and which has as many slots.
async fn queue(world: &World, max: i32, wait_ms: u32) -> anyhow::Result<QueueId> {
    let queue = world.script_queue(Script { name: "Batch", text: TEXT }, max).await?;
    let warm = json!({ "batch": { "max": max, "wait_ms": wait_ms } });
    let manifest = json!({ "name": "Batch", "command": ["./run"], "warm": warm });
    std::fs::write(world.plugins().join("Batch/plugin.json"), manifest.to_string())?;
    Ok(queue)
}

fn task(what: impl Into<String>) -> Document {
    doc! { "do": what.into() }
}

fn stdout(task: &Document) -> &str {
    task.get_str("stdout").unwrap_or_default()
}

/// How often it was given back before any runner had heard of it, as a busy machine may bring about.
fn untold(task: &Document) -> anyhow::Result<i32> {
    let notes =
        task.get_array("history")?.iter().filter_map(|entry| entry.as_document()?.get_str("note").ok());
    Ok(i32::try_from(notes.filter(|note| *note == "its runner was not told of it").count())?)
}

fn stderr(task: &Document) -> &str {
    task.get_str("stderr").unwrap_or_default()
}

/// Has the rest of a task begin when as many have noted that they are there.
fn meet(folder: &Path, tasks: usize) -> String {
    format!(
        "
open({folder:?} + '/' + id, 'w').close()
while len(os.listdir({folder:?})) < {tasks}: time.sleep(0.01)
"
    )
}

/// The statuses of the tasks, in their order.
fn statuses(tasks: &[Document]) -> anyhow::Result<Vec<i32>> {
    Ok(tasks.iter().map(|task| task.get_i32("status")).collect::<Result<_, _>>()?)
}

#[tokio::test]
async fn many_tasks_pass_through_one_process() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 64, 2).await?;
    let what = "
say(id, stdout='%d ' % os.getpid()); say(id, stdout=f'{size} {id}', stderr=id, progress={'percent': 50})
say(id, result={'id': id}, status=1 + int(id[-1], 16) % 2 * 6, done={'id': id})";
    let ids = world.submit(queue, vec![task(what); 600]).await?;
    let den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let (mut pids, mut sizes) = (BTreeSet::new(), BTreeMap::new());
    for (id, task) in ids.iter().zip(&ended) {
        let id = id.to_string();
        let own = if u8::from_str_radix(&id[23..], 16)? % 2 == 0 { 1 } else { 7 };
        assert_eq!(task.get_i32("status")?, own, "{task} {}", den.log()?);
        let words: Vec<&str> = stdout(task).split(' ').collect();
        assert_eq!((words[2], stderr(task)), (&*id, &*id), "{task}");
        assert_eq!(task.get_document("result")?, &doc! { "id": id });
        assert_eq!(task.get_i32("attempt")? - untold(task)?, 1, "{task}");
        let exit = task.get_document("exit")?;
        assert!(exit.get_i64("peak_memory")? > 1 << 20 && exit.get_f64("duration")? > 0.0, "{exit}");
        pids.insert(words[0].to_owned());
        *sizes.entry(words[1].parse::<u32>()?).or_insert(0) += 1;
    }
    assert!(pids.len() <= 2, "{pids:?}: after all, 64 of one process fit into all slots");
    assert!(*sizes.keys().max().context("none")? > 1, "{sizes:?}");
    den.end_with(Signal::SIGTERM).await?;
    world.end().await
}

#[tokio::test]
async fn with_a_process_those_tasks_end_that_it_has_not_answered() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 8, 200).await?;
    let there = tempfile::tempdir()?;
    let here = meet(there.path(), 8);
    let quick = format!("{here}say(id, stdout='well', done={{}})");
    let bad = format!(
        "{here}
while len(answered) < 4: time.sleep(0.01)
print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    );
    let long = format!("{here}time.sleep(1000)");
    let mut tasks = vec![task(quick); 4];
    tasks.extend([task(bad), task(long.clone()), task(long.clone()), task(long)]);
    world.submit(queue, tasks).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(statuses(&ended)?, [1, 1, 1, 1, 2, 2, 2, 2]);
    for task in &ended[4..] {
        assert!(stderr(task).contains("last words\n"), "{task}");
        assert!(stderr(task).contains("Plugin killed by signal 9"), "{task}");
        assert_eq!(task.get_document("exit")?.get_i32("signal")?, 9, "{task}");
    }
    assert!(ended[..4].iter().all(|task| stdout(task) == "well" && stderr(task).is_empty()), "{ended:?}");
    world.end().await
}

#[tokio::test]
async fn what_a_dead_process_has_not_answered_is_tried_again_as_its_queue_wants() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 4, 200).await?;
    let backoff = doc! { "base": 0.05, "factor": 1 };
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": backoff }).await?;
    let there = tempfile::tempdir()?;
    let what = format!(
        "
if env['DISBATCH_ATTEMPT'] == '1':
    {}
    if int(id, 16) % 4 == 0: os._exit(0)
    time.sleep(1000)",
        meet(there.path(), 4).trim().replace('\n', "\n    ")
    );
    let ids = world.submit(queue, vec![task(what); 4]).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(statuses(&ended)?, [1; 4], "{ended:?}");
    for task in &ended {
        assert_eq!(task.get_i32("attempt")?, 2, "{task}");
    }
    assert_eq!(ids.len(), ended.len());
    world.end().await
}

#[tokio::test]
async fn a_killed_runner_leaves_an_orphan_of_each_task_and_no_process() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 6, 100).await?;
    let (there, noted) = (tempfile::tempdir()?, world.path().join("pid"));
    let what = format!(
        "{}
with lock: open({noted:?}, 'w').write(str(os.getpid()))
time.sleep(1000)",
        meet(there.path(), 6)
    );
    let ids = world.submit(queue, vec![task(what); 6]).await?;
    let _den = world.den("n1")?;
    let pid = eventually("the process of the plugin", || async {
        Ok(std::fs::read_to_string(&noted).ok().filter(|pid| !pid.is_empty()))
    })
    .await?;
    let runner = world.task(ids[0]).await?.get_i64("pid")?;
    kill(Pid::from_raw(runner.try_into()?), Signal::SIGKILL)?;
    for id in &ids {
        let task = world.until_status(*id, -6).await?;
        assert_eq!(task.get_i32("attempt")?, 1, "{task}");
    }
    assert!(!Path::new("/proc").join(&pid).join("cwd").exists(), "its guard has killed it");
    let next = world.submit(queue, vec![task("say(id, stdout='well', done={})")]).await?;
    assert_eq!(stdout(&world.until_status(next[0], 1).await?), "well");
    world.end().await
}

/// Has somebody cancel a task.
async fn cancel(world: &World, task: TaskId) -> anyhow::Result<()> {
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    world.store().cancel_task(task, &request).await?;
    Ok(())
}

#[tokio::test]
async fn one_task_is_cancelled_and_the_others_go_on_in_the_same_process() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 3, 100).await?;
    world.update_queue(queue, doc! { "grace": 60 }).await?;
    let there = tempfile::tempdir()?;
    let what = format!(
        "{}
cancel.wait(60) if env['DISBATCH_TASK_ID'] == min(os.listdir({:?})) else time.sleep(1)
say(id, stdout=str(os.getpid()), done={{}})",
        meet(there.path(), 3),
        there.path()
    );
    let ids = world.submit(queue, vec![task(what); 3]).await?;
    let _den = world.den("n1")?;
    world.until_status(ids[0], 0).await?;
    eventually("all of them", || async { Ok((std::fs::read_dir(there.path())?.count() == 3).then_some(())) })
        .await?;
    cancel(&world, ids[0]).await?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(statuses(&ended)?, [-3, 1, 1], "{ended:?}");
    assert_eq!(ended[0].get_document("exit")?.get_str("reason")?, "cancel");
    let after = world.submit(queue, vec![task("say(id, stdout=str(os.getpid()), done={})")]).await?;
    let after = world.until_status(after[0], 1).await?;
    assert_eq!(stdout(&after), stdout(&ended[1]), "the process lives");
    assert_eq!(stdout(&ended[0]), stdout(&ended[1]));
    world.end().await
}

#[tokio::test]
async fn a_process_that_does_not_end_a_task_is_killed_with_the_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 3, 100).await?;
    world.update_queue(queue, doc! { "grace": 0.5, "max_attempts": 2 }).await?;
    let there = tempfile::tempdir()?;
    let what = format!(
        "
if env['DISBATCH_ATTEMPT'] == '1':
    {}
    time.sleep(1000)",
        meet(there.path(), 3).trim().replace('\n', "\n    ")
    );
    let ids = world.submit(queue, vec![task(what); 3]).await?;
    let _den = world.den("n1")?;
    eventually("all of them", || async { Ok((std::fs::read_dir(there.path())?.count() == 3).then_some(())) })
        .await?;
    cancel(&world, ids[1]).await?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(statuses(&ended)?, [1, -3, 1], "{ended:?}");
    assert_eq!(ended[1].get_document("exit")?.get_str("reason")?, "cancel");
    let attempts: Vec<i32> = ended.iter().map(|task| task.get_i32("attempt")).collect::<Result<_, _>>()?;
    assert_eq!(attempts, [2, 1, 2]);
    let earlier = world.store().list_attempts(ids[0]).await?;
    assert!(format!("{earlier:?}").contains("another task of its batch had to end"), "{earlier:?}");
    world.end().await
}

#[tokio::test]
async fn a_task_that_takes_too_long_ends_alone_where_the_plugin_lets_go_of_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 2, 100).await?;
    world.update_queue(queue, doc! { "timeout": 2, "grace": 60 }).await?;
    let slow = "cancel.wait(60); say(id, done={'exit': 1})";
    world.submit(queue, vec![task(slow), task("time.sleep(0.1)")]).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    assert_eq!(statuses(&ended)?, [-3, 1], "{ended:?}");
    assert_eq!(ended[0].get_document("exit")?.get_str("reason")?, "timeout");
    world.end().await
}

#[tokio::test]
async fn rubbish_and_answers_to_nothing_change_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 4, 100).await?;
    let what = "
raw('nope'); raw('[1]'); raw('{}'); raw(json.dumps({'done': {}})); raw('x' * 3000000)
say('000000000000000000000000', done={}); say('Z', done={})
raw(json.dumps({'id': id, 'done': 7})); raw(json.dumps({'id': id, 'done': {'id': 'other'}}))
raw(json.dumps({'id': id, 'stdout': 5, 'stauts': 1}))
print('nobody\\'s'); sys.stdout.flush()
say(id, stdout='first', done={}); say(id, stdout='second', status=5, done={'exit': 3})";
    world.submit(queue, vec![task(what); 12]).await?;
    let den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    for task in &ended {
        assert_eq!((task.get_i32("status")?, stdout(task)), (1, "first"), "{task}");
        let complaints: Vec<&str> = stderr(task).lines().collect();
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(
            complaints.iter().any(|line| line.contains("stdout is ignored: 5 is no text")),
            "{complaints:?}"
        );
        assert!(
            complaints.iter().any(|line| line.contains("control key 'stauts' is unknown")),
            "{complaints:?}"
        );
    }
    let ignored = "done is ignored: 7 does not name this task as its id";
    assert_eq!(den.log()?.matches(ignored).count(), 12, "{}", den.log()?);
    world.end().await
}

#[tokio::test]
async fn a_task_with_steps_takes_its_turn_among_the_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 8, 5).await?;
    let ids = world.submit(queue, vec![task("say(id, stdout='well', done={})"); 20]).await?;
    world.script_queue(Script { name: "Plain", text: "#!/bin/sh\necho plain\n" }, 1).await?;
    for id in &ids[5..8] {
        world.set(*id, doc! { "steps": [{ "plugin": "Plain" }, { "plugin": "Batch" }] }).await?;
    }
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    for (number, task) in ended.iter().enumerate() {
        let expected = if (5..8).contains(&number) { "plain\nwell" } else { "well" };
        assert_eq!((task.get_i32("status")?, stdout(task)), (1, expected), "{task}");
    }
    world.end().await
}

#[tokio::test]
async fn a_runner_for_one_task_gives_it_alone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, 64, 2).await?;
    let what = task("say(id, stdout=f'{size} {\"work_dir\" in globals()}', result={'a': 1})");
    let task = world.run_by_hand(queue, what, &["--quiet"]).await?;
    assert_eq!((task.get_i32("status")?, stdout(&task)), (1, "1 False"), "{task}");
    assert_eq!(task.get_document("result")?, &doc! { "a": 1 });
    world.end().await
}

#[tokio::test]
async fn the_example_runs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/examples");
    world.configure(json!({ "plugin_dirs": [examples] }))?;
    let queue = world.queue("Example::Scores", doc! { "threads": 16 }).await?;
    let mut params = vec![doc! { "text": "Good, great!" }; 30];
    params.push(doc! { "text": 7 });
    world.submit(queue, params).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let (last, others) = ended.split_last().context("there are no tasks")?;
    for task in others {
        assert_eq!((task.get_i32("status")?, stdout(task)), (1, "score 3\n"), "{task}");
    }
    assert_eq!((last.get_i32("status")?, stderr(last)), (2, "params.text must be text\n"), "{last}");
    world.end().await
}
