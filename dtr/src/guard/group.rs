//! The control group of one plugin and of all that it starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use disbatch_core::config::Limits;

/// A control group, which is there until it is removed.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes one in `parent`, with the limits that are set there.
    pub fn make(parent: &Path, name: &str, limits: &Limits) -> io::Result<Self> {
        let group = Self(parent.join(name));
        let made = fs::create_dir(&group.0).and_then(|()| group.set(limits));
        made.map_err(|error| {
            group.remove();
            let shown = group.0.display();
            io::Error::new(error.kind(), format!("cannot make the control group {shown}: {error}"))
        })?;
        Ok(group)
    }

    fn set(&self, limits: &Limits) -> io::Result<()> {
        let write = |file: &str, value: String| {
            let explain = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
            fs::write(self.0.join(file), value).map_err(explain)
        };
        if let Some(bytes) = limits.memory {
            write("memory.max", bytes.to_string())?;
            // The limit is to end the task, not to make it slow. Without swap there is no such file.
            if self.0.join("memory.swap.max").exists() {
                write("memory.swap.max", "0".to_owned())?;
            }
        }
        if let Some(processes) = limits.processes {
            write("pids.max", processes.to_string())?;
        }
        // A task that has lost some of its processes would not do what it is to do.
        write("memory.oom.group", "1".to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the kernel has killed something in it for want of memory.
    pub fn has_run_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let mut kills = events.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        kills.any(|kills: u64| kills > 0)
    }

    /// Kills all that is in it. Old kernels cannot; then the guard finds the processes by itself.
    pub fn kill(&self) {
        let _not_everywhere = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Removes it. Returns whether it is gone: not as long as something runs in it.
    pub fn remove(&self) -> bool {
        match fs::remove_dir(&self.0) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_cannot_be_made_is_named() {
        let error = Group::make(Path::new("/nonexistent"), "disbatch-a-1-1", &Limits::default()).unwrap_err();
        let expected = "cannot make the control group /nonexistent/disbatch-a-1-1: No such file or directory";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn what_is_set_and_read_is_in_the_files_of_the_kernel() {
        // A folder that takes all files looks like a control group in which nothing is bounded.
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { memory: Some(2 << 20), processes: Some(7), ..Limits::default() };
        let group = Group::make(folder.path(), "disbatch-a-1-1", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(group.path().join(file)).unwrap();
        assert_eq!((read("memory.max").as_str(), read("pids.max").as_str()), ("2097152", "7"));
        assert_eq!(read("memory.oom.group"), "1");
        assert!(!group.path().join("memory.swap.max").exists());
        assert!(!group.has_run_out_of_memory());
        for (events, expected) in [("oom 1\noom_kill 0\n", false), ("oom_kill 1\noom_group_kill 1\n", true)] {
            fs::write(group.path().join("memory.events"), events).unwrap();
            assert_eq!(group.has_run_out_of_memory(), expected);
        }
        group.kill();
        assert_eq!(read("cgroup.kill"), "1");
        assert!(!group.remove(), "it is not empty");
        for file in fs::read_dir(group.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        assert!(group.remove() && group.remove());
    }
}
