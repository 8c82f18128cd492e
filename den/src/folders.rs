//! Private folders of tasks. A runner removes its own, and its guard does when the runner is dead. Where both
//! died, or the runner did before it had a guard, the folder is left for the DEN.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use disbatch_core::model::TaskId;
use disbatch_core::store::StoreError;
use nix::unistd::Uid;

use crate::node::Node;
use crate::processes::{self, Wanted};

/// How the names begin; the task's id follows, and something random.
const PREFIX: &str = "disbatch-";

impl Node {
    /// Removes folders of tasks that nobody has claimed and of which no process is left, and their live output.
    ///
    /// A task that this database does not know may be another's: its folder is left alone.
    pub(crate) async fn remove_left_folders(&self) -> Result<(), StoreError> {
        let living = self.launcher.tasks();
        let mut left = private_folders(&std::env::temp_dir());
        left.retain(|(task, _)| !living.contains(task));
        let ids: Vec<TaskId> = left.iter().map(|(task, _)| *task).collect();
        let without_run = self.store.without_run(&ids).await?;
        for (task, folder) in left {
            let Some(stored) = without_run.iter().find(|stored| stored.id == task) else { continue };
            // In this order: a runner makes its folder before it starts its task.
            if !processes::of_task(Wanted::of(task)).is_empty() {
                continue;
            }
            // It may have died after it had stored its result, and before it had tidied up.
            self.store.remove_live(task, stored.attempt()).await?;
            match tokio::fs::remove_dir_all(&folder).await {
                Ok(()) => {
                    tracing::info!(%task, folder = %folder.display(), "removed what a dead runner left")
                }
                Err(error) => tracing::debug!(%error, %task, "cannot remove what a dead runner left"),
            }
        }
        Ok(())
    }
}

/// The folders in `parent` that runners of this user have made, with their tasks.
fn private_folders(parent: &Path) -> Vec<(TaskId, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let own = Uid::current().as_raw();
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((task_of(entry.file_name().to_str()?)?, entry)))
        .filter(|(_, entry)| entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own))
        .map(|(task, entry)| (task, entry.path()))
        .collect()
}

fn task_of(name: &str) -> Option<TaskId> {
    let (id, _random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_folders_of_tasks_are_found() {
        let parent = tempfile::tempdir().unwrap();
        let id = "6b0003bb686c8275d70dc2f1";
        let folder = parent.path().join(format!("disbatch-{id}-Ab3"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(parent.path().join("disbatch-mongod-Ab3")).unwrap();
        fs::create_dir(parent.path().join(id)).unwrap();
        fs::write(parent.path().join(format!("disbatch-{id}-file")), "").unwrap();
        std::os::unix::fs::symlink(&folder, parent.path().join(format!("disbatch-{id}-link"))).unwrap();
        assert_eq!(private_folders(parent.path()), [(id.parse().unwrap(), folder)]);
    }
}
