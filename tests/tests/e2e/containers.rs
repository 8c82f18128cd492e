//! Plugins in containers: a real DEN, runner and adapter, and a Podman of the test's own.

mod commits;
mod documents;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, Step, TaskId};
use disbatch_core::secrets::{Keys, SecureParams, new_key};
use disbatch_core::task::{CancelRequest, TaskOptions};
use disbatch_tests::podman::{Container, IMAGE, Podman};
use disbatch_tests::{Script, World, binary, eventually, skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::process::Command;

/// Says that it works, and goes on until it is told to end.
const PATIENT: &str = "trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.1; done";

struct Setup {
    world: World,
    podman: Podman,
}

impl Setup {
    /// `None`: there can be no containers here, which is said.
    async fn make() -> anyhow::Result<Option<Self>> {
        let Some(podman) = Podman::start().await? else { return Ok(None) };
        let setup = Self { world: World::new().await?, podman };
        setup.configure(json!({}))?;
        Ok(Some(setup))
    }

    /// Enables containers, and writes these further keys.
    fn configure(&self, mut further: Value) -> anyhow::Result<()> {
        further["engines"] = json!({ "container": { "socket": self.podman.socket() } });
        self.world.configure(further)
    }

    /// Installs a plugin with this section in its manifest, besides what all have, and makes a queue for it.
    async fn queue(&self, name: &str, container: &Value) -> anyhow::Result<QueueId> {
        let mut section = json!({ "image": IMAGE, "network": "none", "pull": "never" });
        for (key, value) in container.as_object().context("a section is an object")? {
            section[key] = value.clone();
        }
        let folder = self.world.plugins().join(name);
        fs::create_dir_all(&folder)?;
        let manifest = json!({ "name": name, "engine": "container", "container": section });
        fs::write(folder.join("plugin.json"), manifest.to_string())?;
        self.world.queue(name, doc! { "threads": 2 }).await
    }

    /// Runs a task to its end, by a runner that is started for it alone.
    async fn run(&self, queue: QueueId, params: Document) -> anyhow::Result<Document> {
        self.world.run_by_hand(queue, params, &["--quiet"]).await
    }

    /// Waits until the output of the first attempt at a task is this, and returns its container.
    async fn until_printed(&self, task: TaskId, text: &str) -> anyhow::Result<Container> {
        eventually("output while it runs", || async {
            let (stdout, _) = self.world.live(task, 1).await?;
            Ok((stdout == text.as_bytes()).then_some(()))
        })
        .await?;
        self.podman.until_containers(1).await?.pop().context("no container")
    }

    /// Where a running container's private folder is on this machine.
    async fn folder_of(&self, container: &Container) -> anyhow::Result<PathBuf> {
        let inspected = self.podman.inspect(&container.id).await?;
        let mounts = inspected["Mounts"].as_array().context("no mounts")?;
        let of_work = mounts.iter().find(|mount| mount["Destination"] == "/work").context("no /work")?;
        Ok(of_work["Source"].as_str().context("no source")?.into())
    }

    async fn end(self) -> anyhow::Result<()> {
        assert!(self.podman.containers().await?.is_empty(), "no container is left");
        self.world.end().await
    }
}

/// A section with a script for a shell.
fn script(text: &str) -> Value {
    json!({ "command": ["sh", "-c", text] })
}

fn facts(task: &Document) -> anyhow::Result<&Document> {
    Ok(task.get_document("exit")?.get_document("engine")?)
}

fn number(document: &Document, key: &str) -> anyhow::Result<i64> {
    match document.get(key) {
        Some(Bson::Int32(number)) => Ok(i64::from(*number)),
        Some(Bson::Int64(number)) => Ok(*number),
        other => anyhow::bail!("{key}: {other:?}"),
    }
}

fn stderr(task: &Document) -> &str {
    task.get_str("stderr").unwrap_or_default()
}

/// The process that looks after a container.
fn adapter_of(container: &Container) -> anyhow::Result<Pid> {
    let label = container.labels.get("disbatch.adapter").context("it has no adapter")?;
    Ok(Pid::from_raw(label.split('/').nth(1).context("it names no process")?.parse()?))
}

fn request() -> CancelRequest {
    CancelRequest { by: "a test".to_owned(), reason: None }
}

#[tokio::test]
async fn output_exit_code_and_what_is_known_of_a_container_are_the_tasks() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let text = r#"cat > /dev/null; echo out; echo err >&2
        echo '{"progress":{"percent":50,"message":"half"}}' > "$DISBATCH_CONTROL"
        echo '{"result":{"n":7}}' > "$DISBATCH_CONTROL"
        exit 3"#;
    let queue = setup.queue("Boxed", &script(text)).await?;
    let task = setup.run(queue, doc! {}).await?;
    assert_eq!(task.get_i32("status")?, 2, "{task}");
    assert_eq!((task.get_str("stdout")?, task.get_str("stderr")?), ("out\n", "err\n"));
    assert_eq!(task.get_document("result")?, &doc! { "n": 7 });
    assert_eq!(task.get_document("progress")?.get_str("message")?, "half");
    assert_eq!(number(task.get_document("exit")?, "code")?, 3);
    let facts = facts(&task)?;
    assert_eq!((facts.get_str("container")?.len(), facts.get_str("image")?), (64, IMAGE));
    assert_eq!((number(facts, "exit_code")?, facts.get_bool("oom")?), (3, false));
    let digest = setup.podman.run(&["image", "inspect", "--format", "{{.Digest}}", IMAGE]).await?.stdout;
    assert_eq!(facts.get_str("digest")?, digest.trim());
    let queue = setup.queue("Long", &script("head -c 3000000 /dev/zero | tr '\\0' x; exit 0")).await?;
    let task = setup.run(queue, doc! {}).await?;
    assert_eq!((task.get_i32("status")?, task.get_str("stdout")?.len()), (1, 3_000_000));
    assert_eq!(task.get("stderr"), Some(&Bson::Null));
    setup.end().await
}

