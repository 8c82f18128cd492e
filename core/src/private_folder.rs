//! The names of the private folders that runners make for tasks, by which others tell whose they are.
//!
//! They are `disbatch-`, the task's id or `idle`, `-`, and what their runner is known by, perhaps with something random
//! after it.

use crate::model::TaskId;

const PREFIX: &str = "disbatch-";

/// In the place of an id: the folder is empty, and waits for its runner's next task.
const IDLE: &str = "idle";

/// What the name of a private folder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateFolder<'a> {
    /// The task that it is for. `None`: it waits for one.
    pub task: Option<TaskId>,
    /// What follows: what the runner is known by.
    pub mark: &'a str,
}

impl<'a> PrivateFolder<'a> {
    /// Of `task`, by the runner with this mark.
    pub fn of(task: TaskId, mark: &'a str) -> Self {
        Self { task: Some(task), mark }
    }

    /// Of no task now.
    pub fn idle(mark: &'a str) -> Self {
        Self { task: None, mark }
    }

    /// Reads a name. `None`: it is not that of a private folder.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (task, mark) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let task = if task == IDLE { None } else { Some(task.parse().ok()?) };
        Some(Self { task, mark })
    }

    /// The name.
    pub fn name(self) -> String {
        match self.task {
            Some(task) => format!("{PREFIX}{task}-{}", self.mark),
            None => format!("{PREFIX}{IDLE}-{}", self.mark),
        }
    }
}

#[cfg(test)]
mod tests {
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
    }
}
