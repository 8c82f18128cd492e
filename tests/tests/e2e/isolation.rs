//! What plugins get from their node, and what they are kept from.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bson::doc;
use disbatch_tests::{Script, World, binary, eventually, skipped};
use nix::unistd::{Uid, User};
use serde_json::{Value, json};
use tokio::process::Command;

/// What every plugin gets, if its runner has it, besides what begins with `LC_`.
const ALWAYS: [&str; 24] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "TERM",
    "PERL5LIB",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// What runners set for tasks.
const OF_TASK: [&str; 15] = [
    "DISBATCH_TASK_ID",
    "DISBATCH_QUEUE_ID",
    "DISBATCH_QUEUE",
    "DISBATCH_PLUGIN",
    "DISBATCH_NODE",
    "DISBATCH_ATTEMPT",
    "DISBATCH_WORK_DIR",
    "DISBATCH_CONTROL_FD",
    "JOB_ID",
    "RUN_ID",
    "TENANT_ID",
    "JOB_PARAMS",
    "JOB_STORAGE",
    "LAST_SUCCESS_START",
    "LAST_SUCCESS_FINISH",
];

/// What the environment of a DEN may have that is not for plugins.
const SECRETS: [(&str, &str); 4] = [
    ("DISBATCH_ROOT_PASSWORD", "secret"),
    ("DISBATCH_SECRETS_KEY", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ("NOTIFY_SOCKET", "/nonexistent"),
    ("UNNAMED", "secret"),
];

/// A warm plugin that tells about itself.
const WARM: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    open(os.path.join(message["work_dir"], "file"), "w").close()
    owner = os.stat(message["work_dir"]).st_uid
    told = {"environment": sorted(os.environ), "uid": os.getuid(), "owner": owner}
    print(json.dumps(told), flush=True)
    os.write(3, json.dumps({"done": {"id": message["task"]["_id"]["$oid"]}}).encode() + b"\n")
"#;

/// The user without rights, if plugins can be run as one here.
fn nobody() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        skipped("only root can run plugins as another user");
        return Ok(None);
    }
    Ok(User::from_name("nobody")?)
}

/// Lets everybody into the world's folder, and only its owner at the configuration.
fn open(world: &World) -> anyhow::Result<()> {
    fs::set_permissions(world.path(), Permissions::from_mode(0o755))?;
    Ok(fs::set_permissions(world.config(), Permissions::from_mode(0o600))?)
}

fn manifest(world: &World, manifest: &Value) -> anyhow::Result<()> {
    let folder = world.plugins().join(manifest["name"].as_str().unwrap_or_default());
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join("plugin.json"), manifest.to_string())?)
}

#[tokio::test]
async fn the_environment_of_a_plugin_is_exactly_what_is_allowed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "plugin_environment": ["NAMED_*"] }))?;
    manifest(&world, &json!({ "name": "Env", "command": ["/usr/bin/env"] }))?;
    let queue = world.queue("Env", doc! { "threads": 1 }).await?;
    let given = SECRETS.into_iter().chain([("NAMED_ONE", "1"), ("LC_ALL", "C"), ("DISBATCH_TASK_ID", "x")]);
    let _den = world.den_in("n1", &[], &given.collect::<Vec<_>>())?;
    let task = world.submit(queue, vec![doc! { "a": 1 }]).await?[0];
    let task = world.until_status(task, 1).await?;
    let lines: Vec<&str> = task.get_str("stdout")?.lines().collect();
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let own: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let is_allowed = |name: &&str| ALWAYS.contains(name) || name.starts_with("LC_");
    let mut expected: BTreeSet<&str> = own.iter().map(String::as_str).filter(is_allowed).collect();
    expected.extend(OF_TASK.into_iter().chain(["NAMED_ONE", "LC_ALL"]));
    assert_eq!(names, expected);
    for line in ["NAMED_ONE=1", "LC_ALL=C", r#"JOB_PARAMS={"a":1}"#, "DISBATCH_NODE=n1"] {
        assert!(lines.contains(&line), "{line} is not in {lines:?}");
    }
    assert!(!lines.contains(&"DISBATCH_TASK_ID=x"), "it is this task's own: {lines:?}");
    world.end().await
}

#[tokio::test]
async fn a_warm_plugin_gets_no_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    let script = Script { name: "Warm", text: WARM };
    script.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    let _den = world.den_in("n1", &[], &SECRETS)?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(task, 1).await?;
    let told: Value = serde_json::from_str(task.get_str("stdout")?)?;
    let names: BTreeSet<&str> =
        told["environment"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(names.contains("DISBATCH_WARM") && names.contains("PATH"), "{names:?}");
    assert!(SECRETS.iter().all(|(name, _)| !names.contains(name)), "{names:?}");
    assert!(!names.contains("DISBATCH_TASK_ID") && !names.contains("JOB_PARAMS"), "{names:?}");
    world.end().await
}