#[tokio::test]
async fn a_container_gets_what_the_manifest_says_and_what_every_plugin_gets() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    if !Uid::effective().is_root() {
        skipped("only root can give a folder to the user of a container");
        return Ok(());
    }
    let outside = setup.world.path().join("outside");
    fs::create_dir(&outside)?;
    fs::write(outside.join("data"), "data\n")?;
    fs::set_permissions(&outside, Permissions::from_mode(0o755))?;
    let text = r#"pwd; id -u; id -g; hostname; echo "$GREETING"; cat /in/data
        touch /in/x 2> /dev/null || echo read only
        touch file && echo can write
        grep -c '"a":"b"'
        echo "$DISBATCH_WORK_DIR $DISBATCH_NODE ${DISBATCH_CONTROL_FD:-none}"
        echo "$JOB_PARAMS"
        grep -c 'NoNewPrivs.*1' /proc/self/status
        cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2> /dev/null
        exit 0"#;
    let container = json!({
        "command": ["-c", text], "entrypoint": ["sh"], "env": { "GREETING": "hello" },
        "mounts": [{ "source": outside, "target": "/in", "read_only": true }],
        "user": "1000:1001", "workdir": "/data", "limits": { "pids": 50 },
        "config": { "Hostname": "boxed" },
    });
    let queue = setup.queue("Boxed", &container).await?;
    let task = setup.run(queue, doc! { "a": "b" }).await?;
    let stdout = task.get_str("stdout")?;
    let lines: Vec<&str> = stdout.lines().collect();
    let expected = [
        "/data",
        "1000",
        "1001",
        "boxed",
        "hello",
        "data",
        "read only",
        "can write",
        "1",
        "/data n1 none",
        r#"{"a":"b"}"#,
        "1",
        "50",
    ];
    assert_eq!(lines, expected, "{task}");
    assert_eq!(task.get_i32("status")?, 1);
    setup.end().await
}

#[tokio::test]
async fn what_a_container_leaves_belongs_to_the_user_of_plugins() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let Some(nobody) = User::from_name("nobody")?.filter(|_| Uid::effective().is_root()) else {
        skipped("only root can run an adapter as another user, who has to be called nobody");
        return setup.end().await;
    };
    let mut adapter = Command::new(binary("disbatch-container")?);
    adapter.arg("--version").uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
    if !adapter.output().await.is_ok_and(|ended| ended.status.success()) {
        skipped("other users cannot run programs from where these were built");
        return setup.end().await;
    }
    setup.configure(json!({ "run_as": "nobody" }))?;
    let socket = setup.podman.socket();
    fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
    fs::set_permissions(socket.parent().context("no folder")?, Permissions::from_mode(0o711))?;
    let text =
        "mkdir out; echo x > out/y; stat -c '%u %a' out/y; [ $(stat -c %u .) = $(id -u) ] && id -u; id -g";
    let queue = setup.queue("Boxed", &script(text)).await?;
    let task = setup.run(queue, doc! {}).await?;
    let (uid, gid) = (nobody.uid, nobody.gid);
    assert_eq!(task.get_str("stdout")?, format!("{uid} 644\n{uid}\n{gid}\n"), "{task}");
    // Whoever is said to be the user is.
    let mut root = script("id -u");
    root["user"] = "0".into();
    let queue = setup.queue("Root", &root).await?;
    assert_eq!(setup.run(queue, doc! {}).await?.get_str("stdout")?, "0\n");
    setup.end().await
}

