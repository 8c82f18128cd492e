//! The secrets of a node, and of a task.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use bson::doc;
use disbatch_core::secrets::{Keys, SecureParams, new_key};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Script, World};
use serde_json::json;

use super::{prints, text};

/// Writes a secret of the node.
fn write_secret(world: &World, name: &str, value: &str) -> anyhow::Result<()> {
    let path = world.path().join("secrets").join(name);
    fs::create_dir_all(path.parent().unwrap_or(world.path()))?;
    fs::write(&path, value)?;
    Ok(fs::set_permissions(&path, Permissions::from_mode(0o600))?)
}

#[tokio::test]
async fn plugins_find_the_secrets_of_the_node_that_are_meant_for_them() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({
        "secrets_dir": "secrets", "plugin_environment": ["OTHER"],
        "secret_environment": {
            "yl.env/cloudant": "cloudant", "key": { "variable": "KEY", "plugins": ["Two"] },
            "none": { "variable": "NONE", "plugins": ["Three"] },
        },
    }))?;
    write_secret(&world, "yl.env/cloudant", "correct horse\n")?;
    write_secret(&world, "key", "battery")?;
    let text = prints("cloudant KEY");
    let queues = [
        world.script_queue(Script { name: "One", text: &text }, 1).await?,
        world.script_queue(Script { name: "Two", text: &text }, 1).await?,
        world.script_queue(Script { name: "Three", text: &text }, 1).await?,
    ];
    let mut ids = Vec::new();
    for queue in queues {
        ids.push(world.submit(queue, vec![doc! {}]).await?[0]);
    }
    let given = [("cloudant", "wrong"), ("OTHER", "1")];
    let den = world.den_in("n1", &[], &given)?;
    let one = world.until_status(ids[0], 1).await?;
    assert_eq!(self::text(&one, "stdout"), "cloudant=[correct horse]\nKEY=[]\n");
    let two = world.until_status(ids[1], 1).await?;
    assert_eq!(self::text(&two, "stdout"), "cloudant=[correct horse]\nKEY=[battery]\n");
    let three = world.until_status(ids[2], 2).await?;
    assert_eq!(self::text(&three, "stdout"), "Unable to start");
    let missing = "cannot read the secret none: No such file or directory";
    assert!(self::text(&three, "stderr").starts_with(missing), "{three}");
    // The next task gets what is there by then.
    write_secret(&world, "key", "staple")?;
    let again = world.submit(queues[1], vec![doc! {}]).await?[0];
    let again = world.until_status(again, 1).await?;
    assert_eq!(self::text(&again, "stdout"), "cloudant=[correct horse]\nKEY=[staple]\n");
    assert!(!den.log()?.contains("horse") && !den.log()?.contains("battery"));
    world.end().await
}

#[tokio::test]
async fn a_warm_plugin_is_started_again_when_a_secret_has_changed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "secrets_dir": "secrets", "secret_environment": { "key": "KEY" } }))?;
    write_secret(&world, "key", "first")?;
    let text = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    print(os.environ["KEY"], "KEY" in message["env"], flush=True)
    os.write(3, json.dumps({"done": {"id": message["env"]["DISBATCH_TASK_ID"]}}).encode() + b"\n")
"#;
    let script = Script { name: "Warm", text };
    script.install_as(&world.plugins(), &json!({ "name": "Warm", "command": ["./run"], "warm": true }))?;
    let queue = world.queue("Warm", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    for secret in ["first", "second"] {
        write_secret(&world, "key", secret)?;
        let id = world.submit(queue, vec![doc! {}]).await?[0];
        let task = world.until_status(id, 1).await?;
        assert_eq!(self::text(&task, "stdout"), format!("{secret} False\n"));
    }
    world.end().await
}

#[tokio::test]
async fn secure_parameters_are_in_a_variable_only_for_plugins_that_ask() -> anyhow::Result<()> {
    let world = World::new().await?;
    let key = new_key().map_err(|error| anyhow::anyhow!("{error}"))?;
    world.configure(json!({ "secrets": { "key_file": "secrets.key" } }))?;
    fs::write(world.path().join("secrets.key"), key.as_str())?;
    fs::set_permissions(world.path().join("secrets.key"), Permissions::from_mode(0o600))?;
    let text = prints("JOB_SECURE_PARAMS");
    let mut ids = Vec::new();
    for (name, asks) in [("Asks", true), ("Quiet", false)] {
        let manifest = json!({ "name": name, "command": ["./run"], "secure_params_in_environment": asks });
        Script { name, text: &text }.install_as(&world.plugins(), &manifest)?;
        let queue = world.queue(name, doc! { "threads": 1 }).await?;
        let secret = json!({ "password": "correct horse" });
        let params = SecureParams::new(secret.as_object().cloned().unwrap_or_default());
        let sealed = params
            .map(|params| Keys::of(Some(&key), None)?.seal(queue, &params).map_err(anyhow::Error::from));
        let options = TaskOptions { secure_params: sealed.transpose()?, ..TaskOptions::default() };
        ids.extend(world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids);
    }
    let _den = world.den("n1")?;
    let asks = world.until_status(ids[0], 1).await?;
    assert_eq!(self::text(&asks, "stdout"), "JOB_SECURE_PARAMS=[{\"password\":\"correct horse\"}]\n");
    let quiet = world.until_status(ids[1], 1).await?;
    assert_eq!(self::text(&quiet, "stdout"), "JOB_SECURE_PARAMS=[]\n");
    world.end().await
}
