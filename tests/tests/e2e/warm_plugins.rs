//! Warm plugins: one process for many tasks, and what must not pass from one to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Script, World, always, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Does what `params.do` says, in Python, and says what it is asked to with `say`.
const TEXT: &str = r#"#!/usr/bin/env python3
import json, os, signal, subprocess, sys, time
control = int(os.environ["DISBATCH_CONTROL_FD"])
def say(**line):
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(control, data):]
kept = {}
for line in sys.stdin:
    message = json.loads(line)
    task, env = message["task"], message["env"]
    exec(task["params"]["do"])
    sys.stdout.flush(); sys.stderr.flush()
    say(done={"id": env["DISBATCH_TASK_ID"], "exit": task["params"].get("exit", 0)})
"#;

/// A queue of the plugin above, which is kept as `warm` says.
async fn queue(world: &World, warm: Value, threads: i32) -> anyhow::Result<QueueId> {
    let queue = world.script_queue(Script { name: "Warm", text: TEXT }, threads).await?;
    let manifest = json!({ "name": "Warm", "command": ["./run"], "warm": warm });
    std::fs::write(world.plugins().join("Warm/plugin.json"), manifest.to_string())?;
    Ok(queue)
}

fn task(what: impl Into<String>) -> Document {
    doc! { "do": what.into() }
}

fn stdout(task: &Document) -> &str {
    task.get_str("stdout").unwrap_or_default()
}

fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[tokio::test]
async fn many_tasks_pass_through_few_processes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 4).await?;
    let what = "
print(os.getpid(), env['DISBATCH_TASK_ID']); print(env['DISBATCH_TASK_ID'], file=sys.stderr)
say(result={'id': env['DISBATCH_TASK_ID']})";
    let ids = world.submit(queue, vec![task(what); 200]).await?;
    let den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let mut pids = BTreeSet::new();
    for (id, task) in ids.iter().zip(&ended) {
        assert_eq!(task.get_i32("status")?, 1, "{task} {}", den.log()?);
        let (pid, named) = stdout(task).trim().split_once(' ').unwrap();
        assert_eq!((named, task.get_str("stderr")?), (&*id.to_string(), &*format!("{id}\n")));
        assert_eq!(task.get_document("result")?, &doc! { "id": id.to_string() });
        let exit = task.get_document("exit")?;
        assert!(exit.get_i64("peak_memory")? > 1 << 20 && exit.get_f64("duration")? > 0.0, "{exit}");
        pids.insert(pid.to_owned());
    }
    assert!(pids.len() <= 20, "{} processes", pids.len());
    den.end_with(Signal::SIGTERM).await?;
    eventually("the processes to end", || async { Ok(pids.iter().all(|pid| !runs(pid)).then_some(())) })
        .await?;
    world.end().await
}

#[tokio::test]
async fn a_process_gets_no_more_tasks_than_it_may() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!({ "tasks": 5 }), 2).await?;
    world.submit(queue, vec![task("print(os.getpid())"); 40]).await?;
    let _den = world.den("n1")?;
    let mut tasks_of = BTreeMap::new();
    for task in world.until_all_ended(queue).await? {
        assert_eq!(task.get_i32("status")?, 1, "{task}");
        *tasks_of.entry(stdout(&task).to_owned()).or_insert(0) += 1;
    }
    assert!(tasks_of.values().all(|tasks| *tasks <= 5), "{tasks_of:?}");
    assert!(tasks_of.values().any(|tasks| *tasks > 1), "{tasks_of:?}");
    world.end().await
}

#[tokio::test]
async fn nothing_passes_from_one_task_to_the_next() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 1).await?;
    let loud = "
for n in range(16):
    sys.stdout.buffer.write(b'o' * 65536); sys.stderr.buffer.write(b'e' * 65536)