#[tokio::test]
async fn files_go_into_a_container_and_come_out_of_it_by_the_private_folder() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let shell = Script {
        name: "Sh",
        text: r#"#!/usr/bin/env python3
import json, os, sys
os.execv("/bin/sh", ["sh", "-c", json.load(sys.stdin)["params"]["do"]])
"#,
    };
    let queue = setup.world.script_queue(shell, 1).await?;
    setup.queue("Boxed", &script("tr a-z A-Z < in > out; ls -A")).await?;
    let step = |plugin: Option<&str>, what: &str| -> anyhow::Result<Step> {
        let plugin = plugin.map(str::parse).transpose()?;
        Ok(Step { name: "s".to_owned(), plugin, params: doc! { "do": what } })
    };
    let steps = vec![step(None, "echo words > in")?, step(Some("Boxed"), "")?, step(None, "cat out; ls -A")?];
    let options = TaskOptions { steps, ..TaskOptions::default() };
    let task = setup.world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    let _den = setup.world.den("n1")?;
    let task = setup.world.until_status(task, 1).await?;
    assert_eq!(task.get_str("stdout")?, ".disbatch-control\nin\nout\nWORDS\nin\nout\n", "{task}");
    setup.end().await
}

#[tokio::test]
async fn a_container_shows_no_secrets_but_those_that_were_asked_for() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    setup.configure(json!({
        "secrets": { "key_file": "secrets.key" }, "secrets_dir": "secrets",
        "secret_environment": { "token": "TOKEN", "other": "OTHER" },
    }))?;
    let world = &setup.world;
    let key = new_key()?;
    fs::create_dir(world.path().join("secrets"))?;
    for (name, value) in
        [("secrets.key", key.as_str()), ("secrets/token", "asked-for"), ("secrets/other", "unasked-for")]
    {
        fs::write(world.path().join(name), value)?;
        fs::set_permissions(world.path().join(name), Permissions::from_mode(0o600))?;
    }
    let text = r#"printf %s "$GIVEN" | sha256sum; echo "${OTHER:-none} ${TOKEN:-none} ${JOB_SECURE_PARAMS:-none}"
        sed 's/.*"password":"\([^"]*\)".*/\1/' | tr -d '\n' | sha256sum
        until [ -e go ]; do sleep 0.1; done"#;
    let mut container = script(text);
    container["env"] = json!({ "GIVEN": "{{secret:token}}" });
    let queue = setup.queue("Boxed", &container).await?;
    let object = json!({ "password": "battery-staple" });
    let params = SecureParams::new(object.as_object().context("an object")?.clone()).context("none")?;
    let sealed = Keys::of(Some(key.as_str()), None)?.seal(queue, &params)?;
    let options = TaskOptions { secure_params: Some(sealed), ..TaskOptions::default() };
    let task = world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    let _den = world.den("n1")?;
    let hash = |text: &str| -> String {
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let printed = format!("{}  -\nnone none none\n{}  -\n", hash("asked-for"), hash("battery-staple"));
    let container = setup.until_printed(task, &printed).await?;
    let inspected = setup.podman.inspect(&container.id).await?.to_string();
    assert!(inspected.contains("GIVEN=asked-for"), "{inspected}");
    assert!(!inspected.contains("unasked-for") && !inspected.contains("battery-staple"), "{inspected}");
    fs::write(setup.folder_of(&container).await?.join("go"), "")?;
    world.until_status(task, 1).await?;
    setup.end().await
}

