//! What can be in the way of a plugin's start, and what is the same for all that are started.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bson::doc;
use disbatch_core::model::TaskId;
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Script, World, always, eventually, skipped};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Uid, User};
use serde_json::json;

/// Users of whom no process is expected, and whom no other test is.
const QUIET: [&str; 4] = ["games", "news", "uucp", "lp"];

/// One of these, if plugins can be run as one here.
fn quiet_user() -> anyhow::Result<Option<&'static str>> {
    if !Uid::effective().is_root() {
        skipped("only root can run plugins as another user");
        return Ok(None);
    }
    for name in QUIET {
        if User::from_name(name)?.is_some() {
            return Ok(Some(name));
        }
    }
    skipped("there is no user whose processes can be counted");
    Ok(None)
}

async fn until_printed(world: &World, task: TaskId) -> anyhow::Result<()> {
    eventually("output while it runs", || async {
        let (stdout, _) = world.live(task, 1).await?;
        Ok((stdout == b"begun\n").then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_task_that_finds_too_many_processes_of_its_user_waits_for_fewer() -> anyhow::Result<()> {
    let Some(user) = quiet_user()? else { return Ok(()) };
    let world = World::new().await?;
    world.configure(json!({ "run_as": user, "limits": { "processes": 1 } }))?;
    fs::set_permissions(world.path(), Permissions::from_mode(0o755))?;
    let text = "#!/bin/sh\necho begun\ncase $JOB_PARAMS in *hold*) exec sleep 1000 ;; esac\n";
    let queue = world.script_queue(Script { name: "Hold", text }, 5).await?;
    let _den = world.den("n1")?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    // The kernel counts before it adds one.
    let holding = world.submit(queue, vec![doc! { "hold": 1 }; 2]).await?;
    for task in &holding {
        until_printed(&world, *task).await?;
    }

    let cancelled = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(cancelled, 0).await?;
    world.store().cancel_task(cancelled, &request).await?;
    let task = world.until_status(cancelled, -3).await?;
    let limit = format!("the user {user} has as many processes as limits.processes allows (1)");
    assert!(task.get_str("stderr")?.contains(&limit), "{task}");

    let waiting = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(waiting, 0).await?;
    always("it waits", Duration::from_millis(300), || async { Ok(world.status(waiting).await? == 0) })
        .await?;
    world.store().cancel_task(holding[0], &request).await?;
    let task = world.until_status(waiting, 1).await?;
    assert_eq!(task.get_str("stdout")?, "begun\n");

    let holding = world.submit(queue, vec![doc! { "hold": 1 }]).await?[0];
    until_printed(&world, holding).await?;
    let late = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(late, 2).await?;
    assert_eq!(task.get_str("stdout")?, "Unable to start");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.ends_with(&format!("{limit}; it was tried for 10 s")), "{stderr}");
    world.end().await
}

#[tokio::test]
async fn a_script_that_does_not_say_what_runs_it_cannot_be_started() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Bare", text: "echo ran\n" }, 1).await?;
    for keys in [json!({}), json!({ "limits": { "open_files": 100 } })] {
        world.configure(keys.clone())?;
        let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
        assert_eq!((task.get_i32("status")?, task.get_str("stdout")?), (2, "Unable to start"), "{keys}");
        let stderr = task.get_str("stderr")?;
        assert!(
            stderr.ends_with("/run: it has no #! line, or is no program of this machine"),
            "{keys}: {stderr}"
        );
    }
    world.end().await
}

#[tokio::test]
async fn runners_and_guards_leave_no_core_dump_where_plugins_may() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = r#"#!/bin/sh
runner=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$PPID/status")
for process in $$ $PPID $runner; do sed -n 's/^Max core file size *\([^ ]*\) .*/\1/p' "/proc/$process/limits"; done
"#;
    let queue = world.script_queue(Script { name: "Core", text }, 1).await?;
    let (_, highest) = getrlimit(Resource::RLIMIT_CORE)?;
    for (keys, most) in [(json!({}), 0), (json!({ "limits": { "core": "1M" } }), highest.min(1 << 20))] {
        world.configure(keys)?;
        let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
        assert_eq!(task.get_str("stdout")?, format!("{most}\n0\n0\n"));
    }
    world.end().await
}
