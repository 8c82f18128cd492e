//! Control groups (version 2), by which a node bounds what a task uses with all of its processes.
//!
//! The node is given a folder of control groups, in which the guard of each runner makes one for each plugin process
//! and removes it when nothing runs in it any more. A guard that was killed leaves some behind; whoever starts next
//! removes these.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::config::{Config, ConfigError};

/// What the names of our control groups begin with.
const PREFIX: &str = "disbatch-";

/// What has to be there to bound a task.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The first argument of a guard; the next one is its mark.
const GUARD: &[u8] = b"guard";

/// The name of the control group of a plugin: the `number`th of the guard with this process id and mark.
pub fn name(mark: &str, guard: u32, number: u64) -> String {
    format!("{PREFIX}{mark}-{guard}-{number}")
}

/// The mark of the guard that has made the control group with this name. `None`: it is not one of ours.
fn mark_of(name: &str) -> Option<&str> {
    Some(name.strip_prefix(PREFIX)?.split_once('-')?.0)
}

/// Makes the configured folder ready, if there is one: control groups in it can bound memory and processes.
///
/// # Errors
/// It is no folder of control groups, lacks controllers, or cannot be written; the error names the key.
pub fn prepare(config: &Config) -> Result<(), ConfigError> {
    let Some(folder) = &config.cgroup else { return Ok(()) };
    prepare_folder(&folder.0).map_err(|message| ConfigError::Invalid {
        path: config.path.clone(),
        key: "cgroup".to_owned(),
        message,
    })
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
        remove_left_in(&folder.0, is_empty, marks_of_guards);
    }
}

fn remove_left_in(folder: &Path, is_empty: impl Fn(&Path) -> bool, alive: impl FnOnce() -> HashSet<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let with_mark = |entry: fs::DirEntry| {
        let mark = mark_of(entry.file_name().to_str()?)?.to_owned();
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

/// The marks of all guards on this host.
fn marks_of_guards() -> HashSet<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| mark_in(&fs::read(process.path().join("cmdline")).ok()?)).collect()
}

/// The mark in the command line of a guard; `None` if it is no guard's.
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
        assert_eq!(name("Ab3", 17, 4), "disbatch-Ab3-17-4");
        assert_eq!(mark_of("disbatch-Ab3-17-4"), Some("Ab3"));
        assert_eq!((mark_of("disbatch-den"), mark_of("init.scope")), (None, None));
        assert_eq!(mark_in(b"dtr-guard\0guard\0Ab3\0{}\0").as_deref(), Some("Ab3"));
        assert_eq!((mark_in(b"cat\0a\0guard\0"), mark_in(b"")), (None, None));
    }

    #[test]
    fn what_dead_guards_have_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (left, used) = (name("dead", 1, 1), name("dead", 1, 2));
        let names = [left.clone(), used.clone(), name("alive", 2, 1), "den".to_owned()];
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
    fn what_is_not_known_to_be_empty_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_empty(folder.path()));
        for (events, expected) in [("populated 0\nfrozen 0\n", true), ("populated 1\nfrozen 0\n", false)] {
            fs::write(folder.path().join("cgroup.events"), events).unwrap();
            assert_eq!(is_empty(folder.path()), expected);
        }
    }
}
