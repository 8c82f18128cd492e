//! Tasks with steps: several plugins, one after the other, in one private folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, Step, TaskId};
use disbatch_core::task::{CancelRequest, TaskOptions};
use disbatch_tests::{Dci, Script, World, eventually, skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::json;

/// Runs `params.do`.
const SHELL: Script<'_> = Script {
    name: "Sh",
    text: r#"#!/usr/bin/env python3
import json, os, sys
os.execv("/bin/sh", ["sh", "-c", json.load(sys.stdin)["params"]["do"]])
"#,
};

/// The same in Python, in a process that is kept. `say` takes what goes to the control channel.
const WARM: &str = r#"#!/usr/bin/env python3
import json, os, sys
def say(**line): os.write(3, json.dumps(line).encode() + b"\n")
for line in sys.stdin:
    message = json.loads(line)
    task, env = message["task"], message["env"]
    os.chdir(message["work_dir"])
    exec(task["params"]["do"])
    os.chdir("/")
    sys.stdout.flush()
    say(done={"id": env["DISBATCH_TASK_ID"]})
"#;

/// A warm plugin whose tasks have no folder.
const BARE: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    print(os.getcwd(), flush=True)
    os.write(3, json.dumps({"done": {"id": json.loads(line)["task"]["_id"]["$oid"]}}).encode() + b"\n")
"#;

fn step(name: &str, what: &str) -> Step {
    Step { name: name.to_owned(), plugin: None, params: doc! { "do": what } }
}

async fn submit(world: &World, queue: QueueId, params: Document, steps: Vec<Step>) -> anyhow::Result<TaskId> {
    let options = TaskOptions { steps, ..TaskOptions::default() };
    Ok(world.store().submit_tasks(queue, vec![params], &options).await?.ids[0])
}

fn steps(task: &Document) -> Vec<&Document> {
    task.get_array("steps").into_iter().flatten().filter_map(Bson::as_document).collect()
}

fn statuses(task: &Document) -> Vec<i32> {
    steps(task).iter().filter_map(|step| step.get_i32("status").ok()).collect()
}

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

