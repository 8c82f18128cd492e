//! Control groups (version 2), by which a node bounds what a task uses with all of its processes.
//!
//! The node is given a folder of control groups, in which the guard of each runner makes one for each plugin process
//! and removes it when nothing runs in it any more. A guard that was killed leaves some behind; whoever starts next
//! removes these.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use disbatch_documents::TaskId;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, Uid, access};

use crate::config::{Config, ConfigError};
use crate::process::real_user;

/// What the names of our control groups begin with.
const PREFIX: &str = "disbatch-";

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The first argument of a guard; the next one is its mark.
const GUARD: &[u8] = b"guard";

/// The name of the control group of a plugin: the `number`th of the guard with this process id and mark. `task`: the one
/// that it is for, unless it takes several.
pub fn name(mark: &str, guard: u32, number: u64, task: Option<TaskId>) -> String {
    let name = format!("{PREFIX}{mark}-{guard}-{number}");
    match task {
        Some(task) => format!("{name}-{task}"),
        None => name,
    }
}

struct Name<'a> {
    mark: &'a str,
    task: Option<TaskId>,
}

impl<'a> Name<'a> {
    /// Reads a name. `None`: it is not one of ours.
    fn parse(name: &'a str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let mark = parts.next()?;
        parts.next()?.parse::<u32>().ok()?;
        parts.next()?.parse::<u64>().ok()?;
        let task = match parts.next() {
            Some(task) => Some(task.parse().ok()?),
            None => None,
        };
        parts.next().is_none().then_some(Self { mark, task })
    }
}

/// The control groups in `folder` that were made for `task` alone.
pub fn of_task(folder: &Path, task: TaskId) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_its = |entry: &fs::DirEntry| {
        entry.file_name().to_str().and_then(Name::parse).is_some_and(|name| name.task == Some(task))
    };
    entries.filter(is_its).map(|entry| entry.path()).collect()
}

/// The control group in `folder` that was made for the plugin which the process `pid` comes from. `None`: there is
/// none, or the process is gone.
pub fn of_process(folder: &Path, pid: i32) -> Option<PathBuf> {
    group_in(folder, &fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The same by the text of `/proc/PID/cgroup`.
fn group_in(folder: &Path, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // It may have made groups of its own below, with whatever name: ours is the first.
    path.split('/').find(|name| Name::parse(name).is_some()).map(|name| folder.join(name))
}

/// The processes in a control group, and in those below it.
pub fn processes(group: &Path) -> Vec<i32> {
    let (mut found, mut pending) = (Vec::new(), vec![group.to_owned()]);
    while let Some(group) = pending.pop() {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        // What cannot be seen from here is 0.
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
        let entries = fs::read_dir(&group).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        pending.extend(below.map(|entry| entry.path()));
    }
    found
}

/// Kills all that is in a control group, at once: nobody in it gets to start another process.
///
/// # Errors
/// It is gone, or the kernel is too old for that (before 5.14).
pub fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")
}

/// Makes the configured folder ready, if there is one: control groups in it can bound memory and processes.
pub fn prepare(config: &Config) -> Result<(), ConfigError> {
    let Some(folder) = &config.cgroup else { return Ok(()) };
    prepare_folder(folder).map_err(|message| ConfigError::invalid(&config.path, "cgroup", &message))
}

fn prepare_folder(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    let there = words_of(&folder.join("cgroup.controllers"))
        .map_err(|error| format!("{shown} is no folder of control groups of version 2: {error}"))?;
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !there.contains(*name)).collect();
    if !missing.is_empty() {
        return Err(format!("{shown} does not have the controllers {}", missing.join(" and ")));
    }
    access(folder, AccessFlags::W_OK)
        .map_err(|errno| format!("cannot write to {shown}: {}", errno.desc()))?;
    let control = folder.join("cgroup.subtree_control");
    let passed_on =
        words_of(&control).map_err(|error| format!("cannot read {}: {error}", control.display()))?;
    if CONTROLLERS.into_iter().all(|name| passed_on.contains(name)) {
        return Ok(());
    }
    fs::write(&control, CONTROLLERS.map(|name| format!("+{name}")).join(" ")).map_err(|error| {
        if error.raw_os_error() == Some(Errno::EBUSY as i32) {
            let advice = "give the systemd unit a DelegateSubgroup=, or name another folder";
            format!("processes are in {shown} itself, so it cannot bound others: {advice}")
        } else {
            format!("cannot write to {}: {error}", control.display())
        }
    })
}

