//! Control groups of tasks, where this machine has them: root, and a hierarchy of version 2 with the controllers.

use std::fs;
use std::path::{Path, PathBuf};

use bson::doc;
use bson::oid::ObjectId;
use disbatch_tests::{Script, World, eventually, skipped};
use nix::unistd::Uid;
use serde_json::json;

/// A folder for control groups, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir(&self.0);
    }
}

impl Folder {
    /// `None`: there can be none here, which is said.
    fn make() -> Option<Self> {
        let root = hierarchy().filter(|root| Uid::effective().is_root() && passes_on(root));
        let made = root.and_then(|root| {
            let folder = root.join(format!("disbatch-tests-{}", ObjectId::new()));
            fs::create_dir(&folder).ok().map(|()| Self(folder))
        });
        if made.is_none() {
            skipped("there is no hierarchy of control groups of version 2 that can be written");
        }
        made
    }

    /// The control groups of plugins in it.
    fn groups(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

/// Where control groups of version 2 are.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let of_version_2 = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    };
    mounts.lines().find_map(of_version_2)
}

/// Whether what is in the folder has the controllers, perhaps after having been told to.
fn passes_on(folder: &Path) -> bool {
    let control = folder.join("cgroup.subtree_control");
    let has_all = || {
        let words = fs::read_to_string(&control).unwrap_or_default();
        ["memory", "pids"].iter().all(|name| words.split_whitespace().any(|word| word == *name))
    };
    has_all() || (fs::write(&control, "+memory +pids").is_ok() && has_all())
}

#[tokio::test]
async fn a_task_has_a_control_group_while_it_runs() -> anyhow::Result<()> {
    let Some(folder) = Folder::make() else { return Ok(()) };
    let world = World::new().await?;
    let limits = json!({ "memory": "200M", "processes": 50 });
    world.configure(json!({ "cgroup": folder.0, "limits": limits }))?;
    // What a dead runner has left.
    fs::create_dir(folder.0.join("disbatch-6b0003bb686c8275d8013333-1-1"))?;
    let text = format!(
        "#!/bin/sh\ncat /proc/self/cgroup; cd {}/disbatch-*; cat memory.max pids.max memory.oom.group\n",
        folder.0.display()
    );
    let queue = world.script_queue(Script { name: "Where", text: &text }, 1).await?;
    let _den = world.den("n1")?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(task, 1).await?;
    let stdout = task.get_str("stdout")?;
    assert!(stdout.lines().any(|line| line.starts_with("0::/") && line.contains("/disbatch-")), "{stdout}");
    assert!(stdout.ends_with("\n209715200\n50\n1\n"), "{stdout}");
    eventually("all groups to be removed", || async { Ok(folder.groups().is_empty().then_some(())) }).await?;
    world.end().await
}

#[tokio::test]
async fn a_task_that_uses_too_much_memory_is_killed_as_a_whole_and_told_why() -> anyhow::Result<()> {
    let Some(folder) = Folder::make() else { return Ok(()) };
    let world = World::new().await?;
    world.configure(json!({ "cgroup": folder.0 }))?;
    let text = "#!/bin/sh\necho begun\nhead -c 400M /dev/zero | tail -c 400M > /dev/null\necho more\n";
    let manifest = json!({ "name": "Hungry", "command": ["./run"], "limits": { "memory": "64M" } });
    Script { name: "Hungry", text }.install_as(&world.plugins(), &manifest)?;
    let queue = world.queue("Hungry", doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(task, 2).await?;
    assert_eq!(task.get_str("stdout")?, "begun\n");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.contains("'memory': it used more than 67108864 bytes of memory\n"), "{stderr}");
    let exit = task.get_document("exit")?;
    assert_eq!((exit.get_i32("signal")?, exit.get_str("limit")?, exit.get_bool("oom")?), (9, "memory", true));
    eventually("all groups to be removed", || async { Ok(folder.groups().is_empty().then_some(())) }).await?;
    world.end().await
}