#[tokio::test]
async fn a_cancelled_container_ends_in_its_own_way_and_is_removed() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let queue = setup.queue("Boxed", &script(PATIENT)).await?;
    let task = setup.world.submit(queue, vec![doc! {}]).await?[0];
    let den = setup.world.den("n1")?;
    let container = setup.until_printed(task, "started\n").await?;
    let label = |name: &str| container.labels.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!(label("disbatch.task"), task.to_string());
    assert_eq!((label("disbatch.attempt"), label("disbatch.node")), ("1", "n1"));
    assert_eq!(label("disbatch.database"), setup.world.database().name());
    assert!(adapter_of(&container)?.as_raw() > 1 && container.state == "running", "{container:?}");
    setup.world.store().cancel_task(task, &request()).await?;
    let task = setup.world.until_status(task, -3).await?;
    assert_eq!(task.get_str("stdout")?, "started\nbye\n", "{task} {}", den.log()?);
    assert_eq!(number(facts(&task)?, "exit_code")?, 0);
    setup.end().await
}

#[tokio::test]
async fn a_container_that_does_not_end_is_killed_before_its_adapter_is() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let queue =
        setup.queue("Boxed", &script("trap '' TERM; echo started; while :; do sleep 0.1; done")).await?;
    // The container has less time than its adapter, which has less than is usual.
    setup.world.update_queue(queue, doc! { "grace": 6 }).await?;
    let task = setup.world.submit(queue, vec![doc! {}]).await?[0];
    let _den = setup.world.den("n1")?;
    setup.until_printed(task, "started\n").await?;
    setup.world.store().cancel_task(task, &request()).await?;
    let task = setup.world.until_status(task, -3).await?;
    let exit = task.get_document("exit")?;
    assert_eq!((number(exit, "code")?, exit.get_str("reason")?), (137, "cancel"), "{task}");
    assert_eq!((number(facts(&task)?, "exit_code")?, facts(&task)?.get_bool("oom")?), (137, false));
    setup.end().await
}

#[tokio::test]
async fn the_container_of_a_runner_that_was_killed_is_removed() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let queue = setup.queue("Boxed", &script(PATIENT)).await?;
    let task = setup.world.submit(queue, vec![doc! {}]).await?[0];
    let den = setup.world.den("n1")?;
    let container = setup.until_printed(task, "started\n").await?;
    let runner = number(&setup.world.task(task).await?, "pid")?;
    kill(Pid::from_raw(i32::try_from(runner)?), Signal::SIGKILL)?;
    setup.world.until_status(task, -6).await?;
    setup
        .podman
        .until_containers(0)
        .await
        .with_context(|| format!("{container:?} {}", den.log().unwrap_or_default()))?;
    setup.end().await
}

#[tokio::test]
async fn the_container_of_an_adapter_that_was_killed_is_removed_by_the_next_one() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let text = "read -r line; case \"$line\" in *quick*) exit 0;; esac; echo started; exec sleep 1000";
    let queue = setup.queue("Boxed", &script(text)).await?;
    let tasks = setup.world.submit(queue, vec![doc! {}]).await?;
    let den = setup.world.den("n1")?;
    let container = setup.until_printed(tasks[0], "started\n").await?;
    kill(adapter_of(&container)?, Signal::SIGKILL)?;
    let killed = setup.world.until_status(tasks[0], 2).await?;
    assert!(stderr(&killed).contains("Plugin killed by signal 9 (SIGKILL)"), "{killed}");
    assert_eq!(facts(&killed)?.get_str("container")?, container.id, "it was said in time");
    let next = setup.world.submit(queue, vec![doc! { "quick": 1 }]).await?[0];
    setup.world.until_status(next, 1).await.with_context(|| den.log().unwrap_or_default())?;
    setup.podman.until_containers(0).await?;
    setup.end().await
}