/// Waits until the step with this number, counted from 0, runs.
async fn until_runs(world: &World, task: TaskId, index: usize) -> anyhow::Result<()> {
    eventually("the step to run", || async {
        Ok((statuses(&world.task(task).await?).get(index) == Some(&0)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_task_with_steps_needs_no_params_of_its_own() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let bare = json!({ "queue": queue.to_string(), "params": {} });
    let (status, answer) = dci.post("/tasks", &bare).await?;
    assert_eq!((status, answer["error"].is_string()), (400, true), "as Perl's: {answer}");
    let mut stepwise = bare;
    stepwise[".steps"] = json!([{ "params": { "do": "echo one" } }]);
    dci.posted("/tasks", &stepwise).await?;
    let _den = world.den("n1")?;
    let tasks = world.until_all_ended(queue).await?;
    assert_eq!((tasks.len(), text(&tasks[0], "stdout")), (1, "one\n"), "{tasks:?}");
    world.end().await
}

#[tokio::test]
async fn steps_run_in_order_in_one_folder_and_their_output_is_that_of_the_task() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let other = Script { name: "Other", text: "#!/bin/sh\ncat made\necho $JOB_PARAMS\necho error >&2\n" };
    other.install(&world.plugins())?;
    let first = "pwd > made; ls; echo $DISBATCH_STEP/$DISBATCH_STEPS $DISBATCH_STEP_NAME; \
        echo '{\"result\": {\"a\": 1}, \"progress\": {\"percent\": 50, \"message\": \"half\"}}' >&3";
    let third = "[ \"$(cat made)\" = \"$PWD\" ] && echo same; echo $DISBATCH_STEP $DISBATCH_PLUGIN";
    let plan = vec![
        step("get", first),
        Step { name: "use".to_owned(), plugin: Some("Other".parse()?), params: doc! { "b": 3 } },
        step("", third),
    ];
    let id = submit(&world, queue, doc! { "a": 1, "b": 2 }, plan).await?;
    let waiting = world.task(id).await?;
    assert_eq!(statuses(&waiting), [-2, -2, -2]);
    let _den = world.den("n1")?;
    let task = world.until_status(id, 1).await?;
    let lines: Vec<&str> = text(&task, "stdout").lines().collect();
    assert_eq!(
        (&lines[..2], &lines[3..]),
        (&["made", "1/3 get"][..], &["{\"a\":1,\"b\":3}", "same", "3 Sh"][..])
    );
    assert_eq!(text(&task, "stderr"), "error\n");
    assert_eq!(task.get_document("result")?, &doc! { "a": 1 }, "the others gave none");
    assert_eq!(statuses(&task), [1, 1, 1]);
    let all = steps(&task);
    let names: Vec<(&str, Option<&str>)> =
        all.iter().map(|step| (text(step, "name"), step.get_str("plugin").ok())).collect();
    assert_eq!(names, [("get", None), ("use", Some("Other")), ("", None)]);
    let mut before = None;
    for (step, output) in all.iter().zip(["made\n", "/", "same\n"]) {
        let (started, ended) = (step.get_datetime("started")?, step.get_datetime("ended")?);
        assert!(before <= Some(started) && started <= ended, "{step}");
        before = Some(ended);
        assert_eq!(step.get_document("exit")?.get_i32("code")?, 0);
        let at = usize::try_from(step.get_document("output_at")?.get_i64("stdout")?)?;
        assert!(text(&task, "stdout")[at..].starts_with(output), "{step}");
    }
    assert_eq!(all[2].get_document("output_at")?.get_i64("stderr")?, 6);
    let progress = task.get_document("progress")?;
    assert_eq!((progress.get_i32("step")?, progress.get_i32("steps")?), (3, 3));
    assert!(text(progress, "message").starts_with("step 3 of 3"), "{progress}");
    let each: f64 =
        all.iter().filter_map(|step| step.get_document("exit").ok()?.get_f64("duration").ok()).sum();
    assert!((task.get_document("exit")?.get_f64("duration")? - each).abs() < 1e-6);
    world.end().await
}

#[tokio::test]
async fn the_first_step_that_does_not_succeed_ends_the_task_with_its_status() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let _den = world.den("n1")?;
    for (what, status) in [
        ("echo second; exit 3", 2),
        ("echo second; kill -9 $$", 2),
        ("echo second; echo '{\"status\": 7}' >&3", 7),
    ] {
        let mark = world.path().join(format!("third{}", what.len()));
        let third = format!("touch {}", mark.display());
        let plan = vec![step("a", "echo first"), step("b", what), step("c", &third)];
        let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
        let task = world.until_status(id, status).await?;
        assert_eq!(text(&task, "stdout"), "first\nsecond\n");
        assert_eq!(statuses(&task), [1, i32::try_from(status)?, -2]);
        assert!(!mark.exists() && !steps(&task)[2].contains_key("started"), "{task}");
    }
    world.end().await
}

#[tokio::test]
async fn nothing_is_begun_when_a_plugin_is_missing_or_what_is_stored_makes_no_sense() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let mark = world.path().join("ran");
    let missing = Step { plugin: Some("Missing".parse()?), ..step("gone", "true") };
    let plan = vec![step("a", &format!("touch {}", mark.display())), missing];
    let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(id, 2).await?;
    assert_eq!((text(&task, "stdout"), statuses(&task)), ("Unable to start", vec![-2, 2]));
    let why = "step 2 of 2 (gone): plugin Missing is not installed on this node";
    assert!(text(&task, "stderr").starts_with(why), "{task}");
    assert!(text(steps(&task)[1], "message").starts_with(why), "{task}");
    assert!(!mark.exists());
    let odd = world.submit(queue, vec![doc! { "do": "true" }; 1]).await?[0];
    world.until_status(odd, 1).await?;
    world.set(odd, doc! { "status": -2, "node": Bson::Null, "steps": [{ "plugin": 7 }] }).await?;
    let task = world.until_status(odd, 2).await?;
    assert_eq!(text(&task, "stderr"), "the task cannot be understood: steps[0].plugin must be text");
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_cancelled_in_the_middle_begins_no_more_steps() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let mark = world.path().join("ran");
    // It succeeds although it is told to end.
    let polite = "trap 'echo told; exit 0' TERM; echo waiting; while :; do sleep 0.05; done";
    let third = format!("touch {}", mark.display());
    let _den = world.den("n1")?;
    for what in ["echo waiting; exec sleep 1000", polite] {
        let plan = vec![step("a", "echo first"), step("b", what), step("c", &third)];
        let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
        until_runs(&world, id, 1).await?;
        eventually("its output", || async {
            let (stdout, _) = world.live(id, 1).await?;
            Ok((stdout == b"first\nwaiting\n").then_some(()))
        })
        .await?;
        let request = CancelRequest { by: "a test".to_owned(), reason: None };
        world.store().cancel_task(id, &request).await?;
        let task = world.until_status(id, -3).await?;
        assert_eq!(statuses(&task), [1, -3, -2]);
        assert_eq!(text(steps(&task)[1], "message"), "cancelled");
        assert!(!mark.exists());
    }
    world.end().await
}

#[tokio::test]
async fn another_attempt_begins_with_the_first_step_in_an_empty_folder() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let first = "ls; touch made; echo \"[saveJobStorage] $DISBATCH_ATTEMPT\"";
    let plan = vec![
        step("a", first),
        step("b", "ls; echo \"saved $JOB_STORAGE\"; [ $DISBATCH_ATTEMPT -ge 3 ]"),
        step("c", "echo done"),
    ];
    let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
    let den = world.den("n1")?;
    let task = world.until_status(id, 2).await?;
    assert_eq!(text(&task, "stdout"), "[saveJobStorage] 2\nmade\nsaved 2\n");
    assert_eq!(statuses(&task), [1, 2, -2]);
    let kept = world.store().list_attempts(id).await?;
    assert_eq!((kept.len(), statuses(&kept[0])), (1, vec![1, 2, -2]));
    assert!(steps(&kept[0]).iter().all(|step| !step.contains_key("params")), "{}", kept[0]);
    den.end_with(Signal::SIGTERM).await?;
    world.store().retry_task(id, "again").await?;
    let queued = world.task(id).await?;
    assert_eq!(statuses(&queued), [-2, -2, -2]);
    assert!(steps(&queued).iter().all(|step| step.len() == 3 && step.contains_key("params")), "{queued}");
    let _den = world.den("n1")?;
    let task = world.until_status(id, 1).await?;
    assert_eq!(text(&task, "stdout"), "[saveJobStorage] 3\nmade\nsaved 3\ndone\n");
    assert_eq!(statuses(&task), [1, 1, 1]);
    world.end().await
}

