//! Programs of Disbatch 4.4: what they are given, and where they leave their answer.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Step, TaskId};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Script, World, binary, eventually, skipped};
use nix::unistd::Uid;
use serde_json::{Value, json};

/// Answers as `params.mode` says.
const ANSWERS: &str = r#"#!/bin/sh
cat > /dev/null
answer="${2%.json}-response.json"
echo "own output"
echo "own error" >&2
case "$JOB_PARAMS" in
*'"ok"'*) echo '{"status": 1, "stdout": "out", "stderr": null}' > "$answer" ;;
*'"text"'*) echo '{"status": "1", "stdout": "", "stderr": "err"}' > "$answer" ;;
*'"values"'*) echo '{"status": 1, "stdout": 12, "stderr": [1, "a"]}' > "$answer" ;;
*'"own"'*) echo '{"status": 7, "stdout": "x"}' > "$answer"; exit 3 ;;
*'"fails"'*) echo '{"status": 1, "stdout": "out", "stderr": "err"}' > "$answer"; exit 3 ;;
*'"zero"'*) echo '{"status": 0, "stdout": "z"}' > "$answer" ;;
*'"nothing"'*) echo '{}' > "$answer" ;;
*'"none"'*) exit 4 ;;
*'"killed"'*) kill -9 $$ ;;
*'"rubbish"'*) echo 'no answer' > "$answer" ;;
*'"link"'*) echo '{"status": 1}' > real; ln -s real "$answer" ;;
*'"said"'*) printf '{"status": 1, "stdout": "%s %s %s"}' "$1" "$3" "$4" > "$answer" ;;
*'"task"'*) printf '{"status": 1, "stdout": %s}' "$(cat "$2")" > "$answer" ;;
esac
"#;

