//! Attempts are recorded, bundled and replayed.

mod by_hand;
mod common;
mod many;
mod parts;
mod rights;
mod versions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::schema::Schema;
use disbatch_core::secrets::{Keys, SecureParams, new_key};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, Script, World, binary};
use serde_json::{Value, json};
use tokio::process::Command;

/// Says what it was given, with the time and its folder, which differ each time.
const PYTHON: Script<'static> = Script {
    name: "My::Python",
    text: r#"#!/usr/bin/env python3
import hashlib, json, os, sys, time
task = json.load(sys.stdin)
params = task["params"]
secret = task.get("secure_params", {}).get("password", "") + os.environ.get("KEY", "")
print(time.strftime("%Y-%m-%d %H:%M:%S"), os.getcwd(), task["attempt"], params["n"], flush=True)
print(hashlib.sha256(secret.encode()).hexdigest(), os.environ["DISBATCH_NODE"], file=sys.stderr)
os.write(3, json.dumps({"progress": {"percent": 50}}).encode() + b"\n")
os.write(3, json.dumps({"result": {"twice": params["n"] * 2, "at": time.time()}}).encode() + b"\n")
sys.exit(params.get("exit", 0))
"#,
};

const PERL: &str = r#"package Greet;
use strict;
use warnings;
sub new { my ($class, %self) = @_; return bless \%self, $class }
sub run {
    my ($self) = @_;
    print "printed\n";
    return { status => 1, stdout => "hello $self->{task}{params}{name}\n", stderr => undef };
}
1;
"#;

/// Writes a plugin that is a Perl module.
fn install_perl(world: &World) -> anyhow::Result<PathBuf> {
    let folder = world.plugins().join("Greet");
    fs::create_dir_all(folder.join("lib"))?;
    fs::write(folder.join("lib/Greet.pm"), PERL)?;
    let manifest = json!({ "name": "Greet", "version": "1.2", "engine": "perl", "perl": { "lib": ["lib"] } });
    fs::write(folder.join("plugin.json"), manifest.to_string())?;
    Ok(folder)
}

/// `disbatch` with no settings but these.
async fn disbatch(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary("disbatch")?);
    for variable in ["DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN", "DISBATCH_URL"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").args(arguments).current_dir(folder).stdin(Stdio::null());
    Ok(command.kill_on_drop(true).output().await?)
}

/// Writes the bundle of a task's attempt. Returns its path and its bytes.
async fn bundle(world: &World, dci: &Dci, task: TaskId, more: &[&str]) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let id = task.to_string();
    let arguments = [&["--url", dci.url(), "bundle", &id], more].concat();
    let output = disbatch(world.path(), &arguments).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = world.path().join(format!("{task}.tar"));
    fs::write(&path, &output.stdout)?;
    Ok((path, output.stdout))
}

/// The files of a bundle.
fn files(bytes: &[u8]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut archive = tar::Archive::new(bytes);
    let mut files = BTreeMap::new();
    for file in archive.entries()? {
        let mut file = file?;
        files.insert(file.path()?.to_string_lossy().into_owned(), std::io::read_to_string(&mut file)?);
    }
    Ok(files)
}

fn json_of(files: &BTreeMap<String, String>, name: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(files.get(name).with_context(|| format!("no {name}"))?)?)
}

