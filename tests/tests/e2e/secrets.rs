//! Secure parameters: the plugin gets them, and nobody else, wherever one looks.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::secrets::{Keys, SecureParams, VARIABLE, new_key};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, Script, World, binary, eventually};
use futures::TryStreamExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

/// Prints the SHA-256 of the password that it gets, or "none"; then does what `params.do` says, in Python.
const COLD: Script<'static> = Script {
    name: "Cold",
    text: r#"#!/usr/bin/env python3
import hashlib, json, os, sys, time
task = json.load(sys.stdin)
secret = task.get("secure_params")
print(hashlib.sha256(secret["password"].encode()).hexdigest() if secret else "none", flush=True)
exec(task["params"].get("do", ""))
"#,
};

/// The same for task after task.
const WARM: Script<'static> = Script {
    name: "Warm",
    text: r#"#!/usr/bin/env python3
import hashlib, json, os, sys
for line in sys.stdin:
    task = json.loads(line)["task"]
    secret = task.get("secure_params")
    print(os.getpid(), hashlib.sha256(secret["password"].encode()).hexdigest() if secret else "none", flush=True)
    os.write(3, json.dumps({"done": {"id": task["_id"]["$oid"], "exit": 0}}).encode() + b"\n")
"#,
};

/// What must be nowhere but in the plugin: nothing else has it by chance.
fn marker() -> String {
    format!("marker{}{}", ObjectId::new(), ObjectId::new())
}

fn hash(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The line that the plugins print.
fn printed(secret: &str) -> String {
    format!("{}\n", hash(secret))
}

/// A new key as the command line prints it.
async fn key() -> anyhow::Result<String> {
    let made = Command::new(binary("disbatch")?).arg("secrets-key").output().await?;
    ensure!(made.status.success(), "{made:?}");
    Ok(String::from_utf8(made.stdout)?)
}

/// Writes the file of keys that the configuration of the world names.
fn write_keys(world: &World, keys: &[&str]) -> anyhow::Result<()> {
    let path = world.path().join("secrets.key");
    fs::write(&path, keys.concat())?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(())
}

/// A world whose configuration names a file with this key.
async fn world(key: &str) -> anyhow::Result<World> {
    let world = World::new().await?;
    world.configure(json!({ "secrets": { "key_file": "secrets.key" } }))?;
    write_keys(&world, &[key])?;
    Ok(world)
}

/// Submits a task with a password, encrypted with the first of these keys.
async fn submit(world: &World, queue: QueueId, keys: &[&str], password: &str) -> anyhow::Result<TaskId> {
    let object = json!({ "password": password });
    let params = SecureParams::new(object.as_object().context("an object")?.clone()).context("none")?;
    let sealed = Keys::of(Some(&keys.concat()), None)?.seal(queue, &params)?;
    let options = TaskOptions { secure_params: Some(sealed), ..TaskOptions::default() };
    let ids = world.store().submit_tasks(queue, vec![doc! { "n": 1 }], &options).await?.ids;
    ids.first().copied().context("nothing was submitted")
}

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

/// The name of the key that a task's secure parameters are encrypted with.
fn key_of(task: &Document) -> anyhow::Result<String> {
    Ok(task.get_document("secure_params")?.get_str("key")?.to_owned())
}

/// Fails if any document has the secret, whatever its collection: in its bytes, or written as Extended JSON.
pub async fn not_in_the_database(world: &World, secret: &str) -> anyhow::Result<()> {
    let mut looked_at = 0;
    for name in world.database().list_collection_names().await? {
        let all = world.database().collection::<RawDocumentBuf>(&name).find(doc! {}).await?;
        for document in all.try_collect::<Vec<_>>().await? {
            looked_at += 1;
            let extended =
                bson::Bson::Document(Document::try_from(document.clone())?).into_canonical_extjson();
            ensure!(
                !has(document.as_bytes(), secret) && !has(extended.to_string().as_bytes(), secret),
                "{name}: {extended}"
            );
        }
    }
    ensure!(looked_at >= 3, "only {looked_at} documents");
    Ok(())
}

/// Fails if a file has the secret: logs, the configuration, what plugins have written.
pub fn not_in_files(folder: &Path, secret: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            not_in_files(&path, secret)?;
        } else {
            ensure!(!has(&fs::read(&path)?, secret), "{} has it", path.display());
        }
    }
    Ok(())
}

/// What can be seen of each process: its command line, and its environment where that may be read.
fn processes() -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let entries = fs::read_dir("/proc")?.filter_map(Result::ok).map(|entry| entry.path());
    let begins = |path: &PathBuf| path.file_name().and_then(|name| name.as_encoded_bytes().first().copied());
    let is_process = |path: &PathBuf| begins(path).is_some_and(|byte| byte.is_ascii_digit());
    // It may end meanwhile.
    let read = |path: PathBuf| {
        let of = |name| fs::read(path.join(name)).unwrap_or_default();
        (of("cmdline"), of("environ"))
    };
    Ok(entries.filter(is_process).map(read).collect())
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Fails if a process shows the secret. DCI, DEN, runner and plugin of this world are there to be looked at.
fn not_in_processes(world: &World, secret: &str) -> anyhow::Result<()> {
    let folder = world.path().display().to_string();
    let mut ours = 0;
    for (line, environment) in processes()? {
        ensure!(!has(&line, secret), "{}", String::from_utf8_lossy(&line));
        ensure!(!has(&environment, secret), "the environment of {}", String::from_utf8_lossy(&line));
        ours += usize::from(has(&line, &folder));
    }
    ensure!(ours >= 4, "only {ours} processes");
    Ok(())
}