/// Writes a program beside the configuration.
fn program(world: &World, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = world.path().join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A world whose configuration names these plugins.
async fn with_plugins(plugins: Value) -> anyhow::Result<World> {
    let world = World::new().await?;
    world.configure(json!({ "plugins": plugins }))?;
    program(&world, "answers", ANSWERS)?;
    Ok(world)
}

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

/// A stream that is stored as a file, as JSON.
async fn json_in_file(world: &World, task: &Document, field: &str) -> anyhow::Result<Value> {
    let mut whole = String::new();
    for chunk in world.chunks(task.get_object_id(field)?).await? {
        whole.push_str(chunk.get_str("data")?);
    }
    Ok(serde_json::from_str(&whole)?)
}

#[tokio::test]
async fn the_answer_is_the_tasks_and_the_programs_own_output_is_not() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Fork": { "type": "default", "command": ["./answers"] } })).await?;
    let queue = world.queue("Fork", doc! { "threads": 4 }).await?;
    let _den = world.den("n1")?;
    let null = || Bson::Null;
    let is = |text: &str| Bson::from(text);
    let unable = || is("Unable to complete");
    let cases = [
        ("ok", 1, is("out"), null()),
        ("text", 1, is(""), is("err")),
        ("values", 1, Bson::Int32(12), Bson::from(vec![Bson::Int32(1), is("a")])),
        ("own", 7, is("x"), null()),
        ("fails", 2, is(r#"{"status": 1, "stdout": "out", "stderr": "err"}"#), is("own output\nown error\n")),
        ("zero", 2, is("z"), null()),
        ("nothing", 2, null(), null()),
        ("none", 2, unable(), is("its answer")),
        ("killed", 2, unable(), is("Plugin killed by signal 9")),
        ("rubbish", 2, unable(), is("its answer is no JSON")),
        ("link", 2, unable(), is("cannot be read")),
    ];
    let params = cases.iter().map(|(mode, ..)| doc! { "mode": *mode }).collect();
    let ids = world.submit(queue, params).await?;
    for (id, (mode, status, stdout, stderr)) in ids.iter().zip(&cases) {
        let task = world.until_status(*id, *status).await?;
        assert_eq!(task.get("stdout"), Some(stdout), "{mode}");
        match stderr.as_str() {
            // Then what it has printed is there, and the reason after it.
            Some(part) if *stdout == unable() => {
                let stderr = text(&task, "stderr");
                assert!(stderr.starts_with("own output\nown error\n") && stderr.contains(part), "{stderr}");
            }
            _ => assert_eq!(task.get("stderr"), Some(stderr), "{mode}"),
        }
        let exit = match *mode {
            "own" | "fails" => 3,
            "none" => 4,
            "killed" => -1,
            _ => 0,
        };
        assert_eq!(task.get_i32("cmdExit")?, exit, "{mode}");
        assert_eq!(task.contains_key("cmdErr"), exit != 0, "{mode}");
    }
    world.end().await
}

#[tokio::test]
async fn values_that_are_no_text_are_files_where_all_output_is() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Fork": { "type": "nomongo", "path": "./answers" } })).await?;
    let queue = world.queue("Fork", doc! {}).await?;
    let task = world.run_by_hand(queue, doc! { "mode": "values" }, &["--quiet", "--gfs"]).await?;
    assert_eq!(json_in_file(&world, &task, "stdout").await?, json!(12));
    assert_eq!(json_in_file(&world, &task, "stderr").await?, json!([1, "a"]));
    world.end().await
}

#[tokio::test]
async fn a_program_is_given_what_its_type_says() -> anyhow::Result<()> {
    let world = with_plugins(json!({
        "Default": { "type": "default", "command": "./answers" },
        "Nomongo": { "type": "nomongo", "command": "./answers", "unknown": 1 },
    }))
    .await?;
    let config = world.config().display().to_string();
    for (plugin, further) in [("Default", format!("--config {config}")), ("Nomongo", " ".to_owned())] {
        let queue = world.queue(plugin, doc! {}).await?;
        let said = world.run_by_hand(queue, doc! { "mode": "said" }, &["--quiet"]).await?;
        assert_eq!(text(&said, "stdout"), format!("--task {further}"));
        let params = doc! { "mode": "task", "a": { "b": 1.5 } };
        let whole = world.run_by_hand(queue, params, &["--quiet", "--gfs"]).await?;
        let task = json_in_file(&world, &whole, "stdout").await?;
        assert_eq!(task["params"], json!({ "mode": "task", "a": { "b": 1.5 } }));
        assert_eq!(task["status"], json!(0));
        assert_eq!(task["_id"]["$oid"], json!(whole.get_object_id("_id")?.to_hex()));
    }
    world.end().await
}

#[tokio::test]
async fn what_it_prints_is_shown_while_it_runs() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Slow": { "type": "nomongo", "path": "./slow" } })).await?;
    let go = world.path().join("go");
    let slow = format!(
        "#!/bin/sh\necho working\nwhile [ ! -e {go} ]; do sleep 0.05; done\n\
         echo '{{\"status\": 1, \"stdout\": \"done\"}}' > \"${{2%.json}}-response.json\"\n",
        go = go.display()
    );
    program(&world, "slow", &slow)?;
    let queue = world.queue("Slow", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let live = world.database().collection::<Document>("tasks.live");
    eventually("live output", || async { Ok(live.find_one(doc! {}).await?) }).await?;
    fs::write(&go, "")?;
    let task = world.until_status(id, 1).await?;
    assert_eq!((text(&task, "stdout"), task.get("stderr")), ("done", Some(&Bson::Null)));
    eventually("it to be removed", || async { Ok(live.find_one(doc! {}).await?.is_none().then_some(())) })
        .await?;
    world.end().await
}

#[tokio::test]
async fn what_cannot_be_started_says_so() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Broken": { "type": "default", "path": "./broken" } })).await?;
    program(&world, "broken", "#!/nonexistent/interpreter\n")?;
    let queue = world.queue("Broken", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(id, 2).await?;
    assert_eq!(text(&task, "stdout"), "Unable to start");
    assert!(text(&task, "stderr").contains("broken: No such file"), "{task}");
    assert_eq!(task.get_i32("cmdExit")?, -3);
    assert!(text(&task, "cmdErr").contains("No such file"), "{task}");
    world.end().await
}

#[tokio::test]
async fn a_queue_whose_program_is_missing_waits_for_it() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Later": { "type": "nomongo", "path": "./later" } })).await?;
    let queue = world.queue("Later", doc! { "threads": 1 }).await?;
    let den = world.den_at_work("n1").await?;
    let id = world.submit(queue, vec![doc! { "mode": "ok" }]).await?[0];
    eventually("the DEN to say so", || async {
        Ok(den.log()?.contains("program './later' is not an executable file").then_some(()))
    })
    .await?;
    assert_eq!(world.status(id).await?, -2);
    program(&world, "later", ANSWERS)?;
    world.until_status(id, 1).await?;
    world.end().await
}