#[tokio::test]
async fn a_den_that_starts_removes_what_was_left_and_nothing_else() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    setup.queue("Boxed", &script("true")).await?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let namespace = fs::read_link("/proc/self/ns/pid")?.display().to_string();
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(") ").context("stat")?;
    let started = rest.split(' ').nth(19).context("stat")?;
    let own = std::process::id();
    let adapters = [
        (format!("{boot}/{own}/{started}"), namespace.as_str(), "n1", true),
        (format!("{boot}/{own}/1"), namespace.as_str(), "n2", false),
        ("of-an-earlier-start/7/7".to_owned(), namespace.as_str(), "n1", false),
        ("of-an-earlier-start/7/7".to_owned(), namespace.as_str(), "n2", true),
        ("nonsense".to_owned(), namespace.as_str(), "n1", true),
    ];
    for (adapter, namespace, node, _) in &adapters {
        let labels = [
            format!("disbatch.adapter={adapter}"),
            format!("disbatch.namespace={namespace}"),
            format!("disbatch.node={node}"),
            "disbatch.task=0a".to_owned(),
        ];
        let mut arguments = vec!["create", "--network", "none"];
        labels.iter().for_each(|label| arguments.extend(["--label", label.as_str()]));
        arguments.extend([IMAGE, "true"]);
        setup.podman.run(&arguments).await?;
    }
    let den = setup.world.den("n1")?;
    let stay = adapters.iter().filter(|(.., stays)| *stays).count();
    let left = setup.podman.until_containers(stay).await.with_context(|| den.log().unwrap_or_default())?;
    eventually("a word about it", || async {
        let log = den.log()?;
        Ok((log.matches("removed the container of task 0a").count() == adapters.len() - stay).then_some(()))
    })
    .await?;
    for (adapter, _, node, _) in adapters.iter().filter(|(.., stays)| *stays) {
        let is_it = |container: &Container| {
            let label = |name: &str| container.labels.get(name).map(String::as_str).unwrap_or_default();
            label("disbatch.adapter") == adapter && label("disbatch.node") == *node
        };
        assert!(left.iter().any(is_it), "{adapter} {node}: {left:?}");
    }
    setup.podman.run(&["rm", "--force", "--all"]).await?;
    setup.end().await
}

#[tokio::test]
async fn an_image_that_is_missing_is_a_clear_failure() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let cases = [
        ("Never", json!({ "image": "localhost/none:1" }), "the image localhost/none:1 is not on this host"),
        (
            "Missing",
            json!({ "image": "localhost:1/none:1", "pull": "missing" }),
            "cannot fetch the image localhost:1/none:1: ",
        ),
        ("Command", json!({ "command": ["no-such-program"] }), "cannot start the container disbatch-"),
        (
            "Socket",
            json!({ "socket": "/nonexistent" }),
            "cannot reach the container engine at /nonexistent: ",
        ),
        ("Secret", json!({ "env": { "A": "{{secret:none}}" } }), "the plugin has no secret 'none' here"),
    ];
    for (name, container, expected) in cases {
        let queue = setup.queue(name, &container).await?;
        let task = setup.run(queue, doc! {}).await?;
        assert_eq!(task.get_i32("status")?, 2, "{task}");
        assert!(stderr(&task).starts_with("disbatch: ") && stderr(&task).contains(expected), "{task}");
        assert_eq!(number(task.get_document("exit")?, "code")?, 125);
    }
    let mut tidy = Command::new(binary("disbatch-container")?);
    let tidy = tidy.args(["tidy", "--socket", "/nonexistent"]).output().await?;
    let said = String::from_utf8(tidy.stderr)?;
    assert_eq!(tidy.status.code(), Some(1));
    assert!(said.starts_with("disbatch: cannot reach the container engine at /nonexistent"), "{said}");
    setup.end().await
}

#[tokio::test]
async fn a_container_that_uses_too_much_memory_says_so() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let limited = ["run", "--rm", "--network", "none", "--memory", "32m", IMAGE];
    let ended = setup.podman.run(&[&limited[..], &["tail", "/dev/zero"]].concat()).await;
    let why = match (setup.podman.run(&[&limited[..], &["true"]].concat()).await, ended) {
        (Err(error), _) => Some(format!("{error:#}")),
        (Ok(_), Ok(_)) => Some("the limit means nothing".to_owned()),
        (Ok(_), Err(_)) => None,
    };
    if let Some(why) = why {
        skipped(&format!("the memory of containers cannot be limited here: {why}"));
        return setup.end().await;
    }
    let mut container = script("echo begun; exec tail /dev/zero");
    container["limits"] = json!({ "memory": "32M" });
    let queue = setup.queue("Greedy", &container).await?;
    let task = setup.run(queue, doc! {}).await?;
    assert_eq!((task.get_i32("status")?, task.get_str("stdout")?), (2, "begun\n"));
    assert!(facts(&task)?.get_bool("oom")?, "{task}");
    assert_eq!(number(facts(&task)?, "exit_code")?, 137);
    let expected = "the container ran out of memory: its limit is 33554432 bytes";
    assert!(stderr(&task).contains(expected), "{task}");
    setup.end().await
}