/// Submits a task by the command line, with a file of secure parameters. Its plugin makes the file `ready` in the folder
/// of the world, and waits for the file `go`.
async fn submit_by_hand(world: &World, dci: &Dci, queue: QueueId, secret: &str) -> anyhow::Result<TaskId> {
    let folder = TempDir::new()?;
    let file = folder.path().join("secure.json");
    fs::write(&file, format!("{{ # relaxed\n  \"password\": \"{secret}\",\n}}\n"))?;
    let (ready, go) = (world.path().join("ready"), world.path().join("go"));
    let what = format!("open({ready:?}, 'w').close()\nwhile not os.path.exists({go:?}): time.sleep(0.02)");
    let made = Command::new(binary("disbatch")?)
        .args(["--url", dci.url(), "create-task", &queue.to_string(), "do", &what, "--secure-params-file"])
        .arg(&file)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .await?;
    let said = String::from_utf8(made.stdout)?;
    ensure!(made.status.success(), "{said} {}", String::from_utf8_lossy(&made.stderr));
    Ok(said.lines().nth(1).context("no id")?.parse()?)
}

#[tokio::test]
async fn only_the_plugin_gets_them() -> anyhow::Result<()> {
    let (world, secret) = (world(&key().await?).await?, marker());
    let queue = world.script_queue(COLD, 1).await?;
    let log = world.path().join("dci.log");
    let dci = Dci::start(&world.config(), &log).await?;
    let den = world.den_at_work("n1").await?;
    let task = submit_by_hand(&world, &dci, queue, &secret).await?;

    let (ready, go) = (world.path().join("ready"), world.path().join("go"));
    eventually("the plugin to run", || async { Ok(ready.exists().then_some(())) }).await?;
    not_in_processes(&world, &secret)?;
    not_in_the_database(&world, &secret).await?;
    fs::write(&go, "")?;
    let ended = world.until_status(task, 1).await?;
    ensure!(text(&ended, "stdout") == printed(&secret), "{ended}");

    dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    let again = world.until_status(task, 1).await?;
    ensure!(text(&again, "stdout") == printed(&secret), "what is stored has not changed: {again}");
    ensure!(dci.get(&format!("/tasks/{task}")).await?["has_secure_params"] == true);
    world.store().archive_tasks(&[task]).await?;
    for path in
        [format!("/tasks/{task}"), format!("/tasks/{task}/attempts"), "/tasks?.limit=9&.archive=1".into()]
    {
        for accept in ["application/json", "text/html"] {
            let shown = dci.request(reqwest::Method::GET, &path).header("accept", accept).send().await?;
            let (status, shown) = (shown.status(), shown.text().await?);
            // An error would show nothing in any case.
            ensure!(status == 200, "{path} as {accept}: {status} {shown}");
            ensure!(!shown.contains(&secret) && !shown.contains("\"secure_params\""), "{path}: {shown}");
        }
    }
    den.end_with(nix::sys::signal::Signal::SIGTERM).await?;
    not_in_the_database(&world, &secret).await?;
    not_in_files(world.path(), &secret)?;
    world.end().await
}

#[tokio::test]
async fn a_warm_plugin_gets_those_of_each_task() -> anyhow::Result<()> {
    let key = key().await?;
    let (world, first, last) = (world(&key).await?, marker(), marker());
    let queue = world.script_queue(WARM, 1).await?;
    WARM.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let one = submit(&world, queue, &[&key], &first).await?;
    let without = world.submit(queue, vec![doc! { "n": 1 }]).await?;
    let other = submit(&world, queue, &[&key], &last).await?;
    let _den = world.den("n1")?;
    let ended = world.until_all_ended(queue).await?;
    let told = |id: TaskId| {
        let task = ended.iter().find(|task| task.get_object_id("_id").ok() == Some(id.0));
        task.map(|task| text(task, "stdout")).and_then(|stdout| stdout.trim_end().split_once(' '))
    };
    let (process, hashed) = told(one).context("nothing printed")?;
    ensure!(hashed == hash(&first));
    ensure!(told(*without.first().context("no task")?) == Some((process, "none")));
    ensure!(told(other) == Some((process, &*hash(&last))));
    for secret in [first, last] {
        not_in_the_database(&world, &secret).await?;
        not_in_files(world.path(), &secret)?;
    }
    world.end().await
}