#[tokio::test]
async fn a_program_may_answer_in_the_database() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Mongo": { "type": "mongo", "path": "./mongo" } })).await?;
    let (called, go) = (world.path().join("called"), world.path().join("go"));
    let text_of = format!(
        "#!/bin/sh\necho \"$@\" >> {called}\nwhile [ ! -e {go} ]; do sleep 0.05; done\n",
        called = called.display(),
        go = go.display()
    );
    program(&world, "mongo", &text_of)?;
    let queue = world.queue("Mongo", doc! { "threads": 1 }).await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let results = world.database().collection::<Document>("results");
    results.insert_one(doc! { "_id": id, "status": 5, "stdout": "that of an earlier attempt" }).await?;
    let _den = world.den("n1")?;
    let words = eventually("the program to be called", || async {
        Ok(fs::read_to_string(&called).ok().filter(|words| words.ends_with('\n')))
    })
    .await?;
    assert_eq!(words, format!("--task {id} --config {}\n", world.config().display()));
    assert!(results.find_one(doc! { "_id": id }).await?.is_none(), "it was removed before the start");
    results.insert_one(doc! { "_id": id, "status": 1_i64, "stdout": "from results", "stderr": 7 }).await?;
    fs::write(&go, "")?;
    let task = world.until_status(id, 1).await?;
    assert_eq!((text(&task, "stdout"), task.get_i32("stderr")?), ("from results", 7));
    let silent = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(silent, 2).await?;
    assert_eq!(text(&task, "stdout"), "Unable to complete");
    assert!(text(&task, "stderr").contains("no document in results has its id"), "{task}");
    world.end().await
}

#[tokio::test]
async fn a_program_that_is_a_runner_sees_to_its_task_itself() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text_of_plugin = "#!/bin/sh\necho by hand\n";
    Script { name: "Hand", text: text_of_plugin }.install(&world.path().join("of runner"))?;
    // Another runner, with a configuration of its own, in which the plugin is an ordinary one.
    world.configure(json!({ "plugin_dirs": ["of runner"] }))?;
    let other = world.path().join("other.json");
    fs::copy(world.config(), &other)?;
    world.configure(
        json!({ "quiet": 1, "plugins": { "Hand": { "type": "handoff", "command": ["./hand", "-x"] } } }),
    )?;
    let called = world.path().join("called");
    let runner = format!(
        "#!/bin/sh\necho \"$@\" >> {called}\nexec {dtr} --config {other} --node n1 --gfs auto --quiet --task \"$3\"\n",
        called = called.display(),
        dtr = binary("dtr")?.display(),
        other = other.display(),
    );
    program(&world, "hand", &runner)?;
    let queue = world.queue("Hand", doc! { "threads": 2 }).await?;
    let _den = world.den("n1")?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    for id in &ids {
        let task = world.until_status(*id, 1).await?;
        assert_eq!(text(&task, "stdout"), "by hand\n");
        assert!(task.get_bool("complete")?);
    }
    let calls = fs::read_to_string(&called)?;
    let expected = |id: &TaskId| format!("-x --task {id} --config {} --quiet", world.config().display());
    assert_eq!(calls.lines().count(), 3, "each is handed over once: {calls}");
    assert!(ids.iter().all(|id| calls.lines().any(|line| line == expected(id))), "{calls}");
    // A runner of ours is not the one that does it.
    let idle = world.queue("Hand", doc! {}).await?;
    let by_hand = world.run_by_hand(idle, doc! {}, &["--quiet"]).await?;
    assert_eq!(text(&by_hand, "stdout"), "Unable to start");
    assert!(text(&by_hand, "stderr").contains("plugin Hand is a runner itself"), "{by_hand}");
    world.end().await
}

#[tokio::test]
async fn a_runner_that_ends_without_its_task_gives_it_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "plugins": { "Hand": { "type": "handoff", "path": "./hand" } } }))?;
    program(&world, "hand", "#!/bin/sh\nexit 1\n")?;
    let queue = world.queue("Hand", doc! { "threads": 1 }).await?;
    let den = world.den("n1")?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    eventually("the DEN to notice", || async {
        Ok(den.log()?.contains("a runner ended without starting its task").then_some(()))
    })
    .await?;
    eventually("the task to be given back", || async { Ok((world.status(id).await? == -2).then_some(())) })
        .await?;
    world.end().await
}

#[tokio::test]
async fn programs_do_steps_with_others() -> anyhow::Result<()> {
    let world = with_plugins(json!({ "Fork": { "type": "default", "path": "./answers" } })).await?;
    let exec = Script { name: "Exec", text: "#!/bin/sh\ncat > /dev/null\necho \"exec: $(ls | wc -l)\"\n" };
    let queue = world.script_queue(exec, 1).await?;
    let _den = world.den("n1")?;
    let step = |name: &str, plugin: Option<&str>, mode: &str| -> anyhow::Result<Step> {
        let plugin = plugin.map(str::parse).transpose()?;
        Ok(Step { name: name.to_owned(), plugin, params: doc! { "mode": mode } })
    };
    let steps = vec![
        step("a", Some("Fork"), "ok")?,
        step("b", None, "")?,
        step("c", Some("Fork"), "nothing")?,
        step("d", None, "")?,
    ];
    let options = TaskOptions { steps, ..TaskOptions::default() };
    let id = world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    let task = world.until_status(id, 2).await?;
    // What the first step was given is gone in the second, and the third has an answer of its own.
    assert_eq!(text(&task, "stdout"), "outexec: 0\n");
    let statuses: Vec<i32> = task
        .get_array("steps")?
        .iter()
        .filter_map(|step| step.as_document()?.get_i32("status").ok())
        .collect();
    assert_eq!(statuses, [1, 1, 2, -2]);
    world.end().await
}

