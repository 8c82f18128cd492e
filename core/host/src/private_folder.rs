//! The names of the private folders that runners make for tasks, by which others tell whose they are.
//!
//! They are `disbatch-`, the task's id or `idle`, `-`, and what their runner is known by, perhaps with something random
//! after it. Those that are being removed end with `.` and [`LEFT`], and are used by nobody any more.
use disbatch_documents::TaskId;

pub const PREFIX: &str = "disbatch-";

/// What the names of folders end with that are being removed.
pub const LEFT: &str = "left";

/// In the place of an id: the folder is empty, and waits for its runner's next task.
const IDLE: &str = "idle";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateFolder<'a> {
    /// The task that it is for. `None`: it waits for one.
    pub task: Option<TaskId>,
    /// What follows: what the runner is known by.
    pub mark: &'a str,
}

impl<'a> PrivateFolder<'a> {
    pub fn of(task: TaskId, mark: &'a str) -> Self {
        Self { task: Some(task), mark }
    }

    pub fn idle(mark: &'a str) -> Self {
        Self { task: None, mark }
    }

    /// Reads a name. `None`: it is not that of a private folder.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (task, mark) = name.strip_prefix(PREFIX)?.split_once('-')?;
        // It is to be a name, and not a path to somewhere else.
        if mark.is_empty() || mark.contains(['/', '\0']) {
            return None;
        }
        let task = if task == IDLE { None } else { Some(task.parse().ok()?) };
        Some(Self { task, mark })
    }

    pub fn name(self) -> String {
        match self.task {
            Some(task) => format!("{PREFIX}{task}-{}", self.mark),
            None => format!("{PREFIX}{IDLE}-{}", self.mark),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let task = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        for folder in [PrivateFolder::of(task, "Ab3"), PrivateFolder::idle("Ab3")] {
            assert_eq!(PrivateFolder::parse(&folder.name()), Some(folder));
        }
        for other in ["disbatch-mongod-Ab3", "disbatch-idle", "6b0003bb686c8275d70dc2f1", "disbatch-"] {
            assert_eq!(PrivateFolder::parse(other), None, "{other}");
        }
        for path in ["disbatch-idle-", "disbatch-idle-a/../../x", "disbatch-idle-/etc", "disbatch-idle-a\0"] {
            assert_eq!(PrivateFolder::parse(path), None, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_in_the_folder_where_it_was_found(
            name in "disbatch-(idle|[0-9a-f]{24})-[-a-zA-Z0-9./\\\\%\\x00]{0,12}|\\PC{0,20}",
        ) {
            if let Some(folder) = PrivateFolder::parse(&name) {
                prop_assert_eq!(folder.name(), name.as_str());
                let parts: Vec<Component<'_>> = Path::new(&name).components().collect();
                prop_assert!(matches!(parts[..], [Component::Normal(_)]), "{:?}", parts);
            }
        }
    }
}