say(status=7); say(result={'a': 1}); say(progress={'percent': 50, 'message': 'half'}); say(report={'by': env['DISBATCH_TASK_ID']})";
    let quiet = "pass";
    let tasks = (0..20).map(|n| task(if n % 2 == 0 { loud } else { quiet })).collect();
    let ids = world.submit(queue, tasks).await?;
    let _den = world.den("n1")?;
    for (n, task) in world.until_all_ended(queue).await?.iter().enumerate() {
        let reports = world.database().collection::<Document>("reports");
        let reported = reports.count_documents(doc! { "by": ids[n].to_string() }).await?;
        if n % 2 == 0 {
            assert_eq!((task.get_i32("status")?, reported), (7, 1), "{task}");
            assert_eq!((stdout(task).len(), task.get_str("stderr")?.len()), (1 << 20, 1 << 20));
            assert_eq!(task.get_document("result")?, &doc! { "a": 1 });
            assert_eq!(task.get_document("progress")?.get_str("message")?, "half");
        } else {
            assert_eq!((task.get_i32("status")?, reported), (1, 0), "{task}");
            assert_eq!((task.get("stdout"), task.get("stderr")), (Some(&Bson::Null), Some(&Bson::Null)));
            assert!(!task.contains_key("result") && !task.contains_key("progress"), "{task}");
        }
    }
    world.end().await
}

#[tokio::test]
async fn what_goes_wrong_in_a_task_is_no_concern_of_the_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 1).await?;
    world.update_queue(queue, doc! { "timeout": 3, "grace": 0.5 }).await?;
    let cases = [
        (task("os.kill(os.getpid(), 11)"), 2, "Plugin killed by signal 11 (SIGSEGV"),
        (task("os._exit(0)"), 2, "disbatch: the plugin ended without saying that the task is done\n"),
        (doc! { "do": "print('no', file=sys.stderr)", "exit": 3 }, 2, "no\n"),
        (
            task("signal.signal(15, signal.SIG_IGN); subprocess.run(['sleep', '1000'])"),
            -3,
            "Plugin killed by signal 9",
        ),
    ];
    let tasks = cases.iter().flat_map(|(bad, ..)| [bad.clone(), task("print('well')")]).collect();
    world.submit(queue, tasks).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    for (pair, (bad, status, stderr)) in ended.chunks(2).zip(&cases) {
        assert_eq!(pair[0].get_i32("status")?, *status, "{bad} {}", pair[0]);
        assert!(pair[0].get_str("stderr")?.starts_with(stderr), "{}", pair[0]);
        assert_eq!((pair[1].get_i32("status")?, stdout(&pair[1])), (1, "well\n"), "after {bad}");
    }
    assert_eq!(ended[6].get_document("exit")?.get_str("reason")?, "timeout");
    world.end().await
}

#[tokio::test]
async fn a_task_is_cancelled_and_the_next_one_gets_another_process() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 1).await?;
    let pid = world.path().join("pid");
    let what = format!("open({pid:?}, 'w').write(str(os.getpid()) + '\\n'); time.sleep(1000)");
    let ids = world.submit(queue, vec![task(what), task("print(os.getpid())")]).await?;
    let _den = world.den("n1")?;
    let first = written(&pid).await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    world.store().cancel_task(ids[0], &request).await?;
    let cancelled = world.until_status(ids[0], -3).await?;
    assert_eq!(cancelled.get_document("exit")?.get_i32("signal")?, 15, "{cancelled}");
    let next = world.until_status(ids[1], 1).await?;
    assert!(!runs(&first) && stdout(&next).trim() != first.trim());
    world.end().await
}

#[tokio::test]
async fn a_killed_runner_leaves_neither_process_nor_folder() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 1).await?;
    let noted = world.path().join("noted");
    let what = format!(
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)
open({noted:?}, 'w').write(f\"{{os.getpid()}} {{message['work_dir']}}\\n\"); time.sleep(1000)"
    );
    let ids = world.submit(queue, vec![task(what), task("print('well')")]).await?;
    let _den = world.den("n1")?;
    let noted = written(&noted).await?;
    let (pid, folder) = noted.trim().split_once(' ').unwrap();
    let runner = world.task(ids[0]).await?.get_i64("pid")?;
    kill(Pid::from_raw(runner.try_into()?), Signal::SIGKILL)?;
    eventually("the process and the folder to go", || async {
        Ok((!runs(pid) && !Path::new(folder).exists()).then_some(()))
    })
    .await?;
    world.until_status(ids[0], -6).await?;
    assert_eq!(stdout(&world.until_status(ids[1], 1).await?), "well\n");
    world.end().await
}