#[tokio::test]
async fn a_program_of_another_user_can_read_its_files_and_answer() -> anyhow::Result<()> {
    if !Uid::effective().is_root() {
        skipped("only root can run plugins as another user");
        return Ok(());
    }
    let world = World::new().await?;
    let plugins = json!({ "Fork": { "type": "default", "path": "./answers" } });
    world.configure(json!({ "plugins": plugins, "run_as": "nobody", "gfs": true }))?;
    let config = r#"*'"config"'*) printf '{"status": 1, "stdout": %s}' "$(cat "$4")" > "$answer" ;;"#;
    let first = r#"*'"ok"'*)"#;
    program(&world, "answers", &ANSWERS.replace(first, &format!("{config}\n{first}")))?;
    fs::set_permissions(world.path(), Permissions::from_mode(0o755))?;
    fs::set_permissions(world.config(), Permissions::from_mode(0o600))?;
    let queue = world.queue("Fork", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    let ids = world.submit(queue, vec![doc! { "mode": "task" }, doc! { "mode": "config" }]).await?;
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!(json_in_file(&world, &task, "stdout").await?["params"], json!({ "mode": "task" }));
    let task = world.until_status(ids[1], 1).await?;
    let config = json_in_file(&world, &task, "stdout").await?;
    assert_eq!((&config["database"], &config["auth"]), (&json!(world.database().name()), &json!({})));
    assert_eq!(config["run_as"], Value::Null, "what is no plugin's business is left out");
    world.end().await
}

/// The text of the first block of this language after the heading "An example".
fn example<'a>(page: &'a str, language: &str) -> anyhow::Result<&'a str> {
    let (_, section) = page.split_once("## An example\n").context("no section")?;
    let (_, block) = section.split_once(&format!("```{language}\n")).context("no block")?;
    Ok(block.split_once("```").context("no end")?.0)
}

#[tokio::test]
async fn the_documented_example_works() -> anyhow::Result<()> {
    let page = include_str!("../../../docs/engines/programs.md");
    let world = World::new().await?;
    let folder = world.plugins().join("lines");
    fs::create_dir(&folder)?;
    fs::write(folder.join("plugin.json"), example(page, "json")?)?;
    program(&world, "plugins/lines/lines.py", example(page, "python")?)?;
    let queue = world.queue("My::Lines", doc! {}).await?;
    let task = world.run_by_hand(queue, doc! { "text": "a\nb\nc" }, &["--quiet"]).await?;
    assert_eq!((text(&task, "stdout"), task.get("stderr")), ("3 lines\n", Some(&Bson::Null)));
    world.end().await
}

#[tokio::test]
async fn what_a_plugin_says_of_how_it_was_run_is_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text_of = "#!/bin/sh\necho '{\"facts\": {\"image\": \"busybox\", \"n\": 1}, \"detach\": true}' >&3\n";
    let queue = world.script_queue(Script { name: "Facts", text: text_of }, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
    assert_eq!(task.get_i32("status")?, 1, "it is no web service, so nothing goes on without it");
    let exit = task.get_document("exit")?;
    assert_eq!(exit.get_document("engine")?, &doc! { "image": "busybox", "n": 1 });
    assert_eq!(exit.get_i32("code")?, 0);
    assert!(text(&task, "stderr").contains("detach is ignored: no web service calls back"), "{task}");
    world.end().await
}

#[tokio::test]
async fn private_folders_are_where_the_configuration_says() -> anyhow::Result<()> {
    let world = World::new().await?;
    let further = json!({ "temp_dir": "runs/here", "temp_dir_mode": "0700", "plugin_runner": "/usr/bin/x",
                          "pre_hook": { "name": "Hook", "fatal": 1 } });
    world.configure(further)?;
    let script = Script { name: "Where", text: "#!/bin/sh\ntouch file\npwd\n" };
    let queue = world.script_queue(script, 1).await?;
    let den = world.den("n1")?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(id, 1).await?;
    let parent = world.path().join("runs/here");
    assert!(text(&task, "stdout").starts_with(parent.to_str().context("no text")?), "{task}");
    eventually("the folder to be removed", || async {
        let left = fs::read_dir(&parent)?
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().contains(&id.to_string()));
        Ok((!left).then_some(()))
    })
    .await?;
    let log = den.log()?;
    assert!(log.contains("pre_hook is not run") && !log.contains("unknown configuration key"), "{log}");
    world.end().await
}