#[tokio::test]
async fn after_a_rotation_tasks_with_the_old_key_still_run() -> anyhow::Result<()> {
    let (old, new) = (key().await?, key().await?);
    let (world, before, waiting, after) = (world(&old).await?, marker(), marker(), marker());
    let queue = world.script_queue(COLD, 1).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, &[&old], &before).await?;
    let ended = world.until_status(task, 1).await?;
    ensure!(text(&ended, "stdout") == printed(&before), "{ended}");

    world.update_queue(queue, doc! { "paused": true }).await?;
    let waits = submit(&world, queue, &[&old], &waiting).await?;
    write_keys(&world, &["# of today\n", &new, "# of yesterday\n", &old])?;
    // Only a DCI has to be started again; it is the new key that it encrypts with.
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let body = json!({
        "queue": queue.to_string(), "params": { "n": 1 }, ".secure_params": { "password": after },
    });
    let answer = dci.posted("/tasks", &body).await?;
    let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str();
    let newer: TaskId = id.context("no id")?.parse()?;
    world.update_queue(queue, doc! { "paused": false }).await?;
    for (task, secret) in [(waits, &waiting), (newer, &after)] {
        let ended = world.until_status(task, 1).await?;
        ensure!(text(&ended, "stdout") == printed(secret), "{ended}");
    }
    ensure!(key_of(&world.task(waits).await?)? == key_of(&ended)?);
    ensure!(key_of(&world.task(newer).await?)? != key_of(&ended)?, "the new key encrypts");
    world.end().await
}

#[tokio::test]
async fn without_the_key_a_task_fails_and_says_so() -> anyhow::Result<()> {
    let (missing, other) = (key().await?, key().await?);
    let (world, secret) = (world(&other).await?, marker());
    let queue = world.script_queue(COLD, 1).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, &[&missing], &secret).await?;
    let failed = world.until_status(task, 2).await?;
    ensure!(text(&failed, "stdout") == "Unable to start", "{failed}");
    let expected = format!(
        "cannot decrypt the secure parameters of the task: they were encrypted with the key {}, which is not among \
         the keys of this host",
        key_of(&failed)?
    );
    ensure!(text(&failed, "stderr") == expected, "{failed}");

    fs::remove_file(world.path().join("secrets.key"))?;
    world.store().retry_task(task, "again").await?;
    let failed = world.until_status(task, 2).await?;
    ensure!(text(&failed, "stderr").contains("and cannot read secrets.key_file"), "{failed}");
    ensure!(text(&failed, "stderr").contains(&key_of(&failed)?), "{failed}");

    write_keys(&world, &[&missing])?;
    world.store().retry_task(task, "with the key").await?;
    let ended = world.until_status(task, 1).await?;
    ensure!(text(&ended, "stdout") == printed(&secret), "{ended}");
    not_in_the_database(&world, &secret).await?;
    world.end().await
}

#[tokio::test]
async fn what_is_copied_to_another_queue_cannot_be_read_there() -> anyhow::Result<()> {
    let key = key().await?;
    let (world, secret) = (world(&key).await?, marker());
    let theirs = world.script_queue(COLD, 0).await?;
    let ours = world.queue("Cold", doc! { "threads": 1 }).await?;
    let victim = submit(&world, theirs, &[&key], &secret).await?;
    let copied = world.task(victim).await?.get("secure_params").cloned().context("nothing")?;
    let thief =
        *world.submit(ours, vec![doc! { "do": "print(secret)" }]).await?.first().context("no task")?;
    world.set(thief, doc! { "secure_params": copied }).await?;
    let _den = world.den("n1")?;
    let failed = world.until_status(thief, 2).await?;
    ensure!(text(&failed, "stderr").contains("belong to a task of another queue"), "{failed}");
    not_in_the_database(&world, &secret).await?;
    world.end().await
}

#[tokio::test]
async fn a_key_in_the_environment_reaches_runners_and_no_plugins() -> anyhow::Result<()> {
    let (world, key, secret) = (World::new().await?, new_key()?, marker());
    let queue = world.script_queue(COLD, 1).await?;
    let object = json!({ "password": secret });
    let params = SecureParams::new(object.as_object().context("an object")?.clone()).context("none")?;
    let sealed = Keys::of(Some(&key), None)?.seal(queue, &params)?;
    let options = TaskOptions { secure_params: Some(sealed), ..TaskOptions::default() };
    let what = format!("print({VARIABLE:?} in os.environ)");
    let ids = world.store().submit_tasks(queue, vec![doc! { "do": what }], &options).await?.ids;
    let log = world.path().join("n1.log");
    let _den = Command::new(binary("den")?)
        .arg("--config")
        .arg(world.config())
        .args(["--node", "n1"])
        .env(VARIABLE, key.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .kill_on_drop(true)
        .spawn()?;
    let ended = world.until_status(*ids.first().context("no task")?, 1).await?;
    ensure!(text(&ended, "stdout") == format!("{}False\n", printed(&secret)), "{ended}");
    for part in [secret.as_str(), key.as_str()] {
        not_in_the_database(&world, part).await?;
        not_in_files(world.path(), part)?;
    }
    world.end().await
}