#[tokio::test]
async fn plugins_run_as_the_configured_user_who_can_do_nothing_to_runners() -> anyhow::Result<()> {
    let Some(nobody) = nobody()? else { return Ok(()) };
    let world = World::new().await?;
    world.configure(json!({ "run_as": "nobody" }))?;
    open(&world)?;
    let text = r#"#!/bin/sh
runner=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$PPID/status")
echo "user $(id -u) $(id -g) $(id -G)"
echo "names $USER $LOGNAME $HOME"
echo "folder $(stat -c '%u %a' .)"
touch file && echo progress >> "/dev/fd/$DISBATCH_CONTROL_FD" && echo can write
cat "$(dirname "$0")/../../config.json" > /dev/null 2>&1; echo "configuration $?"
kill -0 "$runner" 2> /dev/null; echo "runner $?"
kill -0 "$PPID" 2> /dev/null; echo "guard $?"
cat "/proc/$runner/environ" > /dev/null 2>&1; echo "environment $?"
echo "in $PWD"
"#;
    let queue = world.script_queue(Script { name: "Who", text }, 1).await?;
    let _den = world.den("n1")?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    let (uid, gid) = (nobody.uid, nobody.gid);
    for id in ids {
        let task = world.until_status(id, 1).await?;
        let stdout = task.get_str("stdout")?;
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(lines[0].starts_with(&format!("user {uid} {gid} {gid}")), "{stdout}");
        assert_eq!(lines[1], format!("names nobody nobody {}", nobody.dir.display()));
        assert_eq!(lines[2], format!("folder {uid} 700"));
        let rest = ["can write", "configuration 1", "runner 1", "guard 1", "environment 1"];
        assert_eq!(lines[3..8], rest, "{stdout}");
        let folder = Path::new(lines[8].strip_prefix("in ").unwrap_or_default()).to_owned();
        assert!(folder.to_string_lossy().contains(&id.to_string()), "{stdout}");
        eventually("its folder to be removed", || async { Ok((!folder.exists()).then_some(())) }).await?;
    }
    world.end().await
}

#[tokio::test]
async fn a_warm_plugin_may_be_another_user_too() -> anyhow::Result<()> {
    let Some(nobody) = nobody()? else { return Ok(()) };
    let world = World::new().await?;
    world.configure(json!({ "run_as": { "user": "nobody", "group": "daemon" } }))?;
    open(&world)?;
    let script = Script { name: "Warm", text: WARM };
    script.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    for id in world.submit(queue, vec![doc! {}; 2]).await? {
        let task = world.until_status(id, 1).await?;
        let told: Value = serde_json::from_str(task.get_str("stdout")?)?;
        let uid = nobody.uid.as_raw();
        assert_eq!((&told["uid"], &told["owner"]), (&json!(uid), &json!(uid)), "{told}");
    }
    world.end().await
}

#[tokio::test]
async fn the_lower_limits_of_node_and_plugin_hold() -> anyhow::Result<()> {
    let world = World::new().await?;
    let limits = json!({ "open_files": 44, "file_size": "1M", "memory": "1G" });
    world.configure(json!({ "limits": limits }))?;
    let limits = json!({ "open_files": 33, "file_size": "2M", "cpu_seconds": 9 });
    let command = ["/bin/cat", "/proc/self/limits"];
    manifest(&world, &json!({ "name": "Limits", "command": command, "limits": limits }))?;
    let queue = world.queue("Limits", doc! { "threads": 1 }).await?;
    let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
    let stdout = task.get_str("stdout")?;
    for (name, soft) in [
        ("Max open files", "33"),
        ("Max file size", "1048576"),
        ("Max address space", "1073741824"),
        ("Max cpu time", "9"),
        ("Max core file size", "0"),
    ] {
        let line = stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        assert_eq!(line.split_whitespace().next(), Some(soft), "{name}: {stdout}");
    }
    world.end().await
}

#[tokio::test]
async fn who_uses_too_much_processor_time_fails_and_is_told_why() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "limits": { "cpu_seconds": 1 } }))?;
    let text = "#!/bin/sh\necho begun\nwhile :; do :; done\n";
    let queue = world.script_queue(Script { name: "Busy", text }, 1).await?;
    let _den = world.den("n1")?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(task, 2).await?;
    assert_eq!(task.get_str("stdout")?, "begun\n");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.contains("'cpu_seconds': it used more than 1 s of processor time\n"), "{stderr}");
    assert!(stderr.contains("Plugin killed by signal 24 (SIGXCPU"), "{stderr}");
    let exit = task.get_document("exit")?;
    assert_eq!((exit.get_i32("signal")?, exit.get_str("limit")?), (24, "cpu_seconds"), "{exit}");
    assert!(!exit.get_bool("oom")?, "{exit}");
    world.end().await
}