fn words_of(file: &Path) -> io::Result<HashSet<String>> {
    Ok(fs::read_to_string(file)?.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Removes the control groups of guards that are gone and in which nothing runs, if control groups are configured.
pub fn remove_left(config: &Config) {
    if let Some(folder) = &config.cgroup {
        remove_left_in(folder, is_empty, marks_of_guards);
    }
}

fn remove_left_in(folder: &Path, is_empty: impl Fn(&Path) -> bool, alive: impl FnOnce() -> HashSet<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let with_mark = |entry: fs::DirEntry| {
        let mark = Name::parse(entry.file_name().to_str()?)?.mark.to_owned();
        Some((mark, entry.path()))
    };
    let empty: Vec<_> = entries.filter_map(with_mark).filter(|(_, group)| is_empty(group)).collect();
    if empty.is_empty() {
        return;
    }
    // Only now: a guard that is alive may be about to use what is empty.
    let alive = alive();
    for (_, group) in empty.into_iter().filter(|(mark, _)| !alive.contains(mark)) {
        match fs::remove_dir(&group) {
            Ok(()) => tracing::info!(group = %group.display(), "removed a control group that a runner left"),
            Err(error) => tracing::debug!(%error, group = %group.display(), "cannot remove a control group"),
        }
    }
}

fn is_empty(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 0")
}

/// The marks of all guards of this user. Anybody else can start something that looks like one.
fn marks_of_guards() -> HashSet<String> {
    let own = Uid::current().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    let mark = |process: PathBuf| mark_in(&fs::read(process.join("cmdline")).ok()?);
    processes.filter(|process| real_user(process) == Some(own)).filter_map(mark).collect()
}

fn mark_in(line: &[u8]) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0);
    words.nth(1).filter(|word| *word == GUARD)?;
    String::from_utf8(words.next()?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like one of control groups.
    fn folder(controllers: &str, passed_on: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.path().join("cgroup.subtree_control"), passed_on).unwrap();
        folder
    }

    #[test]
    fn a_folder_passes_its_controllers_on() {
        for passed_on in ["", "cpu\n", "memory cpu pids\n"] {
            let folder = folder("cpuset cpu io memory hugetlb pids\n", passed_on);
            prepare_folder(folder.path()).unwrap();
            let written = fs::read_to_string(folder.path().join("cgroup.subtree_control")).unwrap();
            let expected = if passed_on.contains("pids") { passed_on } else { "+memory +pids" };
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn what_is_wrong_with_a_folder_is_told() {
        let text = r#"{"mongohost":"h","database":"d","cgroup":"/nonexistent"}"#;
        let config = Config::parse(text, Path::new("/etc/d.json")).unwrap();
        let error = prepare(&config).unwrap_err().to_string();
        let start = "invalid configuration /etc/d.json: cgroup: /nonexistent is no folder of control groups";
        assert!(error.starts_with(start), "{error}");
        let poor = folder("cpu memory\n", "");
        let error = prepare_folder(poor.path()).unwrap_err();
        assert!(error.ends_with("does not have the controllers pids"), "{error}");
    }

    #[test]
    fn names_tell_whose_they_are() {
        let task: TaskId = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        assert_eq!(name("Ab3", 17, 4, None), "disbatch-Ab3-17-4");
        assert_eq!(name("Ab3", 17, 4, Some(task)), "disbatch-Ab3-17-4-6b0003bb686c8275d70dc2f1");
        for of in [None, Some(task)] {
            let name = name("Ab3", 17, 4, of);
            let read = Name::parse(&name).unwrap();
            assert_eq!((read.mark, read.task), ("Ab3", of));
        }
        for other in ["disbatch-den", "disbatch-den-test.service", "disbatch-a-1-1-1", "disbatch-a-1-1-", "x"]
        {
            assert!(Name::parse(other).is_none(), "{other}");
        }
        assert_eq!(mark_in(b"dtr-guard\0guard\0Ab3\0{}\0").as_deref(), Some("Ab3"));
        assert_eq!((mark_in(b"cat\0a\0guard\0"), mark_in(b"")), (None, None));
    }

    #[test]
    fn what_dead_guards_have_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let task = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        let (left, used) = (name("dead", 1, 1, Some(task)), name("dead", 1, 2, None));
        let names = [left.clone(), used.clone(), name("alive", 2, 1, None), "den".to_owned()];
        for name in &names {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let is_empty = |group: &Path| !group.ends_with(&used);
        remove_left_in(folder.path(), is_empty, || HashSet::from(["alive".to_owned()]));
        for name in &names {
            assert_eq!(folder.path().join(name).exists(), *name != left, "{name}");
        }
    }

    #[test]
    fn the_groups_of_a_task_are_found_with_all_that_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let (task, other) =
            ("6b0003bb686c8275d70dc2f1".parse().unwrap(), "6b0003bb686c8275d70dc2f2".parse().unwrap());
        let group = folder.path().join(name("Ab3", 17, 4, Some(task)));
        fs::create_dir_all(group.join("below")).unwrap();
        for others in [name("Ab3", 17, 5, Some(other)), name("Ab3", 17, 6, None)] {
            fs::create_dir(folder.path().join(others)).unwrap();
        }
        assert_eq!(of_task(folder.path(), task), std::slice::from_ref(&group));
        assert!(of_task(&folder.path().join("missing"), task).is_empty());
        fs::write(group.join("cgroup.procs"), "4\n0\n5\n").unwrap();
        fs::write(group.join("below/cgroup.procs"), "6\n").unwrap();
        assert_eq!(processes(&group), [4, 5, 6]);
        kill(&group).unwrap();
        assert_eq!(fs::read_to_string(group.join("cgroup.kill")).unwrap(), "1");
        assert!(kill(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn the_group_of_a_process_is_that_of_its_plugin() {
        let in_folder = |groups: &str| group_in(Path::new("/x"), groups);
        let group = Some(PathBuf::from("/x/disbatch-Ab3-17-4"));
        assert_eq!(in_folder("4:pids:/disbatch-c-1-1\n0::/a.slice/disbatch-Ab3-17-4\n"), group);
        assert_eq!(in_folder("0::/a/disbatch-Ab3-17-4/below\n"), group);
        assert_eq!(in_folder("0::/a/disbatch-Ab3-17-4/disbatch-Ab3-17-5\n"), group);
        for other in
            ["", "0::/\n", "0::/system.slice/disbatch-den-test.service/main\n", "4:pids:/disbatch-a-1-1"]
        {
            assert_eq!(in_folder(other), None, "{other}");
        }
        assert_eq!(of_process(Path::new("/x"), i32::MAX), None);
    }

    #[test]
    fn a_process_belongs_to_who_has_started_it() {
        assert_eq!(real_user(Path::new("/proc/self")), Some(Uid::current().as_raw()));
        assert_eq!(real_user(Path::new("/proc/nobody")), None);
    }

    #[test]
    fn what_is_not_known_to_be_empty_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_empty(folder.path()));
        for (events, expected) in [("populated 0\nfrozen 0\n", true), ("populated 1\nfrozen 0\n", false)] {
            fs::write(folder.path().join("cgroup.events"), events).unwrap();
            assert_eq!(is_empty(folder.path()), expected);
        }
    }
}