#[tokio::test]
async fn a_killed_runner_ends_the_step_that_ran_and_keeps_the_output_of_all() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 1).await?;
    let waits = "echo second; [ $DISBATCH_ATTEMPT -ge 2 ] || exec sleep 1000";
    let plan = vec![step("a", "echo first"), step("b", waits), step("c", "echo third")];
    let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
    let _den = world.den("n1")?;
    until_runs(&world, id, 1).await?;
    eventually("its output", || async {
        let (stdout, _) = world.live(id, 1).await?;
        Ok((stdout == b"first\nsecond\n").then_some(()))
    })
    .await?;
    let runner = world.task(id).await?.get_i64("pid")?;
    kill(Pid::from_raw(runner.try_into()?), Signal::SIGKILL)?;
    let task = world.until_status(id, -6).await?;
    assert_eq!(statuses(&task), [1, -6, -2]);
    assert!(steps(&task)[1].get_datetime("ended").is_ok(), "{task}");
    assert_eq!(text(&task, "stdout"), "first\nsecond\n");
    world.store().retry_task(id, "again").await?;
    let task = world.until_status(id, 1).await?;
    assert_eq!((text(&task, "stdout"), statuses(&task)), ("first\nsecond\nthird\n", vec![1, 1, 1]));
    let kept = world.store().list_attempts(id).await?;
    assert_eq!(statuses(&kept[0]), [1, -6, -2]);
    world.end().await
}

#[tokio::test]
async fn warm_plugins_do_steps_beside_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let script = Script { name: "Warm", text: WARM };
    script.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    SHELL.install(&world.plugins())?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    let same = "print(os.getpid()); open('made', 'a').write('x'); say(storage=env['DISBATCH_STEP'])";
    let cold = Step { plugin: Some("Sh".parse()?), ..step("cold", "cat made; echo; echo \"$JOB_STORAGE\"") };
    let bad = "print(open('made').read()); say(status=9)";
    let plan = vec![step("a", same), cold, step("b", same), step("c", bad), step("d", same)];
    let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(id, 9).await?;
    let lines: Vec<&str> = text(&task, "stdout").lines().collect();
    assert_eq!(lines[1..3], ["x", "\"1\""]);
    assert_eq!((lines[0], lines[4], lines.len()), (lines[3], "xx", 5), "one process: {lines:?}");
    assert_eq!(statuses(&task), [1, 1, 1, 9, -2]);
    assert_eq!(text(&task, "storage"), "3");
    world.end().await
}