/// The runner and the guard of a process.
fn ancestors(pid: &str) -> anyhow::Result<[String; 2]> {
    let parent = |pid: &str| -> anyhow::Result<String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields = stat.rsplit_once(") ").context("no parent")?.1;
        Ok(fields.split(' ').nth(1).context("no parent")?.to_owned())
    };
    let guard = parent(pid)?;
    Ok([parent(&guard)?, guard])
}

/// Four tasks, each of which does `then` when all of them have a process. Returns the tasks and their processes.
async fn four_at_once(
    world: &World,
    queue: QueueId,
    then: &str,
) -> anyhow::Result<(Vec<TaskId>, Vec<String>)> {
    let there = tempfile::tempdir_in(world.path())?.keep();
    let what = format!(
        "
there = {there:?} + '/' + env['DISBATCH_TASK_ID']
open(there + '.new', 'w').write(str(os.getpid())); os.rename(there + '.new', there)
while sum('.' not in name for name in os.listdir({there:?})) < 4: time.sleep(0.01)
{then}"
    );
    let ids = world.submit(queue, vec![task(what); 4]).await?;
    let pids = eventually("the processes of all of them", || async {
        let pid = |id: &TaskId| std::fs::read_to_string(there.join(id.to_string())).ok();
        Ok(ids.iter().map(pid).collect::<Option<Vec<String>>>())
    });
    let pids = pids.await?;
    Ok((ids, pids))
}

#[tokio::test]
async fn without_folders_processes_share_a_runner_and_end_one_by_one() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!({ "folder": false, "idle_s": 2 }), 4).await?;
    let go = world.path().join("go");
    let until_go = format!("while not os.path.exists({go:?}): time.sleep(0.01)");
    let den = world.den("n1")?;
    let (ids, pids) = four_at_once(&world, queue, &until_go).await?;
    let [runner, guard] = ancestors(&pids[0])?;
    let mut guards = BTreeSet::new();
    for pid in &pids {
        let [of, guard] = ancestors(pid)?;
        assert_eq!(of, runner, "one runner for all: {}", den.log()?);
        guards.insert(guard);
    }
    assert_eq!(guards.len(), 4, "and a guard for each");
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    world.store().cancel_task(ids[3], &request).await?;
    world.until_status(ids[3], -3).await?;
    kill(Pid::from_raw(guard.parse()?), Signal::SIGKILL)?;
    world.until_status(ids[0], 2).await?;
    assert_eq!(pids.iter().map(|pid| runs(pid)).collect::<Vec<_>>(), [false, true, true, false]);
    std::fs::write(&go, "")?;
    world.until_status(ids[1], 1).await?;
    world.until_status(ids[2], 1).await?;
    // The same runner goes on. Processes that have no task end although another one has.
    let (ids, again) = four_at_once(&world, queue, "pass").await?;
    for pid in &again {
        assert_eq!(ancestors(pid)?[0], runner, "{}", den.log()?);
    }
    for id in ids {
        world.until_status(id, 1).await?;
    }
    let noted = world.path().join("noted");
    let long = format!(
        "open({noted:?}, 'w').write(f'{{os.getpid()}}\\n')
while os.path.exists({go:?}): time.sleep(0.01)"
    );
    let long = world.submit(queue, vec![task(long)]).await?;
    let busy = written(&noted).await?;
    eventually("the idle processes to end", || async {
        Ok(again.iter().all(|pid| pid == busy.trim() || !runs(pid)).then_some(()))
    })
    .await?;
    assert!(runs(&busy), "it has a task");
    std::fs::remove_file(&go)?;
    world.until_status(long[0], 1).await?;
    world.end().await
}