/// Replays a bundle, which must end so. Returns what is printed as JSON.
async fn replay(world: &World, bundle: &Path, more: &[&str], code: i32) -> anyhow::Result<Value> {
    let path = bundle.to_string_lossy();
    let arguments = [&["replay", &path, "--json"], more].concat();
    let output = disbatch(world.path(), &arguments).await?;
    let text = String::from_utf8([output.stdout.clone(), output.stderr].concat())?;
    ensure!(output.status.code() == Some(code), "{more:?}: {:?}: {text}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Has attempts of a queue recorded.
async fn record(world: &World, queue: QueueId) -> anyhow::Result<()> {
    world.update_queue(queue, doc! { "record": { "share": 1, "keep": 1 } }).await
}

async fn recordings(world: &World) -> anyhow::Result<u64> {
    let all = world.database().collection::<Document>("tasks.recordings");
    Ok(all.count_documents(doc! { "task": { "$exists": true } }).await?)
}

#[tokio::test]
async fn demo_shell_python_and_perl_replay_to_the_byte() -> anyhow::Result<()> {
    let world = World::new().await?;
    let perl = install_perl(&world)?;
    let python = world.script_queue(PYTHON, 1).await?;
    let shell = world.queue("Disbatch::Plugin::Shell", doc! { "threads": 1 }).await?;
    let greet = world.queue("Greet", doc! { "threads": 1 }).await?;
    let demo = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    for queue in [python, shell, greet, demo] {
        record(&world, queue).await?;
    }
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let command =
        "echo out; date; pwd; echo err >&2; echo \"$DISBATCH_TASK_ID $TENANT_ID $JOB_PARAMS\"; exit 3";
    let numbers = doc! { "n": 7, "exit": 0, "big": 5_000_000_000_i64, "x": 1.5 };
    let tasks = [
        (world.submit(python, vec![numbers]).await?[0], 1),
        (world.submit(shell, vec![doc! { "command": command }]).await?[0], 2),
        (world.submit(greet, vec![doc! { "name": "Ada" }]).await?[0], 1),
        (world.submit(demo, vec![doc! { "commands": "ab1" }]).await?[0], 1),
    ];
    let config = world.config();
    let with = ["--with".to_owned(), perl.to_string_lossy().into_owned()];
    for (number, (task, status)) in tasks.into_iter().enumerate() {
        let ended = world.until_status(task, status).await?;
        let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
        let of_bundle = files(&bytes)?;
        let about = json_of(&of_bundle, "bundle.json")?;
        let recording = json_of(&of_bundle, "recording.json")?;
        check_schema("Bundle", &about)?;
        check_schema("Recording", &recording)?;
        assert_eq!(
            (&about["recorded"], &about["outcome"]["status"]),
            (&json!(true), &json!(status)),
            "{about}"
        );
        assert_eq!(of_bundle["stdout"], ended.get_str("stdout").unwrap_or_default());
        assert_eq!(json_of(&of_bundle, "stdin.json")?["params"], bson_json(ended.get_document("params")?));
        assert!(recording["plugin"]["files"][0]["sha256"].is_string(), "{recording}");
        assert!(
            recording["environment"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == "DISBATCH_TASK_ID")),
            "{recording}"
        );
        // The others are found where they were.
        let more: Vec<&str> =
            if number == 2 { with.iter().map(String::as_str).collect() } else { Vec::new() };
        let result = ["--mask", r#""at": [0-9.]+"#];
        let same = replay(&world, &path, &[&more[..], &result].concat(), 0).await?;
        assert_eq!(same["changed_files"], json!([]), "{same}");
        let by_config = ["--config", &config.to_string_lossy(), result[0], result[1]].map(str::to_owned);
        replay(&world, &path, &by_config.each_ref().map(String::as_str), 0).await?;
    }
    assert_eq!(recordings(&world).await?, 4);
    assert_eq!(world.store().delete_tasks(&[tasks[0].0]).await?, 1);
    assert_eq!(recordings(&world).await?, 3, "a recording goes with its task");
    drop(den);
    world.end().await
}

fn bson_json(document: &Document) -> Value {
    bson::Bson::from(document.clone()).into_relaxed_extjson()
}

/// Whether it is as the documented format has it.
fn check_schema(name: &str, value: &Value) -> anyhow::Result<()> {
    let mut schema: Value = serde_json::from_str(include_str!("../../../contract/bundle.schema.json"))?;
    schema["$ref"] = json!(format!("#/$defs/{name}"));
    let until = Instant::now() + Duration::from_secs(10);
    let found = Schema::compile(&schema)?.check(value, until);
    found.map_err(|wrong| anyhow::anyhow!("{name}: {wrong:?}"))
}

#[tokio::test]
async fn a_changed_plugin_is_found_and_said() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue =
        world.script_queue(Script { name: "Count", text: "#!/bin/sh\nprintf 'one\\ntwo\\n'\n" }, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    let (path, _) = bundle(&world, &dci, task, &[]).await?;
    let other = world.path().join("other");
    fs::create_dir(&other)?;
    Script { name: "Count", text: "#!/bin/sh\nprintf 'one\\n2\\n'; touch left\n" }.install(&other)?;
    let folder = other.join("Count").to_string_lossy().into_owned();
    let program = other.join("Count/run").to_string_lossy().into_owned();
    let found = replay(&world, &path, &["--with", &folder, "--keep"], 1).await?;
    assert_eq!((&found["different"], &found["same"]), (&json!(["stdout"]), &json!(false)), "{found}");
    assert!(
        found["texts"][1]["difference"].as_str().is_some_and(|text| text.contains("-two\n+2\n")),
        "{found}"
    );
    assert_eq!(found["changed_files"], json!(["run"]), "{found}");
    let kept = PathBuf::from(found["folder"].as_str().context("no folder")?);
    assert!(kept.join("left").is_file());
    fs::remove_dir_all(kept)?;
    replay(&world, &path, &["--with", &program], 1).await?;
    replay(&world, &path, &["--with", &program, "--mask", "two|2"], 0).await?;
    let path = path.to_string_lossy();
    let text = disbatch(world.path(), &["replay", &path, "--with", &program]).await?;
    let text = String::from_utf8(text.stdout)?;
    assert!(text.contains("-two\n+2\n") && text.ends_with("different: stdout\n"), "{text}");
    let none = disbatch(world.path(), &["replay", &path, "--with", "/nonexistent"]).await?;
    assert_eq!(none.status.code(), Some(255));
    let config = world.config();
    let damaged = disbatch(world.path(), &["replay", &config.to_string_lossy()]).await?;
    let said = String::from_utf8(damaged.stderr)?;
    assert!(
        damaged.status.code() == Some(255) && said.contains("is no bundle that can be replayed"),
        "{said}"
    );
    drop(den);
    world.end().await
}

#[tokio::test]
async fn what_was_not_recorded_can_be_bundled_all_the_same() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho \"attempt $DISBATCH_ATTEMPT\"; [ \"$DISBATCH_ATTEMPT\" = 2 ]\n";
    let queue = world.script_queue(Script { name: "Twice", text }, 1).await?;
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": { "base": 0.05, "jitter": 0 } }).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! { "a": [1, { "b": "ü" }] }]).await?[0];
    world.until_status(task, 1).await?;
    assert_eq!(recordings(&world).await?, 0);
    let folder = world.plugins().join("Twice").to_string_lossy().into_owned();
    for (attempt, status) in [("1", 2), ("2", 1)] {
        let (path, bytes) = bundle(&world, &dci, task, &["--attempt", attempt]).await?;
        let of_bundle = files(&bytes)?;
        let about = json_of(&of_bundle, "bundle.json")?;
        check_schema("Bundle", &about)?;
        assert_eq!(
            (&about["recorded"], &about["outcome"]["status"]),
            (&json!(false), &json!(status)),
            "{about}"
        );
        assert!(
            about["not_recorded"][0]
                .as_str()
                .is_some_and(|text| text.starts_with("the attempt was not recorded"))
        );
        assert_eq!(of_bundle["stdout"], format!("attempt {attempt}\n"));
        assert!(!of_bundle.contains_key("recording.json"));
        let same = replay(&world, &path, &["--with", &folder], 0).await?;
        assert_eq!(same["changed_files"], Value::Null);
    }
    let (code, answer) = get(&dci, &format!("/tasks/{task}/bundle?.attempt=3")).await?;
    assert!(code == 404 && answer.contains("has no attempt 3"), "{code} {answer}");
    let waiting = world.queue("Twice", doc! { "threads": 0 }).await?;
    let waiting = world.submit(waiting, vec![doc! {}]).await?[0];
    let (code, answer) = get(&dci, &format!("/tasks/{waiting}/bundle")).await?;
    assert!(code == 409 && answer.contains("has not ended"), "{code} {answer}");
    drop(den);
    world.end().await
}

async fn get(dci: &Dci, path: &str) -> anyhow::Result<(u16, String)> {
    let answer = dci.request(reqwest::Method::GET, path).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// What the configuration says is secret: a key for parameters, which is returned, and a text of its own. In files that nobody else can read.
fn secret_files(world: &World, text: &str) -> anyhow::Result<String> {
    let key = format!("{}\n", *new_key()?);
    fs::create_dir(world.path().join("secrets"))?;
    for (file, text) in [("secrets.key", key.as_str()), ("secrets/key", text)] {
        let path = world.path().join(file);
        fs::write(&path, text)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(key)
}

/// A task whose password is sealed with `key`.
async fn submit_secret(world: &World, queue: QueueId, key: &str, password: &str) -> anyhow::Result<TaskId> {
    let params = json!({ "password": password });
    let params = SecureParams::new(params.as_object().context("an object")?.clone()).context("none")?;
    let sealed = Keys::of(Some(key), None)?.seal(queue, &params)?;
    let options = TaskOptions { secure_params: Some(sealed), ..TaskOptions::default() };
    Ok(world.store().submit_tasks(queue, vec![doc! { "n": 1 }], &options).await?.ids[0])
}

#[tokio::test]
async fn no_secret_is_in_a_bundle_and_replays_ask_for_them() -> anyhow::Result<()> {
    let world = World::new().await?;
    let marker = |name: &str| format!("marker-{name}-{}", bson::oid::ObjectId::new());
    let (password, key, inherited) = (marker("password"), marker("key"), marker("inherited"));
    world.configure(json!({
        "secrets": { "key_file": "secrets.key" }, "secrets_dir": "secrets", "secret_environment": { "key": "KEY" },
        "plugin_environment": ["SOME_TOKEN", "PLAIN"],
    }))?;
    let new = secret_files(&world, &key)?;
    let queue = world.script_queue(PYTHON, 1).await?;
    record(&world, queue).await?;
    let den = world.den_in("n1", &[], &[("SOME_TOKEN", &inherited), ("PLAIN", "seen")])?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = submit_secret(&world, queue, &new, &password).await?;
    world.until_status(task, 1).await?;
    let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
    for secret in [&password, &key, &inherited] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
    let of_bundle = files(&bytes)?;
    assert_eq!(json_of(&of_bundle, "bundle.json")?["secrets"], json!(["secure_params", "KEY"]));
    let recording = json_of(&of_bundle, "recording.json")?;
    let variable =
        |name: &str| recording["environment"].as_array()?.iter().find(|one| one["name"] == name).cloned();
    assert_eq!(variable("SOME_TOKEN"), Some(json!({ "name": "SOME_TOKEN", "value": null, "secret": true })));
    assert_eq!(variable("PLAIN"), Some(json!({ "name": "PLAIN", "value": "seen" })));
    let control = recording["control"].as_array().context("no lines")?;
    assert!(control.len() == 2 && control[0]["line"] == r#"{"progress": {"percent": 50}}"#, "{recording}");

    let given = path.to_string_lossy().into_owned();
    let unasked = disbatch(world.path(), &["replay", &given]).await?;
    let said = String::from_utf8(unasked.stderr)?;
    assert!(
        unasked.status.code() == Some(255) && said.contains("not in the bundle: secure_params, KEY."),
        "{said}"
    );
    let file = world.path().join("given.json");
    let file_name = file.to_string_lossy().into_owned();
    fs::write(&file, json!({ "secure_params": { "password": password }, "KEY": key }).to_string())?;
    let mask = ["--secrets", &file_name, "--mask", r#""at": [0-9.]+"#];
    replay(&world, &path, &mask, 0).await?;
    fs::write(&file, json!({ "secure_params": { "password": "wrong" }, "KEY": key }).to_string())?;
    let other = replay(&world, &path, &mask, 1).await?;
    assert_eq!(other["different"], json!(["stderr"]), "{other}");
    drop(den);
    world.end().await
}

#[tokio::test]
async fn a_recording_that_cannot_be_stored_is_lost_and_nothing_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    let refuse = doc! { "create": "tasks.recordings", "validator": { "never": { "$exists": true } } };
    world.database().run_command(refuse).await?;
    let queue = world.script_queue(Script { name: "Echo", text: "#!/bin/sh\necho x\n" }, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let tasks = world.submit(queue, vec![doc! {}, doc! {}]).await?;
    for task in tasks {
        let ended = world.until_status(task, 1).await?;
        assert_eq!((ended.get_str("stdout")?, ended.get_bool("complete")?), ("x\n", true), "{ended}");
    }
    assert_eq!(recordings(&world).await?, 0);
    let log = den.log()?;
    assert!(log.contains("recordings of attempts are lost"), "{log}");
    assert!(!log.contains("cannot go on with the help of the DEN"), "{log}");
    drop(den);
    world.end().await
}

#[tokio::test]
async fn of_a_warm_plugin_is_recorded_what_there_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    let warm = Script {
        name: "Warm",
        text: r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    task = json.loads(line)["task"]
    print("n is", task["params"]["n"], flush=True)
    os.write(3, json.dumps({"result": {"n": task["params"]["n"]}}).encode() + b"\n")
    os.write(3, json.dumps({"done": {"id": task["_id"]["$oid"], "exit": 0}}).encode() + b"\n")
"#,
    };
    warm.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let tasks = world.submit(queue, vec![doc! { "n": 1 }, doc! { "n": 2 }]).await?;
    for (task, n) in tasks.into_iter().zip([1, 2]) {
        world.until_status(task, 1).await?;
        let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
        let recording = json_of(&files(&bytes)?, "recording.json")?;
        assert_eq!(
            (&recording["environment"], &recording["output"]),
            (&json!([]), &json!([])),
            "{recording}"
        );
        let line = recording["control"][0]["line"].as_str().context("no line")?;
        assert_eq!(serde_json::from_str::<Value>(line)?, json!({ "result": { "n": n } }));
        assert!(recording["not_recorded"].to_string().contains("the plugin is warm"), "{recording}");
        replay(&world, &path, &[], 0).await?;
    }
    drop(den);
    world.end().await
}