#[tokio::test]
async fn further_privileges_are_out_of_reach_unless_they_are_allowed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let command = ["/bin/grep", "NoNewPrivs", "/proc/self/status"];
    manifest(&world, &json!({ "name": "Status", "command": command }))?;
    let queue = world.queue("Status", doc! { "threads": 1 }).await?;
    let own = fs::read_to_string("/proc/self/status")?;
    let own = own.lines().find_map(|line| line.strip_prefix("NoNewPrivs:\t")).unwrap_or_default();
    for (keys, expected) in [(json!({}), "1"), (json!({ "no_new_privs": false }), own)] {
        world.configure(keys)?;
        let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
        assert_eq!(task.get_str("stdout")?, format!("NoNewPrivs:\t{expected}\n"));
    }
    world.end().await
}

#[tokio::test]
async fn a_den_and_a_runner_refuse_what_they_cannot_do() -> anyhow::Result<()> {
    let world = World::new().await?;
    manifest(&world, &json!({ "name": "True", "command": ["/bin/true"] }))?;
    let queue = world.queue("True", doc! { "threads": 1 }).await?;
    let claimed = world.claimed(queue, doc! {}, "n1").await?.to_string();
    for (keys, message) in [
        (json!({ "run_as": "no-such-user" }), "run_as: there is no user 'no-such-user' on this host"),
        (json!({ "run_as": "root:no-such-group" }), "run_as: there is no group 'no-such-group' on this host"),
        (json!({ "run_as": 0 }), "run_as: expected \"user\", \"user:group\" or an object"),
        (json!({ "limits": { "memory": "much" } }), "limits.memory: expected a number of bytes"),
        (json!({ "limits": { "cpu": 1 } }), "unknown field `cpu`"),
        (json!({ "cgroup": "/nonexistent" }), "cgroup: /nonexistent is no folder of control groups"),
        (json!({ "plugin_environment": ["A=b"] }), "plugin_environment[0]: expected the name of a variable"),
    ] {
        world.configure(keys)?;
        let den = Command::new(binary("den")?).arg("--config").arg(world.config()).output().await?;
        let dtr = world.dtr(&claimed, &["--node", "n1"]).await?;
        let told = [(den.status.code(), String::from_utf8(den.stderr)?), (dtr.status.code(), dtr.stderr)];
        for (code, stderr) in told {
            assert_eq!(code, Some(3), "{stderr}");
            assert!(stderr.contains(message), "{message} is not in {stderr}");
        }
    }
    assert_eq!(world.count(queue, doc! { "status": -1 }).await?, 1, "nothing was begun");
    world.end().await
}

#[tokio::test]
async fn that_a_runner_of_another_program_keeps_plugins_from_nothing_is_warned_of() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (node, keys, expected) in
        [("n1", json!({}), false), ("n2", json!({ "task_runner": "/bin/true" }), true)]
    {
        world.configure(keys)?;
        let den = world.den_at_work(node).await?;
        let what = "task_runner is /bin/true: unless it is a dtr, run_as, limits, cgroup, no_new_privs and \
            plugin_environment mean nothing to it";
        let log = den.log()?;
        assert_eq!(log.contains(what), expected, "{log}");
    }
    world.end().await
}

#[tokio::test]
async fn only_root_runs_plugins_as_somebody_else() -> anyhow::Result<()> {
    if Uid::effective().is_root() {
        skipped("root may run plugins as anybody");
        return Ok(());
    }
    let world = World::new().await?;
    world.configure(json!({ "run_as": "daemon" }))?;
    let den = Command::new(binary("den")?).arg("--config").arg(world.config()).output().await?;
    let stderr = String::from_utf8(den.stderr)?;
    assert_eq!(den.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("run_as: only root can run plugins as 'daemon'"), "{stderr}");
    world.end().await
}

#[tokio::test]
async fn passwords_that_everybody_can_read_are_warned_of() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "auth": { "queuebalance": "correct horse" } }))?;
    for (mode, expected) in [(0o640, false), (0o644, true)] {
        fs::set_permissions(world.config(), Permissions::from_mode(mode))?;
        let node = format!("n{mode}");
        let den = world.den_at_work(&node).await?;
        let log = den.log()?;
        assert_eq!(log.contains("every user of this host can read the passwords"), expected, "{log}");
        assert!(!log.contains("horse"), "{log}");
    }
    world.end().await
}