#[tokio::test]
async fn a_runner_by_hand_does_all_steps() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHELL, 0).await?;
    let plan =
        vec![step("a", "echo one > file"), step("b", "cat file"), step("c", "echo out of order >&2; exit 4")];
    let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
    world.set(id, doc! { "status": -1, "node": "n1" }).await?;
    let run = world.dtr(&id.to_string(), &["--node", "n1", "--quiet"]).await?;
    assert_eq!(run.code()?, 0, "{}", run.stderr);
    let task = world.task(id).await?;
    assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (2, "one\n"));
    assert_eq!((text(&task, "stderr"), statuses(&task)), ("out of order\n", vec![1, 1, 2]));
    world.end().await
}

#[tokio::test]
async fn a_step_gives_nothing_away_that_its_plugin_has_put_in_the_place_of_the_folder() -> anyhow::Result<()>
{
    if !Uid::effective().is_root() {
        skipped("only root can run plugins as another user");
        return Ok(());
    }
    let world = World::new().await?;
    world.configure(json!({ "run_as": "nobody" }))?;
    fs::set_permissions(world.path(), Permissions::from_mode(0o755))?;
    let queue = world.script_queue(SHELL, 1).await?;
    let both = vec![step("a", "id -un; echo made > file"), step("b", "cat file; echo more >> file")];
    let good = submit(&world, queue, doc! { "a": 1 }, both).await?;
    let target = world.path().join("target");
    fs::create_dir(&target)?;
    let swap = format!("mv \"$PWD\" \"$PWD.old\"; ln -s {} \"$PWD\"; echo \"$PWD.old\"", target.display());
    let bad = submit(&world, queue, doc! { "a": 1 }, vec![step("a", &swap), step("b", "echo ran")]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(good, 1).await?;
    assert_eq!(text(&task, "stdout"), "nobody\nmade\n");
    let task = world.until_status(bad, 2).await?;
    let left = text(&task, "stdout").trim_end();
    assert!(left.ends_with(".old") && !left.contains('\n'), "{task}");
    let _gone = fs::remove_dir_all(left);
    assert_eq!(statuses(&task), [1, 2]);
    assert!(text(&task, "stderr").contains("the private folder is another one by now"), "{task}");
    assert_eq!(fs::metadata(&target)?.uid(), 0);
    world.end().await
}

#[tokio::test]
async fn the_first_step_that_has_the_folder_gets_it_as_its_user() -> anyhow::Result<()> {
    if !Uid::effective().is_root() {
        skipped("only root can run plugins as another user");
        return Ok(());
    }
    let world = World::new().await?;
    world.configure(json!({ "run_as": "nobody" }))?;
    fs::set_permissions(world.path(), Permissions::from_mode(0o755))?;
    for (name, text, warm) in [("Bare", BARE, json!({ "folder": false })), ("Warm", WARM, json!(true))] {
        let manifest = json!({ "name": name, "command": ["./run"], "warm": warm });
        Script { name, text }.install_as(&world.plugins(), &manifest)?;
    }
    SHELL.install(&world.plugins())?;
    let queue = world.queue("Bare", doc! { "threads": 1 }).await?;
    let cold = Step { plugin: Some("Sh".parse()?), ..step("cold", "stat -c %U .; echo >> made") };
    let what = "print(os.stat('.').st_uid == os.getuid()); open('made', 'a').write('x')";
    let warm = Step { plugin: Some("Warm".parse()?), ..step("warm", what) };
    let _den = world.den("n1")?;
    for (second, third, expected) in
        [(&cold, &warm, "/\nnobody\nTrue\n"), (&warm, &cold, "/\nTrue\nnobody\n")]
    {
        let plan = vec![step("bare", ""), second.clone(), third.clone()];
        let id = submit(&world, queue, doc! { "a": 1 }, plan).await?;
        let task = world.until_status(id, 1).await?;
        assert_eq!((text(&task, "stdout"), statuses(&task)), (expected, vec![1, 1, 1]), "{task}");
    }
    world.end().await
}