#[tokio::test]
async fn processes_without_a_task_outlive_the_lease_of_the_last_one() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 3 }))?;
    let queue = queue(&world, json!({ "folder": false }), 4).await?;
    let _den = world.den("n1")?;
    let (ids, pids) = four_at_once(&world, queue, "pass").await?;
    for id in ids {
        world.until_status(id, 1).await?;
    }
    let go = world.path().join("go");
    let long = task(format!("while not os.path.exists({go:?}): time.sleep(0.01)"));
    let long = world.submit(queue, vec![long]).await?;
    world.until_status(long[0], 0).await?;
    let live = || async { Ok(pids.iter().all(|pid| runs(pid))) };
    always("the others are kept", Duration::from_secs(5), live).await?;
    std::fs::write(&go, "")?;
    world.until_status(long[0], 1).await?;
    world.end().await
}

#[tokio::test]
async fn a_killed_runner_of_several_processes_leaves_an_orphan_of_each_task() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!({ "folder": false }), 4).await?;
    let _den = world.den("n1")?;
    let (ids, pids) = four_at_once(&world, queue, "time.sleep(1000)").await?;
    let [runner, _] = ancestors(&pids[0])?;
    assert_eq!(world.until_status(ids[0], 0).await?.get_i64("pid")?, runner.parse::<i64>()?);
    kill(Pid::from_raw(runner.parse()?), Signal::SIGKILL)?;
    for id in ids {
        assert_eq!(world.until_status(id, -6).await?.get_i32("attempt")?, 1);
    }
    assert!(pids.iter().all(|pid| !runs(pid)), "their guards have ended them");
    let next = world.submit(queue, vec![task("print('well')")]).await?;
    assert_eq!(stdout(&world.until_status(next[0], 1).await?), "well\n");
    world.end().await
}

#[tokio::test]
async fn a_runner_for_one_task_starts_a_warm_plugin_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = queue(&world, json!(true), 1).await?;
    let what = "print(os.getpid(), os.environ['DISBATCH_WARM'], os.listdir(message['work_dir'])); say(result={'a': 1})";
    let task = world.run_by_hand(queue, task(what), &["--quiet"]).await?;
    assert_eq!((task.get_i32("status")?, task.get_document("result")?), (1, &doc! { "a": 1 }));
    let (pid, rest) = stdout(&task).split_once(' ').unwrap();
    assert_eq!((rest, runs(pid)), ("1 []\n", false));
    world.end().await
}

#[tokio::test]
async fn the_warm_examples_run() -> anyhow::Result<()> {
    let world = World::new().await?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/examples");
    world.configure(json!({ "plugin_dirs": [examples] }))?;
    let factors = world.queue("Example::Factors", doc! { "threads": 1 }).await?;
    let demo = world.queue("Example::WarmDemo", doc! { "threads": 1 }).await?;
    world.submit(factors, vec![doc! { "number": 91 }, doc! { "number": 0 }, doc! { "number": 13 }]).await?;
    world.submit(demo, vec![doc! { "commands": "a", "noreport": true }, doc! { "noreport": true }]).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(factors).await?;
    let statuses: Vec<_> = ended.iter().map(|task| task.get_i32("status")).collect::<Result<_, _>>()?;
    assert_eq!(statuses, [1, 2, 1]);
    assert_eq!((stdout(&ended[0]), stdout(&ended[2])), ("91 = 7 * 13\n", "13 = 13\n"));
    assert!(ended[1].get_str("stderr")?.starts_with("params.number must be an integer"), "{}", ended[1]);
    let ended = world.until_all_ended(demo).await?;
    assert_eq!((stdout(&ended[0]), stdout(&ended[1])), ("This is command 'a' for apple.\n", ""));
    world.end().await
}

/// What a plugin has written to a file, once it has written a line.
async fn written(file: &Path) -> anyhow::Result<String> {
    eventually("the file of the plugin", || async {
        Ok(std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n')))
    })
    .await
}
