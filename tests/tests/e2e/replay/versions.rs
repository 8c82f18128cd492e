//! Versions of a plugin: that which ran is told, and runs again where it is.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use bson::doc;
use disbatch_tests::{Dci, World};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{bundle, check_schema, disbatch, files, json_of, record, replay};
use crate::versions::{SAYS, install};

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn other(was: &str, is: &str) -> Value {
    json!([{ "plugin": "Mail", "was": was, "is": is }])
}

#[tokio::test]
async fn the_version_that_ran_runs_again_unless_another_one_is_given() -> anyhow::Result<()> {
    let world = World::new().await?;
    for version in ["1", "2"] {
        install(&world.plugins(), version, (SAYS, json!({})))?;
    }
    let queue = world.queue("Mail", doc! { "threads": 1, "version": "2" }).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    drop(den);
    let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
    let of_bundle = files(&bytes)?;
    let about = json_of(&of_bundle, "bundle.json")?;
    check_schema("Bundle", &about)?;
    let given = json_of(&of_bundle, "stdin.json")?;
    assert_eq!((&about["version"], &given["plugin_version"]), (&json!("2"), &json!("2")));
    let (config, all, two) = (text(&world.config()), text(&world.plugins()), world.plugins().join("mail-2"));
    for more in [&["--config", config.as_str()][..], &["--with", &all], &[], &["--with", &text(&two)]] {
        let same = replay(&world, &path, more, 0).await?;
        assert_eq!((&same["changed_files"], same.get("other_versions")), (&json!([]), None), "{more:?}");
    }
    let one = text(&world.plugins().join("mail-1"));
    for more in [&["--with", one.as_str()][..], &["--config", &config, "--with", &one]] {
        let found = replay(&world, &path, more, 1).await?;
        assert_eq!((&found["different"], &found["other_versions"]), (&json!(["stdout"]), &other("2", "1")));
    }
    let empty = world.path().join("empty");
    fs::create_dir(&empty)?;
    let none = disbatch(world.path(), &["replay", &text(&path), "--with", &text(&empty)]).await?;
    let said = String::from_utf8(none.stderr)?;
    ensure!(said.contains("has no plugin.json, nor a folder with one of Mail"), "{said}");

    fs::remove_dir_all(two)?;
    let found = disbatch(world.path(), &["replay", &text(&path), "--with", &all]).await?;
    let said = String::from_utf8([found.stdout, found.stderr].concat())?;
    let why = "version 2 of the plugin Mail, in which it ran, is not here: it is run by version 1";
    ensure!(said.contains(why) && said.contains("version   of Mail: 2 → 1\n"), "{said}");
    world.end().await
}

#[tokio::test]
async fn each_attempt_has_the_version_that_it_ran_in() -> anyhow::Result<()> {
    let world = World::new().await?;
    for version in ["1", "2", "3"] {
        install(&world.plugins(), version, (SAYS, json!({})))?;
    }
    let queue = world.queue("Mail", doc! { "threads": 1, "version": "3" }).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    den.end_with(Signal::SIGTERM).await?;
    dci.posted(&format!("/queues/{queue}"), &json!({ "version": "2" })).await?;
    dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    let den = world.den_at_work("n1").await?;
    world.until_status(task, 1).await?;
    let config = text(&world.config());
    for (attempt, version) in [("1", "3"), ("2", "2")] {
        let (path, bytes) = bundle(&world, &dci, task, &["--attempt", attempt]).await?;
        let of_bundle = files(&bytes)?;
        let (about, given) = (json_of(&of_bundle, "bundle.json")?, json_of(&of_bundle, "stdin.json")?);
        assert_eq!((&about["version"], &given["plugin_version"]), (&json!(version), &json!(version)));
        let same = replay(&world, &path, &["--config", &config], 0).await?;
        assert_eq!(same.get("other_versions"), None, "{same}");
    }

    // A queue that pins none is run by what its node has found first. Elsewhere that may be another one.
    let bare = world.queue("Mail", doc! { "threads": 1, "record": { "share": 1, "keep": 1 } }).await?;
    let task = world.submit(bare, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    drop(den);
    let (path, bytes) = bundle(&world, &dci, task, &[]).await?;
    let of_bundle = files(&bytes)?;
    let (about, given) = (json_of(&of_bundle, "bundle.json")?, json_of(&of_bundle, "stdin.json")?);
    assert_eq!((&about["version"], given.get("plugin_version")), (&json!("1"), None));
    install(&world.plugins(), "0", (SAYS, json!({})))?;
    let same = replay(&world, &path, &["--config", &config], 0).await?;
    assert_eq!(same.get("other_versions"), None, "{same}");
    world.end().await
}
